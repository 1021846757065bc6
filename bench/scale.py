"""Bench "scale": pods started per second, 1,000 pods scheduled on 50 nodes, a Deployment that grows, Endpoints."""

import asyncio
import time
from collections.abc import Callable
from contextlib import aclosing
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from bench.cluster import BenchCluster, BenchFailed
from bench.harness import Report, percentile
from kube32.client.api import ApiClient

SPACE = "default"
ROOT = Path(__file__).resolve().parent.parent
STARTED = 100
NODES, SCHEDULED = 50, 1000
PATIENCE_S = 120.0
Obj = dict[str, Any]


async def run() -> Path:
    """Measures, prints the table, gives the JSON's path."""
    report = Report(
        "scale", "Many pods: scheduling, starting, Deployments, Endpoints (control plane and two workers)"
    )
    with BenchCluster() as cluster:
        await cluster.control_plane()
        client = cluster.client()
        try:
            await _schedule(report, client)
            for name in ("one", "two"):
                await cluster.worker(name)
            await _push(client)
            await _start_pods(report, client)
            await _deployment(report, client)
        finally:
            await client.transport.close()
    return report.finish()


async def _push(client: ApiClient) -> None:
    await client.create(
        "Module", {"apiVersion": "kube32.io/v1", "kind": "Module", "metadata": {"name": "echo"}}
    )
    data = (ROOT / "examples" / "echo" / "echo.wasm").read_bytes()
    headers = {"Content-Type": "application/wasm"}
    answer = await client.raw("PUT", "/apis/kube32.io/v1/modules/echo/data", headers=headers, body=data)
    async with answer:
        await client.check(answer)


def _pod(name: str, **spec: Any) -> Obj:
    container = {"name": "main", "image": "wasm://echo", "resources": {"limits": {"memory": "64Ki"}}}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "labels": {"app": "bench"}},
        "spec": {"containers": [container], "terminationGracePeriodSeconds": 0, **spec},
    }


async def _until(
    client: ApiClient, kind: str, count: int, done: Callable[[Obj], bool], version: str, label: str = ""
) -> list[float]:
    """When each of `count` objects was first seen done, on time.perf_counter."""
    seen: dict[str, float] = {}
    watch = client.watch(kind, SPACE, resource_version=version, label_selector=label)
    try:
        async with asyncio.timeout(PATIENCE_S), aclosing(watch) as events:
            async for _, obj in events:
                name = obj["metadata"]["name"]
                if name not in seen and done(obj):
                    seen[name] = time.perf_counter()
                    if len(seen) == count:
                        break
    except TimeoutError:
        raise BenchFailed(f"{len(seen)} of {count} {kind}s got there in {PATIENCE_S:g} s") from None
    return sorted(seen.values())


def _bound(pod: Obj) -> bool:
    return bool(pod["spec"].get("nodeName"))


def _ready(obj: Obj) -> bool:
    conditions = (obj.get("status") or {}).get("conditions") or []
    return any(c["type"] == "Ready" and c["status"] == "True" for c in conditions)


async def _make_nodes(client: ApiClient) -> None:
    """Nodes that are API objects alone, with a Lease of now."""
    now = datetime.now(UTC)
    for number in range(NODES):
        name = f"paper-{number:02}"
        offered = {"cpu": "2", "memory": "1Gi", "pods": "110"}
        node = {
            "apiVersion": "v1",
            "kind": "Node",
            "metadata": {"name": name, "labels": {"paper": "true"}},
        }
        lease = {
            "apiVersion": "coordination.k8s.io/v1",
            "kind": "Lease",
            "metadata": {"name": name, "namespace": "kube-node-lease"},
            "spec": {
                "holderIdentity": name,
                "leaseDurationSeconds": 3600,
                "renewTime": now.strftime("%Y-%m-%dT%H:%M:%S.%fZ"),
            },
        }
        await client.create("Lease", lease)
        await client.create("Node", node)
        ready = {"type": "Ready", "status": "True", "lastHeartbeatTime": now.strftime("%Y-%m-%dT%H:%M:%SZ")}
        status = {"capacity": offered, "allocatable": offered, "conditions": [ready]}
        await client.patch("Node", name, {"status": status}, subresource="status")


