"""DaemonSets: a pod on each node that takes one, as nodes come, go and change; updates; status."""

from collections import Counter
from typing import Any

import pytest
from tests.unit.controllers.peers import Obj, running
from tests.unit.controllers.workloads.world import World, daemon_set, template

from kube32.contract import LIMITS
from kube32.formats.template_hash import template_hash


def image_of(pod: Obj) -> str:
    return str(pod["spec"]["containers"][0]["image"])


def nodes_of(world: World) -> list[str]:
    """Where its pods are that are not going, sorted."""
    return sorted(p["spec"].get("nodeName", "") for p in world.alive(app="echo"))


async def on(world: World, *nodes: str) -> None:
    """Waits until its pods are Ready on these nodes and no others are there."""

    def check() -> bool:
        status = world.status("DaemonSet")
        wanted = len(nodes)
        counts = [
            status.get(k, 0) for k in ("desiredNumberScheduled", "numberAvailable", "currentNumberScheduled")
        ]
        return (
            sorted(p["spec"].get("nodeName", "") for p in world.pods(app="echo")) == list(nodes)
            and counts == [wanted] * 3
        )

    await world.until(check)


async def updated(world: World) -> None:
    def check() -> bool:
        found = world.get("DaemonSet")
        status = found.get("status") or {}
        wanted = status.get("desiredNumberScheduled")
        seen = status.get("observedGeneration") == found["metadata"].get("generation")
        return seen and status.get("updatedNumberScheduled") == wanted == status.get("numberAvailable")

    await world.until(check)


