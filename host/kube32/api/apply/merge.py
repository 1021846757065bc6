"""Joins an applied object with the stored one, and takes out what nobody wants any more.

Maps are joined field by field; lists of maps item by item, in the applied order, with the stored items that were
not applied where they stood; sets likewise. Leaves are the applied ones.
"""

from collections import Counter
from collections.abc import Iterable
from typing import Any

from kube32.api.apply.field_sets import FieldSet, is_member
from kube32.api.apply.nodes import ANY_NODE, ITEMS, LEAF, MAP, Node
from kube32.api.apply.values import element_of, elements


def merge(live: Any, config: Any, node: Node) -> Any:
    """`config` over `live`; neither is changed. Raises NotTyped."""
    kind = node.of(config)
    if kind == LEAF or node.of(live) != kind:
        return config
    if kind == MAP:
        made = dict(live)
        for key, value in config.items():
            made[key] = merge(live[key], value, node.child(key)) if key in live else value
        return made
    return _lists(live, config, node)


def _lists(live: list[Any], config: list[Any], node: Node) -> list[Any]:
    inner = node.element or ANY_NODE
    mine, theirs = elements(live, node), elements(config, node)
    stored = dict(zip(mine, live, strict=True)) if len(set(mine)) == len(mine) else _singles(mine, live)
    applied = dict(zip(theirs, config, strict=True))
    made: list[Any] = []
    for path, index in _order(mine, theirs):
        if path not in applied:
            made.append(live[index])
        elif node.kind == ITEMS and path in stored:
            made.append(merge(stored[path], applied[path], inner))
        else:
            made.append(applied[path])
    return made


def _singles(paths: list[str], items: list[Any]) -> dict[str, Any]:
    """Items that stand once: what stands twice is replaced."""
    counts = Counter(paths)
    return {path: item for path, item in zip(paths, items, strict=True) if counts[path] == 1}


def _order(mine: list[str], theirs: list[str]) -> Iterable[tuple[str, int]]:
    """The elements of both in their common order (structured-merge-diff's), with the index in its own list."""
    wanted, stored = set(theirs), set(mine)
    shared = [path for path in theirs if path in stored]
    done: set[str] = set()
    left = right = at = 0
    while left < len(mine) or right < len(theirs):
        if left < len(mine) and right < len(theirs):
            path = mine[left]
            if path == theirs[right]:
                yield path, right
                done.add(path)
                left, right, at = left + 1, right + 1, at + 1
                continue
            if path in wanted and at < len(shared) and shared[at] != path:
                left += 1
                continue
        if left < len(mine):
            path = mine[left]
            if path not in wanted:
                yield path, left
                left += 1
                continue
            if path in done:
                left += 1
        if right < len(theirs):
            path = theirs[right]
            yield path, right
            done.add(path)
            right += 1
            if at < len(shared) and shared[at] == path:
                at += 1


def remove(value: Any, places: FieldSet, node: Node) -> Any:
    """`value` without the places of the set. A map or list that loses everything goes too (None). NotTyped."""
    kind = node.of(value)
    if kind == LEAF or not value or not places:
        return value
    if kind == MAP:
        made: dict[str, Any] = {}
        for key, inner in value.items():
            place = places.get("f:" + key)
            if place is None:
                made[key] = inner
            elif not is_member(place):
                left = remove(inner, place, node.child(key))
                if left is not None:
                    made[key] = left
        return made or None
    items: list[Any] = []
    for item in value:
        place = places.get(element_of(item, node))
        if place is None:
            items.append(item)
        elif not is_member(place):
            items.append(remove(item, place, node.element or ANY_NODE))
    return items or None
