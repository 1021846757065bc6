"""metrics.k8s.io: rates between samples, whom it asks and how often, and what a wrong answer does."""

import asyncio
import json
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from aiohttp import web

from kube32.api import metrics, node_samples
from kube32.api.catalog import Catalog
from kube32.api.crud import Call
from kube32.api.http import Response
from kube32.api.routes import parse
from kube32.api.status import ApiFailure
from kube32.contract import LIMITS

BASE = "/apis/metrics.k8s.io/v1beta1"
PODS = f"{BASE}/namespaces/default/pods"
MI = 1 << 20


class Kubelet:
    """Says what a test sets, and counts how often it was asked."""

    def __init__(self) -> None:
        self.asked = 0
        self.clock_ms = 500_000
        self.node = {"cpuNanos": 3_000_000_000, "memoryBytes": 64 * MI, "uptimeMs": 30_000}
        self.pods: list[Any] = []
        self.raw: bytes | None = None

    def pod(self, name: str, cpu_ns: int, memory: int = MI, container: str = "main") -> None:
        row = {"name": container, "cpuNanos": cpu_ns, "memoryBytes": memory}
        self.pods = [p for p in self.pods if p["name"] != name]
        self.pods.append({"namespace": "default", "name": name, "uid": f"uid-{name}", "containers": [row]})

    async def __call__(self, request: web.Request) -> web.Response:
        assert request.path == "/stats"
        self.asked += 1
        made = {"node": self.node, "pods": self.pods, "monotonicMs": self.clock_ms}
        return web.Response(body=self.raw or json.dumps(made).encode())


class Top:
    """A cluster with one node and somebody who asks for metrics."""

    def __init__(self, world: Any, kubelet: Kubelet) -> None:
        self.world, self.kubelet = world, kubelet

    def pod(self, name: str, *, age_s: float = 100, node: str = "devkit", **labels: str) -> None:
        started = (datetime.now(UTC) - timedelta(seconds=age_s)).strftime("%Y-%m-%dT%H:%M:%SZ")
        running = {"name": "main", "state": {"running": {"startedAt": started}}}
        self.world.put(
            "Pod",
            name,
            metadata={"labels": labels},
            spec={"nodeName": node},
            status={"phase": "Running", "containerStatuses": [running]},
        )

    async def response(self, target: str, accept: str = "application/json") -> Response:
        request = self.world.request("GET", target, headers={"Accept": accept})
        info = parse("GET", request.path, request.query, self.world.catalog)
        assert info.resource is not None and request.user is not None
        return await metrics.handle(Call(self.world, request, info, info.resource, request.user))

    async def get(self, target: str) -> Any:
        answer = await self.response(target)
        assert isinstance(answer.body, bytes)
        return json.loads(answer.body)

    def next_window(self) -> None:
        for sample in self.world.sampler._samples.values():
            sample.asked -= LIMITS.metrics_window_ms / 1000


@pytest.fixture
async def top(world: Any) -> Top:
    world.catalog = Catalog("sim")
    world.sampler = node_samples.Sampler(world)
    kubelet = Kubelet()
    await world.kubelet("devkit", kubelet)
    return Top(world, kubelet)


async def test_a_first_answer_is_the_mean_since_the_start(top: Top) -> None:
    top.pod("web", age_s=100)
    top.kubelet.pod("web", 5_000_000_000, 3 * MI)
    node = await top.get(f"{BASE}/nodes/devkit")
    assert (node["kind"], node["apiVersion"]) == ("NodeMetrics", "metrics.k8s.io/v1beta1")
    assert node["usage"] == {"cpu": "100000000n", "memory": "65536Ki"} and node["window"] == "30s"
    pod = await top.get(f"{PODS}/web")
    (row,) = pod["containers"]
    assert row["name"] == "main" and row["usage"]["memory"] == "3072Ki"
    assert int(row["usage"]["cpu"].removesuffix("n")) == pytest.approx(50_000_000, rel=0.05)
    assert pod["metadata"]["namespace"] == "default" and pod["timestamp"].endswith("Z")


async def test_later_answers_are_the_rate_since_the_one_before(top: Top) -> None:
    top.pod("web")
    top.kubelet.pod("web", 5_000_000_000)
    await top.get(PODS)
    top.next_window()
    top.kubelet.clock_ms += 20_000
    top.kubelet.node["cpuNanos"] += 4_000_000_000
    top.kubelet.pod("web", 7_000_000_000)
    pod = await top.get(f"{PODS}/web")
    assert (pod["containers"][0]["usage"]["cpu"], pod["window"]) == ("100000000n", "20s")
    assert (await top.get(f"{BASE}/nodes/devkit"))["usage"]["cpu"] == "200000000n"


