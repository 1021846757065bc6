"""Jinja as this project uses it: templates beside this file, undefined names are errors, no HTML escapes."""

from jinja2 import Environment, PackageLoader, StrictUndefined


def environment() -> Environment:
    """An environment over kube32_build/templates. Output ends as the template does."""
    return Environment(
        loader=PackageLoader("kube32_build"),
        undefined=StrictUndefined,
        autoescape=False,
        keep_trailing_newline=True,
        trim_blocks=True,
        lstrip_blocks=True,
    )
