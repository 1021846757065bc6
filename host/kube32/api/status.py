"""Failures as Kubernetes `Status` objects, worded as kube-apiserver words them (clients match on it)."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import orjson

from kube32.contract import LIMITS, Resource, text

_CODES = {
    400: "BadRequest",
    401: "Unauthorized",
    403: "Forbidden",
    404: "NotFound",
    405: "MethodNotAllowed",
    406: "NotAcceptable",
    409: "Conflict",
    410: "Expired",
    413: "RequestEntityTooLarge",
    415: "UnsupportedMediaType",
    422: "Invalid",
    429: "TooManyRequests",
    500: "InternalError",
    503: "ServiceUnavailable",
    504: "Timeout",
}


@dataclass(frozen=True, slots=True)
class Cause:
    """One fault of one field.

    `type` is Kubernetes' (FieldValueInvalid, FieldValueRequired, ...); `message` is said after "field: ".
    """

    field: str
    type: str
    message: str


class ApiFailure(Exception):
    """A request that ends with a Status. `headers` go into the answer (Retry-After)."""

    def __init__(
        self,
        code: int,
        message: str,
        *,
        reason: str | None = None,
        details: dict[str, Any] | None = None,
        headers: dict[str, str] | None = None,
    ) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.reason = _CODES.get(code, "") if reason is None else reason
        self.details = details
        self.headers = headers or {}

    def status(self) -> dict[str, Any]:
        """The Status object."""
        body: dict[str, Any] = {
            "kind": "Status",
            "apiVersion": "v1",
            "metadata": {},
            "status": "Failure",
            "message": self.message,
        }
        if self.reason:
            body["reason"] = self.reason
        if self.details is not None:
            body["details"] = self.details
        body["code"] = self.code
        return body


def dump(obj: object) -> bytes:
    """JSON bytes. Text that is not valid Unicode (a lone surrogate) is replaced, never an error."""
    try:
        return orjson.dumps(obj)
    except TypeError:
        return json.dumps(obj).encode("ascii", "replace")


def success(details: dict[str, Any] | None = None) -> dict[str, Any]:
    """The Status of a success, as DELETE and binding answer it."""
    status: dict[str, Any] = {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success"}
    if details is not None:
        status["details"] = details
    return status


def qualified(resource: Resource | str) -> str:
    """ "pods", or "checkpoints.kube32.io"."""
    if isinstance(resource, str):
        return resource
    return f"{resource.plural}.{resource.group}" if resource.group else resource.plural


def object_details(resource: Resource | str, name: str, **more: Any) -> dict[str, Any]:
    """A Status' details that name an object by its plural."""
    details: dict[str, Any] = {}
    if name:
        details["name"] = name
    if isinstance(resource, Resource):
        if resource.group:
            details["group"] = resource.group
        details["kind"] = resource.plural
    else:
        details["kind"] = resource
    details.update(more)
    return details


def not_found(resource: Resource | str, name: str) -> ApiFailure:
    """404 of an object."""
    return ApiFailure(
        404, f'{qualified(resource)} "{name}" not found', details=object_details(resource, name)
    )


def no_such_path() -> ApiFailure:
    """404 of a path or a resource that is not served."""
    return ApiFailure(404, "the server could not find the requested resource", details={})


def already_exists(resource: Resource, name: str) -> ApiFailure:
    """409 of a create."""
    return ApiFailure(
        409,
        f'{qualified(resource)} "{name}" already exists',
        reason="AlreadyExists",
        details=object_details(resource, name),
    )


def conflict(resource: Resource, name: str, why: str = "") -> ApiFailure:
    """409 of an update. Without `why`: the object has been modified."""
    why = why or "the object has been modified; please apply your changes to the latest version and try again"
    return ApiFailure(
        409,
        f'Operation cannot be fulfilled on {qualified(resource)} "{name}": {why}',
        details=object_details(resource, name),
    )


def bad_request(message: str) -> ApiFailure:
    """400."""
    return ApiFailure(400, message)


def invalid(kind: str | Resource, name: str, causes: Sequence[Cause]) -> ApiFailure:
    """422 naming every faulty field. `kind` is the Resource, or a kind's name in the core group."""
    group = kind.group if isinstance(kind, Resource) else ""
    kind_name = kind.kind if isinstance(kind, Resource) else kind
    said = [f"{c.field}: {c.message}" for c in causes]
    listed = said[0] if len(said) == 1 else f"[{', '.join(said)}]"
    details: dict[str, Any] = {"name": name}
    if group:
        details["group"] = group
    details["kind"] = kind_name
    details["causes"] = [{"reason": c.type, "message": c.message, "field": c.field} for c in causes]
    shown = f"{kind_name}.{group}" if group else kind_name
    return ApiFailure(422, f'{shown} "{name}" is invalid: {listed}', details=details)


