"""What the nodes use, asked of their kubelets when somebody asks, and not otherwise.

CPU use is a rate between two samples of a node; the first one's is that since the container, or the node's
process, started.
"""

import asyncio
import time
from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import orjson

from kube32.api.http import BodyCut
from kube32.api.status import ApiFailure
from kube32.contract import resource_of

if TYPE_CHECKING:
    from kube32.api.server import ApiServer

_STATS_BYTES = 4 << 20


@dataclass(frozen=True, slots=True)
class Used:
    """CPU time in ns since the start, and bytes of memory now."""

    cpu_ns: int
    memory: int


@dataclass(slots=True)
class Sample:
    """One answer of a kubelet, and the one before it. `clock_ms` is the node's, from any beginning."""

    asked: float
    wall: datetime
    clock_ms: int
    uptime_ms: int
    node: Used
    pods: dict[str, dict[str, Used]] = field(default_factory=dict)
    before: "Sample | None" = None

    @property
    def window_s(self) -> float:
        """Seconds between the two samples; 0 when there is no earlier one, or the node began anew."""
        if self.before is None or self.clock_ms <= self.before.clock_ms:
            return 0.0
        return (self.clock_ms - self.before.clock_ms) / 1000


class Sampler:
    """Asks nodes at most once per `metrics_window_ms`; all who ask meanwhile get the same."""

    def __init__(self, server: "ApiServer") -> None:
        self._server = server
        self._samples: dict[str, Sample] = {}
        self._asking: dict[str, asyncio.Task[None]] = {}

    async def nodes(self, names: Iterable[str]) -> dict[str, Sample]:
        """Samples of those nodes that are Ready and answer."""
        resource = resource_of("Node")
        known = {e.key.rpartition("/")[2]: e for e in self._server.store.scan(resource.prefix)[0]}
        self._samples = {n: s for n, s in self._samples.items() if n in known}
        wanted = [n for n in names if n in known and _is_ready(known[n].obj)]
        await asyncio.gather(*(self._refresh(name) for name in wanted))
        return {n: self._samples[n] for n in wanted if n in self._samples}

    async def _refresh(self, node: str) -> None:
        window_s = self._server.limits.metrics_window_ms / 1000
        sample = self._samples.get(node)
        if sample is not None and time.monotonic() - sample.asked < window_s:
            return
        task = self._asking.get(node)
        if task is None:
            task = self._asking[node] = asyncio.create_task(self._ask(node))
            task.add_done_callback(lambda _: self._asking.pop(node, None))
        await asyncio.shield(task)

    async def _ask(self, node: str) -> None:
        try:
            async with asyncio.timeout(self._server.limits.kubelet_connect_ms / 1000):
                stream = await self._server.kubelets.request(node, "GET", "/stats")
                body = await stream.read(_STATS_BYTES)
            sample = _sample(body) if stream.status == 200 else None
        except (ApiFailure, BodyCut, TimeoutError, OSError, ValueError):
            sample = None
        before = self._samples.pop(node, None)
        # As with metrics-server, a node that does not answer is left out.
        if sample is not None:
            if before is not None:
                before.before = None
            sample.before = before
            self._samples[node] = sample


def _is_ready(node: dict[str, Any]) -> bool:
    conditions = (node.get("status") or {}).get("conditions") or ()
    return any(c.get("type") == "Ready" and c.get("status") == "True" for c in conditions)


def _sample(body: bytes) -> Sample:
    """A kubelet's answer; ValueError for anything else."""
    try:
        stats = orjson.loads(body)
        pods = {
            str(pod["uid"]): {str(c["name"]): _used(c) for c in pod["containers"]} for pod in stats["pods"]
        }
        clock_ms = _count(stats["monotonicMs"])
        uptime_ms = _count(stats["node"].get("uptimeMs", clock_ms))
        node = _used(stats["node"])
    except (KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"not a kubelet's stats: {error}") from None
    return Sample(time.monotonic(), datetime.now(UTC), clock_ms, uptime_ms, node, pods)


def _used(row: dict[str, Any]) -> Used:
    return Used(_count(row["cpuNanos"]), _count(row["memoryBytes"]))


def _count(value: Any) -> int:
    if type(value) is not int or value < 0:
        raise ValueError(f"{value!r} is not a count")
    return value
