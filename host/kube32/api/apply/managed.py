"""metadata.managedFields of every write that is no apply: creates, updates, patches, status, scale.

Nodes and the control plane write status often and are its only writers: those writes are not tracked, which saves
each heartbeat the comparison and its object the entry. Bindings, deletions and replacements change no owners, as
binding and deletion do not in Kubernetes. Profiles without server-side apply keep no managedFields at all.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import orjson

from kube32.api import metadata
from kube32.api.apply import engine, nodes, options, owners
from kube32.api.apply.engine import Scope, Writer
from kube32.api.apply.owners import APPLY, Owners
from kube32.api.apply.values import NotTyped
from kube32.contract import LIMITS, NAMES, Limits, Resource, offers

if TYPE_CHECKING:
    from kube32.api.crud import Call

Object = dict[str, Any]
_FIELD = "managedFields"
_UNTRACKED = (NAMES.user_node_prefix, NAMES.user_controller_prefix)


def is_offered(limits: Limits) -> bool:
    """Whether the profile keeps managedFields and takes applies."""
    return offers(limits.profile, "server_side_apply")


def scope_of(resource: Resource, subresource: str) -> Scope:
    """Which fields a write to the object or to its subresource can change."""
    if subresource == "status":
        return Scope(only="status")
    if subresource == "scale":
        return Scope(only="spec")
    return Scope(without="status" if "status" in resource.subresources else "")


def writer_of(call: "Call", manager: str) -> Writer:
    """The writer that the request is."""
    return Writer(manager, call.resource.api_version, call.info.subresource, metadata.now())


def track_create(call: "Call", obj: Object) -> None:
    """Sets the managedFields of a new object. ApiFailure 422 for a bad field manager."""
    meta = obj["metadata"]
    given = meta.pop(_FIELD, None)
    if not is_offered(call.limits):
        return
    if call.applied is not None:
        _set(meta, call.applied)
        return
    scope, writer = scope_of(call.resource, call.info.subresource), writer_of(call, options.manager_of(call))
    before = (_given(given) if given else None) or {}
    node = nodes.of(call.resource, call.server.catalog)
    after = _tracked(lambda: engine.created(node, obj, scope, writer, before))
    if after:
        _set(meta, owners.entries_of(after))


def track_update(call: "Call", old: Object, new: Object) -> None:
    """Sets the managedFields of an object that takes the place of `old`. ApiFailure 422 for a bad manager."""
    meta = new["metadata"]
    given = meta.pop(_FIELD, None)
    if not is_offered(call.limits):
        return
    if call.applied is not None:
        _set(meta, call.applied)
        return
    subresource, stored = call.info.subresource, old["metadata"].get(_FIELD) or []
    manager = options.manager_of(call)
    if subresource == "status" and call.user.name.startswith(_UNTRACKED):
        _set(meta, stored)
        return
    entries, before = _base(stored, None if subresource else given)
    if not entries:
        return
    node = nodes.of(call.resource, call.server.catalog)
    writer, scope = writer_of(call, manager), scope_of(call.resource, subresource)
    after = _tracked(lambda: engine.updated(node, old, new, scope, writer, before))
    _set(meta, entries if after is None or after is before else owners.entries_of(after))


def _set(meta: Object, entries: list[Object]) -> None:
    if entries:
        meta[_FIELD] = entries


def _base(stored: list[Object], given: Any) -> tuple[list[Object], Owners]:
    """The entries that a write begins with, and their owners. Kubernetes' rules: the client's are taken if they
    can be read and are not empty; one empty entry ends the tracking.
    """
    if given == [{}]:
        return [], {}
    if given and given != stored:
        read = _given(given)
        if read:
            return owners.entries_of(read), read
    return stored, owners.stored(stored) if stored else {}


def _given(entries: Any) -> Owners | None:
    """The owners that a client wrote; None when they cannot be read, or are more than an object can hold."""
    try:
        if len(orjson.dumps(entries)) > LIMITS.store_value_bytes:
            return None
        return owners.given(entries)
    except (ValueError, TypeError, RecursionError):
        return None


def _tracked(track: Callable[[], Owners]) -> Owners | None:
    """What `track` gives; None when the object cannot be told apart into places, which only applies refuse."""
    try:
        return track()
    except (NotTyped, TypeError, RecursionError):
        return None


def give_up(obj: Object) -> bool:
    """Takes the managedFields out of an object that is too large with them. Not where somebody applied: what it
    owns must not be forgotten. Whether the object is smaller now.
    """
    entries = obj["metadata"].get(_FIELD) or ()
    if not entries or any(entry["operation"] == APPLY for entry in entries):
        return False
    del obj["metadata"][_FIELD]
    return True
