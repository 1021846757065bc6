"""Deletion: preconditions, finalizers, the grace of pods, namespaces that terminate, collections."""

import asyncio
from typing import Any

import pytest

CORE = "/api/v1/namespaces/default"


async def bound_pod(api: Any, objects: Any, name: str = "p", **spec: Any) -> Any:
    await api.create(f"{CORE}/pods", objects.pod(name, spec=spec))
    binding = {"metadata": {"name": name}, "target": {"kind": "Node", "name": "n1"}}
    await api.create(f"{CORE}/pods/{name}/binding", binding)
    return (await api.get(f"{CORE}/pods/{name}")).json


async def test_a_plain_deletion_answers_a_status_with_the_uid(api: Any, objects: Any) -> None:
    created = await api.create(f"{CORE}/configmaps", objects.config_map("a"))
    answer = await api.send("DELETE", f"{CORE}/configmaps/a")
    assert answer.json["status"] == "Success"
    assert answer.json["details"] == {
        "name": "a",
        "kind": "configmaps",
        "uid": created["metadata"]["uid"],
    }
    assert (await api.send("DELETE", f"{CORE}/configmaps/a")).status == 404


@pytest.mark.parametrize("field", ["uid", "resourceVersion"])
async def test_preconditions_keep_another_object(api: Any, objects: Any, field: str) -> None:
    created = await api.create(f"{CORE}/configmaps", objects.config_map("a"))
    refused = await api.send("DELETE", f"{CORE}/configmaps/a", {"preconditions": {field: "1"}})
    assert (refused.status, refused.json["reason"]) == (409, "Conflict")
    assert "Precondition failed" in refused.message
    allowed = {"preconditions": {field: created["metadata"][field]}}
    assert (await api.send("DELETE", f"{CORE}/configmaps/a", allowed)).status == 200


async def test_an_object_with_finalizers_goes_with_the_last_one(api: Any, objects: Any) -> None:
    finalizers = ["kube32.io/a", "kube32.io/b"]
    await api.create(f"{CORE}/configmaps", objects.config_map("a", metadata={"finalizers": finalizers}))
    marked = await api.send("DELETE", f"{CORE}/configmaps/a")
    assert marked.json["metadata"]["deletionTimestamp"]
    again = await api.send("DELETE", f"{CORE}/configmaps/a")
    assert again.body == marked.body
    added = await api.patch(
        f"{CORE}/configmaps/a", {"metadata": {"finalizers": [*finalizers, "kube32.io/c"]}}
    )
    assert added.status == 422
    assert "no new finalizers can be added if the object is being deleted" in added.message
    one = await api.patch(f"{CORE}/configmaps/a", {"metadata": {"finalizers": ["kube32.io/b"]}})
    assert one.status == 200
    assert (await api.get(f"{CORE}/configmaps/a")).status == 200
    last = await api.patch(f"{CORE}/configmaps/a", {"metadata": {"finalizers": None}})
    assert last.status == 200
    assert (await api.get(f"{CORE}/configmaps/a")).status == 404


async def test_a_bound_pod_waits_for_its_kubelet(api: Any, objects: Any) -> None:
    pod = await bound_pod(api, objects)
    marked = (await api.send("DELETE", f"{CORE}/pods/p")).json
    assert marked["kind"] == "Pod"
    assert marked["metadata"]["deletionGracePeriodSeconds"] == 30
    assert marked["metadata"]["deletionTimestamp"] > pod["metadata"]["creationTimestamp"]
    longer = (await api.send("DELETE", f"{CORE}/pods/p?gracePeriodSeconds=60")).json
    assert longer["metadata"]["deletionGracePeriodSeconds"] == 30
    shorter = (await api.send("DELETE", f"{CORE}/pods/p?gracePeriodSeconds=5")).json
    assert shorter["metadata"]["deletionGracePeriodSeconds"] == 5
    gone = await api.send(
        "DELETE",
        f"{CORE}/pods/p",
        {"gracePeriodSeconds": 0, "preconditions": {"uid": pod["metadata"]["uid"]}},
    )
    assert gone.status == 200
    assert (await api.get(f"{CORE}/pods/p")).status == 404


async def test_a_marked_pod_does_not_go_with_its_finalizer_before_its_kubelet(api: Any, objects: Any) -> None:
    await bound_pod(api, objects)
    await api.patch(f"{CORE}/pods/p", {"metadata": {"finalizers": ["kube32.io/a"]}})
    await api.send("DELETE", f"{CORE}/pods/p")
    await api.patch(f"{CORE}/pods/p", {"metadata": {"finalizers": None}})
    assert (await api.get(f"{CORE}/pods/p")).status == 200
    await api.patch(f"{CORE}/pods/p", {"metadata": {"labels": {"a": "b"}}})
    assert (await api.get(f"{CORE}/pods/p")).json["metadata"]["deletionTimestamp"]


