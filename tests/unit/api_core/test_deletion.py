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
        ({"propagationPolicy": "Background"}, "", 200),
        ({"propagationPolicy": "Sideways"}, "", 422),
        ({"gracePeriodSeconds": "x"}, "", 400),
        ({"kind": "Pod"}, "", 400),
        ([], "", 400),
        (b"{", "", 400),
        (None, "?gracePeriodSeconds=x", 400),
        (None, "?propagationPolicy=Background", 200),
        (None, "?propagationPolicy=Sideways", 422),
        ({"propagationPolicy": "Orphan", "orphanDependents": True}, "", 422),
        (None, "?propagationPolicy=Background&orphanDependents=false", 422),
        ({"orphanDependents": "yes"}, "", 400),
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


@pytest.mark.parametrize(
    ("body", "query", "finalizers"),
    [
        ({"propagationPolicy": "Foreground"}, "", ["kube32.io/a", "foregroundDeletion"]),
        ({"propagationPolicy": "Orphan"}, "", ["kube32.io/a", "orphan"]),
        ({"propagationPolicy": "Background"}, "", ["kube32.io/a"]),
        ({"orphanDependents": True}, "", ["kube32.io/a", "orphan"]),
        ({"orphanDependents": False}, "", ["kube32.io/a"]),
        ({}, "", ["kube32.io/a"]),
        (None, "?propagationPolicy=Foreground", ["kube32.io/a", "foregroundDeletion"]),
        (None, "?orphanDependents=true", ["kube32.io/a", "orphan"]),
        (None, "", ["kube32.io/a"]),
    ],
)
async def test_what_becomes_of_dependents_stands_in_the_finalizers(
    api: Any, objects: Any, body: Any, query: str, finalizers: list[str]
) -> None:
    await api.create(f"{CORE}/configmaps", objects.config_map("a", metadata={"finalizers": ["kube32.io/a"]}))
    answer = await api.send("DELETE", f"{CORE}/configmaps/a{query}", body)
    assert answer.status == (202 if body == {"orphanDependents": False} else 200)
    assert answer.json["metadata"]["deletionTimestamp"]
    assert answer.json["metadata"]["deletionGracePeriodSeconds"] == 0
    assert (await api.get(f"{CORE}/configmaps/a")).json["metadata"]["finalizers"] == finalizers


async def test_a_later_deletion_changes_what_becomes_of_dependents_and_one_without_a_word_does_not(
    api: Any, objects: Any
) -> None:
    await api.create(f"{CORE}/configmaps", objects.config_map("a"))
    await api.send("DELETE", f"{CORE}/configmaps/a", {"propagationPolicy": "Orphan"})
    stamp = (await api.get(f"{CORE}/configmaps/a")).json["metadata"]["deletionTimestamp"]
    same = await api.send("DELETE", f"{CORE}/configmaps/a")
    assert same.json["metadata"]["finalizers"] == ["orphan"]
    other = await api.send("DELETE", f"{CORE}/configmaps/a", {"propagationPolicy": "Foreground"})
    assert other.json["metadata"]["finalizers"] == ["foregroundDeletion"]
    assert other.json["metadata"]["deletionTimestamp"] == stamp
    gone = await api.send("DELETE", f"{CORE}/configmaps/a", {"propagationPolicy": "Background"})
    assert gone.json["status"] == "Success"
    assert (await api.get(f"{CORE}/configmaps/a")).status == 404


async def test_orphaning_by_two_words_at_once_is_refused_as_kubernetes_does(api: Any, objects: Any) -> None:
    await api.create(f"{CORE}/configmaps", objects.config_map("a"))
    both = {"propagationPolicy": "Orphan", "orphanDependents": True}
    answer = await api.send("DELETE", f"{CORE}/configmaps/a", both)
    assert answer.status == 422
    assert answer.message == (
        'DeleteOptions.meta.k8s.io "" is invalid: propagationPolicy: Invalid value: "Orphan": '
        "orphanDependents and deletionPropagation cannot be both set"
    )
    unknown = await api.send("DELETE", f"{CORE}/configmaps/a", {"propagationPolicy": "Sideways"})
    assert unknown.message == (
        'DeleteOptions.meta.k8s.io "" is invalid: propagationPolicy: Unsupported value: "Sideways": '
        'supported values: "Foreground", "Background", "Orphan", "nil"'
    )