async def test_every_node_gets_one_pod(world: World) -> None:
    made = await world.create(daemon_set())
    await on(world, "a", "b", "c")
    pod = world.pods()[0]
    assert pod["metadata"]["labels"]["controller-revision-hash"] == template_hash(made["spec"]["template"])
    assert pod["metadata"]["generateName"] == "echo-"
    terms = pod["spec"]["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
    field = {"key": "metadata.name", "operator": "In", "values": [pod["spec"]["nodeName"]]}
    assert terms == {"nodeSelectorTerms": [{"matchFields": [field]}]}
    tolerated = {(t["key"], t["effect"]) for t in pod["spec"]["tolerations"] if "tolerationSeconds" not in t}
    assert ("node.kubernetes.io/not-ready", "NoExecute") in tolerated
    assert ("node.kubernetes.io/unschedulable", "NoSchedule") in tolerated
    assert world.most == 3
    names = {p["metadata"]["name"] for p in world.pods()}
    assert {m for r, m in await world.told() if r == "SuccessfulCreate"} == {
        f"Created pod: {n}" for n in names
    }


async def test_nodes_that_come_and_go(world: World) -> None:
    await world.create(daemon_set())
    await on(world, "a", "b", "c")
    await world.cell.add_node("d")
    await on(world, "a", "b", "c", "d")
    await world.client.delete("Node", "d")
    await world.until(lambda: world.status("DaemonSet")["desiredNumberScheduled"] == 3)


async def test_only_nodes_that_the_selector_and_the_affinity_choose(world: World) -> None:
    expression = {"key": "zone", "operator": "NotIn", "values": ["b"]}
    affinity = {
        "nodeAffinity": {
            "requiredDuringSchedulingIgnoredDuringExecution": {
                "nodeSelectorTerms": [{"matchExpressions": [expression]}]
            }
        }
    }
    await world.create(daemon_set(template=template(affinity=affinity)))
    await on(world, "a", "c")
    await world.client.patch("Node", "b", {"metadata": {"labels": {"zone": "x"}}})
    await on(world, "a", "b", "c")
    await world.client.patch("Node", "a", {"metadata": {"labels": {"zone": "b"}}})
    await on(world, "b", "c")


async def test_a_cordon_keeps_no_daemon_away_but_a_taint_does(world: World) -> None:
    await world.client.patch("Node", "a", {"spec": {"unschedulable": True}})
    taint = {"key": "only", "value": "x", "effect": "NoSchedule"}
    await world.client.patch("Node", "b", {"spec": {"taints": [taint]}})
    await world.create(daemon_set())
    await on(world, "a", "c")
    # A NoSchedule taint that comes later does not drive it away, a NoExecute taint does.
    await world.client.patch("Node", "c", {"spec": {"taints": [taint]}})
    await world.until(lambda: world.status("DaemonSet").get("numberMisscheduled") == 1)
    assert nodes_of(world) == ["a", "c"]
    await world.client.patch("Node", "c", {"spec": {"taints": [{**taint, "effect": "NoExecute"}]}})
    await on(world, "a")


@pytest.mark.parametrize(
    ("pace", "most_missing", "most_pods"),
    [
        ({"maxUnavailable": 1}, 1, 3),
        ({"maxUnavailable": "50%"}, 2, 3),
        ({"maxSurge": 1, "maxUnavailable": 0}, 0, 4),
    ],
)
async def test_a_rolling_update_keeps_to_its_pace(
    world: World, pace: dict[str, Any], most_missing: int, most_pods: int
) -> None:
    await world.create(daemon_set(updateStrategy={"type": "RollingUpdate", "rollingUpdate": pace}))
    await on(world, "a", "b", "c")
    missing = 0

    def watch(kind: str, pod: Obj, old: Obj | None) -> None:
        nonlocal missing
        ready = {
            p["spec"].get("nodeName")
            for p in world.alive(app="echo")
            if any(c["type"] == "Ready" and c["status"] == "True" for c in p["status"].get("conditions", []))
        }
        missing = max(missing, 3 - len(ready))

    world.cell.pods.subscribe(watch)
    await world.set_image("wasm://n", "DaemonSet")
    await updated(world)
    await on(world, "a", "b", "c")
    assert {image_of(p) for p in world.pods()} == {"wasm://n"}
    assert missing <= most_missing and world.most <= most_pods


async def test_an_update_stops_at_a_pod_that_does_not_get_ready(world: World) -> None:
    await world.create(daemon_set())
    await on(world, "a", "b", "c")
    for node in world.cell.kubelets.nodes.values():
        node.on_pod = lambda pod: running(pod) if image_of(pod) == "wasm://m" else None
    await world.set_image("wasm://n", "DaemonSet")
    await world.until(lambda: world.status("DaemonSet").get("updatedNumberScheduled") == 1)
    assert Counter(image_of(p) for p in world.alive()) == {"wasm://m": 2, "wasm://n": 1}
    await world.set_image("wasm://m", "DaemonSet")
    await updated(world)
    assert Counter(image_of(p) for p in world.alive()) == {"wasm://m": 3}


async def test_on_delete_waits_for_somebody_to_delete(world: World) -> None:
    await world.create(daemon_set(updateStrategy={"type": "OnDelete"}))
    await on(world, "a", "b", "c")
    await world.set_image("wasm://n", "DaemonSet")
    await world.until(lambda: world.status("DaemonSet").get("observedGeneration") == 2)
    assert {image_of(p) for p in world.pods()} == {"wasm://m"}
    await world.client.delete("Pod", world.pods()[0]["metadata"]["name"], "default")
    await world.until(lambda: world.status("DaemonSet").get("updatedNumberScheduled") == 1)
    await on(world, "a", "b", "c")


async def test_a_failed_pod_is_buried_and_replaced_after_a_while_when_it_fails_again(world: World) -> None:
    limits = LIMITS.replace(daemon_backoff_initial_ms=300)
    await world.cell._controllers[-1].stop()
    await world.cell.start(limits)
    await world.create(daemon_set())
    await on(world, "a", "b", "c")
    began = world.now()
    for _ in range(2):
        pod = next(p for p in world.alive() if p["spec"]["nodeName"] == "a")
        await world.finish(pod, "Failed", 1)
        await world.until(
            lambda uid=pod["metadata"]["uid"]: all(p["metadata"]["uid"] != uid for p in world.pods())
        )
        await on(world, "a", "b", "c")
    assert world.now() - began >= 0.3
    told = [m for r, m in await world.told() if r == "FailedDaemonPod"]
    assert (
        told[0]
        == f"Found failed daemon pod default/{told[0].split('/')[1].split()[0]} on node a, will try to kill it"
    )


async def test_a_deleted_daemon_set_takes_its_pods_along(world: World) -> None:
    await world.create(daemon_set())
    await on(world, "a", "b", "c")
    await world.client.delete("DaemonSet", "echo", "default")
    await world.until(lambda: not world.pods())
