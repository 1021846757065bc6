"""NoExecute taints: who leaves a node, when, and what is said about it; pods of nodes that are lost."""

import asyncio
from typing import Any

import pytest
from tests.unit.controllers.peers import Cell, Obj, eventually

from kube32.contract import LIMITS, NAMES
from kube32.controllers.taint_eviction import seconds_tolerated

FIRE: Obj = {"key": "fire", "value": "yes", "effect": "NoExecute"}


def tolerating(*tolerations: Obj) -> Obj:
    return {"metadata": {"name": "p"}, "spec": {"tolerations": list(tolerations)}}


@pytest.mark.parametrize(
    ("tolerations", "expected"),
    [
        ([], 0),
        ([{"key": "fire", "operator": "Equal", "value": "no"}], 0),
        ([{"key": "fire", "operator": "Exists", "effect": "NoSchedule"}], 0),
        ([{"key": "fire", "operator": "Exists"}], None),
        ([{"operator": "Exists"}], None),
        ([{"key": "fire", "value": "yes", "effect": "NoExecute", "tolerationSeconds": 7}], 7),
        ([{"key": "fire", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": -3}], 0),
    ],
)
def test_a_toleration_says_how_long_a_pod_stays(tolerations: list[Obj], expected: float | None) -> None:
    assert seconds_tolerated(tolerating(*tolerations), [FIRE]) == expected


def test_of_several_taints_each_must_be_tolerated_and_the_shortest_time_counts() -> None:
    water = {"key": "water", "effect": "NoExecute"}
    short = {"key": "fire", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 9}
    long = {"key": "water", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 99}
    assert seconds_tolerated(tolerating(short), [FIRE, water]) == 0
    assert seconds_tolerated(tolerating(short, long), [FIRE, water]) == 9


async def taint(cell: Cell, node: str, *taints: Obj) -> None:
    await cell.client.patch("Node", node, {"spec": {"taints": list(taints) or None}})


def is_deleting(cell: Cell, name: str) -> bool:
    return bool(cell.pod(name)["metadata"].get("deletionTimestamp"))


async def test_pods_that_do_not_tolerate_a_new_taint_are_deleted_at_once(cell: Cell) -> None:
    await cell.start()
    await cell.add_pod("leaves", "a")
    await cell.add_pod("stays", "a", tolerations=[{"key": "fire", "operator": "Exists"}])
    await cell.add_pod("elsewhere", "b")
    await taint(cell, "a", FIRE)
    await cell.until(lambda: is_deleting(cell, "leaves"))
    assert not is_deleting(cell, "stays") and not is_deleting(cell, "elsewhere")
    told = await cell.reasons("leaves")
    assert ("TaintManagerEviction", "Marking for deletion Pod default/leaves") in told
    conditions = {c["type"]: c for c in cell.pod("leaves")["status"]["conditions"]}
    assert conditions["DisruptionTarget"]["reason"] == "DeletionByTaintManager"


async def test_a_pod_that_is_bound_to_a_tainted_node_by_hand_is_deleted_too(cell: Cell) -> None:
    await cell.start()
    await taint(cell, "a", FIRE)
    await cell.push_module()
    body = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "p", "namespace": "default"},
        "spec": {"nodeName": "a", "containers": [{"name": "m", "image": "wasm://m"}]},
    }
    await cell.client.create("Pod", body)
    await cell.until(lambda: is_deleting(cell, "p"))


def for_seconds(seconds: int) -> list[Obj]:
    return [{"key": "fire", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": seconds}]


async def test_a_pod_leaves_when_the_seconds_it_tolerates_are_over(cell: Cell) -> None:
    await cell.start()
    await cell.add_pod("p", "a", tolerations=for_seconds(1))
    await taint(cell, "a", FIRE)
    began = asyncio.get_running_loop().time()
    await cell.until(lambda: is_deleting(cell, "p"))
    assert asyncio.get_running_loop().time() - began > 0.8


async def test_a_taint_that_goes_in_time_cancels_the_eviction(cell: Cell) -> None:
    await cell.start()
    await cell.add_pod("p", "a", tolerations=for_seconds(1))
    await taint(cell, "a", FIRE)
    await asyncio.sleep(0.2)
    await taint(cell, "a")

    async def told() -> Any:
        return ("TaintManagerEviction", "Cancelling deletion of Pod default/p") in await cell.reasons("p")

    await eventually(told)
    await asyncio.sleep(1.1)
    assert not is_deleting(cell, "p")


async def test_pods_stay_for_five_minutes_on_a_node_that_is_not_ready(cell: Cell) -> None:
    await cell.start()
    pod = await cell.add_pod("p", "a")
    await cell.set_ready("a", "False")

    async def tainted() -> bool:
        node = await cell.client.get("Node", "a")
        return any(t["effect"] == "NoExecute" for t in node.get("spec", {}).get("taints", []))

    await eventually(tainted)
    await asyncio.sleep(0.2)
    assert not is_deleting(cell, "p")
    seconds = {t["key"]: t.get("tolerationSeconds") for t in pod["spec"]["tolerations"]}
    assert seconds == {NAMES.taint_not_ready: 300, NAMES.taint_unreachable: 300}


def is_ready(cell: Cell, name: str) -> bool:
    return any(c["type"] == "Ready" and c["status"] == "True" for c in cell.pod(name)["status"]["conditions"])


async def test_pods_of_a_lost_node_are_not_ready_and_go_without_their_kubelet(cell: Cell) -> None:
    await cell.add_pod("one", "a")
    await cell.add_pod("two", "a")
    await cell.start(LIMITS.replace(node_lost_ms=300))
    marked = await cell.client.delete("Pod", "one", "default")
    assert marked["metadata"]["deletionGracePeriodSeconds"] == 30
    await cell.until(lambda: cell.pods.get("default", "one") is None)
    await cell.until(lambda: not is_ready(cell, "two"))
    ready = next(c for c in cell.pod("two")["status"]["conditions"] if c["type"] == "Ready")
    assert (ready["status"], ready["reason"]) == ("False", "NodeNotReady")
    assert ("NodeNotReady", "Node is not ready") in await cell.reasons("two")
    assert cell.pod("two")["status"]["phase"] == "Running"
    await cell.client.delete("Pod", "two", "default")
    await cell.until(lambda: cell.pods.get("default", "two") is None)


async def test_a_pod_on_a_node_that_answers_is_left_to_its_kubelet(cell: Cell) -> None:
    await cell.start()
    await cell.add_pod("p", "a")
    await cell.set_ready("a", "False")
    await cell.client.delete("Pod", "p", "default")
    await asyncio.sleep(0.3)
    assert is_deleting(cell, "p") and is_ready(cell, "p")


@pytest.mark.parametrize(("kind", "key"), sorted(NAMES.condition_taints.items()))
async def test_pressure_on_a_node_keeps_new_pods_away(cell: Cell, kind: str, key: str) -> None:
    await cell.start()
    conditions = [{"type": "Ready", "status": "True"}, {"type": kind, "status": "True"}]
    await cell.client.patch("Node", "a", {"status": {"conditions": conditions}}, subresource="status")

    async def taints() -> list[Obj]:
        node = await cell.client.get("Node", "a")
        return [t for t in node.get("spec", {}).get("taints", []) if t["key"] == key]

    assert await eventually(taints) == [{"key": key, "effect": "NoSchedule"}]
    conditions[1]["status"] = "False"
    await cell.client.patch("Node", "a", {"status": {"conditions": conditions}}, subresource="status")

    async def free() -> bool:
        return not await taints()

    await eventually(free)