async def _schedule(report: Report, client: ApiClient) -> None:
    """1,000 pods that wait at a gate, let through at once; from the last gate's removal to the last binding."""
    await _make_nodes(client)
    gate = "bench.kube32.io/wait"
    selector = {"paper": "true"}
    for number in range(SCHEDULED):
        pod = _pod(f"paper-{number:04}", nodeSelector=selector, schedulingGates=[{"name": gate}])
        await client.create("Pod", pod, SPACE)
    version = (await client.list("ConfigMap", SPACE)).resource_version
    waiting = asyncio.create_task(_until(client, "Pod", SCHEDULED, _bound, version))
    begun = time.perf_counter()
    for number in range(SCHEDULED):
        await client.patch("Pod", f"paper-{number:04}", {"spec": {"schedulingGates": None}}, SPACE)
    bound = await waiting
    taken = bound[-1] - begun
    nodes: dict[str, int] = {}
    for pod in (await client.list("Pod", SPACE)).items:
        nodes[pod["spec"]["nodeName"]] = nodes.get(pod["spec"]["nodeName"], 0) + 1
    spread = f"{min(nodes.values())} to {max(nodes.values())} a node"
    note = f"{SCHEDULED:,} pods on {NODES} nodes in {taken:.1f} s, {spread}"
    report.add("pods let through and bound", SCHEDULED / taken, "/s", note=note)
    for number in range(SCHEDULED):
        await client.delete("Pod", f"paper-{number:04}", SPACE, grace_s=0)
    for number in range(NODES):
        await client.delete("Node", f"paper-{number:02}")


async def _start_pods(report: Report, client: ApiClient) -> None:
    """From the first POST to the last Ready pod, all of one module."""
    version = (await client.list("Pod", SPACE)).resource_version
    waiting = asyncio.create_task(_until(client, "Pod", STARTED, _ready, version))
    begun = time.perf_counter()
    for number in range(STARTED):
        await client.create("Pod", _pod(f"started-{number:03}"), SPACE)
    ready = await waiting
    taken = ready[-1] - begun
    report.add("pods started", STARTED / taken, "/s", note=f"{STARTED} to Ready in {taken:.1f} s, one client")
    for number in range(STARTED):
        await client.delete("Pod", f"started-{number:03}", SPACE, grace_s=0)
    samples = []
    for number in range(20):
        version = (await client.list("Pod", SPACE)).resource_version
        begun = time.perf_counter()
        waiting = asyncio.create_task(_until(client, "Pod", 1, _ready, version, label="one=true"))
        pod = _pod(f"one-{number}")
        pod["metadata"]["labels"]["one"] = "true"
        await client.create("Pod", pod, SPACE)
        samples.append(((await waiting)[0] - begun) * 1000)
        await client.delete("Pod", f"one-{number}", SPACE, grace_s=0)
    note = f"most {max(samples):.0f} ms"
    report.add("POST of a pod to its Ready", percentile(samples, 0.5), "ms", note=note, samples=samples)


async def _deployment(report: Report, client: ApiClient) -> None:
    """A Deployment with a Service: from its creation to as many Ready endpoints, and the same for a rollout."""
    replicas = 20
    service = {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": "web"},
        "spec": {"selector": {"app": "web"}, "ports": [{"port": 80}]},
    }
    await client.create("Service", service, SPACE)
    template = {"metadata": {"labels": {"app": "web"}}, "spec": _pod("x")["spec"]}
    deployment = {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "web"},
        "spec": {"replicas": replicas, "selector": {"matchLabels": {"app": "web"}}, "template": template},
    }

    def all_there(endpoints: Obj) -> bool:
        return sum(len(s.get("addresses") or []) for s in endpoints.get("subsets") or []) == replicas

    version = (await client.list("Pod", SPACE)).resource_version
    waiting = asyncio.create_task(_until(client, "Endpoints", 1, all_there, version))
    begun = time.perf_counter()
    await client.create("Deployment", deployment, SPACE)
    taken = (await waiting)[0] - begun
    report.add("Deployment to its endpoints", taken, "s", note=f"{replicas} replicas on three nodes")

    def rolled_out(found: Obj) -> bool:
        status = found.get("status") or {}
        return (
            status.get("observedGeneration") == found["metadata"]["generation"] > 1
            and status.get("updatedReplicas") == status.get("availableReplicas") == replicas
            and status.get("replicas") == replicas
        )

    version = (await client.list("Deployment", SPACE)).resource_version
    waiting = asyncio.create_task(_until(client, "Deployment", 1, rolled_out, version))
    begun = time.perf_counter()
    change = {"spec": {"template": {"metadata": {"annotations": {"bench": "2"}}}}}
    await client.patch("Deployment", "web", change, SPACE)
    taken = (await waiting)[0] - begun
    report.add("rolling update", taken, "s", note=f"{replicas} replicas, 25 % surge and unavailable")
