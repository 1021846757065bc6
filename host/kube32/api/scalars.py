"""Scalar types of the field schemas: how each is decoded, named in Go and written in OpenAPI."""

import base64
import binascii
import re
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

from kube32.formats import quantity

_PLAIN_TIME = re.compile(
    r"[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}(\.[0-9]{1,9})?(Z|[+-][0-9]{2}:[0-9]{2})"
)
_LAYOUT = "2006-01-02T15:04:05Z07:00"
_MICRO_LAYOUT = "2006-01-02T15:04:05.000000Z07:00"
_SHOWN = 64


class WrongType(Exception):
    """The JSON value is of another type than the field."""


def json_kind(value: Any) -> str:
    """What Go's decoder calls a JSON value."""
    if isinstance(value, bool):
        return "bool"
    if isinstance(value, (int, float)):
        return f"number {value}" if isinstance(value, float) or abs(value) >= 2**31 else "number"
    if isinstance(value, str):
        return "string"
    return "array" if isinstance(value, list) else "object"


def _string(value: Any) -> str:
    if type(value) is not str:
        raise WrongType
    return value


def _bool(value: Any) -> bool:
    if type(value) is not bool:
        raise WrongType
    return value


def _integer(bits: int) -> Callable[[Any], int]:
    limit = 1 << (bits - 1)

    def decode(value: Any) -> int:
        if type(value) is not int or not -limit <= value < limit:
            raise WrongType
        return value

    return decode


def _number(value: Any) -> int | float:
    if type(value) not in (int, float):
        raise WrongType
    return value  # type: ignore[no-any-return]


def _time(value: Any) -> str:
    if type(value) is not str:
        raise WrongType
    return _moment(value, _LAYOUT).strftime("%Y-%m-%dT%H:%M:%SZ")


def _microtime(value: Any) -> str:
    if type(value) is not str:
        raise WrongType
    return _moment(value, _MICRO_LAYOUT).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def _moment(value: str, layout: str) -> datetime:
    try:
        if _PLAIN_TIME.fullmatch(value):
            return datetime.fromisoformat(value).astimezone(UTC)
    except (ValueError, OverflowError):
        pass
    shown = value[:_SHOWN]
    raise ValueError(f'parsing time "{shown}" as "{layout}": cannot parse "{shown}"')


def _quantity(value: Any) -> str:
    if type(value) is str:
        return quantity.canonical(value)
    if type(value) in (int, float):
        return quantity.canonical(repr(value))
    raise WrongType


def _int_or_string(value: Any) -> int | str:
    return value if type(value) is str else _integer(32)(value)


def _bytes(value: Any) -> str:
    if type(value) is not str:
        raise WrongType
    text = value.replace("\n", "").replace("\r", "")
    try:
        base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        raise ValueError(f"illegal base64 data at input byte {_first_illegal(text)}") from None
    return text


def _first_illegal(text: str) -> int:
    match = re.match(r"[A-Za-z0-9+/]*", text)
    end = match.end() if match else 0
    return min(end, len(text))


def _any(value: Any) -> Any:
    return value


DECODERS: dict[str, Callable[[Any], Any]] = {
    "string": _string,
    "bool": _bool,
    "int32": _integer(32),
    "int64": _integer(64),
    "number": _number,
    "time": _time,
    "microtime": _microtime,
    "quantity": _quantity,
    "int-or-string": _int_or_string,
    "bytes": _bytes,
    "any": _any,
}
GO_TYPES: dict[str, str] = {
    "string": "string",
    "bool": "bool",
    "int32": "int32",
    "int64": "int64",
    "number": "float64",
    "time": "string",
    "microtime": "string",
    "quantity": "resource.Quantity",
    "int-or-string": "intstr.IntOrString",
    "bytes": "[]uint8",
    "any": "map[string]interface {}",
}
ZEROS: dict[str, Any] = {
    "string": "",
    "bool": False,
    "int32": 0,
    "int64": 0,
    "number": 0,
    "quantity": "0",
    "int-or-string": 0,
    "bytes": "",
}
# OpenAPI forms of the scalars; time, quantity and the like are schemas of their own, as in Kubernetes.
OPENAPI: dict[str, dict[str, Any]] = {
    "string": {"type": "string"},
    "bool": {"type": "boolean"},
    "int32": {"type": "integer", "format": "int32"},
    "int64": {"type": "integer", "format": "int64"},
    "number": {"type": "number", "format": "double"},
    "bytes": {"type": "string", "format": "byte"},
    "any": {"type": "object", "x-kubernetes-preserve-unknown-fields": True},
}
OPENAPI_REFS: dict[str, tuple[str, dict[str, Any]]] = {
    "time": (
        "io.k8s.apimachinery.pkg.apis.meta.v1.Time",
        {"type": "string", "format": "date-time", "description": "A moment, RFC 3339."},
    ),
    "microtime": (
        "io.k8s.apimachinery.pkg.apis.meta.v1.MicroTime",
        {"type": "string", "format": "date-time", "description": "A moment with microseconds, RFC 3339."},
    ),
    "quantity": (
        "io.k8s.apimachinery.pkg.api.resource.Quantity",
        {
            "oneOf": [{"type": "string"}, {"type": "number"}],
            "description": "An amount with a suffix: 500m, 2, 1k, 32Ki, 16Mi.",
        },
    ),
    "int-or-string": (
        "io.k8s.apimachinery.pkg.util.intstr.IntOrString",
        {
            "oneOf": [{"type": "integer"}, {"type": "string"}],
            "format": "int-or-string",
            "description": "A number or a name.",
        },
    ),
}
