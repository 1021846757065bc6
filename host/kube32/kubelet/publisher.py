"""k32_publish: events go to the control plane, in order for one publisher and at most once; the pod never
waits.
"""

import asyncio
import contextlib
import logging
import threading
from collections import deque
from collections.abc import Callable
from urllib.parse import quote

import orjson

from kube32.client.api import ApiClient, ApiError
from kube32.contract import ABI, Limits
from kube32.kubelet.buckets import TokenBucket

_LOG = logging.getLogger(__name__)
_OCTETS = {"Content-Type": "application/octet-stream"}
_NO_ROOM = ABI.errors["K32_ENOMEM"]
_INVALID = ABI.errors["K32_EINVAL"]


async def post_event(client: ApiClient, namespace: str, topic: str, payload: bytes, pod: str = "") -> int:
    """Posts one event to the control plane, for all subscribers or one pod; the number of pods that took
    it.
    """
    path = f"/apis/kube32.io/v1/namespaces/{quote(namespace, safe='')}/topics/{quote(topic, safe='')}"
    query = {"pod": pod} if pod else None
    response = await client.raw("POST", path, query=query, headers=_OCTETS, body=payload)
    async with response:
        await client.check(response)
        return _delivered(await response.read())


def _delivered(body: bytes) -> int:
    try:
        answer = orjson.loads(body)
    except orjson.JSONDecodeError:
        return 0
    return int(answer.get("delivered", 0)) if isinstance(answer, dict) else 0


class PodPublisher:
    """The publishing side of one pod. `__call__` is k32_publish, on the pod's thread."""

    def __init__(
        self,
        client: ApiClient,
        namespace: str,
        limits: Limits,
        *,
        loop: asyncio.AbstractEventLoop,
        receivers: Callable[[str, str], int],
        allowed: Callable[[], bool],
    ) -> None:
        self._client = client
        self._namespace = namespace
        self._limits = limits
        self._loop = loop
        self._receivers = receivers
        self._allowed = allowed
        self._bucket = TokenBucket(limits.pod_publish_per_s, limits.pod_publish_burst)
        self._queue: deque[tuple[str, bytes]] = deque()
        self._lock = threading.Lock()
        self._sending: asyncio.Task[None] | None = None
        self.lost = 0

    def __call__(self, topic: str, payload: bytes) -> int:
        """Queues an event; the number of receivers on this node, or an errno of the pod ABI."""
        if not topic or topic in (".", "..") or len(topic.encode()) > self._limits.pod_topic_bytes:
            return _INVALID
        if len(payload) > self._limits.pod_payload_bytes or not self._bucket.take():
            return _NO_ROOM
        with self._lock:
            if len(self._queue) >= self._limits.pod_publish_queue:
                return _NO_ROOM
            self._queue.append((topic, payload))
            first = len(self._queue) == 1
        if first:
            with contextlib.suppress(RuntimeError):  # the node stops
                self._loop.call_soon_threadsafe(self._wake)
        return self._receivers(self._namespace, topic)

    def _wake(self) -> None:
        if self._sending is None or self._sending.done():
            self._sending = asyncio.create_task(self._send_all())

    async def drain(self, within_s: float) -> None:
        """Waits until all that was published is sent or lost, `within_s` at most."""
        if self._sending is not None and not self._sending.done():
            await asyncio.wait([self._sending], timeout=within_s)

    async def _send_all(self) -> None:
        while self._queue:
            topic, payload = self._queue[0]
            # Looked at before each event: a node that may have been declared lost publishes nothing.
            if not self._allowed():
                self.lost += 1
            else:
                try:
                    await post_event(self._client, self._namespace, topic, payload)
                except (ApiError, OSError) as error:
                    self.lost += 1
                    _LOG.info("event on topic %s of namespace %s is lost: %s", topic, self._namespace, error)
            with self._lock:
                self._queue.popleft()
