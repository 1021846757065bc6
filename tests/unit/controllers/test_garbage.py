"""Garbage collection by owner references: Background, Foreground, Orphan, absent and misplaced owners."""

import asyncio
from typing import Any

import pytest
from tests.unit.controllers.peers import Cell, Obj, eventually

from kube32.client.api import ApiError

KIND = {"ConfigMap": "v1", "Secret": "v1", "Node": "v1", "Namespace": "v1"}


def reference(owner: Obj, **more: Any) -> Obj:
    """An owner reference to an object."""
    meta = owner["metadata"]
    return {
        "apiVersion": owner["apiVersion"],
        "kind": owner["kind"],
        "name": meta["name"],
        "uid": meta["uid"],
        **more,
    }


async def make(
    cell: Cell, name: str, *owners: Obj, kind: str = "ConfigMap", namespace: str = "default", **meta: Any
) -> Obj:
    """An object owned by others."""
    metadata = {"name": name, **meta}
    if kind != "Namespace":
        metadata["namespace"] = namespace
    if owners:
        metadata["ownerReferences"] = list(owners)
    return await cell.client.create(kind, {"apiVersion": "v1", "kind": kind, "metadata": metadata})


async def find(cell: Cell, name: str, kind: str = "ConfigMap", namespace: str = "default") -> Obj | None:
    try:
        return await cell.client.get(kind, name, namespace)
    except ApiError as error:
        assert error.code == 404
        return None


async def gone(cell: Cell, *names: str, kind: str = "ConfigMap", namespace: str = "default") -> None:
    for name in names:

        async def look(name: str = name) -> bool:
            return await find(cell, name, kind, namespace) is None

        await eventually(look)


async def settled(cell: Cell) -> None:
    """Long enough for a collector that is wrong to have deleted something."""
    await asyncio.sleep(0.3)


async def test_background_deletes_a_chain_of_owners_three_deep(cell: Cell) -> None:
    await cell.start()
    top = await make(cell, "a")
    middle = await make(cell, "b", reference(top))
    low = await make(cell, "c", reference(middle), kind="Secret")
    await make(cell, "d", reference(low))
    answer = await cell.client.delete("ConfigMap", "a", "default", propagation="Background")
    assert answer["status"] == "Success"
    await gone(cell, "a", "b", "d")
    await gone(cell, "c", kind="Secret")


async def test_background_is_what_a_deletion_without_a_word_means(cell: Cell) -> None:
    await cell.start()
    top = await make(cell, "a")
    await make(cell, "b", reference(top))
    await cell.client.delete("ConfigMap", "a", "default")
    await gone(cell, "b")


async def test_foreground_waits_for_dependents_that_block(cell: Cell) -> None:
    await cell.start()
    top = await make(cell, "a")
    await make(cell, "b", reference(top, blockOwnerDeletion=True), finalizers=["example.com/hold"])
    await make(cell, "c", reference(top), finalizers=["example.com/hold"])
    marked = await cell.client.delete("ConfigMap", "a", "default", propagation="Foreground")
    assert marked["metadata"]["finalizers"] == ["foregroundDeletion"]

    async def is_deleting(name: str) -> bool:
        found = await find(cell, name)
        return found is not None and bool(found["metadata"].get("deletionTimestamp"))

    await eventually(lambda: is_deleting("b"))
    await eventually(lambda: is_deleting("c"))
    await settled(cell)
    assert await find(cell, "a") is not None
    await cell.client.patch("ConfigMap", "b", {"metadata": {"finalizers": None}}, "default")
    await gone(cell, "b", "a")
    # The one that does not block is still held by its own finalizer.
    assert await find(cell, "c") is not None


async def test_foreground_removes_leaves_before_their_owners(cell: Cell) -> None:
    await cell.start()
    top = await make(cell, "a")
    middle = await make(cell, "b", reference(top, blockOwnerDeletion=True))
    await make(cell, "c", reference(middle, blockOwnerDeletion=True))
    order: list[str] = []

    async def follow() -> None:
        async for kind, obj in cell.client.watch("ConfigMap", "default"):
            if kind == "DELETED":
                order.append(obj["metadata"]["name"])

    following = asyncio.create_task(follow())
    await asyncio.sleep(0.05)
    await cell.client.delete("ConfigMap", "a", "default", propagation="Foreground")
    await gone(cell, "a")
    await eventually(lambda: len(order) == 3)
    following.cancel()
    assert order == ["c", "b", "a"]


async def test_objects_that_own_each_other_do_not_block_each_other_for_ever(cell: Cell) -> None:
    await cell.start()
    one = await make(cell, "a")
    two = await make(cell, "b", reference(one, blockOwnerDeletion=True))
    patch = {"metadata": {"ownerReferences": [reference(two, blockOwnerDeletion=True)]}}
    await cell.client.patch("ConfigMap", "a", patch, "default")
    await cell.client.delete("ConfigMap", "a", "default", propagation="Foreground")
    await gone(cell, "a", "b")


async def test_orphans_forget_their_owner_and_stay(cell: Cell) -> None:
    await cell.start()
    top = await make(cell, "a")
    other = await make(cell, "other")
    await make(cell, "b", reference(top))
    await make(cell, "c", reference(top), reference(other))
    marked = await cell.client.delete("ConfigMap", "a", "default", propagation="Orphan")
    assert marked["metadata"]["finalizers"] == ["orphan"]
    await gone(cell, "a")
    await settled(cell)
    left = await find(cell, "b")
    assert left is not None and "ownerReferences" not in left["metadata"]
    shared = await find(cell, "c")
    assert shared is not None
    assert [r["name"] for r in shared["metadata"]["ownerReferences"]] == ["other"]


