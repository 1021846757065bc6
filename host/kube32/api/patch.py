"""PATCH: JSON, merge and strategic merge patches, tried again in the server when another write was faster; apply
patches go to the room `apply`.

Source: decisions, "Departures from the seeds".
"""

from typing import Any

import orjson

from kube32.api import bodies, crud, patch_json, patch_strategic
from kube32.api.apply import handle as apply_handle
from kube32.api.apply import managed
from kube32.api.custom.resource import CustomResource
from kube32.api.http import Response
from kube32.api.status import ApiFailure, bad_request, unsupported_media
from kube32.contract import Resource, text
from kube32.store import Entry

JSON_PATCH = "application/json-patch+json"
MERGE_PATCH = "application/merge-patch+json"
STRATEGIC_PATCH = "application/strategic-merge-patch+json"
APPLY_PATCHES = ("application/apply-patch+yaml", "application/apply-patch+cbor")
_TYPES = (JSON_PATCH, MERGE_PATCH, STRATEGIC_PATCH)


async def handle(call: crud.Call) -> Response:
    """200 with the object as it is stored; ApiFailure 400, 403, 404, 409, 413, 415, 422."""
    media = bodies.media_type(call.request)
    if media in APPLY_PATCHES and not managed.is_offered(call.limits):
        raise unsupported_media(text("answers", "apply_patch"))
    if media == APPLY_PATCHES[0]:
        return await apply_handle.handle(call)
    if isinstance(call.resource, CustomResource) and media == STRATEGIC_PATCH:
        raise unsupported_media(text("custom", "strategic_patch"))
    if media not in _TYPES:
        raise unsupported_media(
            "the body of the request was in an unknown format - accepted media types include: "
            + ", ".join((*_TYPES, APPLY_PATCHES[0]))
        )
    data = await call.body()
    call.existing()
    read(data, media)

    def patched(current: Entry) -> crud.Object:
        call.warnings.clear()
        return _patched(call, current, read(data, media), media)

    return crud.answer(call, 200, crud.retry(call, patched))


def read(data: bytes, media: str) -> Any:
    """The patch in a body; ApiFailure 400 when it is not JSON or not of the patch's kind."""
    try:
        patch = bodies.parse(data, bodies.JSON)
    except ValueError as error:
        raise bad_request(f"error decoding patch: {error}") from None
    wanted = list if media == JSON_PATCH else dict
    if not isinstance(patch, wanted):
        said = "array" if wanted is list else "object"
        raise bad_request(
            f"error decoding patch: json: cannot unmarshal {bodies.type_name(patch)} into {said}"
        )
    return patch


def _patched(call: crud.Call, current: Entry, patch: Any, media: str) -> crud.Object:
    """The stored object with the patch applied and decoded again."""
    document = orjson.loads(current.value)
    result = applied(call.resource, document, patch, media, call.limits.api_body_bytes)
    if result.get("kind") != call.resource.kind or result.get("apiVersion") != call.resource.api_version:
        raise bad_request("the patch may not change kind and apiVersion")
    bodies.check_metadata(result)
    call.check_fields(result)
    return result


def applied(resource: Resource, document: crud.Object, patch: Any, media: str, limit: int) -> crud.Object:
    """The patched document; ApiFailure 400 and 422."""
    try:
        result = apply(resource, document, patch, media, limit)
    except patch_json.PatchFailed as error:
        raise ApiFailure(
            422, f"the server rejected our request due to an error in our request: {error}", details={}
        ) from None
    except patch_json.PatchError as error:
        raise bad_request(str(error)) from None
    if not isinstance(result, dict):
        raise bad_request("the patch leaves no object")
    return result


def apply(resource: Resource, document: crud.Object, patch: Any, media: str, limit: int) -> Any:
    """The patched document. Raises PatchError and PatchFailed."""
    try:
        if media == JSON_PATCH:
            return patch_json.apply(document, patch, limit)
        if media == MERGE_PATCH:
            return patch_json.merge(document, patch)
        return patch_strategic.apply(resource, document, patch)
    except RecursionError:
        raise patch_json.PatchError("the patch is nested too deeply") from None
    except orjson.JSONEncodeError as error:
        raise patch_json.PatchError(f"the patch cannot be applied: {error}") from None
