"""services/proxy: round robin over a Service's Ready pods; another pod only when the first saw nothing.

While one of its pods is frozen or moves, a request waits for it, `proxy_hold_ms` at most.
"""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from kube32.api import proxy
from kube32.api.http import Request, Response
from kube32.api.routes import RequestInfo
from kube32.api.status import ApiFailure, bad_request, not_found, unavailable
from kube32.contract import NAMES, Limits, resource_of, text

if TYPE_CHECKING:
    from kube32.api.server import ApiServer

Obj = dict[str, Any]


async def handle(server: "ApiServer", request: Request, info: RequestInfo) -> Response:
    """The answer of one of the Service's pods. ApiFailure 400, 404, 413, 503."""
    name, port = _asked(info.name)
    entry = server.store.get(resource_of("Service").object_key(info.namespace, name))
    if entry is None:
        raise not_found(resource_of("Service"), name)
    wanted = _Wanted(server, request, info, name, _port_name(entry.obj, name, port))
    wanted.body = await request.body(server.limits.pod_request_body_bytes)
    answer, soon = await wanted.ask_each()
    if answer is not None:
        return answer
    if not soon:
        raise wanted.refused()
    with server.turns.waiting(server.limits, info.namespace, name, len(wanted.body)):
        return await wanted.ask_until_it_answers()


@dataclass(slots=True)
class _Wanted:
    """One request for a Service's pods. Its body is kept: it may have to be sent to a second one."""

    server: "ApiServer"
    request: Request
    info: RequestInfo
    service: str
    port: str
    body: bytes = b""
    later: bool = False

    async def ask_until_it_answers(self) -> Response:
        """The answer, as soon as a pod takes the request; ApiFailure 503."""
        limits, loop = self.server.limits, asyncio.get_running_loop()
        until = loop.time() + limits.proxy_hold_ms / 1000
        while True:
            await asyncio.sleep(limits.proxy_hold_retry_ms / 1000)
            answer, soon = await self.ask_each()
            if answer is not None:
                return answer
            if not soon or loop.time() >= until:
                raise self.refused()

    async def ask_each(self) -> tuple[Response | None, bool]:
        """The first answer; None when no pod saw anything of the request, and whether one may take it soon."""
        namespace = self.info.namespace
        ready = _ready_pods(self.server, namespace, self.service, self.port)
        others = set(self.server.views.selected(namespace, self.service))
        others.difference_update(resource_of("Pod").object_key(namespace, pod) for pod in ready)
        soon = any(_on_its_way(self.server, key) for key in others)
        self.later = soon or bool(ready)
        for pod in self.server.turns.order((namespace, self.service), ready):
            answer, waits = await self._ask(pod)
            if answer is not None:
                return answer, False
            soon = soon or waits
        return None, soon

    async def _ask(self, pod: str) -> tuple[Response | None, bool]:
        """The pod's answer, None when it saw nothing of the request; whether it may take it soon."""
        request, info = self.request, self.info
        copied = Request(
            request.method,
            request.path,
            query_string=request.query_string,
            headers=request.headers,
            body=self.body,
            user=request.user,
        )
        to_pod = RequestInfo(info.verb, resource_of("Pod"), "proxy", info.namespace, pod, info.rest)
        try:
            answer = await proxy.pod_proxy(self.server, copied, to_pod)
        except ApiFailure as failure:
            if NAMES.header_not_delivered not in failure.headers:
                raise
            return None, "Retry-After" in failure.headers
        headers = {name.lower() for name in answer.headers}
        frozen = NAMES.header_frozen.lower() in headers
        if not frozen and NAMES.header_not_delivered.lower() not in headers:
            return answer, False
        close = getattr(answer.body, "aclose", None)
        if close is not None:
            await close()
        return None, frozen

    def refused(self) -> ApiFailure:
        """No pod took the request; one may soon, if there was any to ask or to wait for."""
        retry_s = self.server.limits.pod_retry_after_s if self.later else 0
        return unavailable(text("routes", "no_endpoints", service=self.service), retry_s)


class Turns:
    """Whose turn it is and what waits, by Service (namespace, name)."""

    def __init__(self) -> None:
        self._next: dict[tuple[str, str], int] = {}
        self._waiting: dict[tuple[str, str], list[int]] = {}

    def order(self, service: tuple[str, str], pods: list[str]) -> list[str]:
        """The pods, beginning with the one whose turn it is."""
        if len(pods) < 2:
            self._next.pop(service, None)
            return pods
        turn = self._next.get(service, 0) % len(pods)
        self._next[service] = turn + 1
        return [*pods[turn:], *pods[:turn]]

    @contextmanager
    def waiting(self, limits: Limits, namespace: str, name: str, size: int) -> Iterator[None]:
        """Counts a request that waits; ApiFailure 503 when too many do, or too large ones."""
        bodies = self._waiting.setdefault((namespace, name), [])
        if len(bodies) >= limits.pod_request_queue or sum(bodies) + size > limits.pod_request_bytes_held:
            raise unavailable(text("answers", "service_busy", service=name), limits.pod_retry_after_s)
        bodies.append(size)
        try:
            yield
        finally:
            bodies.remove(size)
            if not bodies:
                del self._waiting[namespace, name]


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


def _ready_pods(server: "ApiServer", namespace: str, name: str, port: str) -> list[str]:
    """The Service's Ready pods that have the port."""
    entry = server.views.store.get(resource_of("Endpoints").object_key(namespace, name))
    found: list[str] = []
    for subset in (entry.obj.get("subsets") or []) if entry is not None else []:
        if any(str(p.get("name") or "") == port for p in subset.get("ports") or []):
            names = [(a.get("targetRef") or {}).get("name") for a in subset.get("addresses") or []]
            found.extend(str(n) for n in names if n)
    return sorted(found)


def _on_its_way(server: "ApiServer", key: str) -> bool:
    """Whether the pod is frozen or restores: it takes requests again soon, with its state."""
    entry = server.store.get(key)
    if entry is None or entry.obj["metadata"].get("deletionTimestamp"):
        return False
    status = entry.obj.get("status") or {}
    if status.get("phase") in ("Succeeded", "Failed"):
        return False
    conditions = [c for c in status.get("conditions") or [] if c.get("type") == "Ready"]
    frozen = any(c.get("reason") == text("reasons", "frozen") for c in conditions)
    return frozen or NAMES.ann_restore_from in (entry.obj["metadata"].get("annotations") or {})