async def test_an_object_stays_while_one_owner_does_and_loses_the_others(cell: Cell) -> None:
    await cell.start()
    one, two = await make(cell, "one"), await make(cell, "two")
    await make(cell, "b", reference(one), reference(two))
    await cell.client.delete("ConfigMap", "one", "default")

    async def released() -> bool:
        found = await find(cell, "b")
        assert found is not None
        return [r["name"] for r in found["metadata"]["ownerReferences"]] == ["two"]

    await eventually(released)
    await cell.client.delete("ConfigMap", "two", "default")
    await gone(cell, "b")


@pytest.mark.parametrize("started", [False, True])
async def test_an_owner_that_never_was_or_has_another_uid_is_absent(cell: Cell, started: bool) -> None:
    if started:
        await cell.start()
    there = await make(cell, "there")
    never = reference(there, uid="00000000-0000-0000-0000-000000000000")
    await make(cell, "b", never)
    await make(cell, "c", {**never, "name": "nobody"})
    if not started:
        await cell.start()
    await gone(cell, "b", "c")
    assert await find(cell, "there") is not None


async def test_a_dependent_made_after_its_owner_went_is_collected(cell: Cell) -> None:
    await cell.start()
    owner = await make(cell, "a")
    await cell.client.delete("ConfigMap", "a", "default")
    await make(cell, "late", reference(owner))
    await gone(cell, "late")


async def test_an_owner_in_another_namespace_is_absent_and_an_event_says_so(cell: Cell) -> None:
    await cell.start()
    await make(cell, "team", kind="Namespace")
    owner = await make(cell, "a", namespace="team")
    await asyncio.sleep(0.05)
    await make(cell, "b", reference(owner), finalizers=["example.com/hold"])

    async def told() -> bool:
        return bool(await cell.reasons("b"))

    await eventually(told)
    uid = owner["metadata"]["uid"]
    assert await cell.reasons("b") == [
        (
            "OwnerRefInvalidNamespace",
            f"ownerRef [v1/ConfigMap, namespace: default, name: a, uid: {uid}] does not exist in namespace "
            '"default"',
        )
    ]
    await cell.client.patch("ConfigMap", "b", {"metadata": {"finalizers": None}}, "default")
    await gone(cell, "b")
    assert await find(cell, "a", namespace="team") is not None


async def test_an_owner_that_is_cluster_scoped_may_own_what_is_in_namespaces(cell: Cell) -> None:
    await cell.start()
    node = await cell.client.get("Node", "c")
    await make(cell, "b", reference(node))
    await settled(cell)
    assert await find(cell, "b") is not None
    await cell.client.delete("Node", "c")
    await gone(cell, "b")


async def test_an_owner_of_a_kind_that_nobody_serves_is_not_taken_for_absent(cell: Cell) -> None:
    await cell.start()
    await make(cell, "b", {"apiVersion": "example.com/v1", "kind": "Widget", "name": "w", "uid": "1-2-3"})
    await settled(cell)
    assert await find(cell, "b") is not None


async def test_a_deletion_that_was_marked_while_no_collector_ran_is_carried_out(cell: Cell) -> None:
    orphaned, doomed = await make(cell, "o"), await make(cell, "f")
    await make(cell, "o1", reference(orphaned))
    await make(cell, "f1", reference(doomed, blockOwnerDeletion=True))
    await cell.client.delete("ConfigMap", "o", "default", propagation="Orphan")
    await cell.client.delete("ConfigMap", "f", "default", propagation="Foreground")
    assert await find(cell, "o") is not None and await find(cell, "f") is not None
    await cell.start()
    await gone(cell, "o", "f", "f1")
    assert await find(cell, "o1") is not None


async def test_a_second_deletion_may_change_what_becomes_of_dependents(cell: Cell) -> None:
    top = await make(cell, "a", finalizers=["example.com/hold"])
    await make(cell, "b", reference(top))
    await cell.client.delete("ConfigMap", "a", "default", propagation="Foreground")
    again = await cell.client.delete("ConfigMap", "a", "default", propagation="Orphan")
    assert again["metadata"]["finalizers"] == ["example.com/hold", "orphan"]
    await cell.start()
    await cell.client.patch("ConfigMap", "a", {"metadata": {"finalizers": ["orphan"]}}, "default")
    await gone(cell, "a")
    assert await find(cell, "b") is not None


async def test_pods_of_an_owner_that_goes_are_told_to_end_at_once(cell: Cell) -> None:
    await cell.start()
    owner = await make(cell, "a")
    names = [f"p{number}" for number in range(20)]
    for name in names:
        pod = await cell.add_pod(name, "a")
        patch = {"metadata": {"ownerReferences": [reference(owner)]}}
        await cell.client.patch("Pod", name, patch, pod["metadata"]["namespace"])
    async with asyncio.timeout(2):
        await cell.client.delete("ConfigMap", "a", "default")
        await cell.until(lambda: all(cell.pod(name)["metadata"].get("deletionTimestamp") for name in names))
