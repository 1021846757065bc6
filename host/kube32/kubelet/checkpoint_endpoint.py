"""POST /checkpoint and POST /thaw: statuses, bodies and headers of the specification's "Kubelet
endpoints".
"""

import asyncio
import logging

from aiohttp import web

from kube32.client.api import ApiClient, ApiError
from kube32.contract import K32S, Limits, text
from kube32.kubelet.answers import (
    STATUS_CONFLICT,
    STATUS_GATEWAY_TIMEOUT,
    STATUS_UNAVAILABLE,
    Refusal,
    bad_request,
    json_answer,
    not_found,
)
from kube32.kubelet.container import Container
from kube32.kubelet.freezer import Freezer, FreezeTimeout, FrozenState, NotMovable
from kube32.kubelet.pod_worker import PodWorker
from kube32.kubelet.registry import Registry
from kube32.kubelet.values import spec, uid_of

_LOG = logging.getLogger(__name__)
_LEAVE = ("running", "frozen")
# Gone, or bound to another node: a node may not read such a pod.
_NOT_HERE = (403, 404)


class CheckpointEndpoint:
    """Freezes, sends and thaws pods of this node."""

    def __init__(
        self, registry: Registry, freezer: Freezer, client: ApiClient, node_name: str, limits: Limits
    ) -> None:
        self._registry = registry
        self._freezer = freezer
        self._client = client
        self._node_name = node_name
        self._limits = limits

    async def checkpoint(self, request: web.BaseRequest, segments: list[str]) -> web.StreamResponse:
        """Answers the pod's snapshot, streamed from its linear memory."""
        leave = request.query.get("leave", "running")
        if leave not in _LEAVE:
            raise bad_request(text("answers", "leave_invalid", value=leave[:200]))
        timeout_ms = self._timeout_ms(request)
        _, container = self._registry.container(*segments)
        state = await self._take(container, leave, timeout_ms)
        try:
            if leave == "frozen":
                # What the pod published here arrives before what its replacement publishes.
                await container.drain_published(self._limits.topic_delivery_ms / 1000)
            return await self._send(request, state)
        finally:
            state.release()

    async def thaw(self, request: web.BaseRequest, segments: list[str]) -> web.StreamResponse:
        """Resumes a frozen pod that is still bound to this node."""
        worker, container = self._registry.container(*segments)
        namespace, name, _ = segments
        if not await self._still_here(worker) or not worker.thaw_move(container):
            raise not_found(text("answers", "not_frozen", namespace=namespace, pod=name))
        return json_answer({"thawed": True})

    def _timeout_ms(self, request: web.BaseRequest) -> int:
        value = request.query.get("timeoutMs", str(self._limits.pod_freeze_timeout_ms))
        least, most = self._limits.pod_freeze_timeout_min_ms, self._limits.pod_freeze_timeout_max_ms
        if not value.isascii() or not value.isdigit() or len(value) > 9 or not least <= int(value) <= most:
            raise bad_request(text("answers", "timeout_invalid", value=value[:200]))
        return int(value)

    async def _take(self, container: Container, leave: str, timeout_ms: int) -> FrozenState:
        try:
            return await self._freezer.take(
                container.thread,
                container.name,
                leave=leave,
                timeout_ms=timeout_ms,
                blockers=container.blockers(),
                on_change=container.refresh,
            )
        except NotMovable as error:
            raise Refusal(STATUS_CONFLICT, "NotMovable", str(error), blockers=error.blockers) from None
        except FreezeTimeout as error:
            raise Refusal(STATUS_GATEWAY_TIMEOUT, "Timeout", str(error), blockers=error.blockers) from None

    async def _send(self, request: web.BaseRequest, state: FrozenState) -> web.StreamResponse:
        response = web.StreamResponse(headers=state.headers)
        response.content_type = K32S.content_type
        response.content_length = state.length
        stall_s = self._limits.snapshot_read_stall_ms / 1000
        try:
            await response.prepare(request)
            for chunk in state.chunks():
                # A transport may keep what it is given; the memory may change once the pod goes on.
                async with asyncio.timeout(stall_s):
                    await response.write(bytes(chunk))
            async with asyncio.timeout(stall_s):
                await response.write_eof()
        except TimeoutError:
            _LOG.info("the reader of a snapshot stalled for %s s: closed", stall_s)
            if request.transport is not None:
                request.transport.abort()
        return response

    async def _still_here(self, worker: PodWorker) -> bool:
        namespace, name = worker.key
        try:
            pod = await self._client.get("Pod", name, namespace)
        except ApiError as error:
            if error.code in _NOT_HERE:
                return False
            raise Refusal(STATUS_UNAVAILABLE, "Unavailable", error.message) from None
        except OSError as error:
            raise Refusal(STATUS_UNAVAILABLE, "Unavailable", str(error)) from None
        return uid_of(pod) == worker.uid and spec(pod).get("nodeName") == self._node_name
