"""Questions about rights and identities, answered by a create and kept nowhere: who am I, may I, may somebody, what
may I, whose token is this (authorization.k8s.io, authentication.k8s.io).
"""

from collections.abc import Awaitable, Callable, Iterable
from typing import Any

import orjson

from kube32.api import crud
from kube32.api.authorizer import node_of
from kube32.api.http import Response, UserInfo
from kube32.api.identity import jwt
from kube32.api.rbac.rules import Attributes
from kube32.api.routes import RequestInfo
from kube32.api.status import Cause, bad_request, dump, invalid, method_not_allowed, no_such_path
from kube32.contract import NAMES

Object = dict[str, Any]
_EVERYTHING: list[Object] = [
    {"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"]},
    {"verbs": ["*"], "nonResourceURLs": ["*"]},
]


async def handle(call: crud.Call) -> Response:
    """201 with the review and its status. ApiFailure 400, 405, 422."""
    handler = _HANDLERS.get(call.resource.kind)
    if handler is None:
        raise no_such_path()
    if call.info.verb != "create":
        raise method_not_allowed()
    crud.is_dry_run(call)
    review = await call.object()
    if not isinstance(review.get("spec"), dict):
        review["spec"] = {}
    review["status"] = await handler(call, review)
    review["metadata"].setdefault("creationTimestamp", None)
    return Response(201, dump(review), crud.warning_headers(call.warnings))


# --- may I, may somebody ---


async def _self_access(call: crud.Call, review: Object) -> Object:
    causes = _attribute_causes(review["spec"])
    _refuse(call, causes)
    return _access(call, call.user, review["spec"])


async def _access_of(call: crud.Call, review: Object) -> Object:
    spec = review["spec"]
    causes = _attribute_causes(spec)
    if not spec.get("user") and not spec.get("groups"):
        causes.append(
            _invalid("spec.user", spec.get("user") or "", "at least one of user or group must be specified")
        )
    _refuse(call, causes)
    extra = {str(key): list(values or ()) for key, values in (spec.get("extra") or {}).items()}
    asked = UserInfo(spec.get("user") or "", tuple(spec.get("groups") or ()), spec.get("uid") or "", extra)
    return _access(call, asked, spec)


async def _local_access(call: crud.Call, review: Object) -> Object:
    spec = review["spec"]
    namespace = (review["metadata"] or {}).get("namespace") or call.info.namespace
    if namespace != call.info.namespace:
        raise bad_request(
            "the namespace of the provided object does not match the namespace sent on the request"
        )
    review["metadata"]["namespace"] = namespace
    if spec.get("nonResourceAttributes") is not None:
        what = "disallowed on this kind of request"
        _refuse(call, [_invalid("spec.nonResourceAttributes", spec["nonResourceAttributes"], what)])
    named = (spec.get("resourceAttributes") or {}).get("namespace") or ""
    if spec.get("resourceAttributes") is not None and named != namespace:
        what = "must match metadata.namespace"
        _refuse(call, [_invalid("spec.resourceAttributes.namespace", named, what)])
    return await _access_of(call, review)


def _attribute_causes(spec: Object) -> list[Cause]:
    resource, other = spec.get("resourceAttributes"), spec.get("nonResourceAttributes")
    if resource is not None and other is not None:
        what = "cannot be specified in combination with resourceAttributes"
        return [_invalid("spec.nonResourceAttributes", other, what)]
    if resource is None and other is None:
        what = "exactly one of nonResourceAttributes or resourceAttributes must be specified"
        return [_invalid("spec.resourceAttributes", None, what)]
    return []


def _invalid(field: str, value: Any, what: str) -> Cause:
    shown = "null" if value is None else orjson.dumps(value).decode()
    return Cause(field, "FieldValueInvalid", f"Invalid value: {shown}: {what}")


def _refuse(call: crud.Call, causes: list[Cause]) -> None:
    if causes:
        raise invalid(call.resource, "", causes)


def _access(call: crud.Call, user: UserInfo, spec: Object) -> Object:
    wanted, info = _attributes(call, spec)
    decision = call.server.security.decide(user, wanted, info)
    status: Object = {"allowed": decision.allowed}
    if decision.reason:
        status["reason"] = decision.reason
    return status


