"""Deployments: their pods, rollouts, scaling, pauses and rollbacks, against the real API server."""

from typing import Any

import orjson
from tests.unit.controllers.peers import Obj, running
from tests.unit.controllers.workloads.world import World, deployment

from kube32.client.api import ApiError
from kube32.contract import LIMITS
from kube32.formats.template_hash import template_hash


def image_of(pod: Obj) -> str:
    return str(pod["spec"]["containers"][0]["image"])


async def test_a_deployment_gets_its_pods_and_says_so(world: World) -> None:
    await world.create(deployment())
    done = await world.rolled_out()
    hash_ = template_hash(done["spec"]["template"])
    pods = world.alive(app="echo")
    assert len(pods) == 3 == world.most
    for pod in pods:
        assert pod["metadata"]["labels"]["pod-template-hash"] == hash_
        assert pod["metadata"]["generateName"] == f"echo-{hash_}-"
        assert pod["metadata"]["name"].startswith(f"echo-{hash_}-")
        reference = pod["metadata"]["ownerReferences"][0]
        assert (reference["kind"], reference["uid"]) == ("Deployment", done["metadata"]["uid"])
        assert reference["controller"] and reference["blockOwnerDeletion"]
    assert done["metadata"]["annotations"]["deployment.kubernetes.io/revision"] == "1"
    progress = world.condition("Progressing")
    assert progress["message"] == f'ReplicaSet "echo-{hash_}" has successfully progressed.'
    assert world.condition("Available")["reason"] == "MinimumReplicasAvailable"
    assert await world.told() == [("ScalingReplicaSet", f"Scaled up replica set echo-{hash_} from 0 to 3")]


async def test_a_rolling_update_keeps_to_its_bounds(world: World) -> None:
    await world.create(deployment(replicas=4))
    await world.rolled_out()
    least = 4

    def watch(kind: str, pod: Obj, old: Obj | None) -> None:
        nonlocal least
        ready = [
            p
            for p in world.alive(app="echo")
            if any(c["type"] == "Ready" and c["status"] == "True" for c in p["status"].get("conditions", []))
        ]
        least = min(least, len(ready))

    world.cell.pods.subscribe(watch)
    await world.set_image("wasm://n")
    done = await world.rolled_out()
    hash_ = template_hash(done["spec"]["template"])
    assert {p["metadata"]["labels"]["pod-template-hash"] for p in world.alive()} == {hash_}
    assert world.most <= 5 and least >= 3
    assert done["metadata"]["annotations"]["deployment.kubernetes.io/revision"] == "2"


async def revisions(world: World) -> list[tuple[int, str, int]]:
    """(number, image, size) of status.history."""
    return [
        (r["revision"], r["template"]["spec"]["containers"][0]["image"], r.get("replicas", 0))
        for r in world.status()["history"]
    ]


async def test_a_template_that_comes_back_gets_a_new_number_and_its_old_hash(world: World) -> None:
    await world.create(deployment(replicas=1))
    first = await world.rolled_out()
    await world.set_image("wasm://n")
    await world.rolled_out()
    assert await revisions(world) == [(1, "wasm://m", 0), (2, "wasm://n", 1)]
    await world.set_image("wasm://m")
    third = await world.rolled_out()
    assert await revisions(world) == [(2, "wasm://n", 0), (3, "wasm://m", 1)]
    assert third["metadata"]["annotations"]["deployment.kubernetes.io/revision"] == "3"
    hash_ = template_hash(first["spec"]["template"])
    assert [p["metadata"]["labels"]["pod-template-hash"] for p in world.alive()] == [hash_]


async def test_old_revisions_go_when_there_are_too_many(world: World) -> None:
    await world.create(deployment(replicas=1, revisionHistoryLimit=1))
    await world.rolled_out()
    for number in range(3):
        change = {"spec": {"template": {"metadata": {"annotations": {"n": str(number)}}}}}
        await world.patch("Deployment", change)
        await world.rolled_out()
    await world.until(lambda: [r["revision"] for r in world.status()["history"]] == [3, 4])


