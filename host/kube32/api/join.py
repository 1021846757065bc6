"""POST /apis/kube32.io/v1/join: a worker gets its certificates and its own token (decisions, "Security").

The join token admits under names that nobody holds; a node's own credential admits again under its name,
with the token it has. A name is held while its Lease is renewed.
"""

import asyncio
import ipaddress
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import orjson

from kube32.api.authorizer import node_of
from kube32.api.http import Request, Response, UserInfo
from kube32.api.pki import RequestRefused
from kube32.api.routes import RequestInfo
from kube32.api.security import IssuedNode, Security, TooManyNodes
from kube32.api.status import (
    ApiFailure,
    bad_request,
    forbidden_because,
    internal,
    unsupported_media,
)
from kube32.contract import VERSIONS, Limits, resource_of, text
from kube32.store import Store

if TYPE_CHECKING:
    from kube32.api.server import ApiServer

API_VERSION = "kube32.io/v1"
_LABEL = r"[a-z0-9]([-a-z0-9]*[a-z0-9])?"
_SUBDOMAIN = re.compile(rf"{_LABEL}(\.{_LABEL})*")


@dataclass(frozen=True, slots=True)
class JoinSpec:
    """A join's checked spec; addresses are in their canonical form."""

    node: str
    request: str
    serving_request: str
    addresses: list[str]


async def handle(server: "ApiServer", request: Request, info: RequestInfo) -> Response:
    """Answers 201 with the certificates.

    400 for a body that is no join, 403 for another node's name, 409 for a name that is alive, 422 for a bad
    name, address or certificate request, 429 when no more nodes are taken.
    """
    content_type = request.headers.get("Content-Type", "application/json").partition(";")[0].strip().lower()
    if content_type != "application/json":
        raise unsupported_media()
    spec = parse_join(await request.body(server.limits.join_body_bytes), server.limits)
    user = request.user
    assert user is not None
    check_name_free(server.security, user, spec.node)
    try:
        issued = await _issue(server, request, user, spec)
    except RequestRefused as refused:
        raise ApiFailure(422, text("answers", "join_csr", cause=refused.cause)) from None
    except TooManyNodes:
        raise ApiFailure(429, text("answers", "join_full", limit=server.limits.join_nodes)) from None
    except OSError as error:
        raise internal(text("answers", "join_failed", cause=error.strerror or str(error))) from error
    status = {
        "certificate": issued.certificate,
        "servingCertificate": issued.serving_certificate,
        "ca": server.security.ca_pem,
        "token": issued.token,
    }
    answer = {
        "kind": "Join",
        "apiVersion": API_VERSION,
        "metadata": {"name": spec.node},
        "status": status,
    }
    return Response(201, orjson.dumps(answer))


def parse_join(body: bytes, limits: Limits) -> JoinSpec:
    """The spec of a join's body; ApiFailure 400 or 422."""
    try:
        join = orjson.loads(body)
    except orjson.JSONDecodeError as error:
        raise bad_request(f"the body is not JSON: {error}") from None
    if not isinstance(join, dict) or join.get("kind") != "Join" or join.get("apiVersion") != API_VERSION:
        raise bad_request(text("answers", "join_body", what=f"kind Join and apiVersion {API_VERSION}"))
    spec: Any = join.get("spec")
    fields = ("nodeName", "request", "servingRequest")
    if not isinstance(spec, dict) or not all(isinstance(spec.get(name), str) for name in fields):
        needed = "spec.nodeName, spec.request and spec.servingRequest as text"
        raise bad_request(text("answers", "join_body", what=needed))
    node: str = spec["nodeName"]
    if not is_node_name(node, limits):
        raise ApiFailure(422, text("answers", "join_name", name=node, limit=limits.node_name_chars))
    check_versions(node, spec.get("versions"))
    return JoinSpec(node, spec["request"], spec["servingRequest"], _addresses(spec.get("addresses"), limits))


def check_versions(node: str, told: Any) -> None:
    """ApiFailure 422 for a node whose snapshots or pod ABI this cluster does not have: no move shall find out."""
    if not isinstance(told, dict):
        raise bad_request(text("answers", "join_body", what="spec.versions"))
    for what, expected in VERSIONS.items():
        found = told.get(what)
        if found != expected:
            fields = {"name": node, "what": what, "found": found, "expected": expected}
            raise ApiFailure(422, text("answers", "join_versions", **fields))


def is_node_name(name: str, limits: Limits) -> bool:
    """Whether `name` can name a node: a DNS subdomain (RFC 1123) that fits a certificate's common name."""
    return len(name) <= limits.node_name_chars and _SUBDOMAIN.fullmatch(name) is not None


def _addresses(given: Any, limits: Limits) -> list[str]:
    if not isinstance(given, list) or not 1 <= len(given) <= limits.join_addresses:
        raise bad_request(text("answers", "join_body", what=f"1 to {limits.join_addresses} spec.addresses"))
    addresses = []
    for item in given:
        try:
            address = ipaddress.ip_address(item if isinstance(item, str) else "")
        except ValueError:
            address = None
        scoped = getattr(address, "scope_id", None) is not None
        if address is None or scoped or address.is_unspecified or address.is_multicast:
            message = text("answers", "join_address", address=item, limit=limits.join_addresses)
            raise ApiFailure(422, message)
        addresses.append(str(address))
    return addresses


def check_name_free(security: Security, user: UserInfo, node: str) -> None:
    """Raises ApiFailure 403 when a node asks for another name, 409 when others hold the name."""
    own = node_of(user)
    if own is not None:
        if own != node or security.is_local(node):
            why = f'node "{own}" is not allowed to join as node "{node}"'
            raise forbidden_because(resource_of("Node"), node, why)
        return
    if security.is_alive(node):
        raise ApiFailure(409, text("answers", "name_alive", name=node), reason="AlreadyExists")


async def _issue(server: "ApiServer", request: Request, user: UserInfo, spec: JoinSpec) -> IssuedNode:
    """Signs. One join at a time: two for one name must not both find it free."""
    security = server.security
    async with security.joining:
        check_name_free(security, user, spec.node)
        token = _own_token(request) if node_of(user) is not None else ""
        if not security.has_joined(spec.node):
            await _make_room(security, server.store, server.limits)
        issued = await asyncio.to_thread(
            security.issue_node, spec.node, spec.request, spec.serving_request, spec.addresses, token
        )
        if not token:
            security.hold(spec.node)
        return issued


def _own_token(request: Request) -> str:
    """The token that the node came with: it keeps it, so that a lost answer does no harm."""
    if request.peer_certificate or request.impersonator is not None:
        return ""
    return request.headers.get("Authorization", "").partition(" ")[2].strip()


async def _make_room(security: Security, store: Store, limits: Limits) -> None:
    """At the cap, ends the credentials of names that are not alive and have no Node any more."""
    joined = security.joined_nodes()
    if len(joined) < limits.join_nodes:
        return
    nodes = resource_of("Node")
    gone = [n for n in joined if not security.is_alive(n) and store.get(nodes.object_key("", n)) is None]
    if gone:
        await asyncio.to_thread(security.forget_nodes, gone)
