"""A pod that is frozen or moves is its Deployment's one pod: none is added for it and none goes."""

import asyncio
from typing import Any

import pytest
from tests.unit.controllers.peers import Obj, restore_error, restore_from, running
from tests.unit.controllers.workloads.world import World, deployment

from kube32.contract import NAMES


def other(node: str) -> str:
    return {"a": "b", "b": "c", "c": "a"}[node]


async def test_moves_add_no_pod_and_disturb_no_rollout(world: World) -> None:
    await world.create(deployment(replicas=2))
    await world.rolled_out()
    names = world.names()
    heard: list[tuple[str, str]] = []

    def listen(kind: str, obj: Obj, old: Obj | None) -> None:
        heard.extend((c["type"], c["status"]) for c in obj["status"].get("conditions") or [])

    world.watched["Deployment"].subscribe(listen, replay=False)
    for number in range(10):
        pod = world.alive()[0]
        target = other(pod["spec"]["nodeName"])
        done = await world.cell.move(target, name=f"move-{number}", pod=pod["metadata"]["name"])
        assert done["status"]["phase"] == "Completed", done["status"]
        assert world.names() == names and world.most == 2
    await world.until(lambda: world.status().get("availableReplicas") == 2)
    assert set(heard) <= {("Available", "True"), ("Progressing", "True")}
    assert len(world.status()["history"]) == 1
    uid = world.get("Deployment")["metadata"]["uid"]
    assert {p["metadata"]["ownerReferences"][0]["uid"] for p in world.alive()} == {uid}


async def test_a_frozen_pod_stays_available_to_its_rollout(world: World) -> None:
    await world.create(deployment(replicas=2))
    await world.rolled_out()
    pod = world.alive()[0]
    frozen = [{"type": "Ready", "status": "False", "reason": "Frozen", "message": "the pod is frozen"}]
    await world.cell.set_status(pod, running(pod, conditions=frozen))
    await world.until(lambda: world.status().get("readyReplicas") == 1)
    assert world.condition("Available")["status"] == "True"
    assert world.condition("Progressing")["reason"] == "NewReplicaSetAvailable"
    assert len(world.pods()) == 2


async def test_a_rollout_in_the_middle_of_a_move_ends_with_the_new_pods_alone(world: World) -> None:
    """The moved pod of the old template goes by the usual way, once."""
    await world.create(deployment(replicas=2))
    await world.rolled_out()
    pod = world.alive()[0]
    source, target = pod["spec"]["nodeName"], other(pod["spec"]["nodeName"])
    gate = asyncio.Event()
    world.cell.kubelets.nodes[source].before_answer = gate.wait
    await world.cell.checkpoint("move", pod["metadata"]["name"], action="Move", target={"nodeName": target})
    await world.until(lambda: (world.get("Checkpoint", "move").get("status") or {}).get("phase") == "Saving")
    await world.set_image("wasm://n")
    gate.set()
    await world.cell.finish("move")
    await world.rolled_out()
    await world.until(lambda: len(world.pods()) == 2)
    assert {p["spec"]["containers"][0]["image"] for p in world.pods()} == {"wasm://n"}
    assert world.most <= 3


async def test_a_restore_that_fails_costs_no_second_pod(world: World) -> None:
    await world.create(deployment(replicas=2))
    await world.rolled_out()
    names = world.names()
    pod = world.alive()[0]
    target = other(pod["spec"]["nodeName"])

    def fail(obj: Obj) -> Obj:
        return restore_error(obj) if restore_from(obj) else running(obj)

    world.cell.kubelets.nodes[target].on_pod = fail
    done = await world.cell.move(target, pod=pod["metadata"]["name"])
    assert done["status"]["phase"] == "Failed"
    await world.until(lambda: world.names() == names)
    assert world.most == 2 and len(world.pods()) == 2


async def test_a_pod_keeps_its_time_as_ready_over_a_move(world: World) -> None:
    await world.create(deployment(replicas=1, minReadySeconds=1))
    await world.rolled_out()
    heard: list[Any] = []
    world.watched["Deployment"].subscribe(
        lambda kind, obj, old: heard.append(world.condition("Available")["status"]), replay=False
    )
    pod = world.alive()[0]
    await world.cell.move(other(pod["spec"]["nodeName"]), pod=pod["metadata"]["name"])
    await world.until(lambda: world.status().get("availableReplicas") == 1)
    assert set(heard) <= {"True"}


@pytest.mark.parametrize("restart", [False, True])
async def test_counts_hold_through_moves_restarts_and_a_rollout(world: World, restart: bool) -> None:
    await world.create(deployment(replicas=2))
    await world.rolled_out()
    for number in range(6):
        pod = world.alive()[number % 2]
        name, target = pod["metadata"]["name"], other(pod["spec"]["nodeName"])
        await world.cell.checkpoint(f"m{number}", name, action="Move", target={"nodeName": target})
        if restart:
            await world.cell._controllers[-1].stop()
            await world.cell.start()
        await world.cell.finish(f"m{number}")
        assert world.most == 2
    change = {
        "spec": {"template": {"metadata": {"annotations": {"kubectl.kubernetes.io/restartedAt": "now"}}}}
    }
    await world.patch("Deployment", change)
    await world.rolled_out()
    assert world.most <= 3 and all(
        NAMES.ann_restore_from not in (p["metadata"].get("annotations") or {}) for p in world.alive()
    )


async def test_new_pods_that_wait_for_a_restore_do_not_pass_for_available(world: World) -> None:
    """Only a pod that was Ready before it moved counts while it is not."""
    await world.create(deployment(replicas=2))
    await world.rolled_out()
    for node in world.cell.kubelets.nodes.values():
        node.on_pod = lambda pod: None if restore_from(pod) else running(pod)
    annotations = {NAMES.ann_restore_from: "missing"}
    await world.patch("Deployment", {"spec": {"template": {"metadata": {"annotations": annotations}}}})
    await world.until(lambda: world.status().get("updatedReplicas") == 1)
    with pytest.raises(TimeoutError):
        await world.until(lambda: world.status().get("availableReplicas") != 2, seconds=0.3)
    assert len(world.alive()) == 3
