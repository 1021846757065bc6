"""DELETE of one object or of a collection: preconditions, finalizers, propagation, graceful deletion.

What is said about dependents is left to the garbage collector in a finalizer of the owner, as in Kubernetes:
foregroundDeletion until its blocking dependents are gone, orphan until they no longer name it.
"""

import asyncio
from typing import Any

import orjson

from kube32.api import crud, delete_options, metadata, namespaces, pods, tables
from kube32.api import list as listing
from kube32.api.custom import acceptance
from kube32.api.delete_options import FOREGROUND, ORPHAN, Options
from kube32.api.http import Response
from kube32.api.status import ApiFailure, conflict, dump, success
from kube32.contract import NAMES
from kube32.store import Entry

# Kinds whose deletion answers with the object even when it is gone.
_RETURNED = ("Pod", "Namespace", "Service", "ServiceAccount", "PersistentVolumeClaim")
_FINALIZER_OF = {FOREGROUND: NAMES.finalizer_foreground, ORPHAN: NAMES.finalizer_orphan}


async def handle(call: crud.Call) -> Response:
    """200 with a Status when the object is gone, else (and for some kinds always) with the object.

    ApiFailure 400, 403, 404, 409, 413, 415, 422.
    """
    options = await delete_options.read(call)
    entry, gone = remove(call, call.info.name, options)
    if gone and call.resource.builtin not in _RETURNED:
        details = {"name": call.info.name}
        if call.resource.group:
            details["group"] = call.resource.group
        details.update(kind=call.resource.plural, uid=entry.obj["metadata"]["uid"])
        return Response(200, dump(success(details)))
    return crud.answer(call, 200 if gone or not options.accepted else 202, entry)


async def handle_collection(call: crud.Call) -> Response:
    """200 with a list of what was deleted, `limit` objects at most; ApiFailure as `handle`."""
    options = await delete_options.read(call)
    tables.negotiate(call.request.headers.get("Accept") or "")
    limited = bool(call.request.q("limit"))
    removed: list[Entry] = []
    position = ""
    while True:
        page = listing.read(call, position)
        for entry in page.entries:
            removed.extend(await _remove_listed(call, entry, options))
        position = page.token
        if limited or not position:
            return listing.answer(call, listing.Page(removed, call.store.revision, position))


async def _remove_listed(call: crud.Call, entry: Entry, options: Options) -> list[Entry]:
    try:
        found = [remove(call, entry.obj["metadata"]["name"], options)[0]]
    except ApiFailure as failure:
        if failure.code != 404:
            raise
        found = []
    # Watchers read between two deletions: their buffers are shorter than collections.
    await asyncio.sleep(0)
    return found


def remove(call: crud.Call, name: str, options: Options) -> tuple[Entry, bool]:
    """Deletes an object, or marks it while something is waited for: its last state, and whether it is gone.

    ApiFailure 403, 404, 409.
    """
    while True:
        current = call.existing(name)
        try:
            return _remove(call, current, options)
        except ApiFailure as failure:
            if not crud.overtaken(call, current, failure):
                raise


def _remove(call: crud.Call, current: Entry, options: Options) -> tuple[Entry, bool]:
    resource, old = call.resource, current.obj
    if resource.builtin == "Namespace":
        namespaces.check_mortal(old["metadata"]["name"])
    _check_preconditions(call, old, options)
    call.server.security.admit(call.user, call.info, old, None)
    grace_s = pods.grace_s(old, options.grace_s, call.limits) if resource.builtin == "Pod" else 0
    new = orjson.loads(current.value)
    # A namespace is emptied whatever is said: nothing in it can outlive it.
    if resource.builtin != "Namespace":
        _set_finalizers(new["metadata"], options.propagation)
    metadata.mark_deleted(resource, new, grace_s)
    if resource.builtin == "Namespace":
        namespaces.terminate(new)
    elif resource.builtin == "CustomResourceDefinition":
        acceptance.hold(new)
    gone = metadata.is_finished(new)
    if options.dry_run:
        return current if gone else crud.unstored(current.key, new, current.revision), gone
    if gone:
        return crud.remove(call, current), True
    return crud.put(call, current, new), False


def _set_finalizers(meta: dict[str, Any], propagation: str) -> None:
    """What is to become of dependents; without a word about it the finalizers that are there decide."""
    if not propagation:
        return
    kept = [f for f in meta.get("finalizers") or () if f not in _FINALIZER_OF.values()]
    wanted = _FINALIZER_OF.get(propagation)
    if wanted is not None:
        kept.append(wanted)
    if kept:
        meta["finalizers"] = kept
    else:
        meta.pop("finalizers", None)


def _check_preconditions(call: crud.Call, old: crud.Object, options: Options) -> None:
    meta = old["metadata"]
    for wanted, found, what in (
        (options.uid, meta["uid"], "UID"),
        (options.resource_version, meta["resourceVersion"], "ResourceVersion"),
    ):
        if wanted and wanted != found:
            why = f"Precondition failed: {what} in precondition: {wanted}, {what} in object meta: {found}"
            raise conflict(call.resource, meta["name"], why)
