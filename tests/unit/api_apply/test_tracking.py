"""managedFields of creates, updates, patches and status writes, and of clients that write them themselves."""

from typing import Any

import pytest
from tests.unit.api_apply.conftest import owners

CORE = "/api/v1/namespaces/default"
MAP = f"{CORE}/configmaps/a"


def config_map(**more: Any) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}, **more}


def pod(**spec: Any) -> dict[str, Any]:
    containers = [{"name": "main", "image": "wasm://echo"}]
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "p"},
        "spec": {"containers": containers, **spec},
    }


async def test_a_create_is_an_update_of_its_manager(api: Any) -> None:
    made = await api.create(f"{CORE}/configmaps?fieldManager=tool", config_map(data={"b": "1", "a": "1"}))
    assert made["metadata"]["managedFields"] == [
        {
            "manager": "tool",
            "operation": "Update",
            "apiVersion": "v1",
            "time": made["metadata"]["creationTimestamp"],
            "fieldsType": "FieldsV1",
            "fieldsV1": {"f:data": {".": {}, "f:a": {}, "f:b": {}}},
        }
    ]


@pytest.mark.parametrize(
    ("agent", "manager"),
    [
        ("kubectl/v1.36.0 (linux/amd64)", "kubectl"),
        ("OpenAPI-Generator/31.0/python", "OpenAPI-Generator"),
        ("Mozilla", "Mozilla"),
        ("x" * 300 + "/1", "x" * 128),
        ("\x01a\u00e9/1", "a\u00e9"),
        ("", "unknown"),
        ("/1", "unknown"),
    ],
)
async def test_without_a_name_the_manager_is_the_user_agents_first_part(
    api: Any, agent: str, manager: str
) -> None:
    made = await api.create(f"{CORE}/configmaps", config_map(data={"k": "1"}), headers={"User-Agent": agent})
    assert list(owners(made)) == [manager]


async def test_an_updates_manager_gets_what_it_changed(api: Any) -> None:
    made = await api.create(f"{CORE}/configmaps?fieldManager=a", config_map(data={"k": "1", "l": "1"}))
    made["data"] = {"k": "2", "m": "1"}
    put = (await api.send("PUT", f"{MAP}?fieldManager=b", made)).json
    assert owners(put) == {"a": {"f:data": {}}, "b": {"f:data": {"f:k": {}, "f:m": {}}}}
    patched = (await api.patch(f"{MAP}?fieldManager=c", {"data": None})).json
    assert "managedFields" not in patched["metadata"]


@pytest.mark.parametrize("method", ["put", "merge", "json", "strategic"])
async def test_a_write_that_changes_nothing_keeps_owners_and_revision(api: Any, method: str) -> None:
    made = await api.create(f"{CORE}/configmaps?fieldManager=a", config_map(data={"k": "1"}))
    path = f"{MAP}?fieldManager=b"
    if method == "put":
        answer = await api.send("PUT", path, made)
    elif method == "json":
        answer = await api.patch(path, [{"op": "replace", "path": "/data/k", "value": "1"}], "json")
    else:
        answer = await api.patch(path, {"data": {"k": "1"}}, method)
    assert answer.json == made


async def test_a_put_without_managed_fields_keeps_them(api: Any) -> None:
    await api.create(f"{CORE}/configmaps?fieldManager=a", config_map(data={"k": "1"}))
    put = await api.send("PUT", f"{MAP}?fieldManager=b", config_map(data={"k": "1", "l": "1"}))
    assert list(owners(put.json)) == ["a", "b"]


async def test_one_manager_has_one_entry_for_the_object_and_one_for_status(api: Any) -> None:
    node = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n", "labels": {"x": "1"}}}
    await api.create("/api/v1/nodes?fieldManager=a", node)
    conditions = [{"type": "Ready", "status": "True"}]
    made = (
        await api.patch("/api/v1/nodes/n/status?fieldManager=a", {"status": {"conditions": conditions}})
    ).json
    assert owners(made) == {
        "a": {"f:metadata": {"f:labels": {".": {}, "f:x": {}}}},
        "a/status": {
            "f:status": {
                "f:conditions": {".": {}, 'k:{"type":"Ready"}': {".": {}, "f:status": {}, "f:type": {}}}
            }
        },
    }


