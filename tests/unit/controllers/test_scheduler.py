"""The scheduler against a real API server: binds, explains, and looks again when something changes."""

import asyncio

from tests.unit.controllers.peers import Cell, Obj

from kube32.client.api import ApiError


def _bound(cell: Cell, name: str) -> Obj | None:
    pod = cell.pods.get("default", name)
    return pod if pod is not None and pod["spec"].get("nodeName") else None


async def test_a_pod_without_a_node_is_bound_and_it_is_told(cell: Cell) -> None:
    await cell.start()
    await cell.add_pod(node="", nodeSelector={"zone": "c"})
    pod = await cell.until(lambda: _bound(cell, "echo"))
    assert pod["spec"]["nodeName"] == "c"
    assert ("Scheduled", "Successfully assigned default/echo to c") in await cell.reasons()


def _condition(cell: Cell, name: str = "echo") -> Obj | None:
    pod = cell.pods.get("default", name)
    found = [c for c in pod["status"].get("conditions", []) if c["type"] == "PodScheduled"] if pod else []
    return found[0] if found else None


async def test_a_pod_that_fits_nowhere_says_why_once(cell: Cell) -> None:
    await cell.start()
    await cell.add_pod(node="", nodeSelector={"zone": "nowhere"})
    condition = await cell.until(lambda: _condition(cell))
    why = "0/3 nodes are available: 3 node(s) didn't match Pod's node affinity/selector."
    assert condition["status"] == "False" and condition["reason"] == "Unschedulable"
    assert condition["message"] == why
    await cell.client.patch("Pod", "echo", {"metadata": {"labels": {"x": "y"}}}, "default")
    await cell.client.patch("Node", "a", {"metadata": {"labels": {"x": "y"}}})
    await cell.add_pod("marker", node="")
    await cell.until(lambda: _bound(cell, "marker"))
    assert await cell.reasons() == [("FailedScheduling", why)]


async def test_it_is_bound_when_a_node_comes_that_fits(cell: Cell) -> None:
    await cell.start()
    await cell.add_pod(node="", nodeSelector={"zone": "d"})
    await cell.until(lambda: _condition(cell))
    await cell.add_node("d")
    assert (await cell.until(lambda: _bound(cell, "echo")))["spec"]["nodeName"] == "d"


async def test_it_is_bound_when_a_pod_leaves_and_makes_room(cell: Cell) -> None:
    await cell.start()
    await cell.add_node("d", memory="64Ki")
    containers = [{"name": "m", "image": "wasm://m", "resources": {"requests": {"memory": "48Ki"}}}]
    spec = {"nodeSelector": {"zone": "d"}, "containers": containers}
    await cell.add_pod("first", "", **spec)
    await cell.until(lambda: _bound(cell, "first"))
    await cell.add_pod("second", "", **spec)
    assert "Insufficient memory" in (await cell.until(lambda: _condition(cell, "second")))["message"]
    await cell.client.delete("Pod", "first", "default", grace_s=0)
    await cell.until(lambda: _bound(cell, "second"))


async def test_pods_that_come_at_once_are_never_booked_twice(cell: Cell) -> None:
    await cell.start()
    for name in ("d", "e"):
        await cell.add_node(name, memory="64Ki")
    selector = {
        "nodeAffinity": {
            "requiredDuringSchedulingIgnoredDuringExecution": {
                "nodeSelectorTerms": [
                    {"matchExpressions": [{"key": "zone", "operator": "In", "values": ["d", "e"]}]}
                ]
            }
        }
    }
    containers = [{"name": "m", "image": "wasm://m", "resources": {"requests": {"memory": "40Ki"}}}]
    names = [f"p{n}" for n in range(4)]
    await cell.push_module()
    await asyncio.gather(
        *(cell.add_pod(name, "", affinity=selector, containers=containers) for name in names)
    )
    await cell.until(lambda: sum(bool(_bound(cell, n) or _condition(cell, n)) for n in names) == 4)
    bound = [pod["spec"]["nodeName"] for n in names if (pod := _bound(cell, n))]
    assert sorted(bound) == ["d", "e"]


async def test_a_pod_of_another_scheduler_is_left_alone(cell: Cell) -> None:
    await cell.start()
    await cell.add_pod("theirs", "", schedulerName="theirs")
    await cell.add_pod("ours", "")
    await cell.until(lambda: _bound(cell, "ours"))
    assert _bound(cell, "theirs") is None and _condition(cell, "theirs") is None


async def test_a_binding_that_fails_is_tried_again(cell: Cell) -> None:
    await cell.start()
    failures = 1

    async def refuse(method: str, path: str) -> None:
        nonlocal failures
        if path.endswith("/binding") and failures:
            failures -= 1
            raise ApiError(500, "InternalError", "not now")

    cell.transport.before = refuse
    await cell.add_pod(node="")
    await cell.until(lambda: _bound(cell, "echo"))
    assert failures == 0


async def test_a_pod_that_loses_its_node_by_a_replacement_is_bound_again(cell: Cell) -> None:
    await cell.start()
    await cell.add_pod(node="")
    pod = await cell.until(lambda: _bound(cell, "echo"))
    body = {"apiVersion": "kube32.io/v1", "kind": "PodReplacement", "nodeName": ""}
    new = await cell.client.create("Pod", body, "default", subresource="replacement", name="echo")
    assert new["metadata"]["uid"] != pod["metadata"]["uid"]
    uid = new["metadata"]["uid"]
    await cell.until(lambda: cell.pod()["metadata"].get("uid") == uid and _bound(cell, "echo"))


async def test_a_gated_pod_says_so_and_is_bound_when_its_gates_are_gone(cell: Cell) -> None:
    await cell.start()
    await cell.add_pod(node="", schedulingGates=[{"name": "example.com/wait"}])
    condition = await cell.until(lambda: _condition(cell))
    assert (condition["status"], condition["reason"]) == ("False", "SchedulingGated")
    assert condition["message"] == "Scheduling is blocked due to non-empty scheduling gates"
    assert await cell.reasons() == []
    await cell.client.patch("Pod", "echo", {"spec": {"schedulingGates": None}}, "default")
    await cell.until(lambda: _bound(cell, "echo"))


async def test_many_pods_are_bound_quickly_and_nobody_waits_for_that(cell: Cell) -> None:
    for number in range(47):
        await cell.add_node(f"n{number}")
    cell.kubelets.nodes.clear()
    for number in range(300):
        await cell.add_pod(f"p{number}", "")
    loop, longest = asyncio.get_running_loop(), 0.0

    async def measure() -> None:
        nonlocal longest
        while True:
            before = loop.time()
            await asyncio.sleep(0)
            longest = max(longest, loop.time() - before)

    began = loop.time()
    await cell.start()
    measuring = asyncio.create_task(measure())
    await cell.until(lambda: all(_bound(cell, f"p{number}") for number in range(300)))
    measuring.cancel()
    assert (loop.time() - began) / 300 < 0.02
    assert longest < 0.5
    on = [cell.pod(f"p{number}")["spec"]["nodeName"] for number in range(300)]
    assert max(on.count(node) for node in set(on)) <= 2 * 300 / 50
