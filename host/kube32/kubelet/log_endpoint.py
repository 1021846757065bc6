"""GET /containerLogs/<namespace>/<pod>/<container>: the log of the current or the previous run, as
`kubectl logs` asks.
"""

import asyncio
import time
from contextlib import aclosing

from aiohttp import web

from kube32.contract import Limits, text
from kube32.kubelet.answers import bad_request
from kube32.kubelet.container import Container
from kube32.kubelet.logs import ContainerLog, LogQuery
from kube32.kubelet.pod_worker import PodWorker
from kube32.kubelet.values import unix_ns

_TRUE = ("true", "1", "True")
_MAX_DIGITS = 15


async def answer_logs(
    request: web.BaseRequest, worker: PodWorker, container: Container, limits: Limits
) -> web.StreamResponse:
    """Streams the log; Refusal 400 for a bad parameter, or when there is no such run."""
    query = _query(request)
    log = _log(worker, container, request.query.get("previous", "") in _TRUE)
    response = web.StreamResponse(headers={"Content-Type": "text/plain; charset=utf-8"})
    response.enable_chunked_encoding()
    await response.prepare(request)
    stall_s = limits.stream_write_stall_ms / 1000
    try:
        async with aclosing(log.read(query)) as pieces:  # type: ignore[type-var]
            async for piece in pieces:
                async with asyncio.timeout(stall_s):
                    await response.write(piece)
        async with asyncio.timeout(stall_s):
            await response.write_eof()
    except TimeoutError:
        if request.transport is not None:
            request.transport.abort()
    return response


def _log(worker: PodWorker, container: Container, previous: bool) -> ContainerLog:
    name = worker.key[1]
    if previous:
        if container.ended_log is None:
            raise bad_request(text("answers", "previous_not_found", container=container.name, pod=name))
        return container.ended_log
    if container.log is None and container.record.terminated is not None:
        raise bad_request(text("answers", "log_gone", id=container.record.container_id))
    if container.log is None:
        reason = (container.record.waiting or (text("reasons", "container_creating"), ""))[0]
        raise bad_request(
            text("answers", "waiting_to_start", container=container.name, pod=name, reason=reason)
        )
    return container.log


def _query(request: web.BaseRequest) -> LogQuery:
    seconds = _number(request, "sinceSeconds", least=1)
    since = None if seconds is None else time.time_ns() - seconds * 1_000_000_000
    stamp = request.query.get("sinceTime", "")
    if stamp:
        since = unix_ns(stamp)
        if since is None:
            raise _invalid("sinceTime", "an RFC 3339 time", stamp)
    return LogQuery(
        follow=request.query.get("follow", "") in _TRUE,
        timestamps=request.query.get("timestamps", "") in _TRUE,
        tail_lines=_number(request, "tailLines", least=0),
        since_unix_ns=since,
        limit_bytes=_number(request, "limitBytes", least=1),
    )


def _number(request: web.BaseRequest, name: str, least: int) -> int | None:
    value = request.query.get(name, "")
    if not value:
        return None
    if not value.isascii() or not value.isdigit() or len(value) > _MAX_DIGITS or int(value) < least:
        raise _invalid(name, f"a whole number of at least {least}", value)
    return int(value)


def _invalid(name: str, rule: str, value: str) -> Exception:
    return bad_request(text("answers", "query_invalid", name=name, rule=rule, value=repr(value[:200])))
