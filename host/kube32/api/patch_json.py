"""JSON Patch (RFC 6902) and JSON Merge Patch (RFC 7386)."""

from collections.abc import Callable
from typing import Any, cast

import orjson

_MAX_OPERATIONS = 10000
_NO_VALUE = object()


class PatchError(ValueError):
    """A patch that is malformed; str() says where."""


class PatchFailed(PatchError):
    """A well-formed patch that does not apply to this object."""


def merge(target: Any, patch: Any) -> Any:
    """The result of a merge patch. `target` is changed and may be part of the result."""
    if not isinstance(patch, dict):
        return patch
    result = target if isinstance(target, dict) else {}
    for key, value in patch.items():
        if value is None:
            result.pop(key, None)
        else:
            result[key] = merge(result.get(key), value)
    return result


def apply(document: Any, patch: Any, limit: int) -> Any:
    """The result of a JSON Patch. `document` is changed even when the patch fails.

    `limit` is the number of bytes that "copy" operations may add. PatchError for what is no JSON Patch,
    PatchFailed for an operation that does not apply; both name the operation.
    """
    if not isinstance(patch, list):
        raise PatchError("a JSON patch is an array of operations")
    if len(patch) > _MAX_OPERATIONS:
        raise PatchError(
            f"The allowed maximum operations in a JSON patch is {_MAX_OPERATIONS}, got {len(patch)}"
        )
    copied = 0
    for index, operation in enumerate(patch):
        if not isinstance(operation, dict):
            raise PatchError(f"operation {index} of the JSON patch is not an object")
        step = _Step(index, operation)
        if step.op == "copy":
            copied += len(orjson.dumps(_get(document, step.tokens("from"), step)))
            if copied > limit:
                raise PatchError(f"{step}: the copies have more than {limit} bytes")
        document = step.apply(document)
    return document


class _Step:
    """One operation, which names itself in errors."""

    __slots__ = ("index", "op", "operation")

    def __init__(self, index: int, operation: dict[str, Any]) -> None:
        self.index = index
        self.operation = operation
        op = operation.get("op")
        self.op = op if isinstance(op, str) else ""
        if self.op not in _OPERATIONS:
            shown = orjson.dumps(op).decode() if "op" in operation else "missing"
            raise PatchError(f"operation {index} of the JSON patch: op {shown} is unknown")

    def __str__(self) -> str:
        path = self.operation.get("path")
        return f"{self.op} operation {self.index} of the JSON patch" + (
            f' at path "{path}"' if isinstance(path, str) else ""
        )

    def tokens(self, name: str) -> list[str]:
        """The reference tokens of a JSON pointer."""
        pointer = self.operation.get(name)
        if not isinstance(pointer, str):
            raise PatchError(f"{self}: {name} is missing")
        if pointer and not pointer.startswith("/"):
            raise PatchError(f'{self}: {name} "{pointer}" does not begin with /')
        return [t.replace("~1", "/").replace("~0", "~") for t in pointer.split("/")[1:]]

    def value(self) -> Any:
        """The operation's own copy of its value."""
        value = self.operation.get("value", _NO_VALUE)
        if value is _NO_VALUE:
            raise PatchError(f"{self}: value is missing")
        return _copy(value)

    def fail(self, why: str) -> PatchFailed:
        """The error of an operation that does not apply."""
        return PatchFailed(f"{self} does not apply: {why}")

    def apply(self, document: Any) -> Any:
        """The document after the operation."""
        return _OPERATIONS[self.op](document, self)


def _copy(value: Any) -> Any:
    return orjson.loads(orjson.dumps(value)) if isinstance(value, (dict, list)) else value


def _get(document: Any, tokens: list[str], step: _Step) -> Any:
    for token in tokens:
        if isinstance(document, dict):
            if token not in document:
                raise step.fail(f'there is no "{token}"')
            document = document[token]
        elif isinstance(document, list):
            document = document[_index(token, len(document) - 1, step)]
        else:
            raise step.fail(f'"{token}" leads into a value that is neither object nor array')
    return document


def _index(token: str, last: int, step: _Step) -> int:
    if not token.isascii() or not token.isdigit() or (token[0] == "0" and token != "0") or len(token) > 9:
        raise step.fail(f'"{token}" is no index of an array')
    if int(token) > last:
        raise step.fail(f"index {token} is past the end of the array")
    return int(token)


def _add(document: Any, tokens: list[str], value: Any, step: _Step) -> Any:
    if not tokens:
        return value
    parent, token = _get(document, tokens[:-1], step), tokens[-1]
    if isinstance(parent, dict):
        parent[token] = value
    elif isinstance(parent, list):
        parent.insert(len(parent) if token == "-" else _index(token, len(parent), step), value)
    else:
        raise step.fail(f'"{token}" leads into a value that is neither object nor array')
    return document


def _remove(document: Any, tokens: list[str], step: _Step) -> Any:
    if not tokens:
        raise step.fail("the whole object cannot be removed")
    _get(document, tokens, step)
    parent, token = _get(document, tokens[:-1], step), tokens[-1]
    del parent[token if isinstance(parent, dict) else int(token)]
    return document


def _do_add(document: Any, step: _Step) -> Any:
    return _add(document, step.tokens("path"), step.value(), step)


def _do_remove(document: Any, step: _Step) -> Any:
    return _remove(document, step.tokens("path"), step)


def _do_replace(document: Any, step: _Step) -> Any:
    tokens, value = step.tokens("path"), step.value()
    if not tokens:
        return value
    _get(document, tokens, step)
    parent = _get(document, tokens[:-1], step)
    parent[tokens[-1] if isinstance(parent, dict) else int(tokens[-1])] = value
    return document


def _do_move(document: Any, step: _Step) -> Any:
    source, target = step.tokens("from"), step.tokens("path")
    value = _get(document, source, step)
    if target[: len(source)] == source and len(target) > len(source):
        raise step.fail("a value cannot be moved into itself")
    if source == target:
        return document
    return _add(_remove(document, source, step), target, value, step)


def _do_copy(document: Any, step: _Step) -> Any:
    value = _copy(_get(document, step.tokens("from"), step))
    return _add(document, step.tokens("path"), value, step)


def _do_test(document: Any, step: _Step) -> Any:
    if not _equal(_get(document, step.tokens("path"), step), step.value()):
        raise step.fail("the value there is another one")
    return document


def _equal(a: Any, b: Any) -> bool:
    """Equality of JSON values: true is not 1, 1 is 1.0."""
    if isinstance(a, bool) or isinstance(b, bool):
        return a is b
    if isinstance(a, dict) and isinstance(b, dict):
        return a.keys() == b.keys() and all(_equal(v, b[k]) for k, v in a.items())
    if isinstance(a, list) and isinstance(b, list):
        return len(a) == len(b) and all(_equal(x, y) for x, y in zip(a, b, strict=True))
    return cast(bool, a == b)


_OPERATIONS: dict[str, Callable[[Any, _Step], Any]] = {
    "add": _do_add,
    "remove": _do_remove,
    "replace": _do_replace,
    "move": _do_move,
    "copy": _do_copy,
    "test": _do_test,
}
