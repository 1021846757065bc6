"""POST .../serviceaccounts/NAME/token: a token of a ServiceAccount (`kubectl create token`, projected volumes).

A node gets tokens only for the ServiceAccounts of its own pods, each bound to one of them.
"""

from typing import TYPE_CHECKING, Any

from kube32.api import admission, bodies, crud
from kube32.api.authorizer import is_bound, node_of
from kube32.api.http import Request, Response
from kube32.api.identity.accounts import BOUND_KINDS, Account, Bound
from kube32.api.metadata import timestamp
from kube32.api.routes import RequestInfo
from kube32.api.status import (
    Cause,
    bad_request,
    conflict,
    dump,
    forbidden_because,
    invalid,
    not_found,
)
from kube32.contract import NAMES, Resource, resource_of

if TYPE_CHECKING:
    from kube32.api.server import ApiServer

Object = dict[str, Any]
_KIND, _API_VERSION = "TokenRequest", "authentication.k8s.io/v1"


async def handle(server: "ApiServer", request: Request, info: RequestInfo) -> Response:
    """201 with the token in status. ApiFailure 400, 403, 404, 409, 422."""
    resource = info.resource
    assert resource is not None and request.user is not None
    call = crud.Call(server, request, info, resource, request.user)
    dry_run = crud.is_dry_run(call)
    body = bodies.decode(await call.body(), bodies.media_type(request), resource, _KIND, _API_VERSION)
    call.warnings.extend(admission.check_fields(_KIND, body, request.q("fieldValidation")))
    account = call.existing().obj["metadata"]
    spec = body.get("spec") or {}
    seconds = _seconds(server, spec)
    audiences = list(spec.get("audiences") or ()) or [NAMES.token_issuer]
    bound, node = _bound(call, spec.get("boundObjectRef"))
    _check_node(call, bound, node)
    spec.update(audiences=audiences, expirationSeconds=seconds)
    metadata = {"name": info.name, "namespace": info.namespace, "creationTimestamp": None}
    answer: Object = {"kind": _KIND, "apiVersion": _API_VERSION, "metadata": metadata, "spec": spec}
    if not dry_run:
        owner = Account(info.namespace, info.name, str(account["uid"]))
        token, expires = server.security.accounts.issue(owner, audiences, seconds, bound, node)
        answer["status"] = {"token": token, "expirationTimestamp": timestamp(expires)}
    return Response(201, dump(answer), crud.warning_headers(call.warnings))


def _seconds(server: "ApiServer", spec: Object) -> int:
    """How long the token is to live."""
    limits = server.limits
    asked = spec.get("expirationSeconds")
    if asked is None:
        return limits.token_seconds
    why = ""
    if asked < limits.token_min_seconds:
        why = f"may not specify a duration less than {limits.token_min_seconds // 60} minutes"
    elif asked > limits.token_max_seconds:
        why = "may not specify a duration larger than 2^32 seconds"
    if why:
        cause = Cause("spec.expirationSeconds", "FieldValueInvalid", f"Invalid value: {asked}: {why}")
        raise invalid(_request_kind(), "", [cause])
    return int(asked)


def _request_kind() -> Resource:
    """The kind that messages about a TokenRequest name; it has no row of its own."""
    review = resource_of("TokenReview")
    return Resource(
        review.group, review.version, _KIND, "tokenrequests", True, "", review.persist, review.openapi, ()
    )


def _bound(call: crud.Call, reference: Any) -> tuple[Bound | None, str]:
    """The object that the token is to end with, and the node of the pod it is."""
    if not reference:
        return None, ""
    kind, name = str(reference.get("kind") or ""), str(reference.get("name") or "")
    if kind not in BOUND_KINDS or reference.get("apiVersion") not in ("v1", "", None):
        raise bad_request(
            f"cannot bind token to object of type {reference.get('apiVersion') or 'v1'}, Kind={kind}"
        )
    resource = resource_of(kind)
    entry = call.store.get(resource.object_key(call.info.namespace, name))
    if entry is None:
        raise not_found(resource, name)
    metadata, spec = entry.obj["metadata"], entry.obj.get("spec") or {}
    uid = reference.get("uid") or ""
    if uid and uid != metadata["uid"]:
        why = (
            f"the UID in the bound object reference ({uid}) does not match the UID in record. "
            "The object might have been deleted and then recreated"
        )
        raise conflict(resource, name, why)
    if kind == "Pod" and (spec.get("serviceAccountName") or "default") != call.info.name:
        raise bad_request(
            f'cannot bind token for serviceaccount "{call.info.name}" to pod running with different '
            "serviceaccount name"
        )
    return Bound(kind, name, str(metadata["uid"])), str(spec.get("nodeName") or "") if kind == "Pod" else ""


def _check_node(call: crud.Call, bound: Bound | None, node: str) -> None:
    """ApiFailure 403 when a node asks for a token that is not bound to a pod of its own (NodeRestriction)."""
    own = node_of(call.user)
    if own is None:
        return
    if bound is None or bound.kind != "Pod":
        raise forbidden_because(
            call.resource, call.info.name, f'node "{own}" requested token not bound to a pod'
        )
    pod = call.store.get(resource_of("Pod").object_key(call.info.namespace, bound.name))
    if pod is None or not is_bound(pod.obj, own):
        why = f'node "{own}" requested token bound to a pod scheduled on a different node'
        raise forbidden_because(call.resource, call.info.name, why)
