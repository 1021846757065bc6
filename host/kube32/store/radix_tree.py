"""The tree under the object store: a compressed radix tree over string keys (specification, "Object store").

Children are kept in key order, so a scan of a prefix walks one branch and needs no sorting. Keys compare by
code point, as their UTF-8 bytes do. Not thread-safe: the store's lock guards it.
"""

from collections.abc import Iterator
from typing import Generic, TypeVar

V = TypeVar("V")


class _Node(Generic[V]):
    """One branch: `label` leads to it from its parent; `size` counts the values at and below it."""

    __slots__ = ("children", "label", "size", "value")

    def __init__(self, label: str, value: V | None = None) -> None:
        self.label = label
        self.value = value
        self.size = 0 if value is None else 1
        self.children: dict[str, _Node[V]] = {}

    def adopt(self, child: "_Node[V]") -> None:
        """Adds a child whose first letter is new, and keeps the children in order."""
        first = child.label[0]
        in_order = not self.children or first > next(reversed(self.children))
        self.children[first] = child
        if not in_order:
            self.children = dict(sorted(self.children.items()))

    def split(self, child: "_Node[V]", at: int) -> "_Node[V]":
        """Puts a node without a value between this one and `child`, which keeps its label from `at` on."""
        upper: _Node[V] = _Node(child.label[:at])
        upper.size = child.size
        child.label = child.label[at:]
        upper.children[child.label[0]] = child
        self.children[upper.label[0]] = upper
        return upper

    def absorb_only_child(self) -> None:
        """Joins a node without a value and its one child into one."""
        (child,) = self.children.values()
        self.label += child.label
        self.value = child.value
        self.children = child.children


class RadixTree(Generic[V]):
    """An ordered map from strings to values; None is not a value."""

    __slots__ = ("_root",)

    def __init__(self) -> None:
        self._root: _Node[V] = _Node("")

    def __len__(self) -> int:
        return self._root.size

    def get(self, key: str) -> V | None:
        """The value at exactly this key."""
        node = self._root
        at = 0
        end = len(key)
        while at < end:
            child = node.children.get(key[at])
            if child is None or not key.startswith(child.label, at):
                return None
            at += len(child.label)
            node = child
        return node.value

    def set(self, key: str, value: V) -> V | None:
        """Puts `value` at `key` and gives what was there."""
        path = self._walk(key)
        old = path[-1].value
        path[-1].value = value
        if old is None:
            for node in path:
                node.size += 1
        return old

    def _walk(self, key: str) -> list[_Node[V]]:
        """The nodes from the root to the key's own, which is made (without a value) where it is missing."""
        node = self._root
        path = [node]
        at = 0
        while at < len(key):
            child = node.children.get(key[at])
            if child is None:
                child = _Node(key[at:])
                node.adopt(child)
            else:
                shared = _shared_length(child.label, key, at)
                if shared < len(child.label):
                    child = node.split(child, shared)
            at += len(child.label)
            path.append(child)
            node = child
        return path

    def pop(self, key: str) -> V | None:
        """Takes the value at `key` out and gives it; None when there was none."""
        if self.get(key) is None:
            return None
        path = self._walk(key)
        node = path[-1]
        old, node.value = node.value, None
        for passed in path:
            passed.size -= 1
        if not node.children and len(path) > 1:
            parent = path[-2]
            del parent.children[node.label[0]]
            node = parent
        if node is not self._root and node.value is None and len(node.children) == 1:
            node.absorb_only_child()
        return old

    def count(self, prefix: str) -> int:
        """How many keys begin with `prefix`."""
        found = self._branch(prefix)
        return found[0].size if found else 0

    def scan(self, prefix: str, after: str = "", limit: int = 0) -> list[V]:
        """The values of keys with this prefix and greater than `after`, by key; `limit` at most (0: all)."""
        found = self._branch(prefix)
        if found is None:
            return []
        stack = _branches_after(found[0], found[1], after) if after else [found[0]]
        values: list[V] = []
        while stack:
            node = stack.pop()
            if node.value is not None:
                values.append(node.value)
                if len(values) == limit:
                    break
            if node.children:
                stack.extend(reversed(node.children.values()))
        return values

    def items(self) -> Iterator[tuple[str, V]]:
        """All keys with their values, in key order. The tree must not change meanwhile."""
        stack = [(self._root, "")]
        while stack:
            node, path = stack.pop()
            if node.value is not None:
                yield path, node.value
            stack.extend((child, path + child.label) for child in reversed(node.children.values()))

    def _branch(self, prefix: str) -> tuple[_Node[V], str] | None:
        """The topmost node whose keys all begin with `prefix`, and the path to it."""
        node = self._root
        at = 0
        while at < len(prefix):
            child = node.children.get(prefix[at])
            if child is None:
                return None
            label = child.label
            if not prefix.startswith(label, at) and not label.startswith(prefix[at:]):
                return None
            at += len(label)
            if at >= len(prefix):
                return child, prefix + label[len(label) - (at - len(prefix)) :]
            node = child
        return node, prefix


def _shared_length(label: str, key: str, at: int) -> int:
    """How many letters of `label` stand in `key` from `at` on."""
    if key.startswith(label, at):
        return len(label)
    shared = 0
    for ours, theirs in zip(label, key[at : at + len(label)], strict=False):
        if ours != theirs:
            break
        shared += 1
    return shared


def _branches_after(node: _Node[V], path: str, after: str) -> list[_Node[V]]:
    """A scan's stack, last one first: branches of `node`, at `path`, with keys greater than `after`."""
    if after < path:
        return [node]
    stack: list[_Node[V]] = []
    if not after.startswith(path):
        return stack
    rest = after[len(path) :]
    while True:
        on_the_way: _Node[V] | None = None
        for first, child in reversed(node.children.items()):
            if rest and first < rest[0]:
                break
            if rest.startswith(child.label):
                on_the_way = child
            elif child.label > rest:
                stack.append(child)
        if on_the_way is None:
            return stack
        node, rest = on_the_way, rest[len(on_the_way.label) :]
