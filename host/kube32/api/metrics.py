"""metrics.k8s.io: what nodes and pods use, asked of the kubelets when somebody asks, and not otherwise.

CPU is the rate between two samples of a node; the first answer uses the time since the container started.
"""

import asyncio
import time
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import orjson

from kube32.api import selectors, tables
from kube32.api.http import Response
from kube32.api.status import ApiFailure, dump, not_found
from kube32.contract import resource_of

if TYPE_CHECKING:
    from kube32.api.crud import Call
    from kube32.api.server import ApiServer

Obj = dict[str, Any]
_STATS_BYTES = 1 << 20


@dataclass(slots=True)
class Sample:
    """One answer of a kubelet, and the one before it."""

    taken: float
    wall: datetime
    stats: Obj
    before: "Sample | None" = None


class Sampler:
    """Asks nodes at most once per `metrics_window_ms`; all who ask meanwhile get the same."""

    def __init__(self, server: "ApiServer") -> None:
        self._server = server
        self._samples: dict[str, Sample] = {}
        self._asking: dict[str, asyncio.Task[None]] = {}

    async def nodes(self, names: Iterable[str]) -> dict[str, Sample]:
        """Samples of the nodes that answer."""
        wanted = list(names)
        await asyncio.gather(*(self._refresh(name) for name in wanted))
        known = {r.key.rpartition("/")[2] for r in self._server.store.scan(resource_of("Node").prefix)[0]}
        self._samples = {n: s for n, s in self._samples.items() if n in known}
        return {n: self._samples[n] for n in wanted if n in self._samples}

    async def _refresh(self, node: str) -> None:
        window_s = self._server.limits.metrics_window_ms / 1000
        sample = self._samples.get(node)
        if sample is not None and time.monotonic() - sample.taken < window_s:
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
                try:
                    if stream.status != 200:
                        raise ValueError(f"status {stream.status}")
                    body = b""
                    async for chunk in stream:
                        body += bytes(chunk)
                        if len(body) > _STATS_BYTES:
                            raise ValueError("more than is taken")
                finally:
                    await stream.aclose()
            stats = orjson.loads(body)
            stats["node"]["cpuNanos"], stats["pods"]
        except (ApiFailure, TimeoutError, OSError, ValueError, KeyError, TypeError):
            # As with metrics-server, a node that does not answer is left out.
            self._samples.pop(node, None)
            return
        before = self._samples.get(node)
        if before is not None:
            before.before = None
        self._samples[node] = Sample(time.monotonic(), datetime.now(UTC), stats, before)


async def handle(call: "Call") -> Response:
    """GET and LIST of NodeMetrics and PodMetrics; ApiFailure 404, 406."""
    is_node = call.resource.kind == "NodeMetrics"
    if call.info.verb == "get":
        kind = resource_of("Node" if is_node else "Pod")
        entry = call.store.get(kind.object_key(call.info.namespace, call.info.name))
        rows = [] if entry is None else await _rows(call, [entry.obj])
        if not rows:
            raise not_found(call.resource, call.info.name)
        return _answer(call, rows[0])
    match = selectors.match_of(
        call.resource, call.request.q("labelSelector"), call.request.q("fieldSelector")
    )
    kind = resource_of("Node" if is_node else "Pod")
    prefix = f"{kind.prefix}{call.info.namespace}/" if call.info.namespace else kind.prefix
    found = [e.obj for e in call.store.scan(prefix)[0]]
    rows = await _rows(call, found)
    return _list(call, [r for r in rows if match is None or match(r)])


async def _rows(call: "Call", objects: list[Obj]) -> list[Obj]:
    """Metrics of Nodes or Pods, of those that have any."""
    if call.resource.kind == "NodeMetrics":
        samples = await call.server.sampler.nodes(o["metadata"]["name"] for o in objects)
        return [
            _node(call, o, samples[o["metadata"]["name"]])
            for o in objects
            if o["metadata"]["name"] in samples
        ]
    nodes = {str((o.get("spec") or {}).get("nodeName") or "") for o in objects} - {""}
    samples = await call.server.sampler.nodes(nodes)
    made = []
    for pod in objects:
        sample = samples.get(str((pod.get("spec") or {}).get("nodeName") or ""))
        row = None if sample is None else _pod(call, pod, sample)
        if row is not None:
            made.append(row)
    return made


