"""GET and PUT of checkpoints/<name>/data: snapshots stream in, checked as they come, and out without a copy.

Specification, "Checkpoint objects and data". Data live in the snapshot pool, not in the object store.
"""

from collections.abc import AsyncIterator
from typing import TYPE_CHECKING, Any

from kube32.api.http import BodyCut, Request, Response
from kube32.api.routes import RequestInfo
from kube32.api.snapshot_pool import Incoming, SnapshotFacts, SnapshotPool, SnapshotTooLarge, StoredSnapshot
from kube32.api.status import (
    ApiFailure,
    bad_request,
    conflict,
    method_not_allowed,
    not_found,
    object_details,
    too_large,
    unprocessable,
    unsupported_media,
)
from kube32.contract import K32S, NAMES, Limits, resource_of, text
from kube32.formats.k32s import Reader, SnapshotRefused
from kube32.store import Change, Entry, NotFound, Store

if TYPE_CHECKING:
    from kube32.api.server import ApiServer

_IN_USE_PHASES = ("Saving", "Moving")


def make_pool(store: Store, limits: Limits) -> SnapshotPool:
    """The snapshot pool of a store: it spares data in use and drops the data of deleted Checkpoints."""
    pool = SnapshotPool(limits, lambda key: is_in_use(store, key))

    def changed(change: Change) -> None:
        if change.type == "DELETED" or (change.old is not None and _uid(change.old) != _uid(change.entry)):
            pool.forget(change.key)

    store.subscribe(resource_of("Checkpoint").prefix, changed)
    return pool


def is_in_use(store: Store, key: str) -> bool:
    """Whether a Checkpoint is Saving or Moving or a pod's restore-from names it: its data stay."""
    entry = store.get(key)
    if entry is None:
        return False
    if (entry.obj.get("status") or {}).get("phase") in _IN_USE_PHASES:
        return True
    metadata = entry.obj["metadata"]
    pods, _ = store.scan(resource_of("Pod").object_key(metadata["namespace"], ""))
    return any(
        (pod.obj["metadata"].get("annotations") or {}).get(NAMES.ann_restore_from) == metadata["name"]
        for pod in pods
    )


async def handle(server: "ApiServer", request: Request, info: RequestInfo) -> Response:
    """GET answers the snapshot, or 404 while there is none. PUT stores one and answers the Checkpoint."""
    key = resource_of("Checkpoint").object_key(info.namespace, info.name)
    entry = server.store.get(key)
    if entry is None:
        raise not_found(resource_of("Checkpoint"), info.name)
    if info.verb == "get":
        return _answer(server, key, info.name)
    if info.verb == "update":
        return await _receive(server, request, entry, info.name)
    raise method_not_allowed()


def _answer(server: "ApiServer", key: str, name: str) -> Response:
    snapshot = server.pool.get(key)
    if snapshot is None:
        message = text("answers", "checkpoint_no_data", name=name)
        raise ApiFailure(404, message, details=object_details(resource_of("Checkpoint"), name))
    headers = {
        "Content-Length": str(snapshot.size),
        K32S.headers["image_sha256"]: snapshot.facts.image_sha256,
        K32S.headers["snapshot_sha256"]: snapshot.facts.snapshot_sha256,
        K32S.headers["pod_time_ms"]: str(snapshot.facts.pod_time_ms),
    }
    return Response(200, _stream(snapshot), headers, K32S.content_type)


async def _stream(snapshot: StoredSnapshot) -> AsyncIterator[bytes | memoryview]:
    for chunk in snapshot.chunks():
        yield chunk


async def _receive(server: "ApiServer", request: Request, entry: Entry, name: str) -> Response:
    check_octets(request, K32S.content_type)
    size = request.content_length
    if size is None:
        raise ApiFailure(411, text("answers", "length_required"), reason="LengthRequired")
    incoming: Incoming | None = None
    try:
        incoming = server.pool.begin(entry.key, size)
        facts = await _read(request, incoming, size, server.limits)
        updated = _store(server, entry, incoming, facts, name)
    except SnapshotTooLarge as error:
        raise too_large(server.limits.snapshot_pool_bytes, str(error)) from None
    except SnapshotRefused as refusal:
        raise unprocessable(str(refusal)) from None
    finally:
        if incoming is not None:
            incoming.abort()
    return Response(200, updated.value)


async def _read(request: Request, incoming: Incoming, size: int, limits: Limits) -> SnapshotFacts:
    """Reads the body into the pool, checking it on the way."""
    reader = Reader(limits=limits, keep_memory=False)
    found = 0
    try:
        async for chunk in request.chunks():
            found += len(chunk)
            if found > size:
                break
            reader.feed(chunk)
            incoming.write(chunk)
    except BodyCut as error:
        raise bad_request(text("answers", "body_incomplete", cause=error)) from None
    if found != size:
        raise bad_request(text("answers", "body_length", found=found, expected=size))
    reader.finish()
    assert reader.header is not None
    header = reader.header
    return SnapshotFacts(reader.trailer.hex(), header.image_sha256.hex(), header.pod_time_ms)


def _store(server: "ApiServer", entry: Entry, incoming: Incoming, facts: SnapshotFacts, name: str) -> Entry:
    """Writes the status and puts the data in place, without waiting in between.

    404 when the Checkpoint was deleted while its data came, 409 when another has its name now.
    """
    resource = resource_of("Checkpoint")

    def note(checkpoint: dict[str, Any]) -> dict[str, Any]:
        if checkpoint["metadata"].get("uid") != _uid(entry):
            raise conflict(resource, name, "the checkpoint was replaced while its data was received")
        checkpoint["status"] = {
            **(checkpoint.get("status") or {}),
            "sizeBytes": incoming.size,
            "snapshotSha256": facts.snapshot_sha256,
            "imageSha256": facts.image_sha256,
            "podTimeMs": facts.pod_time_ms,
        }
        return checkpoint

    try:
        updated = server.store.update(entry.key, note)
    except NotFound:
        raise not_found(resource, name) from None
    incoming.commit(facts)
    current = server.store.get(entry.key)
    if current is None or _uid(current) != _uid(entry):  # another thread deleted it just now
        server.pool.forget(entry.key)
        raise not_found(resource, name)
    return updated


def check_octets(request: Request, *content_types: str) -> None:
    """Raises ApiFailure 415 for a body that says it is something else."""
    given = request.headers.get("Content-Type")
    if given is not None and given.partition(";")[0].strip().lower() not in content_types:
        accepted = ", ".join(content_types)
        raise unsupported_media(
            f"the body of the request was in an unknown format - accepted media types include: {accepted}"
        )


def _uid(entry: Entry) -> str:
    return str(entry.obj["metadata"].get("uid", ""))
