"""Create, read, update: what clients get and what the server alone decides."""

import re
from typing import Any

import pytest

CORE = "/api/v1/namespaces/default"
CUSTOM = "/apis/kube32.io/v1/namespaces/default/checkpoints"


def checkpoint(name: str, **more: Any) -> dict[str, Any]:
    return {
        "apiVersion": "kube32.io/v1",
        "kind": "Checkpoint",
        "metadata": {"name": name},
        "spec": {"podName": "echo"},
        **more,
    }


async def test_create_answers_what_get_answers_byte_for_byte(api: Any, objects: Any) -> None:
    created = await api.send("POST", f"{CORE}/configmaps", objects.config_map("a", data={"k": "v"}))
    read = await api.get(f"{CORE}/configmaps/a")
    assert (created.status, read.status) == (201, 200)
    assert created.body == read.body == api.server.store.get("/registry/configmaps/default/a").value


async def test_create_sets_what_the_server_owns_and_drops_what_the_client_says_of_it(
    api: Any, objects: Any
) -> None:
    wanted = objects.config_map(
        "a",
        metadata={
            "uid": "mine",
            "creationTimestamp": "2001-01-01T00:00:00Z",
            "generation": 9,
            "deletionTimestamp": "2001-01-01T00:00:00Z",
            "managedFields": [{"manager": "x"}],
            "selfLink": "/x",
        },
    )
    metadata = (await api.create(f"{CORE}/configmaps", wanted))["metadata"]
    assert re.fullmatch(r"[0-9a-f-]{36}", metadata["uid"])
    assert re.fullmatch(r"20\d\d-\d\d-\d\dT\d\d:\d\d:\d\dZ", metadata["creationTimestamp"])
    assert metadata["creationTimestamp"] > "2001-01-02"
    assert set(metadata) == {"name", "namespace", "uid", "creationTimestamp", "resourceVersion"}
    # Only what the server sets itself was in it: nobody owns anything.


async def test_generate_name_appends_five_characters(api: Any, objects: Any) -> None:
    wanted = objects.config_map("", metadata={"generateName": "job-"})
    names = {(await api.create(f"{CORE}/configmaps", wanted))["metadata"]["name"] for _ in range(5)}
    assert len(names) == 5
    assert all(re.fullmatch(r"job-[a-z0-9]{5}", name) for name in names)


async def test_an_object_without_a_name_is_refused(api: Any) -> None:
    body = {"apiVersion": "v1", "kind": "ConfigMap"}
    answer = await api.send("POST", f"{CORE}/configmaps", body)
    assert answer.status == 422
    assert answer.message.endswith("metadata.name: Required value: name or generateName is required")


async def test_a_name_that_exists_is_refused_and_kept(api: Any, objects: Any) -> None:
    await api.create(f"{CORE}/configmaps", objects.config_map("a", data={"k": "1"}))
    answer = await api.send("POST", f"{CORE}/configmaps", objects.config_map("a", data={"k": "2"}))
    assert (answer.status, answer.json["reason"]) == (409, "AlreadyExists")
    assert answer.message == 'configmaps "a" already exists'
    assert (await api.get(f"{CORE}/configmaps/a")).json["data"] == {"k": "1"}


async def test_what_is_not_there_is_named_with_its_group(api: Any) -> None:
    assert (await api.get(f"{CORE}/pods/x")).message == 'pods "x" not found'
    answer = await api.get(f"{CUSTOM}/x")
    assert answer.message == 'checkpoints.kube32.io "x" not found'
    assert answer.json["details"] == {"name": "x", "group": "kube32.io", "kind": "checkpoints"}


async def test_put_with_an_old_resource_version_is_a_conflict(api: Any, objects: Any) -> None:
    first = await api.create(f"{CORE}/configmaps", objects.config_map("a"))
    second = await api.send("PUT", f"{CORE}/configmaps/a", {**first, "data": {"k": "1"}})
    assert second.status == 200
    third = await api.send("PUT", f"{CORE}/configmaps/a", {**first, "data": {"k": "2"}})
    assert (third.status, third.json["reason"]) == (409, "Conflict")
    assert third.message == (
        'Operation cannot be fulfilled on configmaps "a": the object has been modified; '
        "please apply your changes to the latest version and try again"
    )


async def test_put_without_a_resource_version_wins(api: Any, objects: Any) -> None:
    await api.create(f"{CORE}/configmaps", objects.config_map("a", data={"k": "1"}))
    answer = await api.send("PUT", f"{CORE}/configmaps/a", objects.config_map("a", data={"k": "2"}))
    assert (answer.status, answer.json["data"]) == (200, {"k": "2"})


