"""What only Pods have: binding, the one-write replacement of a move, the grace of a deletion."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import orjson

from kube32.api import admission, bodies, crud, metadata
from kube32.api.http import Request, Response
from kube32.api.routes import RequestInfo
from kube32.api.status import ApiFailure, Cause, bad_request, conflict, dump, invalid, success
from kube32.contract import Limits, resource_of
from kube32.store import Entry

if TYPE_CHECKING:
    from kube32.api.server import ApiServer

Object = dict[str, Any]
_REPLACEMENT_FIELDS = ("apiVersion", "kind", "metadata", "preconditions", "nodeName", "annotations")


def grace_s(pod: Object, asked: int | None, limits: Limits) -> int:
    """Seconds that a pod's deletion waits for its kubelet: none for a pod that no kubelet runs (any more)."""
    spec = pod.get("spec") or {}
    if not spec.get("nodeName") or (pod.get("status") or {}).get("phase") in ("Succeeded", "Failed"):
        return 0
    if asked is not None:
        return asked
    own = spec.get("terminationGracePeriodSeconds")
    return limits.pod_termination_grace_s if own is None else max(int(own), 0)


# --- binding ---


async def bind(call: crud.Call) -> Response:
    """POST .../pods/<name>/binding: 201 with a Status. ApiFailure 400, 404, 409, 413, 415, 422."""
    binding = bodies.decode(
        await call.body(), bodies.media_type(call.request), call.resource, "Binding", "v1"
    )
    call.warnings.extend(admission.check_fields("Binding", binding, call.request.q("fieldValidation")))
    metadata.place(call.resource, binding["metadata"], call.info.namespace, call.info.name)
    return _bind(call, binding)


async def bind_older(server: "ApiServer", request: Request, info: RequestInfo) -> Response:
    """POST .../bindings, Kubernetes' older form: the binding's name is the pod's."""
    assert request.user is not None
    call = crud.Call(server, request, info, resource_of("Pod"), request.user)
    binding = bodies.decode(await call.body(), bodies.media_type(request), call.resource, "Binding", "v1")
    call.warnings.extend(admission.check_fields("Binding", binding, request.q("fieldValidation")))
    metadata.place(call.resource, binding["metadata"], info.namespace, "")
    name = binding["metadata"].get("name")
    if not name:
        raise invalid("Binding", "", [Cause("metadata.name", "FieldValueRequired", "Required value")])
    info.name, info.resource, info.subresource = name, call.resource, "binding"
    return _bind(call, binding)


def _bind(call: crud.Call, binding: Object) -> Response:
    target = binding.get("target") or {}
    if target.get("kind") not in (None, "", "Node"):
        raise _bad_binding(call, "target.kind", "FieldValueNotSupported", 'supported values: "Node"')
    if not target.get("name"):
        raise _bad_binding(call, "target.name", "FieldValueRequired", "Required value")
    annotations = binding["metadata"].get("annotations") or {}

    def bound(current: Entry) -> Object:
        pod: Object = orjson.loads(current.value)
        _check_unbound(call, pod, binding)
        _place(pod, target["name"])
        if annotations:
            pod["metadata"]["annotations"] = {**(pod["metadata"].get("annotations") or {}), **annotations}
        return pod

    _rewrite(call, bound)
    return Response(201, dump(success()), crud.warning_headers(call.warnings))


def _bad_binding(call: crud.Call, field: str, kind: str, message: str) -> Exception:
    return invalid("Binding", call.info.name, [Cause(field, kind, message)])


def _check_unbound(call: crud.Call, pod: Object, binding: Object) -> None:
    meta, name = binding["metadata"], pod["metadata"]["name"]
    metadata.check_preconditions(
        call.resource, pod, name, meta.get("uid") or "", meta.get("resourceVersion") or ""
    )
    if pod["metadata"].get("deletionTimestamp"):
        raise conflict(call.resource, name, f"pod {name} is being deleted, cannot be assigned to a host")
    node = pod["spec"].get("nodeName")
    if node:
        raise conflict(call.resource, name, f'pod {name} is already assigned to node "{node}"')


