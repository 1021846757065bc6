"""Owners after a custom kind's schema has changed: places that are no longer, or now, told apart.

A list or map that became atomic belongs whole to whoever had a part of it. A list that is told apart now belongs, item
by item, to whoever applied it as a whole.
"""

from dataclasses import replace
from typing import Any

from kube32.api.apply.field_sets import SELF, FieldSet
from kube32.api.apply.nodes import ANY_NODE, ITEMS, LEAF, MAP, SET, Node
from kube32.api.apply.owners import APPLY, Owners
from kube32.api.apply.values import NotTyped, element_of, tree


def reconciled(owners: Owners, live: dict[str, Any], node: Node) -> Owners:
    """The same owners where the schema has not changed. Raises NotTyped."""
    made: Owners = {}
    for key, owner in owners.items():
        fields = _place(owner.fields, live, node, owner.operation == APPLY)
        made[key] = owner if fields == owner.fields else replace(owner, fields=fields)
    return made


def _place(place: FieldSet, value: Any, node: Node, applied: bool) -> FieldSet:
    if not place:
        whole = applied and node.kind in (ITEMS, SET) and type(value) is list
        return tree(value, node) if whole else place
    if node.kind == LEAF:
        return {}
    made: FieldSet = {}
    inner = _values(value, node)
    for key, below in place.items():
        child = node.child(key[2:]) if key.startswith("f:") else node.element or ANY_NODE
        made[key] = below if key == SELF else _place(below, inner.get(key), child, applied)
    return made


def _values(value: Any, node: Node) -> dict[str, Any]:
    """A value's parts by their path elements."""
    if type(value) is dict:
        return {f"f:{key}": inner for key, inner in value.items()}
    if type(value) is not list or node.kind == MAP:
        return {}
    try:
        return {element_of(item, node): item for item in value}
    except NotTyped:
        return {}
