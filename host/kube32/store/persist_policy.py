"""Which changes are journalled, and how soon (specification, "Persistence journal"; decisions, "Departures").

The class follows from the resource, from what changed and from who writes: nodes and controllers work from
what is stored, so a second of their writes may be lost and is made again; what is not made again is durable
before the answer.
"""

from enum import IntEnum
from typing import Any

from kube32.contract import NAMES, RESOURCES
from kube32.store.entry import Entry
from kube32.store.ring import resource_of_key

Object = dict[str, Any]


class Persist(IntEnum):
    """When a change is in the journal: never, within minutes, within a second, before the answer."""

    NEVER = 0
    HEARTBEAT = 1
    CONTROLLER = 2
    DURABLE = 3


_CLASSES = {name.name.lower(): name for name in Persist}
# What is not made again by itself once it is lost, wherever it stands in a stored object.
# (Owner references: an orphan that still names its owner, which is gone, would be collected.)
_KEPT_METADATA = ("uid", "finalizers", "deletionTimestamp", "ownerReferences")
_NODE_METADATA = ("labels", "annotations")


class PersistPolicy:
    """The rules of the contract, by resource."""

    def __init__(self) -> None:
        self._rules = {
            resource.prefix: (
                _CLASSES[resource.persist],
                _CLASSES[resource.persist_status or "controller"],
                resource.builtin,
            )
            for resource in RESOURCES
        }
        # Custom kinds: theirs are not in the contract.
        self._custom = (Persist.DURABLE, Persist.CONTROLLER, "")

    def classify(self, key: str, old: Entry | None, new: Entry | None, agent: bool) -> Persist:
        """The class of a write from `old` (None: created) to `new` (None: deleted); `agent`: a node or a
        controller makes it.
        """
        write, status, kind = self._rules.get(resource_of_key(key), self._custom)
        if write == Persist.NEVER:
            return write
        if kind == "Checkpoint" and new is not None and all(_is_periodic(e.obj) for e in (old, new) if e):
            # Its data lives in memory: after a restart there is nothing to restore from. One that became
            # periodic is in the journal, so that change and any deletion are told; the journal writes
            # nothing for what it does not have.
            return Persist.NEVER
        if not agent:
            return write
        if old is None or new is None:
            # Pods are bound to a Node durably: it must not be missing where they are there.
            return Persist.DURABLE if kind == "Node" else Persist.CONTROLLER
        return _of_agent(kind, old.obj, new.obj, status)


def _of_agent(kind: str, old: Object, new: Object, status: Persist) -> Persist:
    """The class of an update by a node or a controller."""
    before, after = old["metadata"], new["metadata"]
    if any(before.get(name) != after.get(name) for name in _KEPT_METADATA):
        return Persist.DURABLE
    old_spec, new_spec = old.get("spec") or {}, new.get("spec") or {}
    if kind == "Pod" and old_spec.get("nodeName") != new_spec.get("nodeName"):
        return Persist.DURABLE
    if kind == "Checkpoint" and _phase(old) != _phase(new):
        return Persist.DURABLE
    if kind == "Node" and (
        any(before.get(name) != after.get(name) for name in _NODE_METADATA)
        or old_spec != new_spec
        or _ready(old) != _ready(new)
    ):
        return Persist.CONTROLLER
    if _is_status_write(old, new, before, after):
        return status
    return Persist.CONTROLLER


def _is_status_write(old: Object, new: Object, before: Object, after: Object) -> bool:
    """Whether nothing but the status differs, and what every write changes."""
    return all(
        old.get(name) == new.get(name)
        for name in old.keys() | new.keys()
        if name not in ("status", "metadata")
    ) and all(
        before.get(name) == after.get(name)
        for name in before.keys() | after.keys()
        if name not in ("resourceVersion", "managedFields")
    )


def _is_periodic(checkpoint: Object) -> bool:
    labels = checkpoint["metadata"].get("labels") or {}
    return bool(labels.get(NAMES.label_trigger) == "periodic")


def _phase(obj: Object) -> Any:
    return (obj.get("status") or {}).get("phase")


def _ready(node: Object) -> Any:
    conditions = (node.get("status") or {}).get("conditions") or []
    return next((c.get("status") for c in conditions if c.get("type") == "Ready"), None)
