"""The scale subresource: the size of an object with replicas, read and written as an autoscaling/v1 Scale.

Deployments have it at the fields that Kubernetes gives them, custom kinds at the paths of their definition.
"""

from dataclasses import replace
from typing import Any

import orjson

from kube32.api import admission, bodies, crud, patch
from kube32.api.apply import handle as apply_handle
from kube32.api.apply import managed
from kube32.api.custom.columns import columns_of
from kube32.api.custom.resource import CustomResource, Names, ScalePaths
from kube32.api.http import Response
from kube32.api.status import Cause, dump, internal, invalid, unprocessable, unsupported_media
from kube32.contract import Resource, text
from kube32.store import Entry

Object = dict[str, Any]
KIND, API_VERSION = "Scale", "autoscaling/v1"
_PATHS = ScalePaths(".spec.replicas", ".status.replicas")
_COPIED = ("name", "namespace", "uid", "resourceVersion", "creationTimestamp")
_COLUMNS, _PRINTERS = columns_of(
    {
        "additionalPrinterColumns": [
            {"name": "Desired", "type": "integer", "jsonPath": ".spec.replicas"},
            {"name": "Available", "type": "integer", "jsonPath": ".status.replicas"},
            {"name": "Age", "type": "date", "jsonPath": ".metadata.creationTimestamp"},
        ]
    }
)


async def handle(call: crud.Call) -> Response:
    """200 with the Scale of the object that the path names; ApiFailure 400, 403, 404, 409, 413, 415, 422, 500."""
    if call.info.verb == "get":
        return _answer(call, call.existing())
    write = _put if call.info.verb == "update" else _patch
    return _answer(call, await write(call))


def _answer(call: crud.Call, entry: Entry) -> Response:
    scale = scale_of(call.resource, entry.obj)
    shown = Entry(entry.key, dump(scale), entry.revision, scale)
    return crud.answer(replace(call, resource=_as_scale(call.resource)), 200, shown)


def _as_scale(resource: Resource) -> CustomResource:
    """What a Table of Scales needs to know."""
    names = Names(KIND.lower(), f"{KIND}List")
    group, version = API_VERSION.split("/")
    return CustomResource(
        group,
        version,
        KIND,
        resource.plural,
        resource.namespaced,
        resource.key,
        "",
        "",
        _COLUMNS,
        names=names,
        storage_version=version,
        printers=_PRINTERS,
    )


def scale_of(resource: Resource, obj: Object) -> Object:
    """An object's Scale. ApiFailure 500 when a custom object has no number of replicas."""
    paths = _paths(resource)
    wanted = _at(obj, paths.spec_replicas)
    if wanted is None and resource.builtin:
        wanted = 1
    if isinstance(wanted, bool) or not isinstance(wanted, int):
        raise internal(text("custom", "scale_missing", path=paths.spec_replicas))
    found = _at(obj, paths.status_replicas)
    status: Object = {"replicas": found if isinstance(found, int) else 0}
    selector = _selector(resource, obj, paths)
    if selector:
        status["selector"] = selector
    metadata = {k: obj["metadata"][k] for k in _COPIED if k in obj["metadata"]}
    return {
        "kind": KIND,
        "apiVersion": API_VERSION,
        "metadata": metadata,
        "spec": {"replicas": wanted} if wanted else {},
        "status": status,
    }


def _paths(resource: Resource) -> ScalePaths:
    found = resource.scale if isinstance(resource, CustomResource) else None
    return found or _PATHS


def _at(obj: Object, path: str) -> Any:
    value: Any = obj
    for name in path.removeprefix(".").split("."):
        value = value.get(name) if isinstance(value, dict) else None
    return value


def _selector(resource: Resource, obj: Object, paths: ScalePaths) -> str:
    if not resource.builtin:
        found = _at(obj, paths.label_selector) if paths.label_selector else None
        return found if isinstance(found, str) else ""
    selector: Object = (obj.get("spec") or {}).get("selector") or {}
    terms = [f"{key}={value}" for key, value in sorted((selector.get("matchLabels") or {}).items())]
    for row in selector.get("matchExpressions") or ():
        key, values = row.get("key", ""), ",".join(sorted(row.get("values") or ()))
        form = {"In": "{0} in ({1})", "NotIn": "{0} notin ({1})", "Exists": "{0}"}
        terms.append(form.get(row.get("operator", ""), "!{0}").format(key, values))
    return ",".join(terms)


async def _put(call: crud.Call) -> Entry:
    data, media = await call.body(), bodies.media_type(call.request)
    scale = bodies.decode(data, media, call.resource, KIND, API_VERSION)
    _check_fields(call, scale, data if media == bodies.JSON else None)
    return crud.retry(call, lambda current: _scaled(call, current, scale))


async def _patch(call: crud.Call) -> Entry:
    media = bodies.media_type(call.request)
    if media == patch.APPLY_PATCHES[0] and managed.is_offered(call.limits):
        return await apply_handle.handle_scale(call, KIND, API_VERSION, _paths(call.resource).spec_replicas)
    offered = (patch.JSON_PATCH, patch.MERGE_PATCH, patch.STRATEGIC_PATCH)
    if media not in (offered if call.resource.builtin else offered[:2]):
        raise unsupported_media(text("custom", "strategic_patch"))
    data = await call.body()
    patch.read(data, media)

    def scaled(current: Entry) -> Object:
        call.warnings.clear()
        document = scale_of(call.resource, current.obj)
        # A patch that names no resourceVersion is made again when somebody else was faster.
        del document["metadata"]["resourceVersion"]
        limit = call.limits.api_body_bytes
        # Scale has no lists: a strategic patch of it is a merge patch.
        how = patch.MERGE_PATCH if media == patch.STRATEGIC_PATCH else media
        scale = patch.applied(call.resource, document, patch.read(data, media), how, limit)
        bodies.check_metadata(scale)
        _check_fields(call, scale)
        return _scaled(call, current, scale)

    return crud.retry(call, scaled)


def _check_fields(call: crud.Call, scale: Object, raw: bytes | None = None) -> None:
    mode = call.request.q("fieldValidation")
    call.warnings.extend(admission.check_fields(KIND, scale, mode, raw))


def _scaled(call: crud.Call, current: Entry, scale: Object) -> Object:
    """The object with the replicas of a Scale, which may name the resourceVersion that it was made from."""
    name = current.obj["metadata"]["name"]
    wanted = (scale.get("spec") or {}).get("replicas") or 0
    if wanted < 0:
        said = f"Invalid value: {wanted}: {text('validation', 'not_negative')}"
        raise invalid("Scale.autoscaling", name, [Cause("spec.replicas", "FieldValueInvalid", said)])
    new: Object = orjson.loads(current.value)
    meta = scale.get("metadata") or {}
    for field in ("resourceVersion", "uid", "name", "namespace"):
        if meta.get(field):
            new["metadata"][field] = meta[field]
    _set(new, _paths(call.resource).spec_replicas, wanted)
    return new


def _set(obj: Object, path: str, value: int) -> None:
    *parents, last = path.removeprefix(".").split(".")
    for name in parents:
        obj = obj.setdefault(name, {})
        if not isinstance(obj, dict):
            raise unprocessable(text("custom", "scale_missing", path=path))
    obj[last] = value