def _place(pod: Object, node: str) -> None:
    """Binds a pod, or ("") leaves it to the scheduler."""
    status = pod.setdefault("status", {})
    conditions = [c for c in status.get("conditions") or () if c.get("type") != "PodScheduled"]
    if node:
        pod["spec"]["nodeName"] = node
        condition = {"type": "PodScheduled", "status": "True", "lastProbeTime": None}
        conditions.append({**condition, "lastTransitionTime": metadata.now()})
    else:
        pod["spec"].pop("nodeName", None)
    if conditions:
        status["conditions"] = conditions
    else:
        status.pop("conditions", None)


# --- replacement ---


async def replace(call: crud.Call) -> Response:
    """POST .../pods/<name>/replacement: 201 with the pod that takes the place of the one there, in one write.

    It keeps name, labels, owners, finalizers and spec; uid, creation time, node and status are new. Source:
    decisions, "Freezing and moving". ApiFailure 400, 404, 409, 413, 415, 422.
    """
    data, media = await call.body(), bodies.media_type(call.request)
    body = bodies.decode(data, media, call.resource, "PodReplacement", "kube32.io/v1")
    _check_replacement(body)
    preconditions = body.get("preconditions") or {}
    node = body.get("nodeName") or ""

    def replacement(current: Entry) -> Object:
        old = current.obj
        name = old["metadata"]["name"]
        metadata.check_preconditions(
            call.resource,
            old,
            name,
            preconditions.get("uid") or "",
            preconditions.get("resourceVersion") or "",
        )
        if old["metadata"].get("deletionTimestamp"):
            raise conflict(call.resource, name, f"pod {name} is being deleted, cannot be replaced")
        return _replacement(orjson.loads(current.value), node, body.get("annotations") or {})

    return crud.answer(call, 201, _rewrite(call, replacement))


def _check_replacement(body: Object) -> None:
    """ApiFailure 400 for unknown fields and wrong types: nothing of a move may be dropped in silence."""
    for key in body:
        if key not in _REPLACEMENT_FIELDS:
            raise bad_request(f'strict decoding error: unknown field "{key}"')
    preconditions, annotations = body.get("preconditions"), body.get("annotations")
    if preconditions is not None and not isinstance(preconditions, dict):
        raise bad_request("preconditions must be an object")
    for key, value in (preconditions or {}).items():
        if key not in ("uid", "resourceVersion") or not isinstance(value, str):
            raise bad_request(f"preconditions.{key} is not known or not a string")
    if not isinstance(body.get("nodeName", ""), str):
        raise bad_request("nodeName must be a string")
    if annotations is not None and (
        not isinstance(annotations, dict)
        or not all(value is None or isinstance(value, str) for value in annotations.values())
    ):
        raise bad_request("annotations must be an object of strings and nulls")


def _replacement(pod: Object, node: str, annotations: dict[str, str | None]) -> Object:
    meta = pod["metadata"]
    meta["uid"] = metadata.new_uid()
    meta["creationTimestamp"] = metadata.now()
    meta["generation"] = 1
    merged = {**(meta.get("annotations") or {}), **annotations}
    kept = {key: value for key, value in merged.items() if value is not None}
    if kept:
        meta["annotations"] = kept
    else:
        meta.pop("annotations", None)
    status: Object = {"phase": "Pending"}
    quality = (pod.get("status") or {}).get("qosClass")
    if quality:
        status["qosClass"] = quality
    pod["status"] = status
    _place(pod, node)
    return pod


def _rewrite(call: crud.Call, make: Callable[[Entry], Object]) -> Entry:
    """Writes what `make` makes of the pod, server-owned fields too, again when another write was faster."""
    dry_run = crud.is_dry_run(call)
    while True:
        current = call.existing()
        new = make(current)
        admission.validate_create(call.resource, new)
        call.server.security.admit(call.user, call.info, current.obj, new)
        if dry_run:
            return crud.unstored(current.key, new, current.revision)
        try:
            return crud.put(call, current, new)
        except ApiFailure as failure:
            if not crud.overtaken(call, current, failure):
                raise
