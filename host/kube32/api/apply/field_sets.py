"""Sets of an object's places, in the form in which managedFields writes them (FieldsV1).

A set is nested dicts by path element: "f:name" a field, 'k:{"name":"x"}' an item by its keys, 'v:"x"' a value of
a set. A place belongs to the set when it holds nothing or "."; the root never does. Sets are never changed: every
function makes new ones where it must. Their elements are sorted, so that equal sets are written alike.
"""

from collections.abc import Iterator
from typing import Any

import orjson

FieldSet = dict[str, Any]
SELF = "."
_DEEPEST = 128


def is_member(place: FieldSet) -> bool:
    """Whether a place that is not the root is in the set itself."""
    return not place or SELF in place


def as_member(place: FieldSet | None) -> FieldSet:
    """The place with itself in the set."""
    if not place or SELF in place:
        return place or {}
    return {SELF: {}, **place}


def in_order(places: FieldSet) -> FieldSet:
    """The same with its elements sorted."""
    return dict(sorted(places.items())) if len(places) > 1 else places


def union(a: FieldSet, b: FieldSet) -> FieldSet:
    """The places of both (of roots)."""
    made = dict(a)
    for key, place in b.items():
        mine = made.get(key)
        made[key] = place if mine is None else _union(mine, place)
    return in_order(made) if len(made) != len(a) else made


def _union(a: FieldSet, b: FieldSet) -> FieldSet:
    if a is b:
        return a
    made = union(a, b)
    return as_member(made) if made and (is_member(a) or is_member(b)) else made


def difference(a: FieldSet, b: FieldSet) -> FieldSet:
    """The places of `a` that are not in `b` (of roots). Places below one that is in `b` stay."""
    made: FieldSet = {}
    for key, place in a.items():
        if key == SELF:
            continue
        other = b.get(key)
        rest = place if other is None else _difference(place, other)
        if rest is not None:
            made[key] = rest
    return made


def _difference(a: FieldSet, b: FieldSet) -> FieldSet | None:
    made = difference(a, b)
    if is_member(a) and not is_member(b):
        return as_member(made)
    return made or None


def intersection(a: FieldSet, b: FieldSet) -> FieldSet:
    """The places that are in both (of roots)."""
    made: FieldSet = {}
    for key, place in a.items():
        other = b.get(key) if key != SELF else None
        shared = None if other is None else _intersection(place, other)
        if shared is not None:
            made[key] = shared
    return made


def _intersection(a: FieldSet, b: FieldSet) -> FieldSet | None:
    made = intersection(a, b)
    if is_member(a) and is_member(b):
        return as_member(made)
    return made or None


def paths(places: FieldSet, before: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    """Every member as its path elements (from the root)."""
    for key, place in places.items():
        if key == SELF:
            continue
        path = (*before, key)
        if is_member(place):
            yield path
        yield from paths(place, path)


def shown(path: tuple[str, ...]) -> str:
    """A path as Kubernetes prints it: .spec.containers[name="app"].image"""
    return "".join(_shown(element) for element in path)


def _shown(element: str) -> str:
    kind, text = element[:2], element[2:]
    if kind == "f:":
        return f".{text}"
    if kind == "k:":
        keys = orjson.loads(text)
        return f"[{','.join(f'{name}={_json(value)}' for name, value in keys.items())}]"
    return f"[={text}]" if kind == "v:" else f"[{text}]"


def _json(value: Any) -> str:
    return orjson.dumps(value).decode()


def key_element(keys: dict[str, Any]) -> str:
    """The path element of an item with these keys."""
    return "k:" + orjson.dumps(keys, option=orjson.OPT_SORT_KEYS).decode()


def value_element(value: Any) -> str:
    """The path element of a value in a set."""
    return "v:" + orjson.dumps(value, option=orjson.OPT_SORT_KEYS).decode()


def read(raw: object) -> FieldSet:
    """A set that a client wrote, in canonical form; elements of unknown kinds are left out. ValueError."""
    return _read(raw, 0)


def _read(raw: object, depth: int) -> FieldSet:
    if not isinstance(raw, dict):
        raise ValueError("fieldsV1 holds something that is no object")
    if depth > _DEEPEST:
        raise ValueError("fieldsV1 is nested too deeply")
    made: FieldSet = {}
    for key, value in raw.items():
        if key == SELF:
            made[SELF] = {}
        else:
            element = _element(key)
            if element is not None:
                made[element] = _read(value, depth + 1)
    return {} if len(made) == 1 and SELF in made else in_order(made)


def _element(text: str) -> str | None:
    kind, value = text[:2], text[2:]
    if kind == "f:":
        return text
    if kind == "i:":
        return f"i:{int(value)}"
    if kind == "v:":
        return value_element(orjson.loads(value))
    if kind == "k:":
        keys = orjson.loads(value)
        if not isinstance(keys, dict) or not keys:
            raise ValueError(f"{text[:64]!r} has no keys")
        return key_element(keys)
    return None
