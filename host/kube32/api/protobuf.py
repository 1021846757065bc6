"""Bodies in Kubernetes' protobuf encoding, which typed Go clients send (kubectl create namespace).

Only requests: answers are JSON, which every such client accepts too. Field numbers are the contract's, types
those of the schemas; what a message leaves at zero is left out, as Go leaves it out of JSON.
"""

import base64
import struct
import time
from collections.abc import Iterator
from functools import cache
from typing import Any, cast

import orjson

from kube32.api import schemas
from kube32.contract.data import load

MEDIA_TYPE = "application/vnd.kubernetes.protobuf"
_MAGIC = b"k8s\x00"
_MAX_DEPTH = 32
_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5
Message = dict[int, list[Any]]


class UnknownKind(ValueError):
    """A kind whose field numbers are not known."""


class _Field:
    """A field of a message: its JSON name and type, or the message whose fields belong to the one around."""

    __slots__ = ("inline", "keeps_zero", "name", "type")

    def __init__(self, name: str, kind: schemas.Type | None, inline: str, keeps_zero: bool) -> None:
        self.name = name
        self.type = kind
        self.inline = inline
        self.keeps_zero = keeps_zero


def decode(data: bytes) -> dict[str, Any]:
    """The object in a body. ValueError says what is wrong, UnknownKind that such bodies are not read."""
    if not data.startswith(_MAGIC):
        raise ValueError("protobuf: the body does not begin with k8s")
    envelope = _message(data[len(_MAGIC) :])
    meta = _message(_last(envelope, 1, b""))
    api_version, kind = _text(_last(meta, 1, b"")), _text(_last(meta, 2, b""))
    if _last(envelope, 3, b""):
        raise ValueError("protobuf: a content encoding is not read")
    if not kind:
        raise ValueError("protobuf: the body names no kind")
    if kind not in _numbers():
        raise UnknownKind(f"protobuf: bodies of kind {kind} are not read in this encoding")
    obj = _object(_last(envelope, 2, b""), kind, kind, 0)
    return {"kind": kind, "apiVersion": api_version, **obj}


@cache
def _numbers() -> dict[str, dict[str, str | int]]:
    return cast(dict[str, dict[str, str | int]], load("protobuf.yaml")["types"])


@cache
def fields_of(message: str, shape: str) -> dict[int, _Field]:
    """The fields of a message by number. `shape` is the schema that has their types."""
    known = schemas.shapes()[shape].fields
    made: dict[int, _Field] = {}
    for name, number in _numbers().get(message, {}).items():
        written = str(number)
        inline = name[1:] if name.startswith("+") else ""
        kind = None if inline else known[name].type
        made[int(written.rstrip("?"))] = _Field("" if inline else name, kind, inline, written.endswith("?"))
    return made


def _object(data: bytes, message: str, shape: str, depth: int) -> dict[str, Any]:
    if depth > _MAX_DEPTH:
        raise ValueError("protobuf: the message is nested too deeply")
    made: dict[str, Any] = {}
    fields = fields_of(message, shape)
    for number, values in _message(data).items():
        field = fields.get(number)
        if field is None:
            continue
        if field.type is None:
            made.update(_object(_bytes(values[-1]), field.inline, shape, depth + 1))
            continue
        value = _field(field.type, values, depth + 1)
        if field.keeps_zero or value not in (None, "", 0, [], {}):
            made[field.name] = value
    return made


def _field(kind: schemas.Type, values: list[Any], depth: int) -> Any:
    item = kind.item
    if item is None:
        return _value(kind, values[-1], depth)
    if kind.kind == "list":
        return [_value(item, value, depth) for value in _unpacked(item, values)]
    made: dict[str, Any] = {}
    for value in values:
        entry = _message(_bytes(value))
        made[_text(_last(entry, 1, b""))] = _value(item, _last(entry, 2, b""), depth)
    return made


def _unpacked(item: schemas.Type, values: list[Any]) -> Iterator[Any]:
    """The elements of a list; numbers may be packed into one value."""
    for value in values:
        if isinstance(value, bytes) and item.name in ("int32", "int64", "bool"):
            at = 0
            while at < len(value):
                number, at = _varint(value, at)
                yield number
        else:
            yield value


def _value(kind: schemas.Type, value: Any, depth: int) -> Any:
    if kind.item is not None:
        # A list as the value of a map is a message of its own (ExtraValue).
        return _field(kind, _message(_bytes(value)).get(1, []), depth + 1)
    if kind.kind == "object":
        return _object(_bytes(value), kind.name, kind.name, depth)
    name = kind.name
    if name == "string":
        return _text(value)
    if name in ("int32", "int64"):
        return _signed(value)
    if name == "bool":
        return bool(_signed(value))
    if name == "bytes":
        return base64.b64encode(_bytes(value)).decode()
    if name == "quantity":
        return _text(_last(_message(_bytes(value)), 1, b""))
    if name in ("time", "microtime"):
        return _time(_message(_bytes(value)), name == "microtime")
    if name == "int-or-string":
        parts = _message(_bytes(value))
        return _text(_last(parts, 3, b"")) if _last(parts, 1, 0) else _signed(_last(parts, 2, 0))
    if name == "number":
        return struct.unpack("<d", value)[0] if isinstance(value, bytes) and len(value) == 8 else 0
    raw = _last(_message(_bytes(value)), 1, b"")
    return orjson.loads(raw) if raw else None


def _time(parts: Message, micro: bool) -> str | None:
    seconds = _signed(_last(parts, 1, 0))
    if not seconds:
        return None
    try:
        shown = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(seconds))
    except (OverflowError, OSError):
        raise ValueError("protobuf: a time is out of range") from None
    return f"{shown}.{_signed(_last(parts, 2, 0)) // 1000 % 1000000:06d}Z" if micro else f"{shown}Z"


# --- the wire ---


def _message(data: bytes) -> Message:
    """All fields of a message by number: numbers as int, everything else as bytes."""
    found: Message = {}
    at = 0
    while at < len(data):
        tag, at = _varint(data, at)
        wire = tag & 7
        if wire == _VARINT:
            value, at = _varint(data, at)
            found.setdefault(tag >> 3, []).append(value)
            continue
        if wire == _BYTES:
            size, at = _varint(data, at)
        elif wire == _FIXED64:
            size = 8
        elif wire == _FIXED32:
            size = 4
        else:
            raise ValueError(f"protobuf: wire type {wire} is not known")
        if at + size > len(data):
            raise ValueError("protobuf: unexpected end of the message")
        found.setdefault(tag >> 3, []).append(data[at : at + size])
        at += size
    return found


def _varint(data: bytes, at: int) -> tuple[int, int]:
    value = 0
    for shift in range(0, 70, 7):
        if at >= len(data):
            raise ValueError("protobuf: unexpected end of the message")
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value & 0xFFFFFFFFFFFFFFFF, at
    raise ValueError("protobuf: a number is too long")


def _last(message: Message, number: int, missing: Any) -> Any:
    values = message.get(number)
    return values[-1] if values else missing


def _bytes(value: Any) -> bytes:
    if not isinstance(value, bytes):
        raise ValueError("protobuf: a number where a message belongs")
    return value


def _text(value: Any) -> str:
    try:
        return _bytes(value).decode("utf-8")
    except UnicodeDecodeError:
        raise ValueError("protobuf: text that is not UTF-8") from None


def _signed(value: Any) -> int:
    if not isinstance(value, int):
        raise ValueError("protobuf: bytes where a number belongs")
    return value - (1 << 64) if value >> 63 else value