async def test_put_of_another_uid_is_a_conflict(api: Any, objects: Any) -> None:
    await api.create(f"{CORE}/configmaps", objects.config_map("a"))
    answer = await api.send("PUT", f"{CORE}/configmaps/a", objects.config_map("a", metadata={"uid": "other"}))
    assert answer.status == 409
    assert "Precondition failed: UID in precondition: other, UID in object meta:" in answer.message


async def test_put_that_changes_nothing_makes_no_revision(api: Any, objects: Any) -> None:
    first = await api.send("POST", f"{CORE}/configmaps", objects.config_map("a", data={"k": "1"}))
    again = await api.send("PUT", f"{CORE}/configmaps/a", first.json)
    assert again.body == first.body


@pytest.mark.parametrize(
    ("change", "code", "said"),
    [
        ({"name": "b"}, 400, "the name of the object (b) does not match the name on the URL (a)"),
        ({"namespace": "kube-system"}, 400, "the namespace of the provided object does not match"),
    ],
)
async def test_put_elsewhere_than_the_path_says_is_refused(
    api: Any, objects: Any, change: dict[str, str], code: int, said: str
) -> None:
    created = await api.create(f"{CORE}/configmaps", objects.config_map("a"))
    created["metadata"].update(change)
    answer = await api.send("PUT", f"{CORE}/configmaps/a", created)
    assert answer.status == code
    assert answer.message.startswith(said)


async def test_put_of_an_absent_lease_creates_it_and_of_other_kinds_does_not(api: Any, objects: Any) -> None:
    lease = {
        "apiVersion": "coordination.k8s.io/v1",
        "kind": "Lease",
        "metadata": {"name": "n"},
        "spec": {"holderIdentity": "n", "leaseDurationSeconds": 20},
    }
    path = "/apis/coordination.k8s.io/v1/namespaces/default/leases/n"
    assert (await api.send("PUT", path, lease)).status == 201
    assert (await api.send("PUT", f"{CORE}/configmaps/a", objects.config_map("a"))).status == 404


async def test_status_is_kept_out_of_creates_and_of_writes_to_the_object(api: Any) -> None:
    created = await api.create(CUSTOM, checkpoint("c", status={"phase": "Saved", "sizeBytes": 5}))
    assert created.get("status", {}).get("phase") != "Saved"
    created["status"] = {"phase": "Failed"}
    answer = await api.send("PUT", f"{CUSTOM}/c", created)
    assert answer.json.get("status", {}).get("phase") != "Failed"
    patched = await api.patch(f"{CUSTOM}/c", {"status": {"phase": "Failed"}})
    assert patched.json.get("status", {}).get("phase") != "Failed"


async def test_a_write_to_status_changes_only_status(api: Any) -> None:
    created = await api.create(CUSTOM, checkpoint("c"))
    wanted = {
        **created,
        "metadata": {**created["metadata"], "labels": {"l": "1"}, "annotations": {"a": "1"}},
        "spec": {"podName": "other"},
        "status": {"phase": "Saving", "nodeName": "n"},
    }
    answer = await api.send("PUT", f"{CUSTOM}/c/status", wanted)
    assert answer.status == 200
    assert answer.json["status"] == {"phase": "Saving", "nodeName": "n"}
    assert answer.json["spec"] == created["spec"]
    assert answer.json["metadata"]["generation"] == 1
    assert not {"labels", "annotations"} & set(answer.json["metadata"])
    stale = await api.send("PUT", f"{CUSTOM}/c/status", wanted)
    assert stale.status == 409


async def test_generation_counts_changes_of_the_spec_only(api: Any, objects: Any) -> None:
    await api.create(f"{CORE}/pods", objects.pod("p"))
    seen = []
    for patch in (
        {"metadata": {"labels": {"a": "b"}}},
        {"spec": {"activeDeadlineSeconds": 60}},
        {"spec": {"activeDeadlineSeconds": 60}},
        {"spec": {"activeDeadlineSeconds": 50}},
    ):
        answer = await api.patch(f"{CORE}/pods/p", patch)
        assert answer.status == 200, answer.body
        seen.append(answer.json["metadata"]["generation"])
    assert seen == [1, 2, 2, 3]


async def test_creates_need_an_open_namespace(api: Any, objects: Any) -> None:
    absent = await api.send("POST", "/api/v1/namespaces/nope/configmaps", objects.config_map("a"))
    assert (absent.status, absent.message) == (404, 'namespaces "nope" not found')
    await api.create("/api/v1/namespaces", {"metadata": {"name": "t"}})
    await api.send("DELETE", "/api/v1/namespaces/t")
    closing = await api.send("POST", "/api/v1/namespaces/t/configmaps", objects.config_map("a"))
    assert closing.status == 403
    assert closing.message == (
        'configmaps "a" is forbidden: unable to create new content in namespace t '
        "because it is being terminated"
    )
    assert closing.json["details"]["causes"][0]["reason"] == "NamespaceTerminating"