async def test_scaling_up_and_down(world: World) -> None:
    await world.create(deployment(replicas=1))
    await world.rolled_out()
    await world.patch("Deployment", {"spec": {"replicas": 5}})
    await world.rolled_out()
    await world.patch("Deployment", {"spec": {"replicas": 0}})
    await world.until(lambda: not world.pods(app="echo"))
    await world.until(lambda: "replicas" not in world.status())
    assert world.condition("Available")["status"] == "True"
    words = [m.partition("echo-")[0] + m.partition(" from ")[2] for _, m in await world.told()]
    assert words == [
        "Scaled up replica set 0 to 1",
        "Scaled up replica set 1 to 5",
        "Scaled down replica set 5 to 0",
    ]


async def test_a_paused_deployment_changes_its_size_and_nothing_else(world: World) -> None:
    await world.create(deployment(replicas=2))
    await world.rolled_out()
    await world.patch("Deployment", {"spec": {"paused": True}})
    await world.until(lambda: world.condition("Progressing").get("reason") == "DeploymentPaused")
    assert world.condition("Progressing")["message"] == "Deployment is paused"
    await world.set_image("wasm://n")
    await world.patch("Deployment", {"spec": {"replicas": 3}})
    await world.until(lambda: world.status().get("readyReplicas") == 3)
    assert [i for _, i, _ in await revisions(world)] == ["wasm://m"]
    assert {image_of(p) for p in world.alive()} == {"wasm://m"}
    await world.patch("Deployment", {"spec": {"paused": False}})
    await world.rolled_out()
    assert {image_of(p) for p in world.alive()} == {"wasm://n"}


async def test_recreate_starts_nothing_new_while_something_old_is_there(world: World) -> None:
    await world.create(deployment(replicas=2, strategy={"type": "Recreate"}))
    await world.rolled_out()
    mixed = []

    def watch(kind: str, pod: Obj, old: Obj | None) -> None:
        mixed.append(len({image_of(p) for p in world.pods(app="echo")}))

    world.cell.pods.subscribe(watch)
    await world.set_image("wasm://n")
    await world.rolled_out()
    assert max(mixed) == 1 and world.most == 2


async def test_a_rollout_that_does_not_get_ready_stops_and_is_called_late(world: World) -> None:
    await world.create(deployment(replicas=3, progressDeadlineSeconds=1))
    await world.rolled_out()
    for node in world.cell.kubelets.nodes.values():
        node.on_pod = lambda pod: running(pod) if image_of(pod) == "wasm://m" else None
    await world.set_image("wasm://n")
    await world.until(lambda: world.condition("Progressing").get("reason") == "ProgressDeadlineExceeded")
    status = world.status()
    assert (status["replicas"], status["updatedReplicas"], status["availableReplicas"]) == (4, 1, 3)
    assert world.condition("Progressing")["message"].endswith("has timed out progressing.")
    assert world.condition("Available")["status"] == "True"
    # An old pod that is lost meanwhile is replaced by one of its own template: the old ones still serve.
    old = next(p for p in world.alive() if image_of(p) == "wasm://m")
    await world.client.delete("Pod", old["metadata"]["name"], "default")

    def back() -> bool:
        images = [image_of(p) for p in world.alive()]
        return images.count("wasm://m") == 3

    await world.until(back)
    await world.set_image("wasm://m")
    await world.rolled_out()
    assert len(world.alive()) == 3


async def test_a_failed_creation_is_told_and_tried_again(world: World) -> None:
    refused = True

    async def refuse(method: str, path: str) -> None:
        if refused and (method, path) == ("POST", "/api/v1/namespaces/default/pods"):
            raise ApiError(403, "Forbidden", 'pods "x" is forbidden: no room')

    world.cell.transport.before = refuse
    await world.create(deployment(replicas=2))
    await world.until(lambda: world.condition("ReplicaFailure"))
    failure = world.condition("ReplicaFailure")
    assert (failure["reason"], failure["message"]) == ("FailedCreate", 'pods "x" is forbidden: no room')
    assert ("FailedCreate", 'Error creating: pods "x" is forbidden: no room') in await world.told()
    refused = False
    await world.rolled_out()
    await world.until(lambda: not world.condition("ReplicaFailure"))


