"""DELETE of one object or of a collection: preconditions, finalizers, graceful deletion."""

import asyncio
from dataclasses import dataclass
from typing import Any

import orjson

from kube32.api import admission, bodies, crud, metadata, namespaces, pods, selectors
from kube32.api.http import Request, Response
from kube32.api.status import ApiFailure, Cause, bad_request, conflict, dump, invalid, success
from kube32.store import Entry

_POLICIES = ("Orphan", "Background", "Foreground")
_RETURNED = ("Pod", "Namespace")


@dataclass(slots=True)
class Options:
    """DeleteOptions from the body, or from the query without a body. `grace_s` None: the object's own."""

    grace_s: int | None = None
    uid: str = ""
    resource_version: str = ""
    dry_run: bool = False


async def handle(call: crud.Call) -> Response:
    """200 with a Status when the object is gone, else (and for pods and namespaces) with the object.

    ApiFailure 400, 403, 404, 409, 413, 415, 422.
    """
    options = await read_options(call)
    entry, gone = remove(call, call.info.name, options)
    if gone and call.resource.kind not in _RETURNED:
        details = {"name": call.info.name}
        if call.resource.group:
            details["group"] = call.resource.group
        details.update(kind=call.resource.plural, uid=entry.obj["metadata"]["uid"])
        return Response(200, dump(success(details)))
    return crud.answer(call, 200, entry)


async def handle_collection(call: crud.Call) -> Response:
    """200 with a list of what was deleted; ApiFailure as `handle`."""
    options = await read_options(call)
    request = call.request
    match = selectors.match_of(call.resource, request.q("labelSelector"), request.q("fieldSelector"))
    removed: list[Entry] = []
    for entry in call.store.scan(call.prefix)[0]:
        if match is not None and not match(entry.obj):
            continue
        try:
            removed.append(remove(call, entry.obj["metadata"]["name"], options)[0])
        except ApiFailure as failure:
            if failure.code != 404:
                raise
        # Watchers read between two deletions: their buffers are shorter than collections.
        await asyncio.sleep(0)
    resource = call.resource
    head = {
        "kind": f"{resource.kind}List",
        "apiVersion": resource.api_version,
        "metadata": {"resourceVersion": str(call.store.revision)},
    }
    items = b",".join(entry.value for entry in removed)
    return Response(200, b"".join((orjson.dumps(head)[:-1], b',"items":[', items, b"]}")))


async def read_options(call: crud.Call) -> Options:
    """The options of a deletion; ApiFailure 400, 413, 415, 422."""
    data = await call.body()
    body = _body(call.request, data) if data.strip() else _from_query(call.request)
    admission.check_fields("DeleteOptions", body, "Ignore")
    policy = body.get("propagationPolicy")
    if policy is not None and policy not in _POLICIES:
        supported = ", ".join(f'"{p}"' for p in _POLICIES)
        message = f'Unsupported value: "{policy}": supported values: {supported}'
        raise invalid("DeleteOptions", "", [Cause("propagationPolicy", "FieldValueNotSupported", message)])
    preconditions = body.get("preconditions") or {}
    grace = body.get("gracePeriodSeconds")
    return Options(
        None if grace is None else max(grace, 0) if grace >= 0 else 1,
        preconditions.get("uid") or "",
        preconditions.get("resourceVersion") or "",
        crud.dry_run_of([*(body.get("dryRun") or ()), *call.request.query.get("dryRun", ())]),
    )


def _body(request: Request, data: bytes) -> dict[str, Any]:
    try:
        value = bodies.parse(data, bodies.media_type(request))
    except ValueError as error:
        raise bad_request(f"couldn't get version/kind; json parse error: {error}") from None
    if not isinstance(value, dict):
        raise bad_request(f"json: cannot unmarshal {bodies.type_name(value)} into DeleteOptions")
    if value.get("kind") not in (None, "", "DeleteOptions"):
        raise bad_request(f"decoded object cannot be converted to DeleteOptions: it is a {value['kind']}")
    return value


def _from_query(request: Request) -> dict[str, Any]:
    body: dict[str, Any] = {}
    grace = request.q("gracePeriodSeconds")
    if grace:
        if not grace.removeprefix("-").isdigit() or not grace.isascii() or len(grace) > 12:
            raise bad_request(f'invalid gracePeriodSeconds "{grace}": it is not a number of seconds')
        body["gracePeriodSeconds"] = int(grace)
    if policy := request.q("propagationPolicy"):
        body["propagationPolicy"] = policy
    return body


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
    if resource.kind == "Namespace":
        namespaces.check_mortal(old["metadata"]["name"])
    _check_preconditions(call, old, options)
    call.server.security.admit(call.user, call.info, old, None)
    grace_s = pods.grace_s(old, options.grace_s, call.limits) if resource.kind == "Pod" else 0
    new = orjson.loads(current.value)
    metadata.mark_deleted(resource, new, grace_s)
    if resource.kind == "Namespace":
        namespaces.terminate(new)
    gone = metadata.is_finished(new)
    if options.dry_run:
        return current if gone else crud.unstored(current.key, new, current.revision), gone
    if gone:
        return crud.remove(call, current), True
    return crud.put(call, current, new), False


def _check_preconditions(call: crud.Call, old: crud.Object, options: Options) -> None:
    meta = old["metadata"]
    for wanted, found, what in (
        (options.uid, meta["uid"], "UID"),
        (options.resource_version, meta["resourceVersion"], "ResourceVersion"),
    ):
        if wanted and wanted != found:
            why = f"Precondition failed: {what} in precondition: {wanted}, {what} in object meta: {found}"
            raise conflict(call.resource, meta["name"], why)
