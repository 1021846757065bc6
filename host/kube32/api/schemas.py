"""Field schemas of all kinds from the contract's schemas/: types, merge keys, and the decoding of bodies
against them.

Decoding does what Kubernetes' does with built-in kinds: wrong types are refused, unknown fields dropped and
named, nulls dropped, quantities and times brought into their canonical form.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any

from kube32.api import scalars
from kube32.contract import Resource
from kube32.contract.data import load

_TYPE = re.compile(r"(?:\[(?P<list>.+)\]|\{(?P<map>.+)\}|(?P<name>[A-Za-z0-9-]+))(?P<required>!?)")


@dataclass(frozen=True, slots=True)
class Type:
    """A field's type: kind "list" or "map" (of `item`), "object" (of the shape `name`), or "scalar"
    (`name`).
    """

    kind: str
    name: str = ""
    item: "Type | None" = None

    @property
    def go(self) -> str:
        """The type as Go writes it, for messages."""
        if self.kind == "scalar":
            return scalars.GO_TYPES[self.name]
        if self.item is not None:
            return f"{'[]' if self.kind == 'list' else 'map[string]'}{self.item.go}"
        return f"v1.{self.name}"


@dataclass(frozen=True, slots=True)
class Field:
    """One field of a shape. `merge_key`: "" where strategic merge knows no key; `set`: a list of scalars
    joined as a set.
    """

    name: str
    type: Type
    required: bool = False
    merge_key: str = ""
    map_keys: tuple[str, ...] = ()
    set: bool = False
    retain_keys: bool = False
    atomic: bool = False
    enum: tuple[str, ...] = ()
    doc: str = ""


@dataclass(frozen=True, slots=True)
class Shape:
    """An object type: its short name, its name in OpenAPI and its fields."""

    name: str
    full_name: str
    doc: str
    fields: dict[str, Field]
    atomic: bool = False


class FieldTypeError(ValueError):
    """A value that its field cannot take; str() is worded as Go's decoder words it."""


@cache
def shapes() -> dict[str, Shape]:
    """Every shape by its short name."""
    rows: dict[str, tuple[str, dict[str, Any]]] = {}
    folder = files("kube32.contract").joinpath("schemas")
    for entry in sorted(folder.iterdir(), key=lambda e: e.name):
        if entry.name.endswith(".yaml"):
            data = load(f"schemas/{entry.name}")
            rows.update((name, (data["package"], row)) for name, row in data["types"].items())
    return {name: _shape(name, rows) for name in rows}


def _shape(name: str, rows: dict[str, tuple[str, dict[str, Any]]]) -> Shape:
    package, row = rows[name]
    fields: dict[str, Any] = dict(rows[row["extends"]][1]["fields"]) if "extends" in row else {}
    fields.update(row.get("fields") or {})
    return Shape(
        name,
        f"{package}.{name}",
        row.get("doc", ""),
        {f: _field(f, fields[f], rows) for f in sorted(fields)},
        bool(row.get("atomic")),
    )


def _field(name: str, row: str | dict[str, Any], known: dict[str, Any]) -> Field:
    data: dict[str, Any] = {"type": row} if isinstance(row, str) else row
    parsed, required = _type(data["type"], known)
    key = data.get("merge", "")
    return Field(
        name,
        parsed,
        required,
        merge_key=key,
        map_keys=() if data.get("list") == "atomic" else tuple(data.get("keys", [key] if key else [])),
        set=data.get("list") == "set",
        retain_keys=data.get("retain", False),
        atomic=data.get("atomic", False),
        enum=tuple(data.get("enum", ())),
        doc=data.get("doc", ""),
    )


def _type(text: str, known: dict[str, Any]) -> tuple[Type, bool]:
    match = _TYPE.fullmatch(text)
    if match is None:
        raise ValueError(f"schemas: {text!r} is no type")
    required = bool(match["required"])
    for kind in ("list", "map"):
        if match[kind]:
            return Type(kind, item=_type(match[kind], known)[0]), required
    name = match["name"]
    if name in scalars.GO_TYPES:
        return Type("scalar", name), required
    if name not in known:
        raise ValueError(f"schemas: no type {name!r}")
    return Type("object", name), required


