"""Reads the contract's YAML files, each once."""

from functools import cache
from importlib.resources import files
from typing import Any

import yaml

_Loader: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


@cache
def load(name: str) -> Any:
    """The parsed content of `name` ("limits.yaml", "schemas/core.yaml"). Callers do not change what they get."""
    return yaml.load(files("kube32.contract").joinpath(name).read_text(encoding="utf-8"), Loader=_Loader)
