"""Whether an applied object can be told apart into places: no unknown fields, no items twice or without keys."""

from typing import Any

from kube32.api.apply.field_sets import shown
from kube32.api.apply.nodes import ANY_NODE, ITEMS, LEAF, MAP, Node
from kube32.api.apply.values import NotTyped, element_of

_MOST = 10


def faults(value: Any, node: Node) -> list[str]:
    """What is wrong, each with its path, in structured-merge-diff's words; at most ten."""
    found: list[str] = []
    _check(value, node, "", found)
    return found[:_MOST]


def _check(value: Any, node: Node, path: str, found: list[str]) -> None:
    kind = node.of(value)
    if kind == LEAF or len(found) >= _MOST:
        return
    if kind == MAP:
        for key, inner in value.items():
            child = node.fields.get(key) or node.element
            if child is None and node.kind == MAP:
                found.append(f"{path}.{key}: field not declared in schema")
            else:
                _check(inner, child or ANY_NODE, f"{path}.{key}", found)
        return
    seen: set[str] = set()
    for index, item in enumerate(value):
        try:
            element = element_of(item, node)
        except NotTyped as error:
            found.append(f"{path}: element {index}: {error}")
            continue
        if element in seen:
            what = "duplicate entries for key" if kind == ITEMS else "duplicate entries for value"
            found.append(f"{path}: {what} {shown((element,))}")
        seen.add(element)
        if node.element is not None:
            _check(item, node.element, f"{path}{shown((element,))}", found)