def shape_of(resource: Resource | str) -> Shape:
    """The shape of a kind's objects, or of a kind that is only a body ("Binding")."""
    return shapes()[resource if isinstance(resource, str) else resource.kind]


def field_at(resource: Resource | str, path: Sequence[str]) -> Field | None:
    """The field at a path of names from the object's root, list indexes left out; None when the schema has
    none.
    """
    shape: Shape | None = shape_of(resource)
    found: Field | None = None
    for name in path:
        if shape is None:
            return None
        found = shape.fields.get(name)
        if found is None:
            return None
        inner = found.type
        while inner.item is not None and inner.kind == "list":
            inner = inner.item
        shape = shapes()[inner.name] if inner.kind == "object" else None
    return found


def merge_key(resource: Resource | str, path: Sequence[str]) -> str | None:
    """How strategic merge joins the list at `path`: by this key of its items, "" as a set of scalars, None:
    replaced.
    """
    field = field_at(resource, path)
    if field is None or field.type.kind != "list":
        return None
    return field.merge_key or ("" if field.set else None)


def retain_keys(resource: Resource | str, path: Sequence[str]) -> bool:
    """Whether items of the list at `path` take $retainKeys (a volume's source)."""
    field = field_at(resource, path)
    return field is not None and field.retain_keys


# A path is linked backwards, (parent, name or index), and written out only when something is wrong.
_Path = tuple[Any, str | int] | None


def dotted(path: _Path) -> str:
    """ "spec.containers[0].image"."""
    parts: list[str | int] = []
    while path is not None:
        path, last = path
        parts.append(last)
    text = ""
    for part in reversed(parts):
        text += f"[{part}]" if isinstance(part, int) else f".{part}" if text else part
    return text


def decode(resource: Resource | str, obj: dict[str, Any]) -> list[str]:
    """Decodes a body in place: the paths of the unknown fields, which are gone. FieldTypeError for a wrong
    type.
    """
    unknown: list[str] = []
    _object(obj, shape_of(resource), None, unknown)
    return unknown


def _object(obj: dict[str, Any], shape: Shape, path: _Path, unknown: list[str]) -> None:
    fields = shape.fields
    for key in list(obj):
        field = fields.get(key)
        value = obj[key]
        if field is None:
            unknown.append(dotted((path, key)))
            del obj[key]
        elif value is None:
            del obj[key]
        elif type(value) is not str or field.type.name != "string":
            obj[key] = _value(value, field.type, shape, (path, key), unknown)


def _value(value: Any, kind: Type, shape: Shape, path: _Path, unknown: list[str]) -> Any:
    item = kind.item
    if item is None:
        if kind.kind == "object":
            if type(value) is not dict:
                raise _mismatch(value, kind, shape, path)
            _object(value, shapes()[kind.name], path, unknown)
            return value
        decoder = scalars.DECODERS[kind.name]
        try:
            return decoder(value)
        except scalars.WrongType:
            raise _mismatch(value, kind, shape, path) from None
        except ValueError as e:
            raise FieldTypeError(str(e)) from None
    if kind.kind == "list":
        if type(value) is not list:
            raise _mismatch(value, kind, shape, path)
        for index, element in enumerate(value):
            value[index] = _element(element, item, shape, (path, index), unknown)
        return value
    if type(value) is not dict:
        raise _mismatch(value, kind, shape, path)
    for key, element in value.items():
        value[key] = _element(element, item, shape, path, unknown)
    return value


def _element(value: Any, kind: Type, shape: Shape, path: _Path, unknown: list[str]) -> Any:
    if value is None:
        return _zero(kind)
    return _value(value, kind, shape, path, unknown)


def _zero(kind: Type) -> Any:
    """What Go makes of a null in a list or map."""
    if kind.kind == "scalar":
        return scalars.ZEROS.get(kind.name)
    return [] if kind.kind == "list" else {}


def _mismatch(value: Any, kind: Type, shape: Shape, path: _Path) -> FieldTypeError:
    names = re.sub(r"\[[0-9]+\]", "", dotted(path))
    return FieldTypeError(
        f"json: cannot unmarshal {scalars.json_kind(value)} into Go struct field {shape.name}.{names} "
        f"of type {kind.go}"
    )
