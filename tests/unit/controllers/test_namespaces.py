"""Namespaces that are deleted: what holds one up is said in its conditions; what each namespace has."""

import asyncio
from typing import Any

from tests.unit.controllers.peers import Cell, Obj, eventually

from kube32.client.api import ApiClient, ApiError
from kube32.contract import LIMITS
from kube32.controllers.manager import Controllers


async def namespace(cell: Cell, name: str) -> Obj | None:
    try:
        return await cell.client.get("Namespace", name)
    except ApiError as error:
        assert error.code == 404
        return None


async def make(cell: Cell, name: str = "team", **meta: Any) -> Obj:
    body = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, **meta}}
    return await cell.client.create("Namespace", body)


async def config_map(cell: Cell, name: str, space: str = "team", **meta: Any) -> Obj:
    metadata = {"name": name, "namespace": space, **meta}
    return await cell.client.create(
        "ConfigMap", {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata}
    )


async def is_gone(cell: Cell, name: str = "team") -> bool:
    return await namespace(cell, name) is None


async def test_a_namespace_says_which_finalizers_hold_it_up(cell: Cell) -> None:
    await cell.start()
    await make(cell)
    await config_map(cell, "held", finalizers=["example.com/hold"])
    await config_map(cell, "free")
    await cell.client.delete("Namespace", "team")

    async def conditions() -> dict[str, Obj]:
        found = await namespace(cell, "team")
        assert found is not None and found["status"]["phase"] == "Terminating"
        return {c["type"]: c for c in found["status"].get("conditions", [])}

    said = await eventually(conditions)
    remaining, finalizers = said["NamespaceContentRemaining"], said["NamespaceFinalizersRemaining"]
    assert (remaining["status"], remaining["reason"]) == ("True", "SomeResourcesRemain")
    assert remaining["message"] == "Some resources are remaining: configmaps. has 1 resource instances"
    assert (finalizers["status"], finalizers["reason"]) == ("True", "SomeFinalizersRemain")
    assert finalizers["message"] == (
        "Some content in the namespace has finalizers remaining: example.com/hold in 1 resource instances"
    )
    good = said["NamespaceDeletionDiscoveryFailure"]
    assert (good["status"], good["message"]) == ("False", "All resources successfully discovered")
    await cell.client.patch("ConfigMap", "held", {"metadata": {"finalizers": None}}, "team")
    async with asyncio.timeout(2):
        await eventually(lambda: is_gone(cell))


async def test_a_namespace_of_the_same_name_can_follow_and_be_deleted_too(cell: Cell) -> None:
    await cell.start()
    for _ in range(3):
        await make(cell)
        await config_map(cell, "x")
        await cell.client.delete("Namespace", "team")
        await eventually(lambda: is_gone(cell))


async def test_a_namespace_with_a_finalizer_of_its_own_is_emptied_and_waits(cell: Cell) -> None:
    await cell.start()
    await make(cell, finalizers=["example.com/hold"])
    await config_map(cell, "x")
    await cell.client.delete("Namespace", "team")

    async def emptied() -> bool:
        found = await namespace(cell, "team")
        assert found is not None
        return not found["spec"].get("finalizers")

    await eventually(emptied)
    names = [o["metadata"]["name"] for o in (await cell.client.list("ConfigMap", "team")).items]
    assert "x" not in names
    await cell.client.patch("Namespace", "team", {"metadata": {"finalizers": None}})
    await eventually(lambda: is_gone(cell))


async def test_two_thousand_objects_do_not_keep_others_waiting(cell: Cell) -> None:
    await cell.start()
    await make(cell)
    for number in range(2000):
        await config_map(cell, f"x{number}")
    longest = 0.0

    async def measure() -> None:
        nonlocal longest
        loop = asyncio.get_running_loop()
        while True:
            before = loop.time()
            await asyncio.sleep(0)
            longest = max(longest, loop.time() - before)

    measuring = asyncio.create_task(measure())
    await cell.client.delete("Namespace", "team")
    await eventually(lambda: is_gone(cell))
    measuring.cancel()
    assert longest < 1.0


async def started_with_ca(cell: Cell) -> None:
    controllers = Controllers(ApiClient(cell.transport), LIMITS, "PEM")
    cell._controllers.append(controllers)
    await controllers.start()


async def find(cell: Cell, kind: str, name: str, space: str) -> Obj | None:
    try:
        return await cell.client.get(kind, name, space)
    except ApiError as error:
        assert error.code == 404
        return None


async def test_every_namespace_has_a_service_account_and_the_cluster_certificate(cell: Cell) -> None:
    await started_with_ca(cell)
    await make(cell)
    for space in ("default", "kube-system", "team"):
        await eventually(lambda space=space: find(cell, "ServiceAccount", "default", space))
        found = await eventually(lambda space=space: find(cell, "ConfigMap", "kube-root-ca.crt", space))
        assert found["data"] == {"ca.crt": "PEM"}


async def test_both_are_made_again_when_they_are_deleted_and_put_right_when_changed(cell: Cell) -> None:
    await started_with_ca(cell)
    account = await eventually(lambda: find(cell, "ServiceAccount", "default", "default"))
    await cell.client.delete("ServiceAccount", "default", "default")

    async def another() -> bool:
        found = await find(cell, "ServiceAccount", "default", "default")
        return found is not None and found["metadata"]["uid"] != account["metadata"]["uid"]

    await eventually(another)
    await eventually(lambda: find(cell, "ConfigMap", "kube-root-ca.crt", "default"))
    await cell.client.patch("ConfigMap", "kube-root-ca.crt", {"data": {"ca.crt": "X", "y": "z"}}, "default")

    async def right() -> bool:
        found = await find(cell, "ConfigMap", "kube-root-ca.crt", "default")
        return found is not None and found["data"] == {"ca.crt": "PEM"}

    await eventually(right)
    await cell.client.delete("ConfigMap", "kube-root-ca.crt", "default")
    await eventually(right)
