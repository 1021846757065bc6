"""Small readers of values in Kubernetes objects: durations, quantities, times, paths into dicts."""

import time
from datetime import UTC, datetime
from typing import Any

from kube32.contract import LIMITS
from kube32.formats import duration
from kube32.formats.quantity import to_int

Obj = dict[str, Any]


def duration_ms(text: str | None) -> int | None:
    """Milliseconds of "500ms", "10s" or "1m30s"; None when it is no such thing."""
    try:
        return duration.parse_ms(text or "")
    except ValueError:
        return None


def whole_quantity(value: object) -> int | None:
    """A quantity ("32Ki", 1) as a whole number, rounded up; None when it is none."""
    try:
        return to_int(str(value))
    except ValueError:
        return None


def now_rfc3339() -> str:
    """The wall clock as Kubernetes writes times: whole seconds, UTC."""
    return rfc3339(time.time())


def rfc3339(seconds: float) -> str:
    """A Unix time as "2026-01-02T03:04:05Z"."""
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def rfc3339_micro() -> str:
    """The wall clock as a MicroTime, which Leases use."""
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def rfc3339_nano(nanoseconds: int) -> str:
    """A time in ns as a log line's stamp."""
    seconds, rest = divmod(nanoseconds, 1_000_000_000)
    return f"{datetime.fromtimestamp(seconds, UTC):%Y-%m-%dT%H:%M:%S}.{rest:09d}Z"


def unix_ns(stamp: str) -> int | None:
    """The ns of an RFC 3339 time; None when it is none."""
    try:
        moment = datetime.fromisoformat(stamp.replace("Z", "+00:00"))
    except ValueError:
        return None
    return int(moment.replace(tzinfo=moment.tzinfo or UTC).timestamp() * 1_000_000_000)


def seconds_since(stamp: str) -> float | None:
    """Seconds of wall clock since a Kubernetes time; None when it is none, or when a clock was unset."""
    then, now = unix_ns(stamp), time.time_ns()
    least = LIMITS.wall_clock_min_s * 1_000_000_000
    if then is None or then < least or now < least:
        return None
    return (now - then) / 1e9


def metadata(obj: Obj) -> Obj:
    """metadata, or an empty dict."""
    found: Obj = obj.get("metadata") or {}
    return found


def annotation(obj: Obj, name: str) -> str | None:
    """An annotation's value."""
    value = (metadata(obj).get("annotations") or {}).get(name)
    return None if value is None else str(value)


def spec(obj: Obj) -> Obj:
    """spec, or an empty dict."""
    found: Obj = obj.get("spec") or {}
    return found


def status(obj: Obj) -> Obj:
    """status, or an empty dict."""
    found: Obj = obj.get("status") or {}
    return found


def uid_of(obj: Obj) -> str:
    """metadata.uid."""
    return str(metadata(obj).get("uid", ""))


def key_of(obj: Obj) -> tuple[str, str]:
    """(namespace, name)."""
    meta = metadata(obj)
    return str(meta.get("namespace", "default")), str(meta.get("name", ""))
