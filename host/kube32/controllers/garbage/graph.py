"""Who owns whom: objects by uid, with their owners and dependents, as the watches tell it.

An object that only references know is there too, as `virtual`, until a watch shows it or it is found absent.
Pure: it asks nobody and writes nothing.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from kube32.contract import NAMES

Obj = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Owner:
    """One owner reference."""

    uid: str
    api_version: str
    kind: str
    name: str
    blocks: bool = False


@dataclass(slots=True)
class Node:
    """One object. `resource` is (group, plural) of a kind that is watched, None of a virtual one."""

    uid: str
    api_version: str
    kind: str
    namespace: str
    name: str
    resource: tuple[str, str] | None = None
    owners: tuple[Owner, ...] = ()
    dependents: set[str] = field(default_factory=set)
    deleting: bool = False
    finalizers: tuple[str, ...] = ()

    @property
    def virtual(self) -> bool:
        """Whether nobody has seen the object itself."""
        return self.resource is None

    @property
    def waits_for_dependents(self) -> bool:
        """Whether it is being deleted in the foreground."""
        return self.deleting and NAMES.finalizer_foreground in self.finalizers

    @property
    def orphans_dependents(self) -> bool:
        """Whether it is being deleted and leaves its dependents behind."""
        return self.deleting and NAMES.finalizer_orphan in self.finalizers

    def owner(self, uid: str) -> Owner | None:
        """Its reference to an owner."""
        return next((o for o in self.owners if o.uid == uid), None)


def owners_of(meta: Obj) -> tuple[Owner, ...]:
    """The owner references of an object's metadata; one without a uid names nobody."""
    return tuple(
        Owner(
            str(r.get("uid", "")),
            str(r.get("apiVersion", "")),
            str(r.get("kind", "")),
            str(r.get("name", "")),
            bool(r.get("blockOwnerDeletion")),
        )
        for r in meta.get("ownerReferences") or ()
        if r.get("uid")
    )


class Graph:
    """Nodes by uid. Objects without owners and dependents are in it too: they may be owners tomorrow."""

    def __init__(self) -> None:
        self.nodes: dict[str, Node] = {}

    def put(self, obj: Obj, resource: tuple[str, str]) -> tuple[Node, Node | None]:
        """Takes an object as it is now: its node, and what the node said before (None: not seen before)."""
        meta = obj["metadata"]
        uid = meta["uid"]
        known = self.nodes.get(uid)
        fresh = Node(
            uid,
            obj["apiVersion"],
            obj["kind"],
            meta.get("namespace", ""),
            meta["name"],
            resource,
            owners_of(meta),
            known.dependents if known is not None else set(),
            bool(meta.get("deletionTimestamp")),
            tuple(meta.get("finalizers") or ()),
        )
        self.nodes[uid] = fresh
        before = {o.uid for o in known.owners} if known is not None else set()
        now = {o.uid for o in fresh.owners}
        for gone in before - now:
            self._unlink(gone, uid)
        for owner in fresh.owners:
            if owner.uid not in before:
                self._link(owner, fresh)
        return fresh, known if known is not None and not known.virtual else None

    def _link(self, owner: Owner, dependent: Node) -> None:
        node = self.nodes.get(owner.uid)
        if node is None:
            # Namespaced or not is for the lookup to know; where it is, it is in the dependent's namespace.
            node = Node(owner.uid, owner.api_version, owner.kind, dependent.namespace, owner.name)
            self.nodes[owner.uid] = node
        node.dependents.add(dependent.uid)

    def _unlink(self, owner: str, dependent: str) -> None:
        node = self.nodes.get(owner)
        if node is None:
            return
        node.dependents.discard(dependent)
        if node.virtual and not node.dependents:
            del self.nodes[owner]

    def remove(self, uid: str) -> Node | None:
        """Takes out an object that is gone; gives its last node. While others name it, it stays as virtual."""
        node = self.nodes.pop(uid, None)
        if node is None:
            return None
        for owner in node.owners:
            self._unlink(owner.uid, uid)
        if node.dependents:
            left = Node(uid, node.api_version, node.kind, node.namespace, node.name)
            left.dependents = node.dependents
            self.nodes[uid] = left
        return node

    def dependents(self, node: Node) -> Iterator[Node]:
        """The objects that name it as their owner."""
        for uid in sorted(node.dependents):
            dependent = self.nodes.get(uid)
            if dependent is not None:
                yield dependent

    def blocking(self, node: Node) -> list[Node]:
        """The dependents that must be gone before it may go."""
        found = []
        for dependent in self.dependents(node):
            owner = dependent.owner(node.uid)
            if owner is not None and owner.blocks:
                found.append(dependent)
        return found
