"""/proxy/<namespace>/<pod>/<path>: an HTTP request for the pod's k32_handle, with limits on what comes and
goes.
"""

import asyncio
import re
from urllib.parse import unquote

from aiohttp import web

from kube32.contract import NAMES, Limits, text
from kube32.kubelet.answers import (
    STATUS_HEADERS_TOO_LARGE,
    STATUS_TOO_LARGE,
    Refusal,
    bad_request,
    not_found,
    text_answer,
)
from kube32.kubelet.calls import STATUS_BAD_GATEWAY, STATUS_UNAVAILABLE, NotDelivered
from kube32.kubelet.pod_worker import PodWorker
from kube32.kubelet.registry import Registry
from kube32.wasm import HttpCall

_TOKEN = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_VALUE = re.compile(r"[\t\x20-\x7e\x80-\xff]*")
_FRAMING = frozenset(
    {
        "connection",
        "content-length",
        "keep-alive",
        "proxy-authenticate",
        "proxy-authorization",
        "proxy-connection",
        "te",
        "trailer",
        "transfer-encoding",
        "upgrade",
    }
)
_NO_BODY = frozenset({204, 205, 304})


async def answer_proxy(
    request: web.BaseRequest, rest: str, registry: Registry, limits: Limits
) -> web.StreamResponse:
    """Has the pod answer. `rest` is the raw path after /proxy/."""
    namespace, _, rest = rest.partition("/")
    name, _, path = rest.partition("/")
    worker = registry.worker(unquote(namespace), unquote(name))
    if worker is None:
        refusal = not_found(registry.missing(unquote(namespace), unquote(name)))
        # A pod may answer 404 itself; this one has not seen the request.
        refusal.headers[NAMES.header_not_here] = "true"
        raise refusal
    if len(request.headers) > limits.pod_request_headers:
        found, limit = len(request.headers), limits.pod_request_headers
        raise Refusal(
            STATUS_HEADERS_TOO_LARGE,
            "HeadersTooLarge",
            text("answers", "headers_too_many", found=found, limit=limit),
        )
    held = 0
    try:
        worker.check()
        body = await read_body(request, limits.pod_request_body_bytes, limits)
        held = hold(worker, held, len(body))
        answered = await worker.submit(_call(request, path, body))
        response = _response(worker, answered)
        held = hold(worker, held, len(body) + len(answered.response_body))
        return await _send(request, response, limits)
    except NotDelivered as refused:
        return _refused(worker, refused, limits)
    finally:
        hold(worker, held, 0)


def hold(worker: PodWorker, before: int, now: int) -> int:
    """Counts the bytes of a request that is under way, so that many large ones do not fill the node."""
    worker.held_bytes += now - before
    return now


def _call(request: web.BaseRequest, path: str, body: bytes) -> HttpCall:
    return HttpCall(
        method=request.method,
        path=f"/{path}",
        query=request.rel_url.raw_query_string,
        headers=[(k, v) for k, v in request.headers.items() if k.lower() not in _FRAMING],
        body=body,
    )


async def _send(request: web.BaseRequest, response: web.Response, limits: Limits) -> web.Response:
    try:
        async with asyncio.timeout(limits.stream_write_stall_ms / 1000):
            await response.prepare(request)
            await response.write_eof()
    except TimeoutError:
        if request.transport is not None:
            request.transport.abort()
    return response


async def read_body(request: web.BaseRequest, limit: int, limits: Limits) -> bytes:
    """The request's body; Refusal 413 when it is larger than `limit`, 400 when it stops coming."""
    announced = request.content_length
    if announced is not None and announced > limit:
        raise _too_large(announced, limit)
    body = bytearray()
    try:
        while chunk := await asyncio.wait_for(request.content.readany(), limits.api_read_stall_ms / 1000):
            body += chunk
            if len(body) > limit:
                raise _too_large(len(body), limit)
    except TimeoutError:
        raise bad_request("the request's body stopped coming") from None
    return bytes(body)


def _too_large(found: int, limit: int) -> Refusal:
    return Refusal(
        STATUS_TOO_LARGE, "RequestEntityTooLarge", text("answers", "body_too_large", found=found, limit=limit)
    )


def _refused(worker: PodWorker, refused: NotDelivered, limits: Limits) -> web.Response:
    namespace, name = worker.key
    kind = "frozen" if refused.kind == "not_running" and worker.restoring else refused.kind
    limit = limits.pod_request_bytes_held if kind == "busy_bytes" else limits.pod_request_queue
    message = text("answers", kind, pod=name, namespace=namespace, limit=limit, cause=refused.cause)
    headers = {}
    if refused.status == STATUS_UNAVAILABLE:
        headers["Retry-After"] = str(limits.pod_retry_after_s)
        headers[NAMES.header_not_delivered] = "true"
    if kind == "frozen":
        # A proxy in front may hold and deliver again on this mark alone: the pod saw nothing of the request.
        headers[NAMES.header_frozen] = worker.uid
    return text_answer(message, refused.status, headers)


def _response(worker: PodWorker, call: HttpCall) -> web.Response:
    status = call.response_status
    if not 200 <= status <= 599:
        message = text("answers", "headers_refused", pod=worker.key[1], status=status)
        return text_answer(message, STATUS_BAD_GATEWAY)
    body = None if status in _NO_BODY else call.response_body
    response = web.Response(status=status, body=body)
    for name, value in call.response_headers:
        if acceptable(name, value):
            if name.lower() in ("content-type", "date", "server"):
                response.headers[name] = value
            else:
                response.headers.add(name, value)
    return response


def acceptable(name: str, value: str) -> bool:
    """Whether a pod's header goes out: it must not frame the answer, nor pass for the kubelet's own mark."""
    lower = name.lower()
    if lower in _FRAMING or lower.startswith(NAMES.header_prefix.lower()):
        return False
    return _TOKEN.fullmatch(name) is not None and _VALUE.fullmatch(value) is not None
