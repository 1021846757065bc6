"""Node health, namespaces, Events and orphaned pods: level-triggered, on monotonic clocks."""

import asyncio
from typing import Any

from tests.unit.controllers.peers import Cell, Obj, eventually, running

from kube32.client.api import ApiError
from kube32.contract import LIMITS, NAMES
from kube32.controllers.deadlines import Deadlines

QUICK = LIMITS.replace(node_lost_ms=300)


async def _node(cell: Cell, name: str, check: Any) -> Obj:
    """The node once `check` holds of it."""

    async def look() -> Obj | None:
        node = await cell.client.get("Node", name)
        return node if check(node) else None

    found: Obj = await eventually(look)
    return found


def _ready(node: Obj) -> Obj:
    return next(c for c in node["status"]["conditions"] if c["type"] == "Ready")


def _taints(node: Obj) -> set[tuple[str, str]]:
    return {(t["key"], t["effect"]) for t in node.get("spec", {}).get("taints", [])}


async def _renew(cell: Cell, name: str, stamp: str) -> None:
    spec = {"holderIdentity": name, "renewTime": stamp}
    try:
        await cell.client.patch("Lease", name, {"spec": spec}, NAMES.lease_namespace)
    except ApiError:
        meta = {"name": name, "namespace": NAMES.lease_namespace}
        lease = {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": meta, "spec": spec}
        await cell.client.create("Lease", lease)


async def test_a_node_that_does_not_renew_its_lease_becomes_unknown_and_unreachable(cell: Cell) -> None:
    await cell.start(QUICK)
    node = await _node(cell, "a", lambda n: _ready(n)["status"] == "Unknown" and _taints(n))
    assert _ready(node)["reason"] == "NodeStatusUnknown"
    assert _ready(node)["message"] == "Kubelet stopped posting node status."
    key = "node.kubernetes.io/unreachable"
    assert _taints(node) == {(key, "NoSchedule"), (key, "NoExecute")}
    assert ("NodeNotReady", "Node a status is now: NodeNotReady") in await cell.reasons("a")


async def test_a_node_that_renews_stays_ready_whatever_its_clock_says(cell: Cell) -> None:
    await cell.start(QUICK)
    for second in range(10):
        # 1970, and running backward: only that it changed counts.
        await _renew(cell, "a", f"1970-01-01T00:00:{59 - second:02d}.000000Z")
        await asyncio.sleep(0.1)
    assert _ready(await cell.client.get("Node", "a"))["status"] == "True"
    assert _ready(await cell.client.get("Node", "b"))["status"] == "Unknown"


async def test_a_lost_node_that_comes_back_loses_its_taints(cell: Cell) -> None:
    await cell.start(QUICK)
    await _node(cell, "a", lambda n: bool(_taints(n)))
    beat = asyncio.create_task(_keep_renewing(cell, "a"))
    try:
        await asyncio.sleep(0.1)
        await cell.set_ready("a", "True")
        await _node(cell, "a", lambda n: not _taints(n))
        await asyncio.sleep(0.5)
        assert _ready(await cell.client.get("Node", "a"))["status"] == "True"
    finally:
        beat.cancel()


async def _keep_renewing(cell: Cell, name: str) -> None:
    for count in range(1000):
        await _renew(cell, name, f"2026-01-01T00:00:00.{count:06d}Z")
        await asyncio.sleep(0.05)


async def test_taints_follow_ready_and_cordon_and_leave_others_alone(cell: Cell) -> None:
    await cell.start()
    mine = {"key": "mine", "value": "x", "effect": "NoSchedule"}
    await cell.client.patch("Node", "a", {"spec": {"taints": [mine], "unschedulable": True}})
    await _node(
        cell, "a", lambda n: _taints(n) == {("mine", "NoSchedule"), (NAMES.taint_unschedulable, "NoSchedule")}
    )
    await cell.set_ready("a", "False")
    not_ready = {(NAMES.taint_not_ready, "NoSchedule"), (NAMES.taint_not_ready, "NoExecute")}
    await _node(cell, "a", lambda n: not_ready < _taints(n))
    await cell.client.patch("Node", "a", {"spec": {"unschedulable": None}})
    await cell.set_ready("a", "True")
    await _node(cell, "a", lambda n: _taints(n) == {("mine", "NoSchedule")})


async def test_time_in_which_the_process_stood_still_declares_nobody_lost() -> None:
    lost: list[str] = []

    async def on_due(key: str) -> None:
        lost.append(key)

    deadlines: Deadlines[str] = Deadlines()
    loop = asyncio.get_running_loop()
    real, offset = loop.time, 0.0
    loop.time = lambda: real() + offset  # type: ignore[method-assign]
    try:
        run = asyncio.create_task(deadlines.run(on_due))
        deadlines.set("a", 0.2)
        await asyncio.sleep(0.01)
        offset = 60.0
        await asyncio.sleep(0.1)
        assert lost == []
        await asyncio.sleep(0.3)
        assert lost == ["a"]
        run.cancel()
    finally:
        loop.time = real  # type: ignore[method-assign]


async def test_a_namespace_that_is_deleted_is_emptied_and_goes(cell: Cell) -> None:
    await cell.start()
    await cell.client.create(
        "Namespace", {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "team"}}
    )
    for kind in ("ConfigMap", "Secret"):
        body = {"apiVersion": "v1", "kind": kind, "metadata": {"name": "x", "namespace": "team"}}
        await cell.client.create(kind, body)
    await cell.client.delete("Namespace", "team")
    await eventually(lambda: _is_gone(cell, "team"))
    for kind in ("ConfigMap", "Secret"):
        assert (await cell.client.list(kind, "team")).items == []