def _node(call: "Call", node: Obj, sample: Sample) -> Obj:
    now = sample.stats["node"]
    then = sample.before.stats["node"] if sample.before is not None else {"cpuNanos": 0}
    window_s = _window_s(sample)
    return {
        **_head(call, node, sample, window_s),
        "usage": _usage(max(now["cpuNanos"] - then["cpuNanos"], 0) / window_s, now["memoryBytes"]),
    }


def _pod(call: "Call", pod: Obj, sample: Sample) -> Obj | None:
    uid = pod["metadata"]["uid"]
    row = next((p for p in sample.stats["pods"] if p.get("uid") == uid), None)
    if row is None:
        return None
    then: dict[str, int] = {}
    if sample.before is not None:
        before = next((p for p in sample.before.stats["pods"] if p.get("uid") == uid), None)
        then = {c["name"]: c["cpuNanos"] for c in (before or {}).get("containers") or []}
    window_s = _window_s(sample)
    containers = []
    for container in row.get("containers") or []:
        spent = container["cpuNanos"]
        earlier = then.get(container["name"], 0)
        # A container that began anew has spent less than before.
        used = spent - earlier if spent >= earlier else spent
        containers.append(
            {"name": container["name"], "usage": _usage(used / window_s, container["memoryBytes"])}
        )
    return {**_head(call, pod, sample, window_s), "containers": containers}


def _window_s(sample: Sample) -> float:
    """Seconds between the samples, by the node's own clock."""
    now = sample.stats.get("monotonicMs", 0)
    if sample.before is None:
        return float(max(now / 1000, 1.0))
    return float(max((now - sample.before.stats.get("monotonicMs", 0)) / 1000, 0.001))


def _head(call: "Call", obj: Obj, sample: Sample, window_s: float) -> Obj:
    metadata = {
        k: obj["metadata"][k]
        for k in ("name", "namespace", "labels", "creationTimestamp")
        if k in obj["metadata"]
    }
    window = f"{window_s:.3f}".rstrip("0").rstrip(".")
    return {
        "kind": call.resource.kind,
        "apiVersion": call.resource.api_version,
        "metadata": metadata,
        "timestamp": sample.wall.strftime("%Y-%m-%dT%H:%M:%SZ"),
        "window": f"{window}s",
    }


def _usage(nanos_per_s: float, memory: int) -> Obj:
    return {"cpu": f"{int(nanos_per_s)}n", "memory": f"{memory // 1024}Ki"}


def _answer(call: "Call", row: Obj) -> Response:
    view = tables.negotiate(call.request.headers.get("Accept") or "")
    if view is tables.View.JSON:
        return Response(200, dump(row))
    if view.is_table:
        include = tables.include_of(call.request.q("includeObject"))
        return Response(200, dump(tables.row(call.resource, row, include, view=view)))
    return Response(200, dump(tables.partial(row, view)))


def _list(call: "Call", rows: list[Obj]) -> Response:
    view = tables.negotiate(call.request.headers.get("Accept") or "")
    revision = call.store.revision
    if view is tables.View.JSON:
        head = {
            "kind": f"{call.resource.kind}List",
            "apiVersion": call.resource.api_version,
            "metadata": {"resourceVersion": str(revision)},
        }
        return Response(200, dump({**head, "items": rows}))
    if view.is_table:
        include = tables.include_of(call.request.q("includeObject"))
        return Response(200, dump(tables.table(call.resource, rows, revision, include, view=view)))
    return Response(200, dump(tables.partial_list(rows, revision, view=view)))
