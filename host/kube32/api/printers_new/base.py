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
    seconds = seconds(stamp)
    if seconds is None or now < LIMITS.wall_clock_min_s:
        return UNKNOWN
    return duration.human(now - seconds)


def seconds(stamp: Any) -> float | None:
    if not isinstance(stamp, str):
        return None
    try:
        when = datetime.fromisoformat(stamp)
        seconds = when.timestamp() if when.tzinfo is not None else None
    except (ValueError, OverflowError):
        return None
    if seconds is None or seconds < LIMITS.wall_clock_min_s:
        return None
    return seconds


def mapping(obj: Object, *keys: str) -> Object:
    value: Any = obj
    for key in keys:
        value = value.get(key)
        if not isinstance(value, dict):
            return {}
    return value  # type: ignore[no-any-return]


def maps(obj: Object, key: str) -> list[Object]:
    value = obj.get(key)
    return [item for item in value if isinstance(item, dict)] if isinstance(value, list) else []


def number(value: Any) -> int:
    return value if isinstance(value, int) else 0


def string(value: Any, missing: str = "") -> str:
    return value if isinstance(value, str) and value else missing


def has_condition(status: Object, kind: str) -> bool:
    return any(c.get("type") == kind and c.get("status") == "True" for c in maps(status, "conditions"))
