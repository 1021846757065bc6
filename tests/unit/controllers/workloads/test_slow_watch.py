"""A watch that is late shows controllers a past: their own writes keep them from doing anything twice."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

from tests.unit.controllers.peers import Obj
from tests.unit.controllers.workloads.world import World, daemon_set, deployment, job

LATE = ("/api/v1/pods", "/apis/apps/v1/deployments", "/apis/apps/v1/daemonsets", "/apis/batch/v1/jobs")
DELAY_S = 0.15


async def late(chunks: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    """The same a while later, what comes close together still so."""
    waiting: asyncio.Queue[tuple[float, bytes | None]] = asyncio.Queue()
    loop = asyncio.get_running_loop()

    async def read() -> None:
        async for chunk in chunks:
            waiting.put_nowait((loop.time() + DELAY_S, chunk))
        waiting.put_nowait((loop.time(), None))

    reader = asyncio.create_task(read())
    try:
        while True:
            due, chunk = await waiting.get()
            await asyncio.sleep(max(due - loop.time(), 0))
            if chunk is None:
                return
            yield chunk
    finally:
        reader.cancel()


async def slow_down(world: World) -> set[str]:
    """Controllers with late watches; the uids of all pods that there have been since."""
    await world.cell._controllers[-1].stop()
    send = world.cell.transport.send

    async def slow(method: str, path: str, **options: Any) -> Any:
        answer = await send(method, path, **options)
        if path in LATE and dict(options.get("query") or {}).get("watch"):
            chunks = answer.chunks
            answer.chunks = lambda: late(chunks())  # type: ignore[method-assign]
        return answer

    world.cell.transport.send = slow  # type: ignore[method-assign]
    await world.cell.start()
    uids: set[str] = set()

    def note(kind: str, pod: Obj, old: Obj | None) -> None:
        uids.add(pod["metadata"]["uid"])

    world.cell.pods.subscribe(note)
    return uids


async def test_a_deployment_makes_no_pod_too_many(world: World) -> None:
    uids = await slow_down(world)
    await world.create(deployment(replicas=4))
    await world.rolled_out()
    assert len(uids) == 4
    await world.patch("Deployment", {"spec": {"replicas": 2}})
    await world.patch("Deployment", {"spec": {"replicas": 6}})
    await world.rolled_out()
    assert len(uids) <= 8 and world.most <= 6
    before = len(uids)
    await world.set_image("wasm://n")
    await world.rolled_out()
    assert world.most <= 8 and len(uids) == before + 6


async def test_a_daemon_set_makes_no_pod_too_many(world: World) -> None:
    uids = await slow_down(world)
    await world.create(daemon_set())
    await world.until(lambda: world.status("DaemonSet").get("numberAvailable") == 3)
    assert len(uids) == 3
    await world.set_image("wasm://n", "DaemonSet")
    await world.until(lambda: world.status("DaemonSet").get("observedGeneration") == 2)
    await world.until(lambda: world.status("DaemonSet").get("updatedNumberScheduled") == 3)
    await world.until(lambda: world.status("DaemonSet").get("numberAvailable") == 3)
    assert len(uids) == 6


async def test_a_job_makes_no_pod_too_many_and_counts_none_twice(world: World) -> None:
    uids = await slow_down(world)
    await world.create(job(completions=4, parallelism=2))
    for _ in range(4):
        pods = await world.until(
            lambda: [p for p in world.alive(work="work") if p["status"].get("phase") == "Running"]
        )
        await world.finish(pods[0])
    await world.until(lambda: world.condition("Complete", "Job", "work"))
    assert world.status("Job", "work")["succeeded"] == 4 and len(uids) == 4