def _attributes(call: crud.Call, spec: Object) -> tuple[Attributes, RequestInfo]:
    """What a review asks about, for roles and for the Node authorizer."""
    other = spec.get("nonResourceAttributes")
    if other is not None:
        verb, path = str(other.get("verb") or ""), str(other.get("path") or "")
        asked = "get" if verb == "head" else verb
        info = RequestInfo(verb, is_resource=False, non_resource_path=path)
        return Attributes(asked, path=path, is_resource=False), info
    row = spec.get("resourceAttributes") or {}
    verb, group, version, plural, subresource, namespace, name = (
        str(row.get(key) or "")
        for key in ("verb", "group", "version", "resource", "subresource", "namespace", "name")
    )
    resource = next(
        (
            r
            for r in call.server.catalog.resources
            if r.group == group and r.plural == plural and version in ("", "*", r.version)
        ),
        None,
    )
    virtual = plural if group == "kube32.io" and resource is None and plural in ("join", "topics") else ""
    info = RequestInfo(
        verb, resource, subresource, namespace, name, group=group, plural=plural, virtual=virtual
    )
    return Attributes(verb, group, plural, subresource, namespace, name), info


# --- what may I ---


async def _self_rules(call: crud.Call, review: Object) -> Object:
    namespace = review["spec"].get("namespace") or ""
    if not namespace:
        raise bad_request("no namespace on request")
    user, security = call.user, call.server.security
    rows = list(security.rbac.index.rows(user, namespace))
    if NAMES.group_masters in user.groups or NAMES.group_controllers in user.groups:
        rows = [*_EVERYTHING, *rows]
    resource_keys, path_keys = (
        ("verbs", "apiGroups", "resources", "resourceNames"),
        ("verbs", "nonResourceURLs"),
    )
    resource_rules = _once(_only(row, resource_keys) for row in rows if row.get("resources"))
    path_rules = _once(_only(row, path_keys) for row in rows if row.get("nonResourceURLs"))
    faults = list(security.rbac.index.missing(user, namespace))
    incomplete = node_of(user) is not None
    if incomplete:
        faults.insert(0, "node authorizer does not support user rule resolution")
    status: Object = {
        "resourceRules": resource_rules,
        "nonResourceRules": path_rules,
        "incomplete": incomplete or bool(faults),
    }
    if faults:
        status["evaluationError"] = ", ".join(faults)
    return status


def _only(row: Object, keys: Iterable[str]) -> Object:
    return {key: row[key] for key in keys if row.get(key)}


def _once(rows: Iterable[Object]) -> list[Object]:
    return list({orjson.dumps(row): row for row in rows}.values())


# --- who am I, whose token is this ---


async def _self_subject(call: crud.Call, review: Object) -> Object:
    return {"userInfo": _user_info(call.user)}


async def _token(call: crud.Call, review: Object) -> Object:
    spec = review["spec"]
    token = spec.get("token") or ""
    if not token:
        raise bad_request("token is required for TokenReview in authentication")
    audiences = list(spec.get("audiences") or ()) or [NAMES.token_issuer]
    try:
        user, common = call.server.security.review_token(token, audiences)
    except jwt.BadToken as error:
        return {"authenticated": False, "user": {}, "error": f"[invalid bearer token, {error}]"}
    return {"authenticated": True, "user": _user_info(user), "audiences": common}


def _user_info(user: UserInfo) -> Object:
    info: Object = {"username": user.name}
    if user.uid:
        info["uid"] = user.uid
    info["groups"] = list(user.groups)
    if user.extra:
        info["extra"] = {key: list(values) for key, values in user.extra.items()}
    return info


_HANDLERS: dict[str, Callable[[crud.Call, Object], Awaitable[Object]]] = {
    "SelfSubjectAccessReview": _self_access,
    "SubjectAccessReview": _access_of,
    "LocalSubjectAccessReview": _local_access,
    "SelfSubjectRulesReview": _self_rules,
    "SelfSubjectReview": _self_subject,
    "TokenReview": _token,
}