async def test_a_container_and_a_node_that_began_anew_are_not_compared_with_before(top: Top) -> None:
    top.pod("web", age_s=10)
    top.kubelet.pod("web", 900_000_000_000)
    await top.get(PODS)
    top.next_window()
    top.kubelet.clock_ms += 20_000
    top.kubelet.pod("web", 1_000_000_000)
    usage = (await top.get(f"{PODS}/web"))["containers"][0]["usage"]
    assert int(usage["cpu"].removesuffix("n")) == pytest.approx(100_000_000, rel=0.15)
    top.next_window()
    top.kubelet.clock_ms = 1000
    top.kubelet.node |= {"cpuNanos": 500_000_000, "uptimeMs": 1000}
    assert (await top.get(f"{BASE}/nodes/devkit"))["usage"]["cpu"] == "500000000n"


async def test_a_node_is_asked_once_in_a_window_and_never_unasked(top: Top) -> None:
    top.pod("web")
    await asyncio.sleep(0)
    assert top.kubelet.asked == 0
    await asyncio.gather(*(top.get(f"{BASE}/nodes") for _ in range(5)), top.get(PODS))
    await top.get(f"{BASE}/pods")
    assert top.kubelet.asked == 1


async def test_nodes_that_are_not_ready_or_do_not_answer_are_left_out(top: Top) -> None:
    top.world.node("gone", 1)
    top.world.node("asleep", 1, ready="Unknown")
    top.pod("web")
    top.pod("lost", node="gone")
    top.kubelet.pod("web", 1)
    assert [n["metadata"]["name"] for n in (await top.get(f"{BASE}/nodes"))["items"]] == ["devkit"]
    assert [p["metadata"]["name"] for p in (await top.get(PODS))["items"]] == ["web"]
    for path, says in ((f"{BASE}/nodes/gone", "nodes"), (f"{PODS}/lost", "pods")):
        with pytest.raises(ApiFailure) as failure:
            await top.get(path)
        assert failure.value.message == f'{says}.metrics.k8s.io "{path.rpartition("/")[2]}" not found'


@pytest.mark.parametrize(
    "raw",
    [
        b"no json",
        b"[]",
        b"{}",
        b'{"node": {"cpuNanos": -1, "memoryBytes": 1}, "pods": [], "monotonicMs": 1}',
        b'{"node": {"cpuNanos": 1, "memoryBytes": 1}, "pods": [7], "monotonicMs": 1}',
        b'{"node": {"cpuNanos": 1, "memoryBytes": 1}, "pods": {}, "monotonicMs": "x"}',
        b'{"node": {"cpuNanos": true, "memoryBytes": 1}, "pods": [], "monotonicMs": 1}',
    ],
)
async def test_a_kubelet_that_talks_nonsense_counts_as_silent(top: Top, raw: bytes) -> None:
    top.kubelet.raw = raw
    assert (await top.get(f"{BASE}/nodes"))["items"] == []


async def test_a_node_says_nothing_about_pods_of_others(top: Top) -> None:
    other = Kubelet()
    await top.world.kubelet("other", other)
    top.pod("web", node="other")
    top.kubelet.pod("web", 1)
    assert (await top.get(PODS))["items"] == []


async def test_lists_are_selected_and_come_as_tables(top: Top) -> None:
    for name, tier in (("a", "front"), ("b", "back")):
        top.pod(name, tier=tier)
        top.kubelet.pod(name, 1)
    found = await top.get(f"{PODS}?labelSelector=tier%3Dback")
    assert [p["metadata"]["name"] for p in found["items"]] == ["b"]
    assert (found["kind"], found["items"][0]["metadata"]["labels"]) == ("PodMetricsList", {"tier": "back"})
    accept = "application/json;as=Table;v=v1;g=meta.k8s.io"
    answer = await top.response(f"{BASE}/nodes", accept)
    assert isinstance(answer.body, bytes)
    table = json.loads(answer.body)
    assert [c["name"] for c in table["columnDefinitions"]] == ["Name", "cpu", "memory", "window"]
    assert table["rows"][0]["cells"][0] == "devkit"
