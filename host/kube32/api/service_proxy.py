"""services/proxy: round robin over a Service's Ready pods; another pod only when the first saw nothing.

While one of its pods is frozen or moves, a request waits for it, `proxy_hold_ms` at most.
"""

import asyncio
from typing import TYPE_CHECKING, Any

from kube32.api import proxy
from kube32.api.http import Request, Response
from kube32.api.routes import RequestInfo
from kube32.api.status import ApiFailure, bad_request, not_found, unavailable
from kube32.contract import NAMES, resource_of, text

if TYPE_CHECKING:
    from kube32.api.server import ApiServer

Obj = dict[str, Any]


async def handle(server: "ApiServer", request: Request, info: RequestInfo) -> Response:
    """The answer of one of the Service's pods. ApiFailure 400, 404, 413, 503."""
    name, port = _asked(info.name)
    entry = server.store.get(resource_of("Service").object_key(info.namespace, name))
    if entry is None:
        raise not_found(resource_of("Service"), name)
    port_name = _port_name(entry.obj, name, port)
    body = await request.body(server.limits.pod_request_body_bytes)
    loop = asyncio.get_running_loop()
    until = loop.time() + server.limits.proxy_hold_ms / 1000
    while True:
        ready, others = _pods(server, info.namespace, name, port_name)
        soon = any(_on_its_way(server, info.namespace, pod) for pod in others)
        for pod in server.turns.order((info.namespace, name), ready):
            answer, waits = await _try(server, request, info, pod, body)
            if answer is not None:
                return answer
            soon = soon or waits
        if not soon or loop.time() >= until:
            retry_s = server.limits.pod_retry_after_s if soon or ready else 0
            raise unavailable(text("routes", "no_endpoints", service=name), retry_s)
        await asyncio.sleep(server.limits.proxy_hold_retry_ms / 1000)


class Turns:
    """Whose turn it is, by Service."""

    def __init__(self) -> None:
        self._next: dict[tuple[str, str], int] = {}

    def order(self, service: tuple[str, str], pods: list[str]) -> list[str]:
        """The pods, beginning with the one whose turn it is."""
        if not pods:
            self._next.pop(service, None)
            return []
        turn = self._next.get(service, 0) % len(pods)
        self._next[service] = turn + 1
        return [*pods[turn:], *pods[:turn]]


def _asked(asked: str) -> tuple[str, str]:
    """Service and port in "name", "name:port" or "scheme:name:port"; ApiFailure 400."""
    parts = asked.split(":")
    scheme = parts.pop(0) if len(parts) == 3 else ""
    if scheme == "https":
        raise bad_request(text("answers", "proxy_https", name=asked))
    if len(parts) > 2 or scheme not in ("", "http") or not parts[0]:
        raise bad_request(f'invalid service request "{asked}"')
    return parts[0], parts[1] if len(parts) == 2 else ""


def _port_name(service: Obj, name: str, port: str) -> str:
    """The name of the Service's port; ApiFailure 503, as kube-apiserver has it."""
    ports = (service.get("spec") or {}).get("ports") or []
    if not port:
        return str(ports[0].get("name") or "") if ports else ""
    if port.isascii() and port.isdigit():
        found = next((p for p in ports if p.get("port") == int(port[:6])), None)
        if found is None:
            raise unavailable(f'no service port {port[:6]} found for service "{name}"')
        return str(found.get("name") or "")
    return port


def _pods(server: "ApiServer", namespace: str, name: str, port: str) -> tuple[list[str], list[str]]:
    """The Service's Ready pods that have the port, and its others."""
    entry = server.views.store.get(resource_of("Endpoints").object_key(namespace, name))
    ready: list[str] = []
    others: list[str] = []
    for subset in (entry.obj.get("subsets") or []) if entry is not None else []:
        has_port = any(str(p.get("name") or "") == port for p in subset.get("ports") or [])
        for part, found in (("addresses", ready), ("notReadyAddresses", others)):
            names = [(a.get("targetRef") or {}).get("name") for a in subset.get(part) or []]
            found.extend(str(n) for n in names if n and has_port)
    return sorted(ready), others


def _on_its_way(server: "ApiServer", namespace: str, pod: str) -> bool:
    """Whether the pod is frozen or restores: it takes requests again soon, with its state."""
    entry = server.store.get(resource_of("Pod").object_key(namespace, pod))
    if entry is None:
        return False
    metadata, status = entry.obj["metadata"], entry.obj.get("status") or {}
    conditions = [c for c in status.get("conditions") or [] if c.get("type") == "Ready"]
    frozen = any(c.get("reason") == text("reasons", "frozen") for c in conditions)
    return frozen or NAMES.ann_restore_from in (metadata.get("annotations") or {})


async def _try(
    server: "ApiServer", request: Request, info: RequestInfo, pod: str, body: bytes
) -> tuple[Response | None, bool]:
    """The pod's answer, None when it saw nothing of the request; whether it may take it soon."""
    copied = Request(
        request.method,
        request.path,
        query_string=request.query_string,
        headers=request.headers,
        body=body or None,
        user=request.user,
    )
    to_pod = RequestInfo(info.verb, resource_of("Pod"), "proxy", info.namespace, pod, info.rest)
    try:
        answer = await proxy.pod_proxy(server, copied, to_pod)
    except ApiFailure as failure:
        if NAMES.header_not_delivered not in failure.headers:
            raise
        return None, "Retry-After" in failure.headers
    marks = {NAMES.header_frozen.lower(), NAMES.header_not_delivered.lower()}
    if not marks.intersection(name.lower() for name in answer.headers):
        return answer, False
    close = getattr(answer.body, "aclose", None)
    if close is not None:
        await close()
    return None, any(name.lower() == NAMES.header_frozen.lower() for name in answer.headers)
