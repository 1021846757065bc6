"""A snapshot on its way from the node into the Checkpoint's data, never held here; and the end of freezes."""

import asyncio
import logging
import random
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

import orjson

from kube32.client.api import ApiClient, ApiError
from kube32.client.informer import Informer
from kube32.client.transport import ClientResponse, TransportError
from kube32.contract import K32S, Limits, resource_of
from kube32.controllers.checkpoint.failure import StepFailed, blocked, failed
from kube32.controllers.objects import node_of, uid_of

_LOG = logging.getLogger(__name__)
_THAW_TIMEOUT_S = 10
_THAW_RETRY_FIRST_S = 0.5
_THAW_RETRY_MAX_S = 15.0


@dataclass(frozen=True, slots=True)
class PodPlace:
    """A container of a pod, and the node where it runs."""

    namespace: str
    pod: str
    uid: str
    container: str
    node: str

    def path(self, action: str) -> str:
        """The path of a kubelet endpoint, through the node proxy."""
        parts = (action, self.namespace, self.pod, self.container)
        proxy = resource_of("Node").object_path("", quote(self.node, safe=""), "proxy")
        return "/".join((proxy, *(quote(p, safe="") for p in parts)))


class _Relay:
    """The body of the node's answer; remembers whether it was the node that failed."""

    def __init__(self, response: ClientResponse, stall_s: float) -> None:
        self._response = response
        self._stall_s = stall_s
        self._expected = int(response.headers.get("Content-Length") or 0)
        self.fault: str | None = None

    async def chunks(self) -> AsyncIterator[bytes]:
        size = 0
        source = self._response.chunks()
        try:
            while (chunk := await self._next(source)) is not None:
                size += len(chunk)
                yield chunk
        except Exception as error:
            self.fault = str(error) or type(error).__name__
            raise
        if size != self._expected:
            self.fault = f"the stream ends after {size} of {self._expected} bytes"
            raise TransportError(self.fault)

    async def _next(self, source: AsyncIterator[bytes]) -> bytes | None:
        async with asyncio.timeout(self._stall_s):
            return await anext(source, None)


class Snapshots:
    """Takes snapshots and ends freezes. Only one snapshot is under way at a time ("Limits"): hold `turn`."""

    def __init__(self, client: ApiClient, pods: Informer, limits: Limits) -> None:
        self._client = client
        self._pods = pods
        self._limits = limits
        self.turn = asyncio.Lock()
        self._thawing: set[asyncio.Task[None]] = set()

    async def store(self, place: PodPlace, checkpoint: str, *, leave: str) -> dict[str, Any]:
        """Freezes the container and stores its snapshot as the Checkpoint's data; the Checkpoint then.

        StepFailed tells by `maybe_frozen` whether a thaw is due.
        """
        stall_s = self._limits.snapshot_read_stall_ms / 1000
        query = {"leave": leave, "timeoutMs": str(self._limits.pod_freeze_timeout_ms)}
        try:
            async with asyncio.timeout(self._limits.pod_freeze_timeout_ms / 1000 + stall_s):
                response = await self._client.raw(
                    "POST", place.path("checkpoint"), query=query, timeout_s=None
                )
        except OSError as error:
            cause = str(error) or "it does not answer"
            raise failed("snapshot", node=place.node, cause=cause, maybe_frozen=True) from None
        async with response:
            if response.status != 200:
                raise _refusal(place, response.status, await _body(response))
            return await self._put(place, checkpoint, response, stall_s)

    async def _put(
        self, place: PodPlace, checkpoint: str, response: ClientResponse, stall_s: float
    ) -> dict[str, Any]:
        relay = _Relay(response, stall_s)
        headers = {
            "Content-Type": K32S.content_type,
            "Content-Length": response.headers.get("Content-Length", ""),
            "Accept": "application/json",
        }
        path = resource_of("Checkpoint").object_path(place.namespace, checkpoint, "data")
        try:
            async with asyncio.timeout(self._limits.move_timeout_ms / 1000):
                answer = await self._client.raw(
                    "PUT", path, headers=headers, body=relay.chunks(), timeout_s=None
                )
                async with answer:
                    await self._client.check(answer)
                    stored: dict[str, Any] = orjson.loads(await answer.read())
                    return stored
        except (ApiError, OSError) as error:
            cause = relay.fault or str(error) or "the API server does not answer"
        if relay.fault is not None:
            raise failed("snapshot", node=place.node, cause=cause, maybe_frozen=True)
        raise failed("store", cause=cause, maybe_frozen=True)

    async def thaw(self, place: PodPlace) -> None:
        """Ends a freeze: at once if the node answers, else by trying until the pod is no longer there."""
        if not await self._thaw_once(place):
            task = asyncio.get_running_loop().create_task(
                self._thaw_until_done(place), name=f"thaw {place.pod}"
            )
            self._thawing.add(task)
            task.add_done_callback(self._thawing.discard)

    async def _thaw_once(self, place: PodPlace) -> bool:
        try:
            response = await self._client.raw("POST", place.path("thaw"), timeout_s=_THAW_TIMEOUT_S)
            async with response:
                # 404: it is not frozen, or not there.
                return response.status in (200, 404)
        except OSError as error:
            _LOG.info("thaw of %s/%s: %s", place.namespace, place.pod, error)
            return False

    async def _thaw_until_done(self, place: PodPlace) -> None:
        delay_s = _THAW_RETRY_FIRST_S
        while self._is_there(place):
            await asyncio.sleep(delay_s * random.uniform(0.5, 1))
            if await self._thaw_once(place):
                return
            delay_s = min(delay_s * 2, _THAW_RETRY_MAX_S)

    def _is_there(self, place: PodPlace) -> bool:
        pod = self._pods.get(place.namespace, place.pod)
        return pod is not None and uid_of(pod) == place.uid and node_of(pod) == place.node

    def stop(self) -> None:
        """Gives up the thaws that are being tried again; a kubelet that reconnects thaws its pods itself."""
        for task in list(self._thawing):
            task.cancel()


async def _body(response: ClientResponse) -> Any:
    try:
        return orjson.loads(await response.read())
    except (orjson.JSONDecodeError, OSError):
        return None


def _refusal(place: PodPlace, status: int, body: Any) -> StepFailed:
    """What a kubelet's (or the proxy's) error answer means."""
    answer = body if isinstance(body, dict) else {}
    blockers = answer.get("blockers")
    if status in (409, 504) and isinstance(blockers, list) and blockers:
        return blocked([str(b) for b in blockers])
    cause = str(answer.get("message") or answer.get("reason") or f"HTTP {status}")
    # Behind a proxy's 5xx the kubelet may have frozen the pod all the same.
    return failed("snapshot", node=place.node, cause=cause, maybe_frozen=status >= 500)