async def test_status_writes_of_the_control_plane_are_not_tracked(api: Any) -> None:
    made = await api.create(f"{CORE}/pods?fieldManager=a", pod())
    token = api.server.security.controller_token
    changed = await api.patch(f"{CORE}/pods/p/status", {"status": {"message": "x"}}, token=token)
    assert changed.json["status"]["message"] == "x"
    assert changed.json["metadata"]["managedFields"] == made["metadata"]["managedFields"]


async def test_what_the_server_sets_belongs_to_nobody(api: Any) -> None:
    made = await api.create(f"{CORE}/pods?fieldManager=a", pod())
    fields = owners(made)["a"]
    assert list(fields) == ["f:spec"]
    assert fields["f:spec"]["f:containers"]['k:{"name":"main"}']["f:image"] == {}


async def test_a_binding_changes_no_owners(api: Any) -> None:
    made = await api.create(f"{CORE}/pods?fieldManager=a", pod())
    await api.create(f"{CORE}/pods/p/binding", {"target": {"kind": "Node", "name": "n"}})
    bound = (await api.get(f"{CORE}/pods/p")).json
    assert bound["spec"]["nodeName"] == "n" and owners(bound) == owners(made)


async def test_one_empty_entry_ends_the_tracking(api: Any) -> None:
    await api.create(f"{CORE}/configmaps", config_map(data={"k": "1"}))
    cleared = await api.patch(
        MAP, [{"op": "replace", "path": "/metadata/managedFields", "value": [{}]}], "json"
    )
    assert "managedFields" not in cleared.json["metadata"]
    later = await api.patch(MAP, {"data": {"k": "2"}})
    assert "managedFields" not in later.json["metadata"]


@pytest.mark.parametrize("value", [[], [{"manager": "x"}], [{"operation": "Apply", "apiVersion": "v1"}]])
async def test_managed_fields_that_cannot_be_read_change_nothing(api: Any, value: Any) -> None:
    made = await api.create(f"{CORE}/configmaps?fieldManager=a", config_map(data={"k": "1"}))
    answer = await api.patch(MAP, {"metadata": {"managedFields": value}})
    assert answer.json == made


async def test_clients_may_hand_ownership_over(api: Any, apply: Any) -> None:
    made = await api.create(
        f"{CORE}/configmaps?fieldManager=kubectl-client-side-apply", config_map(data={"k": "1"})
    )
    entry = {**made["metadata"]["managedFields"][0], "manager": "kubectl", "operation": "Apply"}
    patch = [
        {"op": "replace", "path": "/metadata/managedFields", "value": [entry]},
        {"op": "replace", "path": "/metadata/resourceVersion", "value": made["metadata"]["resourceVersion"]},
    ]
    moved = (await api.patch(MAP, patch, "json")).json
    assert moved["metadata"]["managedFields"] == [entry]
    made = await apply(MAP, config_map(), "kubectl")
    assert made.status == 200 and "data" not in made.json


async def test_a_subresource_cannot_write_managed_fields(api: Any) -> None:
    made = await api.create(f"{CORE}/pods?fieldManager=a", pod())
    made["metadata"]["managedFields"] = [{}]
    answer = await api.send("PUT", f"{CORE}/pods/p/status?fieldManager=b", made)
    assert "a" in owners(answer.json)


async def test_the_tenth_manager_is_the_last_with_an_entry_of_its_own(api: Any) -> None:
    await api.create(f"{CORE}/configmaps?fieldManager=m0", config_map(data={"k0": "1"}))
    for number in range(1, 13):
        await api.patch(f"{MAP}?fieldManager=m{number}", {"data": {f"k{number}": "1"}})
    found = owners((await api.get(MAP)).json)
    assert len(found) == 10 and "ancient-changes" in found and "m12" in found


async def test_an_object_that_fits_without_managed_fields_is_stored_without_them(api: Any) -> None:
    data = {f"key-{number:04}": "x" * 40 for number in range(1000)}
    made = await api.create(f"{CORE}/configmaps", config_map(data=data))
    assert made["data"] == data and "managedFields" not in made["metadata"]


async def test_an_applied_object_that_does_not_fit_with_its_owners_is_refused(apply: Any) -> None:
    data = {f"key-{number:04}": "x" * 40 for number in range(1000)}
    assert (await apply(MAP, config_map(data=data))).status == 413


async def test_too_long_a_manager_is_refused(api: Any) -> None:
    answer = await api.send("POST", f"{CORE}/configmaps?fieldManager={'x' * 129}", config_map())
    assert answer.status == 422
    assert answer.message == (
        'CreateOptions.meta.k8s.io "" is invalid: fieldManager: Too long: may not be more than 128 bytes'
    )