async def test_a_creation_whose_answer_is_lost_makes_no_second_pod(world: World) -> None:
    lost = 2
    send = world.cell.transport.send

    async def lose(method: str, path: str, **options: Any) -> Any:
        nonlocal lost
        answer = await send(method, path, **options)
        if lost and (method, path) == ("POST", "/api/v1/namespaces/default/pods"):
            lost -= 1
            raise TimeoutError("no answer")
        return answer

    world.cell.transport.send = lose  # type: ignore[method-assign]
    await world.create(deployment(replicas=3))
    await world.rolled_out()
    assert world.most == 3 and not lost


async def test_a_deployment_lets_a_pod_go_that_it_selects_no_more_and_takes_it_back(world: World) -> None:
    await world.create(deployment(replicas=2))
    await world.rolled_out()
    name = world.alive()[0]["metadata"]["name"]
    await world.client.patch("Pod", name, {"metadata": {"labels": {"app": "debug"}}}, "default")
    await world.until(lambda: len(world.alive(app="echo")) == 2)
    await world.until(lambda: not world.cell.pod(name)["metadata"].get("ownerReferences"))
    assert not world.cell.pod(name)["metadata"].get("deletionTimestamp")
    await world.client.patch("Pod", name, {"metadata": {"labels": {"app": "echo"}}}, "default")
    await world.until(lambda: len(world.pods()) == 2)


async def test_pods_that_a_deployment_left_behind_are_taken_over_by_its_successor(world: World) -> None:
    await world.create(deployment(replicas=2))
    await world.rolled_out()
    before = world.names()
    await world.client.delete("Deployment", "echo", "default", propagation="Orphan")
    await world.until(lambda: not world.get("Deployment")["metadata"])
    await world.until(lambda: all(not p["metadata"].get("ownerReferences") for p in world.pods()))
    made = await world.create(deployment(replicas=2))
    await world.rolled_out()
    assert world.names() == before
    assert {p["metadata"]["ownerReferences"][0]["uid"] for p in world.pods()} == {made["metadata"]["uid"]}


async def test_pods_count_as_available_when_they_were_ready_for_long_enough(world: World) -> None:
    await world.create(deployment(replicas=1, minReadySeconds=1))
    await world.until(lambda: world.status().get("readyReplicas") == 1)
    assert "availableReplicas" not in world.status()
    await world.rolled_out()


async def test_a_restarted_controller_goes_on_and_makes_nothing_twice(world: World) -> None:
    await world.create(deployment(replicas=4))
    await world.until(lambda: world.alive())
    for _ in range(3):
        await world.cell._controllers[-1].stop()
        await world.cell.start()
        await world.set_image("wasm://n" if world.most % 2 else "wasm://m")
    await world.rolled_out()
    assert world.most <= 5


async def test_pods_of_another_template_in_the_selector_are_left_alone(world: World) -> None:
    await world.cell.add_pod("bare", "a")
    await world.client.patch("Pod", "bare", {"metadata": {"labels": {"app": "echo"}}}, "default")
    await world.create(deployment(replicas=1))
    await world.rolled_out()
    assert len(world.alive(app="echo")) == 2
    assert not world.cell.pod("bare")["metadata"].get("ownerReferences")


async def test_templates_that_have_no_room_in_the_history_still_roll_over(world: World) -> None:
    """As with modules that are embedded in the template: what does not fit is not kept for a rollback."""
    large = "x" * LIMITS.deployment_history_bytes
    change = {"spec": {"template": {"metadata": {"annotations": {"large": large}}}}}
    await world.create(deployment(replicas=2))
    await world.rolled_out()
    for image in ("wasm://n", "wasm://m"):
        await world.patch("Deployment", change)
        await world.set_image(image)
        await world.rolled_out()
    await world.until(lambda: len(world.alive()) == 2)
    assert {p["metadata"]["annotations"]["large"] for p in world.alive()} == {large}
    await world.patch("Deployment", {"spec": {"replicas": 3}})
    await world.rolled_out()
    rows = world.status()["history"]
    assert len(orjson.dumps(rows)) < LIMITS.deployment_history_bytes
    assert "template" not in rows[-1] and rows[-1]["replicas"] == 3
    await world.patch("Deployment", {"spec": {"template": {"metadata": {"annotations": {"large": None}}}}})
    await world.rolled_out()
    assert "template" in world.status()["history"][-1]
