"""Bench "move": a pod goes to and fro between two worker processes; time from the freeze to Running."""

import re
import time
from contextlib import aclosing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from bench import pods
from bench.cluster import BenchCluster, BenchFailed, note_of_machine
from bench.harness import Report, percentile
from kube32.client.api import ApiClient
from kube32.contract import K32S, resource_of

MOVES = 30
WARM_UP = 2
SIZES = ((1, "64 KiB", 30.0), (16, "1 MiB", None))
NODES = ("node-a", "node-b")
MOVED = re.compile(r"in (\d+(?:\.\d+)?) ms from the freeze")
SPACE = "default"


@dataclass
class Times:
    """Milliseconds of each move: as the Moved event tells, and as the client sees the whole move."""

    freeze: list[float] = field(default_factory=list)
    whole: list[float] = field(default_factory=list)


async def run() -> Path:
    """Measures, prints the table, gives the JSON's path."""
    report = Report("move", f"Moves between two worker processes on one machine ({MOVES} each)")
    with BenchCluster() as cluster:
        await cluster.control_plane()
        for name in NODES:
            await cluster.worker(name)
        client = cluster.client()
        try:
            for pages, label, aim in SIZES:
                times = await _measure(client, f"pod-{pages}", pages)
                _tell(report, label, aim, times)
        finally:
            await client.transport.close()
    return report.finish()


def _tell(report: Report, label: str, aim: float | None, times: Times) -> None:
    for what, samples, goal in (
        ("freeze to Running", times.freeze, aim),
        ("Checkpoint created to Completed", times.whole, None),
    ):
        report.add(f"{what} {label}, median", percentile(samples, 0.5), "ms", aim=goal, samples=samples)
        report.add(f"{what} {label}, p90", percentile(samples, 0.9), "ms")
        report.add(f"{what} {label}, max", max(samples), "ms", note=note_of_machine())


async def _measure(client: ApiClient, name: str, pages: int) -> Times:
    wasm = pods.stateful(pages)
    await push(client, name, wasm)
    await client.create("Pod", _pod(name, pages), SPACE)
    await until_running(client, name)
    times = Times()
    before = await _ask(client, name)
    for number in range(WARM_UP + MOVES):
        freeze, whole = await _move(client, name, NODES[(number + 1) % 2])
        if number >= WARM_UP:
            times.freeze.append(freeze)
            times.whole.append(whole)
    after = await _ask(client, name)
    if after[0] != before[0] + 1 or after[1] != before[1]:
        raise BenchFailed(f"pod {name} lost its state: {before} before the moves, {after} after")
    await client.delete("Pod", name, SPACE, grace_s=0)
    return times


def _pod(name: str, pages: int) -> dict[str, Any]:
    memory = {"limits": {"memory": str(pages * pods.PAGE)}}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name},
        "spec": {
            "nodeName": NODES[0],
            "containers": [{"name": "main", "image": f"wasm://{name}", "resources": memory}],
        },
    }


async def push(client: ApiClient, name: str, wasm: bytes) -> None:
    """Makes a Module and stores its bytes."""
    module = resource_of("Module")
    await client.create(
        "Module", {"apiVersion": module.api_version, "kind": module.kind, "metadata": {"name": name}}
    )
    headers = {"Content-Type": K32S.content_type, "Content-Length": str(len(wasm))}
    async with await client.raw(
        "PUT", module.object_path("", name, "data"), headers=headers, body=wasm
    ) as response:
        await client.check(response)


async def until_running(client: ApiClient, name: str) -> None:
    """Waits until the pod is Running."""
    select = f"metadata.name={name}"
    watch = client.watch("Pod", SPACE, resource_version="0", field_selector=select, timeout_s=30)
    async with aclosing(watch) as events:
        async for _, pod in events:
            if pod.get("status", {}).get("phase") == "Running":
                return
    raise BenchFailed(f"pod {name} does not run")


async def _ask(client: ApiClient, name: str) -> tuple[int, int]:
    """Count and last word of the pod."""
    path = resource_of("Pod").object_path(SPACE, name, "proxy") + "/"
    async with await client.raw("GET", path) as response:
        await client.check(response)
        body = await response.read()
    return int.from_bytes(body[:4], "little"), int.from_bytes(body[4:8], "little")


async def _move(client: ApiClient, name: str, target: str) -> tuple[float, float]:
    """One move: ms from the freeze, ms from the creation of the Checkpoint to its Completed as seen here."""
    checkpoint = {
        "apiVersion": "kube32.io/v1",
        "kind": "Checkpoint",
        "metadata": {"generateName": f"{name}-"},
        "spec": {"podName": name, "action": "Move", "target": {"nodeName": target}},
    }
    begun = time.perf_counter()
    created = await client.create("Checkpoint", checkpoint, SPACE)
    select = f"metadata.name={created['metadata']['name']}"
    status: dict[str, Any] = {}
    watch = client.watch("Checkpoint", SPACE, resource_version="0", field_selector=select)
    async with aclosing(watch) as events:
        async for _, seen in events:
            status = seen.get("status", {})
            if status.get("phase") in ("Completed", "Failed"):
                break
    whole = (time.perf_counter() - begun) * 1000
    if status.get("phase") != "Completed":
        raise BenchFailed(f"the move of {name} to {target} failed: {status.get('message', status)}")
    return await _from_freeze(client, name, status), whole


async def _from_freeze(client: ApiClient, name: str, status: dict[str, Any]) -> float:
    """ "in N ms from the freeze", of the Checkpoint or of its Moved event."""
    found = MOVED.search(str(status.get("message", "")))
    if found is None:
        select = f"involvedObject.name={name},reason=Moved"
        events = (await client.list("Event", SPACE, field_selector=select)).items
        newest = max(events, key=lambda event: int(event["metadata"]["resourceVersion"]), default=None)
        found = MOVED.search(str(newest["message"])) if newest is not None else None
    if found is None:
        raise BenchFailed(f"no Moved event tells the time of the move of {name}")
    return float(found.group(1))