@pytest.mark.parametrize("phase", ["Succeeded", "Failed"])
async def test_a_finished_pod_goes_at_once(api: Any, objects: Any, phase: str) -> None:
    await bound_pod(api, objects)
    await api.patch(f"{CORE}/pods/p/status", {"status": {"phase": phase}})
    await api.send("DELETE", f"{CORE}/pods/p")
    assert (await api.get(f"{CORE}/pods/p")).status == 404


async def test_an_unbound_pod_goes_at_once(api: Any, objects: Any) -> None:
    await api.create(f"{CORE}/pods", objects.pod("p"))
    answer = await api.send("DELETE", f"{CORE}/pods/p", {"gracePeriodSeconds": 30})
    assert answer.json["kind"] == "Pod"
    assert (await api.get(f"{CORE}/pods/p")).status == 404


async def test_a_namespace_terminates_until_it_is_finalized(api: Any) -> None:
    created = await api.create("/api/v1/namespaces", {"metadata": {"name": "t"}})
    assert created["spec"]["finalizers"] == ["kubernetes"]
    assert created["status"]["phase"] == "Active"
    marked = (await api.send("DELETE", "/api/v1/namespaces/t")).json
    assert marked["status"]["phase"] == "Terminating"
    bare = await api.patch("/api/v1/namespaces/t", {"spec": {"finalizers": None}})
    assert bare.json["spec"]["finalizers"] == ["kubernetes"]
    marked["spec"]["finalizers"] = []
    finalized = await api.send("PUT", "/api/v1/namespaces/t/finalize", {**marked, "metadata": {"name": "t"}})
    assert finalized.status == 200
    assert (await api.get("/api/v1/namespaces/t")).status == 404


@pytest.mark.parametrize("name", ["default", "kube-system"])
async def test_a_namespace_that_the_cluster_needs_stays(api: Any, name: str) -> None:
    answer = await api.send("DELETE", f"/api/v1/namespaces/{name}")
    assert (answer.status, answer.json["reason"]) == (403, "Forbidden")
    assert answer.message == f'namespaces "{name}" is forbidden: this namespace may not be deleted'


async def test_a_collection_is_deleted_by_selector(api: Any, objects: Any) -> None:
    for name, color in (("a", "red"), ("b", "blue"), ("c", "red")):
        await api.create(
            f"{CORE}/configmaps", objects.config_map(name, metadata={"labels": {"color": color}})
        )
    answer = await api.send("DELETE", f"{CORE}/configmaps?labelSelector=color%3Dred")
    assert answer.json["kind"] == "ConfigMapList"
    assert [item["metadata"]["name"] for item in answer.json["items"]] == ["a", "c"]
    left = (await api.get(f"{CORE}/configmaps")).json["items"]
    assert [item["metadata"]["name"] for item in left] == ["b"]


@pytest.mark.parametrize(
    ("body", "query", "code"),
    [
        ({"propagationPolicy": "Foreground"}, "", 200),
        ({"propagationPolicy": "Sideways"}, "", 422),
        ({"gracePeriodSeconds": "x"}, "", 400),
        ({"kind": "Pod"}, "", 400),
        ([], "", 400),
        (b"{", "", 400),
        (None, "?gracePeriodSeconds=x", 400),
        (None, "?propagationPolicy=Orphan", 200),
    ],
)
async def test_options_of_a_deletion_are_checked(
    api: Any, objects: Any, body: Any, query: str, code: int
) -> None:
    await api.create(f"{CORE}/configmaps", objects.config_map("a"))
    answer = await api.send("DELETE", f"{CORE}/configmaps/a{query}", body)
    assert answer.status == code, answer.body
    assert (await api.get(f"{CORE}/configmaps/a")).status == (404 if code == 200 else 200)


async def test_a_watcher_follows_the_deletion_of_a_collection_larger_than_its_buffer(
    api: Any, objects: Any
) -> None:
    names = [f"many-{n:02}" for n in range(60)]
    for name in names:
        await api.create(f"{CORE}/configmaps", objects.config_map(name))
    frames = await api.watch(f"{CORE}/configmaps?watch=true&resourceVersion={api.server.store.revision}")

    async def follow() -> list[str]:
        return [(await frames.next())["object"]["metadata"]["name"] for _ in names]

    following = asyncio.create_task(follow())
    assert (await api.send("DELETE", f"{CORE}/configmaps")).status == 200
    assert await following == names
    await frames.close()