async def test_kind_and_version_may_be_left_out_but_not_be_others(api: Any, objects: Any) -> None:
    assert (await api.create(f"{CORE}/configmaps", {"metadata": {"name": "a"}}))["kind"] == "ConfigMap"
    wrong = await api.send("POST", f"{CORE}/pods", objects.config_map("b"))
    assert wrong.status == 400
    assert wrong.message.startswith('ConfigMap in version "v1" cannot be handled as a Pod:')
    version = await api.send("POST", f"{CORE}/configmaps", {**objects.config_map("b"), "apiVersion": "v2"})
    assert version.message == (
        "the API version in the data (v2) does not match the expected API version (v1)"
    )


@pytest.mark.parametrize("verb", ["create", "update", "patch", "delete"])
async def test_a_dry_run_answers_as_if_and_changes_nothing(api: Any, objects: Any, verb: str) -> None:
    path = f"{CORE}/configmaps"
    await api.create(path, objects.config_map("a", data={"k": "1"}))
    before = api.server.store.revision
    changed = objects.config_map("a", data={"k": "2"})
    if verb == "create":
        answer = await api.send("POST", f"{path}?dryRun=All", objects.config_map("b"))
        assert answer.json["metadata"]["uid"]
        twice = await api.send("POST", f"{path}?dryRun=All", changed)
        assert twice.status == 409
    elif verb == "update":
        answer = await api.send("PUT", f"{path}/a?dryRun=All", changed)
        assert answer.json["data"] == {"k": "2"}
    elif verb == "patch":
        answer = await api.patch(f"{path}/a?dryRun=All", {"data": {"k": "2"}})
        assert answer.json["data"] == {"k": "2"}
    else:
        answer = await api.send("DELETE", f"{path}/a", {"dryRun": ["All"]})
    assert answer.status in (200, 201)
    assert api.server.store.revision == before
    assert (await api.get(f"{path}/a")).json["data"] == {"k": "1"}
    assert (await api.send("POST", f"{path}?dryRun=Some", objects.config_map("c"))).status == 422


async def test_unknown_fields_are_warned_of_refused_or_ignored_as_asked(api: Any, objects: Any) -> None:
    odd = objects.config_map("a", dat={"k": "v"})
    strict = await api.send("POST", f"{CORE}/configmaps?fieldValidation=Strict", odd)
    assert strict.status == 400
    assert 'strict decoding error: unknown field "dat"' in strict.message
    warned = await api.send("POST", f"{CORE}/configmaps", odd)
    assert warned.headers["Warning"] == '299 - "unknown field \\"dat\\""'
    assert "dat" not in warned.json
    ignored = await api.send(
        "POST", f"{CORE}/configmaps?fieldValidation=Ignore", {**odd, "metadata": {"name": "b"}}
    )
    assert (ignored.status, ignored.headers) == (201, {})


async def test_an_object_past_the_stores_limit_is_413(api: Any, objects: Any) -> None:
    answer = await api.send("POST", f"{CORE}/configmaps", objects.config_map("a", data={"k": "x" * 66000}))
    assert (answer.status, answer.json["reason"]) == (413, "RequestEntityTooLarge")
    assert "65536" in answer.message


async def test_tables_and_partial_objects_are_answered_when_asked_for(api: Any, objects: Any) -> None:
    await api.create(f"{CORE}/configmaps", objects.config_map("a", data={"k": "1"}))
    table = await api.get(
        f"{CORE}/configmaps/a", headers={"Accept": "application/json;as=Table;v=v1;g=meta.k8s.io"}
    )
    assert table.json["kind"] == "Table"
    assert table.json["rows"][0]["cells"][:2] == ["a", 1]
    partial = await api.get(
        f"{CORE}/configmaps/a",
        headers={"Accept": "application/json;as=PartialObjectMetadata;v=v1;g=meta.k8s.io"},
    )
    assert partial.json["kind"] == "PartialObjectMetadata"
    assert "data" not in partial.json
    proto = "application/vnd.kubernetes.protobuf"
    assert (await api.get(f"{CORE}/configmaps/a", headers={"Accept": proto})).status == 406
    assert (await api.get(f"{CORE}/configmaps/a", headers={"Accept": f"{proto}, */*"})).json[
        "kind"
    ] == "ConfigMap"


async def test_a_generated_name_that_is_taken_is_drawn_anew(
    api: Any, objects: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    letters = iter("bbbbb" + "bbbbb" + "ccccc")
    monkeypatch.setattr("kube32.api.metadata.secrets.choice", lambda _: next(letters))
    body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"generateName": "x-"}}
    found = [(await api.create(f"{CORE}/configmaps", body))["metadata"]["name"] for _ in range(2)]
    assert found == ["x-bbbbb", "x-ccccc"]
