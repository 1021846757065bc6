"""nodes/proxy and pods/proxy: requests go on to kubelets, streamed both ways.

A pod gets neither the credentials nor the cookies of whoever asks; all pods share the API server's origin. A
frozen pod's 503 passes as it is, with Retry-After and its mark (specification, "What moves").
"""

from collections.abc import AsyncIterator, Mapping
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from kube32.api.http import Request, Response
from kube32.api.kubelets import KubeletStream
from kube32.api.routes import RequestInfo
from kube32.api.status import ApiFailure, bad_request, not_found, too_large, unavailable
from kube32.contract import NAMES, Limits, resource_of, text

if TYPE_CHECKING:
    from kube32.api.server import ApiServer

_HOP_BY_HOP = frozenset(
    (
        "connection",
        "keep-alive",
        "proxy-authenticate",
        "proxy-connection",
        "te",
        "trailer",
        "transfer-encoding",
        "upgrade",
    )
)
_KEPT_BACK = frozenset(("authorization", "proxy-authorization", "cookie", "host", "expect", "content-length"))
_NOT_PASSED_ON = frozenset(("set-cookie",))
_DEFAULT_TYPE = "application/octet-stream"


async def node_proxy(server: "ApiServer", request: Request, info: RequestInfo) -> Response:
    """Sends a request to a node's kubelet, path and query as they are after .../proxy."""
    headers, body = _outgoing(request)
    stream = await server.kubelets.request(
        info.name, request.method, f"/{info.rest}", query=request.query_string, headers=headers, body=body
    )
    return passed_on(stream)


async def pod_proxy(server: "ApiServer", request: Request, info: RequestInfo) -> Response:
    """Sends a request to a pod's k32_handle by way of its kubelet.

    404 for no such pod, 503 for one that does not run (with Retry-After when it may yet), 413 for a body
    that no pod takes.
    """
    name = pod_name(info.name)
    try:
        node = running_on(server, info.namespace, name)
    except ApiFailure as failure:
        raise undelivered(failure) from None
    limited = _Limited(request, server.limits)
    headers, body = _outgoing(request, limited)
    path = f"/proxy/{quote(info.namespace, safe='')}/{quote(name, safe='')}/{info.rest}"
    try:
        stream = await server.kubelets.request(
            node, request.method, path, query=request.query_string, headers=headers, body=body
        )
    except ApiFailure:
        if limited.failure is not None:
            raise limited.failure from None
        raise
    if NAMES.header_not_here in stream.headers:
        # The pod moved away while the request was on its way, or its new node has not heard of it yet.
        await stream.aclose()
        raise undelivered(unavailable(text("answers", "moving", pod=name), server.limits.pod_retry_after_s))
    return passed_on(stream)


def undelivered(failure: ApiFailure) -> ApiFailure:
    """Marks a failure: no pod saw anything of the request, another one may be asked."""
    failure.headers[NAMES.header_not_delivered] = "true"
    return failure


def pod_name(asked: str) -> str:
    """The pod in "pod", "pod:port" or "scheme:pod:port"; a pod has one handler, whatever the port."""
    parts = asked.split(":")
    if len(parts) == 3 and parts[0] in ("http", "https", ""):
        parts = parts[1:]
    name, port = parts[0], parts[1] if len(parts) == 2 else ""
    number = port.isascii() and port.isdigit()
    if len(parts) > 2 or (number and not 0 < int(port[:6]) < 65536) or not (port == "" or _is_port(port)):
        raise bad_request(text("answers", "proxy_port", name=asked))
    return name


def _is_port(port: str) -> bool:
    return len(port) <= 15 and port.isascii() and port.replace("-", "a").isalnum()


def existing_pod(server: "ApiServer", namespace: str, name: str) -> dict[str, Any]:
    """A pod; ApiFailure 404."""
    resource = resource_of("Pod")
    entry = server.store.get(resource.object_key(namespace, name))
    if entry is None:
        raise not_found(resource, name)
    return entry.obj


def running_on(server: "ApiServer", namespace: str, name: str) -> str:
    """The node of a running pod; ApiFailure 404 or 503."""
    pod = existing_pod(server, namespace, name)
    node = (pod.get("spec") or {}).get("nodeName")
    phase = (pod.get("status") or {}).get("phase")
    if not node or phase != "Running":
        ended = phase in ("Succeeded", "Failed")
        retry_s = 0 if ended else server.limits.pod_retry_after_s
        raise unavailable(text("answers", "not_running", pod=name), retry_s)
    return str(node)


class _Limited:
    """A request's body, up to what a pod takes."""

    def __init__(self, request: Request, limits: Limits) -> None:
        self._request = request
        self._limit = limits.pod_request_body_bytes
        self.failure: ApiFailure | None = None
        if request.content_length is not None and request.content_length > self._limit:
            raise self._too_large(request.content_length)

    async def chunks(self) -> AsyncIterator[bytes]:
        """The body as it arrives."""
        found = 0
        async for chunk in self._request.chunks():
            found += len(chunk)
            if found > self._limit:
                self.failure = self._too_large(found)
                raise self.failure
            yield chunk

    def _too_large(self, found: int) -> ApiFailure:
        return too_large(self._limit, text("answers", "body_too_large", found=found, limit=self._limit))


def _outgoing(
    request: Request, limited: _Limited | None = None
) -> tuple[dict[str, str], AsyncIterator[bytes] | None]:
    """Headers and body as they go to the kubelet."""
    headers = end_to_end(request.headers, _KEPT_BACK)
    if request.content_length == 0 or (
        request.content_length is None and "Transfer-Encoding" not in request.headers
    ):
        return headers, None
    if request.content_length is not None:
        headers["Content-Length"] = str(request.content_length)
    return headers, request.chunks() if limited is None else limited.chunks()


def end_to_end(headers: Mapping[str, str], without: frozenset[str]) -> dict[str, str]:
    """The headers that pass a proxy; those of one name are joined."""
    named = headers.get("Connection", "")
    dropped = _HOP_BY_HOP | without | {token.strip().lower() for token in named.split(",")}
    kept: dict[str, str] = {}
    for name, value in headers.items():
        if name.lower() not in dropped:
            known = next((k for k in kept if k.lower() == name.lower()), name)
            kept[known] = f"{kept[known]}, {value}" if known in kept else value
    return kept


def passed_on(stream: KubeletStream) -> Response:
    """A kubelet's answer as our own, its body streamed."""
    headers = end_to_end(stream.headers, _NOT_PASSED_ON)
    content_type = _DEFAULT_TYPE
    for name in list(headers):
        if name.lower() == "content-type":
            content_type = headers.pop(name)
    return Response(stream.status, stream, headers, content_type)
