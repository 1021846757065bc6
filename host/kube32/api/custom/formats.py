"""The values of `format` that kube-apiserver checks; others are notes for readers."""

import base64
import binascii
import ipaddress
import re
import uuid
from collections.abc import Callable
from datetime import date
from urllib.parse import urlsplit

_LONGEST = 2048
_DATE_TIME = re.compile(
    r"[0-9]{4}-[0-9]{2}-[0-9]{2}[Tt ][0-9]{2}:[0-9]{2}:[0-9]{2}(\.[0-9]{1,12})?([Zz]|[+-][0-9]{2}:?[0-9]{2})?"
)
_DATE = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}")
_LABEL = re.compile(r"[A-Za-z0-9_]([A-Za-z0-9_-]{0,62}[A-Za-z0-9_])?")
_MAC = re.compile(r"[0-9A-Fa-f]{2}([:-][0-9A-Fa-f]{2}){5}|[0-9A-Fa-f]{4}(\.[0-9A-Fa-f]{4}){2}")
_DURATION_PART = r"[0-9]+(\.[0-9]+)?[ ]*"
_DURATION = re.compile(
    rf"(-?({_DURATION_PART}(ns|us|µs|μs|ms|s|m|h|d|w))+|0|{_DURATION_PART}"
    r"(nanoseconds?|microseconds?|milliseconds?|seconds?|minutes?|hours?|days?|weeks?))"
)
_EMAIL = re.compile(r"[^\s@<>]{1,64}@([A-Za-z0-9]([A-Za-z0-9-]{0,62})\.?){1,32}")
_HEX_COLOR = re.compile(r"#?([0-9a-fA-F]{3}|[0-9a-fA-F]{6})")
_BYTE = r"([01]?[0-9]?[0-9]|2[0-4][0-9]|25[0-5])"
_RGB_COLOR = re.compile(rf"rgb\(\s*{_BYTE}\s*,\s*{_BYTE}\s*,\s*{_BYTE}\s*\)")
_OBJECT_ID = re.compile(r"[0-9a-fA-F]{24}")
_CARD = re.compile(r"[0-9 -]{12,23}")
_SSN = re.compile(r"[0-9]{3}[- ]?[0-9]{2}[- ]?[0-9]{4}")
_UUID = re.compile(r"[0-9a-fA-F]{8}-?([0-9a-fA-F]{4}-?){3}[0-9a-fA-F]{12}")


def holds(name: str, value: str) -> bool:
    """Whether `value` has the format `name`; True for formats that are not checked, False for endless values."""
    check = _CHECKS.get(name)
    return check is None or ((len(value) <= _LONGEST or name == "byte") and check(value))


def _date(value: str) -> bool:
    try:
        return bool(_DATE.fullmatch(value)) and bool(date.fromisoformat(value))
    except ValueError:
        return False


def _date_time(value: str) -> bool:
    if not _DATE_TIME.fullmatch(value) or not _date(value[:10]):
        return False
    return int(value[11:13]) < 24 and int(value[14:16]) < 60 and int(value[17:19]) < 61


def _byte(value: str) -> bool:
    try:
        base64.b64decode(value, validate=True)
    except (binascii.Error, ValueError):
        return False
    return True


def _address(kind: Callable[[str], object]) -> Callable[[str], bool]:
    def check(value: str) -> bool:
        try:
            kind(value)
        except ValueError:
            return False
        return "%" not in value

    return check


def _cidr(value: str) -> bool:
    return "/" in value and _address(lambda v: ipaddress.ip_network(v, strict=False))(value)


def _uri(value: str) -> bool:
    try:
        parts = urlsplit(value)
    except ValueError:
        return False
    return value.isprintable() and " " not in value and bool(parts.scheme or value.startswith("/"))


def _hostname(value: str) -> bool:
    labels = value.removesuffix(".").split(".")
    return len(value) <= 255 and all(_LABEL.fullmatch(label) for label in labels)


def _of_version(version: int) -> Callable[[str], bool]:
    def check(value: str) -> bool:
        return bool(_UUID.fullmatch(value)) and uuid.UUID(value).version == version

    return check


def _isbn10(value: str) -> bool:
    digits = value.replace("-", "").replace(" ", "")
    if not re.fullmatch(r"[0-9]{9}[0-9X]", digits):
        return False
    return sum((10 - i) * (10 if d == "X" else int(d)) for i, d in enumerate(digits)) % 11 == 0


def _isbn13(value: str) -> bool:
    digits = value.replace("-", "").replace(" ", "")
    if not re.fullmatch(r"[0-9]{13}", digits):
        return False
    return sum(int(d) * (3 if i % 2 else 1) for i, d in enumerate(digits)) % 10 == 0


def _card(value: str) -> bool:
    if not _CARD.fullmatch(value):
        return False
    digits = [int(d) for d in value if d.isdigit()]
    doubled = [d * 2 - 9 if d > 4 else d * 2 for d in digits[-2::-2]]
    return 12 <= len(digits) <= 19 and (sum(digits[-1::-2]) + sum(doubled)) % 10 == 0


def _matches(form: re.Pattern[str]) -> Callable[[str], bool]:
    return lambda value: form.fullmatch(value) is not None


_CHECKS: dict[str, Callable[[str], bool]] = {
    "bsonobjectid": _matches(_OBJECT_ID),
    "byte": _byte,
    "cidr": _cidr,
    "creditcard": _card,
    "date": _date,
    "date-time": _date_time,
    "datetime": _date_time,
    "duration": _matches(_DURATION),
    "email": _matches(_EMAIL),
    "hexcolor": _matches(_HEX_COLOR),
    "hostname": _hostname,
    "ipv4": _address(ipaddress.IPv4Address),
    "ipv6": _address(ipaddress.IPv6Address),
    "isbn": lambda value: _isbn10(value) or _isbn13(value),
    "isbn10": _isbn10,
    "isbn13": _isbn13,
    "mac": _matches(_MAC),
    "rgbcolor": _matches(_RGB_COLOR),
    "ssn": _matches(_SSN),
    "uri": _uri,
    "uuid": _matches(_UUID),
    "uuid3": _of_version(3),
    "uuid4": _of_version(4),
    "uuid5": _of_version(5),
}
