"""An object's values seen as places: which there are, which an applier owns, what changed between two states."""

from collections.abc import Iterable
from typing import Any

from kube32.api.apply.field_sets import SELF, FieldSet, as_member, in_order, key_element, value_element
from kube32.api.apply.nodes import ANY_NODE, ITEMS, LEAF, MAP, Node


class NotTyped(ValueError):
    """A value whose place the schema cannot name: an item without its keys. str() says which."""


def element_of(item: Any, node: Node) -> str:
    """The path element of a list's item. NotTyped."""
    if node.kind != ITEMS:
        return value_element(item)
    if type(item) is not dict:
        raise NotTyped("associative list with keys may not have non-map elements")
    keys: dict[str, Any] = {}
    for key in node.keys:
        value = item.get(key)
        if value is None:
            value = node.defaults.get(key)
        if value is not None:
            keys[key] = value
    if not keys:
        names = " ".join(f'"{key}"' for key in node.keys)
        raise NotTyped(
            f"associative list with keys has an element that omits all key fields [{names}]"
            " (and doesn't have default value for any key field)"
        )
    return key_element(keys)


def elements(items: Iterable[Any], node: Node) -> list[str]:
    """The path elements of a list's items, in its order. NotTyped."""
    made = []
    for index, item in enumerate(items):
        try:
            made.append(element_of(item, node))
        except NotTyped as error:
            raise NotTyped(f"element {index}: {error}") from None
    return made


# --- all places of a value ---


def tree(value: Any, node: Node) -> FieldSet:
    """A place that is new (or gone) with everything in it. NotTyped."""
    kind = node.of(value)
    if kind == LEAF or not value:
        return {}
    if kind == MAP:
        fields, element = node.fields, node.element or ANY_NODE
        made: FieldSet = {SELF: {}}
        for key in sorted(value):
            child = fields.get(key) or element
            made["f:" + key] = {} if child.kind == LEAF else tree(value[key], child)
        return made
    if kind == ITEMS:
        inner = node.element or ANY_NODE
        made = {}
        for path, item in zip(elements(value, node), value, strict=True):
            made[path] = {} if path in made else tree(item, inner)
        return {SELF: {}, **in_order(made)}
    return {SELF: {}, **in_order({path: {} for path in elements(value, node)})}


def fresh(value: dict[str, Any], node: Node) -> FieldSet:
    """What the creator of an object owns below a map that is there anyway. NotTyped."""
    made: FieldSet = {}
    for key in sorted(value):
        place = _field(key, value[key], node)
        if place is not None:
            made["f:" + key] = place
    return made


def _field(key: str, value: Any, node: Node) -> FieldSet | None:
    """A field that is new (or gone); None for one that is there anyway and holds nothing."""
    child = node.child(key)
    if key not in node.always or child.of(value) == LEAF:
        return tree(value, child)
    return (fresh(value, child) if child.kind == MAP else _without_self(tree(value, child))) or None


def _without_self(place: FieldSet) -> FieldSet:
    return {key: inner for key, inner in place.items() if key != SELF}


# --- what an applier owns ---


def applied(value: dict[str, Any], node: Node) -> FieldSet:
    """The places that an applied map says something about. NotTyped."""
    made: FieldSet = {}
    for key in sorted(value):
        inner, child = value[key], node.child(key)
        place = _applied(inner, child)
        if child.of(inner) == LEAF or inner is None or inner == {} or key not in node.fields:
            made["f:" + key] = as_member(place)
        elif place:
            made["f:" + key] = place
    return made


def _applied(value: Any, node: Node) -> FieldSet:
    kind = node.of(value)
    if kind == LEAF:
        return {}
    if kind == MAP:
        return applied(value, node)
    if kind == ITEMS:
        inner = node.element or ANY_NODE
        rows = zip(elements(value, node), value, strict=True)
        return in_order({path: as_member(_applied(item, inner)) for path, item in rows})
    return in_order({path: {} for path in elements(value, node)})


def named_as_members(places: FieldSet, node: Node) -> FieldSet:
    """The set with all fields in it that have a name in the schema and something of the set below them."""
    made: FieldSet = {}
    for key, place in places.items():
        if key == SELF:
            made[key] = place
            continue
        name = key[2:] if key.startswith("f:") else ""
        child = node.child(name) if name else node.element or ANY_NODE
        inner = named_as_members(place, child) if place else place
        made[key] = as_member(inner) if name and name in node.fields else inner
    return made


# --- what changed ---


def compare(old: dict[str, Any], new: dict[str, Any], node: Node) -> tuple[FieldSet, FieldSet]:
    """What is new or different in a map, and what is gone. NotTyped."""
    taken: FieldSet = {}
    removed: FieldSet = {}
    for key, value in new.items():
        if key not in old:
            _note("f:" + key, (_field(key, value, node), None), taken, removed)
        elif old[key] != value or type(old[key]) is not type(value):
            _note("f:" + key, _compare(old[key], value, node.child(key)), taken, removed)
    for key, value in old.items():
        if key not in new:
            _note("f:" + key, (None, _field(key, value, node)), taken, removed)
    return in_order(taken), in_order(removed)


_Difference = tuple[FieldSet | None, FieldSet | None]


def _note(path: str, difference: _Difference, taken: FieldSet, removed: FieldSet) -> None:
    if difference[0] is not None:
        taken[path] = difference[0]
    if difference[1] is not None:
        removed[path] = difference[1]


def _compare(old: Any, new: Any, node: Node) -> _Difference:
    """Of two values that differ."""
    before, after = node.of(old), node.of(new)
    if before == LEAF and after == LEAF:
        return {}, None
    if before == LEAF or after == LEAF:
        return tree(new, node), _without_self(tree(old, node)) or None
    if after == MAP:
        taken, removed = compare(old, new, node)
    else:
        taken, removed = _compare_lists(old, new, node)
    return taken or None, removed or None


def _compare_lists(old: list[Any], new: list[Any], node: Node) -> tuple[FieldSet, FieldSet]:
    inner = node.element or ANY_NODE
    before, after = _by_element(old, node), _by_element(new, node)
    taken: FieldSet = {}
    removed: FieldSet = {}
    for path, values in after.items():
        mine = before.get(path)
        if mine is None:
            taken[path] = tree(values[0], inner) if len(values) == 1 and node.kind == ITEMS else {}
        elif mine != values:
            one = len(mine) == 1 and len(values) == 1
            _note(path, _compare(mine[0], values[0], inner) if one else ({}, None), taken, removed)
    for path, values in before.items():
        if path not in after:
            removed[path] = tree(values[0], inner) if len(values) == 1 and node.kind == ITEMS else {}
    return in_order(taken), in_order(removed)


def _by_element(items: list[Any], node: Node) -> dict[str, list[Any]]:
    made: dict[str, list[Any]] = {}
    for path, item in zip(elements(items, node), items, strict=True):
        made.setdefault(path, []).append(item)
    return made