async def _is_gone(cell: Cell, namespace: str) -> bool:
    return namespace not in {n["metadata"]["name"] for n in (await cell.client.list("Namespace")).items}


async def test_a_namespace_waits_for_its_pods_to_end(cell: Cell) -> None:
    await cell.start()
    await cell.push_module()
    await cell.client.create(
        "Namespace", {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "team"}}
    )
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "p", "namespace": "team"},
        "spec": {"nodeName": "a", "containers": [{"name": "m", "image": "wasm://m"}]},
    }
    await cell.client.create("Pod", pod)
    await cell.until(lambda: cell.pod("p", "team")["status"].get("phase") == "Running")
    await cell.client.delete("Namespace", "team")
    await cell.until(lambda: cell.pod("p", "team")["metadata"].get("deletionTimestamp"))
    assert (await cell.client.get("Namespace", "team"))["status"]["phase"] == "Terminating"
    await cell.client.delete("Pod", "p", "team", grace_s=0)
    await eventually(lambda: _is_gone(cell, "team"))


async def _make_event(cell: Cell, name: str) -> None:
    body = {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {"name": name, "namespace": "default"},
        "involvedObject": {"kind": "Pod", "name": "p", "namespace": "default"},
        "reason": "R",
        "message": "m",
        "type": "Normal",
    }
    await cell.client.create("Event", body)


async def _events(cell: Cell) -> set[str]:
    return {e["metadata"]["name"] for e in (await cell.client.list("Event", "default")).items}


async def _are_events(cell: Cell, names: set[str]) -> bool:
    return await _events(cell) == names


async def test_events_go_after_their_time_and_one_that_repeats_stays(cell: Cell) -> None:
    await cell.start(LIMITS.replace(event_ttl_ms=400))
    await _make_event(cell, "old")
    await _make_event(cell, "again")
    for count in range(2, 8):
        await asyncio.sleep(0.1)
        await cell.client.patch("Event", "again", {"count": count}, "default")
    assert await _events(cell) == {"again"}
    await eventually(lambda: _are_events(cell, set()))


async def test_the_oldest_events_go_when_there_are_too_many(cell: Cell) -> None:
    await cell.start(LIMITS.replace(event_objects=3))
    for number in range(6):
        await _make_event(cell, f"e{number}")
    await eventually(lambda: _are_events(cell, {"e3", "e4", "e5"}))


async def test_pods_of_a_node_that_is_gone_are_deleted_and_others_are_not(cell: Cell) -> None:
    await cell.start(LIMITS.replace(node_lost_ms=150))
    await cell.add_pod("orphan", "a")
    await cell.add_pod("fine", "b")
    await cell.client.delete("Node", "a")
    await cell.until(lambda: cell.pods.get("default", "orphan") is None)
    assert cell.pods.get("default", "fine") is not None


async def test_a_node_that_is_put_back_in_time_keeps_its_pods(cell: Cell) -> None:
    await cell.start(LIMITS.replace(node_lost_ms=300))
    pod = await cell.add_pod("kept", "a")
    await cell.client.delete("Node", "a")
    await asyncio.sleep(0.1)
    await cell.add_node("a")
    await asyncio.sleep(0.8)
    now = cell.pods.get("default", "kept")
    assert now is not None and now["metadata"]["uid"] == pod["metadata"]["uid"]
    assert running(pod)["phase"] == now["status"]["phase"]
