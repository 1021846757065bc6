"""What all printers share: how they read objects of any shape, and the words for what is not there."""

from collections.abc import Callable
from datetime import datetime
from typing import Any

from kube32.contract import LIMITS
from kube32.formats import duration

Object = dict[str, Any]
Cell = str | int
Printer = Callable[[Object, float], Cell]
NONE = "<none>"
UNKNOWN = "<unknown>"


def since(stamp: Any, now: float) -> str:
    """The age of an RFC 3339 stamp, "<unknown>" when either clock was unset (B1: AGE never shows 56y)."""
    then = seconds(stamp)
    if then is None or now < LIMITS.wall_clock_min_s:
        return UNKNOWN
    return duration.human(now - then)


def seconds(stamp: Any) -> float | None:
    """An RFC 3339 stamp as seconds since 1970; None for none, and for one of an unset clock."""
    if not isinstance(stamp, str):
        return None
    try:
        when = datetime.fromisoformat(stamp)
        found = when.timestamp() if when.tzinfo is not None else None
    except (ValueError, OverflowError):
        return None
    return None if found is None or found < LIMITS.wall_clock_min_s else found


def age(obj: Object, now: float) -> str:
    """AGE of any kind."""
    return since(mapping(obj, "metadata").get("creationTimestamp"), now)


def mapping(obj: Object, *keys: str) -> Object:
    """The object at a path of keys, empty when there is none."""
    value: Any = obj
    for key in keys:
        value = value.get(key)
        if not isinstance(value, dict):
            return {}
    return value  # type: ignore[no-any-return]


def maps(obj: Object, key: str) -> list[Object]:
    """The objects in a list."""
    value = obj.get(key)
    return [item for item in value if isinstance(item, dict)] if isinstance(value, list) else []


def strings(obj: Object, key: str) -> list[str]:
    """The strings in a list."""
    value = obj.get(key)
    return [item for item in value if isinstance(item, str)] if isinstance(value, list) else []


def number(value: Any) -> int:
    """A number, 0 when it is none."""
    return value if isinstance(value, int) else 0


def string(value: Any, missing: str = "") -> str:
    """A text, or what stands for an empty one."""
    return value if isinstance(value, str) and value else missing


def has_condition(status: Object, kind: str) -> bool:
    """Whether a condition is True."""
    return any(c.get("type") == kind and c.get("status") == "True" for c in maps(status, "conditions"))


def with_more(shown: list[str], count: int, most: int, missing: str = "") -> str:
    """ "a,b,c + 2 more..." of `count` items of which the first `most` are shown."""
    written = ",".join(shown)
    return f"{written} + {count - most} more..." if count > most else written or missing