def unprocessable(message: str) -> ApiFailure:
    """422 about a body as a whole (snapshot, module, patch)."""
    return ApiFailure(422, message)


def forbidden(
    user: str,
    verb: str,
    resource: Resource | str,
    *,
    subresource: str = "",
    namespace: str = "",
    name: str = "",
    group: str = "",
    why: str = "",
) -> ApiFailure:
    """403 of the authorizer: who cannot do what, where."""
    plural = resource.plural if isinstance(resource, Resource) else resource
    group = resource.group if isinstance(resource, Resource) else group
    target = f"{plural}/{subresource}" if subresource else plural
    where = f'in the namespace "{namespace}"' if namespace else "at the cluster scope"
    message = f'User "{user}" cannot {verb} resource "{target}" in API group "{group}" {where}'
    return forbidden_because(resource, name, f"{message}: {why}" if why else message)


def forbidden_because(resource: Resource | str, name: str, why: str) -> ApiFailure:
    """403 with a reason of one's own: `pods "x" is forbidden: <why>`."""
    subject = f'{qualified(resource)} "{name}"' if name else qualified(resource)
    return ApiFailure(403, f"{subject} is forbidden: {why}", details=object_details(resource, name))


def forbidden_path(user: str, verb: str, path: str, why: str = "") -> ApiFailure:
    """403 of a path that is no resource."""
    message = f'forbidden: User "{user}" cannot {verb} path "{path}"'
    return ApiFailure(403, f"{message}: {why}" if why else message, details={})


def unauthorized() -> ApiFailure:
    """401."""
    return ApiFailure(401, "Unauthorized")


def too_large(limit: int, message: str = "") -> ApiFailure:
    """413. Without `message`: the request's body is larger than `limit` bytes."""
    return ApiFailure(413, message or f"Request entity too large: limit is {limit}")


def expired(message: str) -> ApiFailure:
    """410: the resource version is no longer known."""
    return ApiFailure(410, message)


def unsupported_media(message: str = "") -> ApiFailure:
    """415. Without `message`: the body is none of the formats that are read."""
    return ApiFailure(
        415,
        message
        or "the body of the request was in an unknown format - accepted media types include: "
        "application/json, application/yaml",
    )


def not_acceptable() -> ApiFailure:
    """406."""
    return ApiFailure(
        406,
        "only the following media types are accepted: application/json, application/json;stream=watch",
    )


def method_not_allowed() -> ApiFailure:
    """405."""
    return ApiFailure(405, "the server does not allow this method on the requested resource", details={})


def timeout(message: str, causes: Sequence[Cause] = ()) -> ApiFailure:
    """504."""
    details: dict[str, Any] = {}
    if causes:
        details["causes"] = [{"reason": c.type, "message": c.message} for c in causes]
    return ApiFailure(504, message, details=details)


def version_too_large(asked: int, current: int) -> ApiFailure:
    """504 of a list from a revision that has not been given out; clients retry on the cause."""
    failure = timeout(
        text("answers", "future", asked=asked, current=current),
        [Cause("", "ResourceVersionTooLarge", "Too large resource version")],
    )
    assert failure.details is not None
    failure.details["retryAfterSeconds"] = 1
    failure.headers["Retry-After"] = "1"
    return failure


def too_many_requests(message: str, retry_after_s: int = LIMITS.watch_retry_after_s) -> ApiFailure:
    """429 with Retry-After."""
    return ApiFailure(
        429,
        message,
        details={"retryAfterSeconds": retry_after_s},
        headers={"Retry-After": str(retry_after_s)},
    )


def unavailable(message: str, retry_after_s: int = 0) -> ApiFailure:
    """503, with Retry-After when `retry_after_s` is given."""
    headers = {"Retry-After": str(retry_after_s)} if retry_after_s else None
    return ApiFailure(503, message, headers=headers)


def storage_full(message: str) -> ApiFailure:
    """500, as the specification has it ("Persistence journal")."""
    return ApiFailure(500, message, reason="StorageFull")


def internal(message: str) -> ApiFailure:
    """500."""
    return ApiFailure(500, f"Internal error occurred: {message}", details={"causes": [{"message": message}]})
