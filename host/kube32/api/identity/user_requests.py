"""/apis/kube32.io/v1/users: whoever may impersonate a user may have a credential made for it.

POST takes a User (name, spec.groups, spec.request) and gives the certificate, or a token when no request came
with it; GET lists what is kept of users; DELETE ends a user's credential. Rights are given by roles and bindings.
"""

import asyncio
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import orjson

from kube32.api.authorizer import refusal
from kube32.api.http import Request, Response, UserInfo
from kube32.api.identity.users import IssuedUser, TooManyUsers, UserRecord
from kube32.api.metadata import timestamp
from kube32.api.pki import RequestRefused
from kube32.api.rbac.rules import Attributes
from kube32.api.routes import RequestInfo
from kube32.api.status import (
    ApiFailure,
    bad_request,
    dump,
    internal,
    method_not_allowed,
    success,
    unsupported_media,
)
from kube32.contract import NAMES, Limits, text

if TYPE_CHECKING:
    from kube32.api.server import ApiServer

API_VERSION = "kube32.io/v1"
RESOURCE = "users"
_NAME = re.compile(r"[A-Za-z0-9]([A-Za-z0-9._@-]*[A-Za-z0-9])?")
_GROUP = re.compile(r"[A-Za-z0-9]([A-Za-z0-9._@:-]*[A-Za-z0-9])?")
_RESERVED = "system:"


@dataclass(frozen=True, slots=True)
class UserSpec:
    """A checked request for a credential. Without `request` a token is asked for."""

    name: str
    groups: tuple[str, ...]
    request: str


async def handle(server: "ApiServer", request: Request, info: RequestInfo) -> Response:
    """ApiFailure 400 for a body that is no User, 403, 404, 405, 422 for a bad name or request, 429."""
    users = server.security.users
    if info.verb == "create" and not info.name:
        return await _create(server, request)
    if info.verb == "delete" and info.name:
        async with server.security.joining:
            removed = await _written(asyncio.to_thread(users.remove, info.name))
        if not removed:
            raise _unknown(info.name)
        return Response(200, dump(success({"name": info.name, "group": "kube32.io", "kind": RESOURCE})))
    if info.verb not in ("get", "list"):
        raise method_not_allowed()
    if info.name:
        record = users.records.get(info.name)
        if record is None:
            raise _unknown(info.name)
        return Response(200, dump({"apiVersion": API_VERSION, "kind": "User", **_shown(info.name, record)}))
    items = [_shown(name, record) for name, record in sorted(users.records.items())]
    return Response(
        200, dump({"apiVersion": API_VERSION, "kind": "UserList", "metadata": {}, "items": items})
    )


async def _create(server: "ApiServer", request: Request) -> Response:
    content_type = request.headers.get("Content-Type", "application/json").partition(";")[0].strip().lower()
    if content_type != "application/json":
        raise unsupported_media()
    spec = parse_user(await request.body(server.limits.join_body_bytes), server.limits)
    user = request.user
    assert user is not None
    _check_may_be(server, user, spec)
    security = server.security
    try:
        async with security.joining:
            issued: IssuedUser = await _written(
                asyncio.to_thread(security.users.issue, spec.name, spec.groups, spec.request)
            )
    except RequestRefused as refused:
        raise ApiFailure(422, text("answers", "join_csr", cause=refused.cause)) from None
    except TooManyUsers:
        raise ApiFailure(429, text("answers", "user_full", limit=server.limits.users)) from None
    status: dict[str, Any] = {"ca": security.ca_pem, "replaced": issued.replaced}
    status.update({"certificate": issued.certificate} if issued.certificate else {"token": issued.token})
    answer = {
        "apiVersion": API_VERSION,
        "kind": "User",
        "metadata": {"name": spec.name, "creationTimestamp": timestamp(issued.created)},
        "spec": {"groups": list(spec.groups)},
        "status": status,
    }
    return Response(201, dump(answer))


async def _written(writing: Any) -> Any:
    """What a write of the users' file gives; ApiFailure 500 when it cannot be written."""
    try:
        return await writing
    except OSError as error:
        raise internal(text("answers", "user_failed", cause=error.strerror or str(error))) from error


def parse_user(body: bytes, limits: Limits) -> UserSpec:
    """The spec of a User's body; ApiFailure 400 or 422."""
    try:
        user = orjson.loads(body)
    except orjson.JSONDecodeError as error:
        raise bad_request(f"the body is not JSON: {error}") from None
    if not isinstance(user, dict) or user.get("kind") != "User" or user.get("apiVersion") != API_VERSION:
        raise bad_request(text("answers", "user_body", what=f"kind User and apiVersion {API_VERSION}"))
    name = (user.get("metadata") or {}).get("name") if isinstance(user.get("metadata"), dict) else None
    spec = user.get("spec", {})
    if not isinstance(name, str) or not isinstance(spec, dict):
        raise bad_request(text("answers", "user_body", what="metadata.name, and spec as an object"))
    groups, request = spec.get("groups", []), spec.get("request", "")
    if not isinstance(request, str) or not (
        isinstance(groups, list) and all(isinstance(g, str) for g in groups)
    ):
        what = "spec.groups as a list of texts and spec.request as text"
        raise bad_request(text("answers", "user_body", what=what))
    check_name(name, limits)
    return UserSpec(name, _checked_groups(groups, limits), request)


def check_name(name: str, limits: Limits) -> None:
    """ApiFailure 422 for what no user can be called."""
    if name.startswith(_RESERVED):
        raise ApiFailure(422, text("answers", "user_reserved", name=name))
    if len(name) > limits.user_name_chars or not _NAME.fullmatch(name):
        raise ApiFailure(422, text("answers", "user_name", name=name, limit=limits.user_name_chars))


def _checked_groups(groups: list[str], limits: Limits) -> tuple[str, ...]:
    found = tuple(dict.fromkeys(groups))
    if len(found) > limits.user_groups:
        raise ApiFailure(422, text("answers", "user_groups", limit=limits.user_groups))
    for group in found:
        if group.startswith(_RESERVED) and group != NAMES.group_masters:
            raise ApiFailure(422, text("answers", "user_reserved", name=group))
        if len(group) > limits.user_name_chars or not _GROUP.fullmatch(group):
            raise ApiFailure(422, text("answers", "user_group", name=group, limit=limits.user_name_chars))
    return found


def _check_may_be(server: "ApiServer", user: UserInfo, spec: UserSpec) -> None:
    """A credential of somebody is worth as much as being it: 403 unless `user` may impersonate it."""
    needed = [Attributes("impersonate", "", "users", name=spec.name)]
    needed.extend(Attributes("impersonate", "", "groups", name=group) for group in spec.groups)
    for wanted in needed:
        decision = server.security.decide(user, wanted)
        if not decision.allowed:
            raise refusal(user, wanted, decision.reason)


def _shown(name: str, record: UserRecord) -> dict[str, Any]:
    return {
        "metadata": {"name": name, "creationTimestamp": timestamp(record.created)},
        "spec": {"groups": list(record.groups)},
        "status": {"credential": "certificate" if record.serial else "token"},
    }


def _unknown(name: str) -> ApiFailure:
    return ApiFailure(
        404,
        text("answers", "user_unknown", name=name),
        details={"name": name, "group": "kube32.io", "kind": RESOURCE},
    )
