"""Apply and Update on owners and objects, after structured-merge-diff's merge.Updater. Pure functions.

Objects come without managedFields; `Scope` says which of their fields a request on an object or on a subresource
is about.
"""

from dataclasses import dataclass, replace
from typing import Any

from kube32.api.apply import field_sets, merge, values
from kube32.api.apply.field_sets import FieldSet
from kube32.api.apply.nodes import Node
from kube32.api.apply.owners import APPLY, UPDATE, Owner, Owners, capped

Object = dict[str, Any]
_NEVER = frozenset(("apiVersion", "kind"))
# What the server sets is nobody's.
_SERVERS = frozenset(
    f"f:{name}"
    for name in (
        "name",
        "namespace",
        "creationTimestamp",
        "selfLink",
        "uid",
        "clusterName",
        "generation",
        "managedFields",
        "resourceVersion",
    )
)
_METADATA = "f:metadata"


class Conflicts(Exception):
    """Places that an apply would take from others, by their owner."""

    def __init__(self, found: list[tuple[Owner, FieldSet]]) -> None:
        super().__init__(f"conflicts with {len(found)} owners")
        self.found = found

    def without(self, allowed: FieldSet) -> "Conflicts":
        """Those that are left when some places may be taken."""
        rest = ((owner, field_sets.difference(places, allowed)) for owner, places in self.found)
        return Conflicts([(owner, places) for owner, places in rest if places])


@dataclass(frozen=True, slots=True)
class Scope:
    """Which fields count: all but `without`, or (a status write) `only`."""

    only: str = ""
    without: str = ""

    def has(self, name: str) -> bool:
        """Whether a field at the root counts."""
        return name == self.only if self.only else name != self.without and name not in _NEVER

    def of(self, obj: Object) -> Object:
        """The object's fields that count."""
        return {name: value for name, value in obj.items() if self.has(name)}


@dataclass(frozen=True, slots=True)
class Writer:
    """Who writes, and when ("time" as in Owner)."""

    manager: str
    api_version: str
    subresource: str
    time: str | None


def owned(places: FieldSet) -> FieldSet:
    """A root's places without those that nobody owns."""
    metadata = places.get(_METADATA)
    if metadata is None:
        return places
    kept = {key: place for key, place in metadata.items() if key not in _SERVERS and key != field_sets.SELF}
    made = {key: place for key, place in places.items() if key != _METADATA}
    if kept:
        made[_METADATA] = kept
    return field_sets.in_order(made)


def created(node: Node, obj: Object, scope: Scope, writer: Writer, owners: Owners) -> Owners:
    """The owners of a new object: its creator has everything. Raises NotTyped."""
    taken = owned(values.fresh(scope.of(obj), node))
    return _updated(owners, taken, {}, writer)


def updated(node: Node, old: Object, new: Object, scope: Scope, writer: Writer, owners: Owners) -> Owners:
    """The owners after a write that is no apply: the writer has what it changed. Raises NotTyped.

    The same owners when nothing changed that anybody can own.
    """
    taken, removed = values.compare(scope.of(old), scope.of(new), node)
    taken, removed = owned(taken), owned(removed)
    return _updated(owners, taken, removed, writer) if taken or removed else owners


def _updated(owners: Owners, taken: FieldSet, removed: FieldSet, writer: Writer) -> Owners:
    made = _without(owners, field_sets.union(taken, removed))
    if taken:
        me = Owner(writer.manager, UPDATE, writer.api_version, writer.subresource, writer.time, taken)
        before = owners.get(me.key)
        if before is not None:
            kept = field_sets.difference(before.fields, removed)
            me = replace(me, fields=field_sets.union(kept, taken))
        made[me.key] = me
    return capped(made)


def _without(owners: Owners, lost: FieldSet) -> Owners:
    made: Owners = {}
    for key, owner in owners.items():
        fields = field_sets.difference(owner.fields, lost)
        if fields:
            made[key] = owner if fields == owner.fields else replace(owner, fields=fields)
    return made


# --- apply ---


def apply(
    node: Node, live: Object, config: Object, scope: Scope, writer: Writer, owners: Owners, *, force: bool
) -> tuple[Object, Owners]:
    """The object with `config` applied by `writer`, and its owners. Raises Conflicts, NotTyped.

    The same object (equal to `live`) when the apply changes nothing.
    """
    config = scope.of(config)
    everything = values.applied(config, node)
    mine = owned(everything)
    me = Owner(writer.manager, APPLY, writer.api_version, writer.subresource, writer.time, mine)
    before = owners.get(me.key)
    others = {key: owner for key, owner in owners.items() if key != me.key}
    new: Object = merge.merge(live, config, node)
    if before is not None and before.fields:
        new = _pruned(node, new, before.fields, [everything, *(owner.fields for owner in others.values())])
    taken, removed = values.compare(live, new, node)
    taken, removed = owned(taken), owned(removed)
    if not force and taken:
        shared = (
            (owner, field_sets.intersection(owner.fields, taken)) for _, owner in sorted(others.items())
        )
        found = [(owner, places) for owner, places in shared if places]
        if found:
            raise Conflicts(found)
    made = _without(others, field_sets.union(taken, removed)) if taken or removed else dict(others)
    if before is not None and before.fields == mine and not taken and not removed:
        me = before
    made[me.key] = me
    return new, made


def _pruned(node: Node, merged: Object, last: FieldSet, wanted: list[FieldSet]) -> Object:
    """`merged` without what the applier applied last time (`last`) and is in none of the sets of now."""
    last = values.named_as_members(last, node)
    there = _places(merged, node)
    kept = _places(_removed(node, merged, last), node)
    for places in wanted:
        kept = field_sets.union(kept, values.named_as_members(places, node))
    pruned = _places(_removed(node, merged, field_sets.difference(there, kept)), node)
    gone = field_sets.intersection(field_sets.difference(there, pruned), last)
    return _removed(node, merged, gone)


def _places(obj: Object, node: Node) -> FieldSet:
    return values.named_as_members(values.applied(obj, node), node)


def _removed(node: Node, obj: Object, places: FieldSet) -> Object:
    made = merge.remove(obj, places, node)
    return made if isinstance(made, dict) else {}
