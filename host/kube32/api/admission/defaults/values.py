"""How defaults are set."""

from typing import Any

Object = dict[str, Any]


def fill(target: Object, **values: Any) -> None:
    """Sets what is not there; an empty text counts as not there."""
    for key, value in values.items():
        if target.get(key) in (None, ""):
            target[key] = value