async def test_a_dry_run_shows_the_mark_and_leaves_the_object(api: Any, objects: Any) -> None:
    await api.create(f"{CORE}/configmaps", objects.config_map("a"))
    shown = await api.send("DELETE", f"{CORE}/configmaps/a?dryRun=All&propagationPolicy=Foreground")
    assert shown.json["metadata"]["finalizers"] == ["foregroundDeletion"]
    assert (await api.send("DELETE", f"{CORE}/configmaps?dryRun=All")).status == 200
    stored = (await api.get(f"{CORE}/configmaps/a")).json["metadata"]
    assert "deletionTimestamp" not in stored and "finalizers" not in stored


async def test_a_pod_deleted_in_the_foreground_waits_for_collector_and_kubelet(
    api: Any, objects: Any
) -> None:
    await bound_pod(api, objects)
    marked = await api.send("DELETE", f"{CORE}/pods/p", {"propagationPolicy": "Foreground"})
    assert marked.json["metadata"]["deletionGracePeriodSeconds"] == 30
    await api.send("DELETE", f"{CORE}/pods/p", {"gracePeriodSeconds": 0})
    assert (await api.get(f"{CORE}/pods/p")).json["metadata"]["finalizers"] == ["foregroundDeletion"]
    await api.patch(f"{CORE}/pods/p", {"metadata": {"finalizers": None}})
    assert (await api.get(f"{CORE}/pods/p")).status == 404


async def test_a_namespace_is_emptied_whatever_is_said_about_dependents(api: Any) -> None:
    await api.create("/api/v1/namespaces", {"metadata": {"name": "t"}})
    marked = await api.send("DELETE", "/api/v1/namespaces/t", {"propagationPolicy": "Orphan"})
    assert "finalizers" not in marked.json["metadata"]


async def test_a_collection_is_deleted_in_pages(api: Any, objects: Any) -> None:
    for number in range(5):
        await api.create(f"{CORE}/configmaps", objects.config_map(f"c{number}"))
    first = (await api.send("DELETE", f"{CORE}/configmaps?limit=2")).json
    assert [item["metadata"]["name"] for item in first["items"]] == ["c0", "c1"]
    token = first["metadata"]["continue"]
    second = (await api.send("DELETE", f"{CORE}/configmaps?limit=2&continue={token}")).json
    assert [item["metadata"]["name"] for item in second["items"]] == ["c2", "c3"]
    left = (await api.get(f"{CORE}/configmaps")).json["items"]
    assert [item["metadata"]["name"] for item in left] == ["c4"]


async def test_a_collection_larger_than_a_page_is_deleted_whole(api: Any, objects: Any) -> None:
    api.server.limits = api.server.limits.replace(api_list_page_items=3)
    for number in range(8):
        await api.create(f"{CORE}/configmaps", objects.config_map(f"c{number}"))
    answer = (await api.send("DELETE", f"{CORE}/configmaps")).json
    assert len(answer["items"]) == 8 and "continue" not in answer["metadata"]
    assert (await api.get(f"{CORE}/configmaps")).json["items"] == []


async def test_a_collection_takes_what_is_said_about_dependents_and_fields(api: Any, objects: Any) -> None:
    for name in ("a", "b"):
        await api.create(f"{CORE}/configmaps", objects.config_map(name))
    options = {"propagationPolicy": "Orphan"}
    answer = await api.send("DELETE", f"{CORE}/configmaps?fieldSelector=metadata.name%3Db", options)
    assert [item["metadata"]["finalizers"] for item in answer.json["items"]] == [["orphan"]]
    assert "deletionTimestamp" not in (await api.get(f"{CORE}/configmaps/a")).json["metadata"]


async def test_a_claim_is_protected_from_its_creation(api: Any) -> None:
    spec = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Mi"}}}
    created = await api.create(f"{CORE}/persistentvolumeclaims", {"metadata": {"name": "x"}, "spec": spec})
    assert created["metadata"]["finalizers"] == ["kubernetes.io/pvc-protection"]
    assert created["status"] == {"phase": "Pending"}
    answer = await api.send("DELETE", f"{CORE}/persistentvolumeclaims/x")
    assert answer.json["metadata"]["deletionTimestamp"]


@pytest.mark.parametrize("kind", ["services", "serviceaccounts"])
async def test_some_kinds_answer_with_the_object_that_went(api: Any, kind: str) -> None:
    spec: dict[str, Any] = {"services": {"spec": {"ports": [{"port": 80}]}}, "serviceaccounts": {}}[kind]
    created = await api.create(f"{CORE}/{kind}", {"metadata": {"name": "x"}, **spec})
    answer = await api.send("DELETE", f"{CORE}/{kind}/x")
    assert answer.json["kind"] == created["kind"]
    assert answer.json["metadata"]["uid"] == created["metadata"]["uid"]
