"""Strategic merge patch: lists are joined by the schemas' merge keys; Kubernetes' directives."""

from typing import Any

from kube32.api import schemas
from kube32.api.patch_json import PatchError
from kube32.contract import Resource

_PATCH = "$patch"
_RETAIN = "$retainKeys"
_DELETE_FROM = "$deleteFromPrimitiveList/"
_ORDER = "$setElementOrder/"
Object = dict[str, Any]


def apply(resource: Resource, document: Object, patch: Object) -> Object:
    """The result of the patch. `document` is changed. PatchError names what is wrong with the patch."""
    return _Merge(resource).objects(document, patch, ())


class _Merge:
    """One merge, with the kind whose schema holds the merge keys. Paths are field names, without indexes."""

    __slots__ = ("resource",)

    def __init__(self, resource: Resource) -> None:
        self.resource = resource

    def objects(self, original: Object, patch: Object, path: tuple[str, ...]) -> Object:
        """An object and its patch."""
        directive = patch.get(_PATCH, "merge")
        if directive == "replace":
            return {k: v for k, v in patch.items() if k != _PATCH}
        if directive == "delete":
            return {}
        if directive != "merge":
            raise PatchError(f"{_where(path)}: unknown {_PATCH} {directive!r}")
        _retain(original, patch, path)
        for key, value in patch.items():
            if key.startswith(_DELETE_FROM):
                self._delete_from(original, key.removeprefix(_DELETE_FROM), value, path)
        for key, value in patch.items():
            if not key.startswith("$"):
                self._field(original, key, value, patch.get(_ORDER + key), (*path, key))
            elif key.startswith(_ORDER) and key.removeprefix(_ORDER) not in patch:
                self._reorder(original, key.removeprefix(_ORDER), value, path)
            elif key not in (_PATCH, _RETAIN) and not key.startswith((_ORDER, _DELETE_FROM)):
                raise PatchError(f"{_where(path)}: unknown directive {key}")
        return original

    def _field(self, original: Object, key: str, value: Any, order: Any, path: tuple[str, ...]) -> None:
        if value is None:
            original.pop(key, None)
            return
        current = original.get(key)
        if isinstance(value, dict):
            original[key] = self.objects(current if isinstance(current, dict) else {}, value, path)
        elif isinstance(value, list):
            original[key] = self._list(current if isinstance(current, list) else [], value, order, path)
        else:
            original[key] = value

    def _list(self, original: list[Any], patch: list[Any], order: Any, path: tuple[str, ...]) -> list[Any]:
        key = schemas.merge_key(self.resource, path)
        if key is None:
            return patch
        if key == "":
            merged = list(original)
            merged += [v for n, v in enumerate(patch) if v not in original and v not in patch[:n]]
        else:
            merged = self._items(original, patch, key, path)
        return merged if order is None else _ordered(merged, original, order, key, path)

    def _items(self, original: list[Any], patch: list[Any], key: str, path: tuple[str, ...]) -> list[Any]:
        """A list of objects that are told apart by `key`."""
        plain: list[Object] = []
        merged = list(original)
        for item in patch:
            if not isinstance(item, dict):
                raise PatchError(
                    f"{_where(path)}: the items of this list are objects with the merge key {key}"
                )
            directive = item.get(_PATCH)
            if directive == "replace":
                merged = []
            elif directive == "delete":
                wanted = _key_of(item, key, path)
                merged = [m for m in merged if not (isinstance(m, dict) and m.get(key) == wanted)]
            elif directive is not None:
                raise PatchError(f"{_where(path)}: unknown {_PATCH} {directive!r} in a list")
            else:
                plain.append(item)
        for item in plain:
            wanted = _key_of(item, key, path)
            for at, there in enumerate(merged):
                if isinstance(there, dict) and there.get(key) == wanted:
                    merged[at] = self.objects(there, item, path)
                    break
            else:
                merged.append(self.objects({}, item, path))
        return merged

    def _delete_from(self, original: Object, key: str, values: Any, path: tuple[str, ...]) -> None:
        current = original.get(key)
        if not isinstance(values, list):
            raise PatchError(f"{_where(path)}: {_DELETE_FROM}{key} is not a list")
        if isinstance(current, list):
            original[key] = [v for v in current if v not in values]

    def _reorder(self, original: Object, key: str, order: Any, path: tuple[str, ...]) -> None:
        """$setElementOrder without changes to the items."""
        current = original.get(key)
        merge_key = schemas.merge_key(self.resource, (*path, key))
        if isinstance(current, list) and merge_key is not None:
            original[key] = _ordered(current, current, order, merge_key, (*path, key))


def _where(path: tuple[str, ...]) -> str:
    return f"strategic merge patch at {'.'.join(path)}" if path else "strategic merge patch"


def _key_of(item: Object, key: str, path: tuple[str, ...]) -> Any:
    if item.get(key) is None:
        raise PatchError(f"{_where(path)}: an item does not contain the declared merge key: {key}")
    return item[key]


def _retain(original: Object, patch: Object, path: tuple[str, ...]) -> None:
    """$retainKeys: whatever it does not name goes."""
    keys = patch.get(_RETAIN)
    if keys is None:
        return
    if not isinstance(keys, list):
        raise PatchError(f"{_where(path)}: {_RETAIN} is not a list")
    for key in patch:
        if not key.startswith("$") and key not in keys:
            raise PatchError(f"{_where(path)}: {key} is patched but not in {_RETAIN}")
    for key in [k for k in original if k not in keys]:
        del original[key]


def _ordered(
    merged: list[Any],
    server: list[Any],
    order: Any,
    key: str,
    path: tuple[str, ...],
) -> list[Any]:
    """Items in the order of $setElementOrder; those it does not name keep their place among the server's."""
    if not isinstance(order, list):
        raise PatchError(f"{_where(path)}: {_ORDER}{path[-1]} is not a list")

    def identity(item: Any) -> Any:
        return item.get(key) if key and isinstance(item, dict) else item

    wanted = [identity(item) for item in order]
    places = [identity(item) for item in server]
    named = [item for item in merged if identity(item) in wanted]
    named.sort(key=lambda item: wanted.index(identity(item)))
    others = [item for item in merged if identity(item) not in wanted]
    result: list[Any] = []
    for item in named:
        here = identity(item)
        while others and here in places and identity(others[0]) in places:
            if places.index(identity(others[0])) > places.index(here):
                break
            result.append(others.pop(0))
        result.append(item)
    return result + others
