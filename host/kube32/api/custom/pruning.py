"""Pruning and defaulting of custom objects: unknown fields go, missing ones get their defaults."""

from typing import Any

from kube32.api import schemas
from kube32.api.custom.schema import NO_DEFAULT, ROOT_FIELDS, Node, copied
from kube32.api.custom.values import Path, dotted

Object = dict[str, Any]


class TooMuchDefaulted(Exception):
    """The defaults of an object would have more bytes than an object may."""


def prune(node: Node, obj: Object) -> list[str]:
    """Drops the fields that the schema does not know, in place; gives their paths. Metadata is left alone."""
    gone: list[str] = []
    _prune_object(node, obj, None, gone, root=True)
    return gone


def _prune(node: Node, value: Any, path: Path | None, gone: list[str]) -> None:
    if isinstance(value, dict):
        _prune_object(node, value, path, gone, root=node.embedded)
    elif isinstance(value, list) and node.items is not None:
        for index, item in enumerate(value):
            _prune(node.items, item, (path, index), gone)


def _prune_object(node: Node, obj: Object, path: Path | None, gone: list[str], *, root: bool) -> None:
    keeps = node.preserve or node.open
    for key in list(obj):
        if root and key in ROOT_FIELDS:
            if key == "metadata" and path is not None and isinstance(obj[key], dict):
                _prune_metadata(obj[key], (path, key), gone)
            continue
        inner = node.properties.get(key) or node.additional
        if inner is not None:
            _prune(inner, obj[key], (path, key), gone)
        elif not keeps:
            del obj[key]
            gone.append(dotted((path, key)))


def _prune_metadata(metadata: Object, path: Path, gone: list[str]) -> None:
    """An embedded object's metadata has the fields that all metadata has."""
    known = schemas.shape_of("ObjectMeta").fields
    for key in [k for k in metadata if k not in known]:
        del metadata[key]
        gone.append(dotted((path, key)))


def fill(node: Node, obj: Object, bytes_left: int) -> None:
    """Puts defaults where fields are missing, and drops nulls that no schema takes. TooMuchDefaulted."""
    _fill(node, obj, [bytes_left], root=True)


def _fill(node: Node, value: Any, left: list[int], *, root: bool = False) -> None:
    if isinstance(value, dict):
        _fill_object(node, value, left, root=root or node.embedded)
    elif isinstance(value, list) and node.items is not None:
        for index, item in enumerate(value):
            if item is None and _default_of(node.items) is not NO_DEFAULT:
                value[index] = _taken(node.items, left)
            _fill(node.items, value[index], left)


def _fill_object(node: Node, obj: Object, left: list[int], *, root: bool) -> None:
    for key in [k for k, v in obj.items() if v is None]:
        inner = node.properties.get(key) or node.additional
        if inner is not None and not inner.nullable and not (root and key in ROOT_FIELDS):
            if inner.default is NO_DEFAULT:
                del obj[key]
            else:
                obj[key] = _taken(inner, left)
    if node.defaults:
        for key, inner in node.properties.items():
            if inner.default is not NO_DEFAULT and key not in obj:
                obj[key] = _taken(inner, left)
    for key, value in obj.items():
        if isinstance(value, (dict, list)) and not (root and key in ROOT_FIELDS):
            inner = node.properties.get(key) or node.additional
            if inner is not None:
                _fill(inner, value, left)


def _default_of(node: Node) -> Any:
    return NO_DEFAULT if node.nullable else node.default


def _taken(node: Node, left: list[int]) -> Any:
    left[0] -= node.default_bytes
    if left[0] < 0:
        raise TooMuchDefaulted
    return copied(node.default)
