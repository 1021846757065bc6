"""Binding and the one-write replacement of a move (decisions, "Freezing and moving")."""

from typing import Any

import pytest

CORE = "/api/v1/namespaces/default"


def binding(node: str, name: str = "p", **metadata: Any) -> dict[str, Any]:
    return {"metadata": {"name": name, **metadata}, "target": {"kind": "Node", "name": node}}


@pytest.mark.parametrize("path", [f"{CORE}/pods/p/binding", f"{CORE}/bindings"])
async def test_a_binding_sets_the_node_once(api: Any, objects: Any, path: str) -> None:
    await api.create(f"{CORE}/pods", objects.pod("p"))
    answer = await api.send("POST", path, binding("n1", annotations={"a": "b"}))
    assert (answer.status, answer.json["status"]) == (201, "Success")
    pod = (await api.get(f"{CORE}/pods/p")).json
    assert pod["spec"]["nodeName"] == "n1"
    assert pod["metadata"]["annotations"]["a"] == "b"
    assert [c["status"] for c in pod["status"]["conditions"] if c["type"] == "PodScheduled"] == ["True"]
    again = await api.send("POST", path, binding("n2"))
    assert again.status == 409
    assert again.message.endswith('pod p is already assigned to node "n1"')


async def test_a_binding_of_another_uid_or_without_a_node_is_refused(api: Any, objects: Any) -> None:
    await api.create(f"{CORE}/pods", objects.pod("p"))
    assert (await api.send("POST", f"{CORE}/pods/p/binding", binding("n1", uid="x"))).status == 409
    assert (await api.send("POST", f"{CORE}/pods/p/binding", binding(""))).status == 422
    assert (await api.send("POST", f"{CORE}/pods/q/binding", binding("n1", "q"))).status == 404


async def moving_pod(api: Any, objects: Any) -> Any:
    metadata = {
        "labels": {"app": "echo"},
        "annotations": {"keep": "1", "drop": "1"},
        "finalizers": ["kube32.io/x"],
        "ownerReferences": [{"apiVersion": "apps/v1", "kind": "Deployment", "name": "d", "uid": "u"}],
    }
    await api.create(f"{CORE}/pods", objects.pod("p", metadata=metadata))
    await api.create(f"{CORE}/pods/p/binding", binding("n1"))
    status = {"phase": "Running", "podIP": "1.2.3.4", "conditions": [{"type": "Ready", "status": "True"}]}
    return (await api.patch(f"{CORE}/pods/p/status", {"status": status})).json


def replacement(pod: Any, node: str, **more: Any) -> dict[str, Any]:
    metadata = pod["metadata"]
    return {
        "apiVersion": "kube32.io/v1",
        "kind": "PodReplacement",
        "preconditions": {"uid": metadata["uid"], "resourceVersion": metadata["resourceVersion"]},
        "nodeName": node,
        "annotations": {"kube32.io/restore-from": "c", "drop": None},
        **more,
    }


async def test_a_replacement_is_one_write_with_a_new_uid_and_everything_else_kept(
    api: Any, objects: Any
) -> None:
    old = await moving_pod(api, objects)
    before = api.server.store.revision
    frames = await api.watch(f"{CORE}/pods?watch=true&resourceVersion={before}")
    new = await api.create(f"{CORE}/pods/p/replacement", replacement(old, "n2"))
    assert api.server.store.revision == before + 1 == int(new["metadata"]["resourceVersion"])
    assert new["metadata"]["uid"] != old["metadata"]["uid"]
    for kept in ("name", "namespace", "labels", "finalizers", "ownerReferences"):
        assert new["metadata"][kept] == old["metadata"][kept]
    assert new["metadata"]["annotations"] == {"keep": "1", "kube32.io/restore-from": "c"}
    assert new["spec"] == {**old["spec"], "nodeName": "n2"}
    assert new["status"]["phase"] == "Pending"
    assert "podIP" not in new["status"]
    assert [c["type"] for c in new["status"]["conditions"]] == ["PodScheduled"]
    frame = await frames.next()
    assert (frame["type"], frame["object"]) == ("MODIFIED", new)
    await frames.close()


async def test_a_replacement_moves_the_pod_between_the_watches_of_its_nodes(api: Any, objects: Any) -> None:
    old = await moving_pod(api, objects)
    since = api.server.store.revision
    source, target = [
        await api.watch(
            f"/api/v1/pods?watch=true&resourceVersion={since}&fieldSelector=spec.nodeName%3D{node}"
        )
        for node in ("n1", "n2")
    ]
    new = await api.create(f"{CORE}/pods/p/replacement", replacement(old, "n2"))
    gone, come = await source.next(), await target.next()
    assert gone["type"] == "DELETED"
    assert gone["object"]["metadata"]["uid"] == old["metadata"]["uid"]
    assert gone["object"]["metadata"]["resourceVersion"] == new["metadata"]["resourceVersion"]
    assert (come["type"], come["object"]) == ("ADDED", new)
    await source.close()
    await target.close()


async def test_a_replacement_can_leave_the_node_to_the_scheduler(api: Any, objects: Any) -> None:
    old = await moving_pod(api, objects)
    new = await api.create(f"{CORE}/pods/p/replacement", replacement(old, ""))
    assert "nodeName" not in new["spec"]
    assert "conditions" not in new["status"]


@pytest.mark.parametrize("field", ["uid", "resourceVersion"])
async def test_a_replacement_of_another_state_is_a_conflict(api: Any, objects: Any, field: str) -> None:
    old = await moving_pod(api, objects)
    body = replacement(old, "n2")
    body["preconditions"][field] = "1"
    answer = await api.send("POST", f"{CORE}/pods/p/replacement", body)
    assert (answer.status, answer.json["reason"]) == (409, "Conflict")
    assert (await api.get(f"{CORE}/pods/p")).json == old


async def test_a_pod_that_is_being_deleted_is_not_replaced(api: Any, objects: Any) -> None:
    await moving_pod(api, objects)
    marked = (await api.send("DELETE", f"{CORE}/pods/p")).json
    answer = await api.send("POST", f"{CORE}/pods/p/replacement", replacement(marked, "n2"))
    assert answer.status == 409
    assert "is being deleted" in answer.message


@pytest.mark.parametrize(
    "change",
    [
        {"node": "n2"},
        {"nodeName": 5},
        {"annotations": {"a": 1}},
        {"annotations": []},
        {"preconditions": {"uuid": "x"}},
        {"preconditions": []},
        {"kind": "Pod"},
    ],
)
async def test_a_replacement_with_a_mistake_changes_nothing(api: Any, objects: Any, change: Any) -> None:
    old = await moving_pod(api, objects)
    answer = await api.send("POST", f"{CORE}/pods/p/replacement", {**replacement(old, "n2"), **change})
    assert answer.status == 400
    assert (await api.get(f"{CORE}/pods/p")).json == old
