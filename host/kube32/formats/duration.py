"""Durations ("500ms", "1m30s") as users write them, and ages ("3m10s", "2d4h") as Kubernetes prints them."""

import re
from fractions import Fraction

_UNITS_MS = {
    "ns": Fraction(1, 1_000_000),
    "us": Fraction(1, 1000),
    "µs": Fraction(1, 1000),
    "ms": Fraction(1),
    "s": Fraction(1000),
    "m": Fraction(60_000),
    "h": Fraction(3_600_000),
}
_PART = re.compile(r"([0-9]+(?:\.[0-9]*)?|\.[0-9]+)(ns|us|µs|ms|s|m|h)")
# Longer texts are no durations; the cap keeps the arithmetic small.
_MAX_TEXT = 64


def parse_ms(text: str) -> int:
    """Milliseconds of a Go duration without a sign ("1m30s", "1.5s", "0"), rounded down; else ValueError."""
    if text == "0":
        return 0
    total, end = Fraction(0), 0
    for part in _PART.finditer(text) if len(text) <= _MAX_TEXT else ():
        if part.start() != end:
            break
        total += Fraction(part[1]) * _UNITS_MS[part[2]]
        end = part.end()
    if not text or end != len(text):
        raise ValueError(f'"{text[:_MAX_TEXT]}" is not a duration such as 500ms, 10s or 1m30s')
    return int(total)


def human(seconds: float) -> str:
    """An age as kubectl shows it, coarser as it grows. 1 s in the future is "0s", more is "<invalid>"."""
    whole = int(seconds)
    if whole < -1:
        return "<invalid>"
    if whole < 120:
        return f"{max(whole, 0)}s"
    minutes, hours = whole // 60, whole // 3600
    if minutes < 10:
        return _pair(minutes, "m", whole % 60, "s")
    if minutes < 180:
        return f"{minutes}m"
    if hours < 8:
        return _pair(hours, "h", minutes % 60, "m")
    if hours < 48:
        return f"{hours}h"
    return _human_days(hours)


def _human_days(hours: int) -> str:
    days = hours // 24
    if days < 8:
        return _pair(days, "d", hours % 24, "h")
    if days < 730:
        return f"{days}d"
    if days < 8 * 365:
        return _pair(days // 365, "y", days % 365, "d")
    return f"{days // 365}y"


def _pair(large: int, large_unit: str, small: int, small_unit: str) -> str:
    return f"{large}{large_unit}{small}{small_unit}" if small else f"{large}{large_unit}"
