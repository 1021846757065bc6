"""PersistentVolumeClaims on node storage: bound with the first pod, kept while in use, gone with their pod."""

import asyncio
from typing import Any

from tests.unit.controllers.peers import Cell, Obj, eventually

from kube32.client.api import ApiError
from kube32.contract import NAMES


async def claim(cell: Cell, name: str = "data", **spec: Any) -> Obj:
    body = {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {
            "accessModes": ["ReadWriteOnce"],
            "resources": {"requests": {"storage": "1Mi"}},
            **spec,
        },
    }
    return await cell.client.create("PersistentVolumeClaim", body)


async def found(cell: Cell, name: str = "data") -> Obj | None:
    try:
        return await cell.client.get("PersistentVolumeClaim", name, "default")
    except ApiError as error:
        assert error.code == 404
        return None


async def bound(cell: Cell, name: str = "data") -> Obj:
    async def look() -> Obj | None:
        seen = await found(cell, name)
        return seen if seen and seen.get("status", {}).get("phase") == "Bound" else None

    result: Obj = await eventually(look)
    return result


def volume(claim_name: str = "data") -> list[Obj]:
    return [{"name": "v", "persistentVolumeClaim": {"claimName": claim_name}}]


async def without_storage(cell: Cell, *nodes: str) -> None:
    for node in nodes:
        patch = {"metadata": {"annotations": {NAMES.ann_storage: "false"}}}
        await cell.client.patch("Node", node, patch)


async def reason_of(cell: Cell, name: str) -> str:
    """Why a pod is not scheduled."""

    def look() -> str:
        conditions = cell.pod(name)["status"].get("conditions") or []
        scheduled = next((c for c in conditions if c["type"] == "PodScheduled"), {})
        return str(scheduled.get("message", ""))

    text: str = await cell.until(look)
    return text


async def test_a_claim_waits_for_its_first_pod_and_says_so(cell: Cell) -> None:
    await cell.start()
    await claim(cell)

    async def protected() -> bool:
        seen = await found(cell)
        return seen is not None and NAMES.finalizer_pvc in seen["metadata"].get("finalizers", [])

    await eventually(protected)

    async def told() -> Any:
        return await cell.reasons("data")

    assert await eventually(told) == [
        ("WaitForFirstConsumer", "waiting for first consumer to be created before binding")
    ]
    seen = await found(cell)
    assert seen is not None and seen["status"]["phase"] == "Pending"


async def test_a_claim_is_bound_to_the_node_of_its_first_pod_and_holds_later_pods_there(cell: Cell) -> None:
    await cell.start()
    await without_storage(cell, "a", "c")
    await claim(cell)
    await cell.add_pod("one", "", volumes=volume())
    await cell.until(lambda: cell.pod("one")["spec"].get("nodeName"))
    assert cell.pod("one")["spec"]["nodeName"] == "b"
    seen = await bound(cell)
    assert seen["metadata"]["annotations"][NAMES.ann_selected_node] == "b"
    assert seen["spec"]["volumeName"] == f"b-pvc-{seen['metadata']['uid']}"
    assert seen["spec"]["storageClassName"] == "kube32-node"
    assert seen["status"]["capacity"] == {"storage": "1Mi"}
    assert seen["status"]["accessModes"] == ["ReadWriteOnce"]
    for node in ("a", "c"):
        await cell.client.patch("Node", node, {"metadata": {"annotations": {NAMES.ann_storage: "true"}}})
    for number in range(4):
        await cell.add_pod(f"more{number}", "", volumes=volume())
        await cell.until(lambda number=number: cell.pod(f"more{number}")["spec"].get("nodeName"))
        assert cell.pod(f"more{number}")["spec"]["nodeName"] == "b"


async def test_two_pods_that_come_at_once_with_one_claim_go_to_one_node(cell: Cell) -> None:
    await claim(cell)
    names = [f"p{number}" for number in range(6)]
    for name in names:
        await cell.add_pod(name, "", volumes=volume())
    await cell.start()
    await cell.until(lambda: all(cell.pod(n)["spec"].get("nodeName") for n in names))
    assert len({cell.pod(n)["spec"]["nodeName"] for n in names}) == 1


async def test_a_pod_whose_claim_is_missing_waits_and_goes_on_when_it_comes(cell: Cell) -> None:
    await cell.start()
    await cell.add_pod("p", "", volumes=volume("later"))
    expected = '0/3 nodes are available: persistentvolumeclaim "later" not found.'
    assert await reason_of(cell, "p") == expected
    await claim(cell, "later")
    await cell.until(lambda: cell.pod("p")["spec"].get("nodeName"))


async def test_a_pod_cannot_leave_the_node_of_its_claim(cell: Cell) -> None:
    await cell.start()
    await claim(cell)
    await cell.add_pod("one", "a", volumes=volume())
    await bound(cell)
    await cell.client.patch("Node", "a", {"spec": {"unschedulable": True}})
    await cell.add_pod("two", "", volumes=volume())
    assert await reason_of(cell, "two") == (
        "0/3 nodes are available: 1 node(s) were unschedulable, 2 node(s) had volume node affinity conflict."
    )


async def test_a_claim_of_another_class_is_not_bound_and_the_pod_waits(cell: Cell) -> None:
    await cell.start()
    await claim(cell, storageClassName="fast")
    await cell.add_pod("p", "", volumes=volume())
    expected = "0/3 nodes are available: pod has unbound immediate PersistentVolumeClaims."
    assert await reason_of(cell, "p") == expected

    async def told() -> Any:
        return await cell.reasons("data")

    assert await eventually(told) == [("ProvisioningFailed", 'storageclass.storage.k8s.io "fast" not found')]


async def test_a_claim_in_use_is_kept_until_its_last_pod_has_gone(cell: Cell) -> None:
    await cell.start()
    await claim(cell)
    await cell.add_pod("p", "a", volumes=volume())
    await bound(cell)
    marked = await cell.client.delete("PersistentVolumeClaim", "data", "default")
    assert marked["metadata"]["deletionTimestamp"]
    await cell.add_pod("late", "", volumes=volume())
    expected = '0/3 nodes are available: persistentvolumeclaim "data" is being deleted.'
    assert await reason_of(cell, "late") == expected
    await asyncio.sleep(0.2)
    assert await found(cell) is not None
    await cell.client.delete("Pod", "p", "default", grace_s=0)

    async def gone() -> bool:
        return await found(cell) is None

    await eventually(gone)


async def test_a_claim_that_nobody_uses_goes_at_once(cell: Cell) -> None:
    await cell.start()
    await claim(cell)
    await asyncio.sleep(0.1)
    await cell.client.delete("PersistentVolumeClaim", "data", "default")

    async def gone() -> bool:
        return await found(cell) is None

    await eventually(gone)


async def test_an_ephemeral_volume_has_a_claim_that_goes_with_its_pod(cell: Cell) -> None:
    await cell.start()
    template = {
        "metadata": {"labels": {"of": "p"}},
        "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Mi"}}},
    }
    await cell.add_pod("p", "", volumes=[{"name": "v", "ephemeral": {"volumeClaimTemplate": template}}])
    await cell.until(lambda: cell.pod("p")["spec"].get("nodeName"))
    seen = await bound(cell, "p-v")
    assert seen["metadata"]["labels"] == {"of": "p"}
    assert seen["metadata"]["ownerReferences"][0]["uid"] == cell.pod("p")["metadata"]["uid"]
    await cell.client.delete("Pod", "p", "default", grace_s=0)

    async def gone() -> bool:
        return await found(cell, "p-v") is None

    await eventually(gone)
