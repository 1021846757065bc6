"""CustomResourceDefinitions: what is accepted, how it is served, and what becomes of it."""

from typing import Any

import pytest
from tests.unit.api_core.conftest import Api, make_server
from tests.unit.api_custom.conftest import CRDS, CRONTAB, TABS, crontab, definition, with_schema

from kube32.api.security import Security
from kube32.contract import limits_for

NAME = "crontabs.stable.example.com"


def condition(obj: dict[str, Any], kind: str) -> dict[str, Any]:
    (found,) = [c for c in obj["status"]["conditions"] if c["type"] == kind]
    return dict(found)


async def refusal(api: Api, obj: dict[str, Any]) -> str:
    answer = await api.send("POST", CRDS, obj)
    assert answer.status == 422, answer.body
    return answer.message


async def test_a_definition_is_established_at_once(api: Api) -> None:
    await api.create(CRDS, definition())
    found = (await api.get(f"{CRDS}/{NAME}")).json
    assert condition(found, "Established")["status"] == "True"
    assert condition(found, "NamesAccepted")["reason"] == "NoConflicts"
    assert found["status"]["storedVersions"] == ["v1"]
    assert found["status"]["acceptedNames"] == found["spec"]["names"]
    assert found["spec"]["names"]["listKind"] == "CronTabList"
    assert found["spec"]["conversion"] == {"strategy": "None"}
    assert (await api.get(TABS)).json["kind"] == "CronTabList"


async def test_a_kind_is_discovered_in_both_ways_and_goes_from_there_with_its_definition(api: Api) -> None:
    accept = {"Accept": "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"}
    before = (await api.get("/openapi/v3")).headers["ETag"]
    await api.create(CRDS, definition())
    listed = (await api.get("/apis/stable.example.com/v1")).json["resources"]
    rows = {row["name"]: row for row in listed}
    assert set(rows) == {"crontabs", "crontabs/status", "crontabs/scale"}
    assert (rows["crontabs"]["shortNames"], rows["crontabs"]["categories"]) == (["ct"], ["all"])
    assert (rows["crontabs"]["singularName"], rows["crontabs"]["kind"]) == ("crontab", "CronTab")
    assert (rows["crontabs/scale"]["group"], rows["crontabs/scale"]["kind"]) == ("autoscaling", "Scale")
    groups = (await api.get("/apis", headers=accept)).json["items"]
    (group,) = [g for g in groups if g["metadata"]["name"] == "stable.example.com"]
    assert group["versions"][0]["resources"][0]["resource"] == "crontabs"
    assert (await api.get("/openapi/v3")).headers["ETag"] != before
    await api.send("DELETE", f"{CRDS}/{NAME}")
    await gone(api)
    assert (await api.get("/apis/stable.example.com/v1")).status == 404
    assert (await api.get(TABS)).status == 404
    assert (await api.get("/openapi/v3")).headers["ETag"] == before


async def gone(api: Api) -> None:
    """Waits until the definition is no longer there."""
    frames = await api.watch(f"{CRDS}?watch=true&fieldSelector=metadata.name={NAME}")
    try:
        if (await api.get(f"{CRDS}/{NAME}")).status == 404:
            return
        while (await frames.next())["type"] != "DELETED":
            pass
    finally:
        await frames.close()


async def test_a_definition_that_is_deleted_takes_its_objects_and_ends_their_watches(tabs: Api) -> None:
    await tabs.create(TABS, crontab("a"))
    await tabs.create(TABS, crontab("b", metadata={"finalizers": ["example.com/wait"]}))
    frames = await tabs.watch(f"{TABS}?watch=true")
    assert [(await frames.next())["object"]["metadata"]["name"] for _ in "ab"] == ["a", "b"]
    answer = await tabs.send("DELETE", f"{CRDS}/{NAME}")
    assert answer.json["metadata"]["finalizers"] == ["customresourcecleanup.apiextensions.k8s.io"]
    kinds = {}
    for _ in "ab":
        frame = await frames.next()
        kinds[frame["object"]["metadata"]["name"]] = frame["type"]
    assert kinds == {"a": "DELETED", "b": "MODIFIED"}
    found = (await tabs.get(f"{CRDS}/{NAME}")).json
    assert condition(found, "Terminating")["status"] == "True"
    refused = await tabs.send("POST", TABS, crontab("c"))
    assert refused.status == 405
    assert refused.message == "create not allowed while custom resource definition is terminating"
    patched = await tabs.patch(f"{TABS}/b", {"metadata": {"finalizers": None}})
    assert patched.status == 200, patched.body
    await gone(tabs)
    assert (await frames.next())["type"] == "DELETED"
    assert await frames.ended()
    await tabs.create(CRDS, definition())
    assert (await tabs.get(TABS)).json["items"] == []


async def test_a_server_that_starts_serves_the_stored_definitions(tabs: Api, pki_dir: Any) -> None:
    await tabs.create(TABS, crontab("a"))
    limits = limits_for("sim")
    again = make_server(pki_dir, limits)
    for entry in tabs.server.store.scan("/registry/")[0]:
        again.store.put(entry.key, entry.obj)
    await again.start()
    api = Api(again)
    assert (await api.get(f"{TABS}/a")).json["spec"]["replicas"] == 3
    await again.close()


async def test_a_server_that_starts_goes_on_with_a_deletion(tabs: Api, pki_dir: Any) -> None:
    held = crontab("a", metadata={"finalizers": ["example.com/wait"]})
    await tabs.create(TABS, held)
    await tabs.send("DELETE", f"{CRDS}/{NAME}")
    again = make_server(pki_dir, limits_for("sim"))
    for entry in tabs.server.store.scan("/registry/")[0]:
        again.store.put(entry.key, entry.obj)
    await again.start()
    api = Api(again)
    await api.patch(f"{TABS}/a", {"metadata": {"finalizers": None}})
    await gone(api)
    await again.close()


async def test_names_that_somebody_has_are_not_accepted_until_they_are_free(tabs: Api) -> None:
    other = definition(names={"plural": "others", "kind": "Other", "shortNames": ["ct"]})
    other["metadata"]["name"] = "others.stable.example.com"
    await tabs.create(CRDS, other)
    path = f"{CRDS}/others.stable.example.com"
    found = (await tabs.get(path)).json
    assert condition(found, "NamesAccepted")["status"] == "False"
    assert condition(found, "NamesAccepted")["reason"] == "ShortNamesConflict"
    assert condition(found, "NamesAccepted")["message"] == '"ct" is already in use'
    assert condition(found, "Established")["reason"] == "NotAccepted"
    assert (await tabs.get("/apis/stable.example.com/v1/others")).status == 404
    await tabs.send("DELETE", f"{CRDS}/{NAME}")
    await gone(tabs)
    assert condition((await tabs.get(path)).json, "Established")["status"] == "True"
    assert (await tabs.get("/apis/stable.example.com/v1/others")).status == 200


async def test_a_kind_may_have_the_name_of_a_built_in_one(api: Api) -> None:
    names = {"plural": "pods", "kind": "Pod"}
    pods = definition(names=names, group="example.org")
    pods["metadata"]["name"] = "pods.example.org"
    await api.create(CRDS, pods)
    path = "/apis/example.org/v1/namespaces/default/pods"
    made = await api.create(path, {"kind": "Pod", "metadata": {"name": "x"}, "spec": {"replicas": 2}})
    assert made["apiVersion"] == "example.org/v1"
    assert made["spec"] == {"replicas": 2, "image": "wasm://cron"}
    assert "status" not in made
    table = (await api.get(path, headers={"Accept": "application/json;as=Table;g=meta.k8s.io;v=v1"})).json
    assert [c["name"] for c in table["columnDefinitions"]] == ["Name", "Spec", "Replicas", "Age"]
    assert (await api.send("DELETE", f"{path}/x")).json["status"] == "Success"
    assert (await api.get("/api/v1/namespaces/default/pods")).json["items"] == []


async def test_a_namespace_kind_of_ones_own_is_no_namespace(api: Api) -> None:
    made = definition(
        names={"plural": "namespaces", "kind": "Namespace"}, group="example.org", scope="Cluster"
    )
    made["metadata"]["name"] = "namespaces.example.org"
    await api.create(CRDS, made)
    obj = await api.create(
        "/apis/example.org/v1/namespaces", {"kind": "Namespace", "metadata": {"name": "a.b"}, "spec": {}}
    )
    assert obj["spec"] == {"image": "wasm://cron"}
    assert "labels" not in obj["metadata"]


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"group": "other.example.com"}, 'must be spec.names.plural+"."+spec.group'),
        ({"group": "apps"}, 'spec.group: Invalid value: "apps": should be a domain with at least one dot'),
        ({"group": "kube32.io"}, "is a group of the API server itself"),
        ({"group": "rbac.authorization.k8s.io"}, "is a group of the API server itself"),
        ({"group": "x.k8s.io"}, 'must have approval annotation "api-approved.kubernetes.io"'),
        ({"scope": "Everywhere"}, 'spec.scope: Unsupported value: "Everywhere"'),
        ({"versions": []}, "spec.versions: Required value"),
        ({"preserveUnknownFields": True}, "spec.preserveUnknownFields: Invalid value: true: must be false"),
        ({"conversion": {"strategy": "Webhook", "webhook": {}}}, "conversion webhooks are not offered"),
        ({"names": {"plural": "crontabs"}}, "spec.names.kind: Required value"),
        ({"names": {"plural": "crontabs", "kind": "Cron Tab"}}, "may have mixed case"),
        (
            {"names": {"plural": "crontabs", "kind": "A", "listKind": "A"}},
            "kind and listKind may not be the same",
        ),
        (
            {"names": {"plural": "crontabs", "kind": "A", "shortNames": ["X"]}},
            "spec.names.shortNames[0]: Invalid",
        ),
    ],
)
async def test_a_definition_that_cannot_be_is_refused(api: Api, changes: dict[str, Any], said: str) -> None:
    assert said in await refusal(api, definition(**changes))


async def test_versions_have_names_and_one_of_them_is_stored(api: Api) -> None:
    first = CRONTAB["spec"]["versions"][0]
    message = await refusal(api, definition(versions=[first, first]))
    assert "must contain unique version names" in message
    assert "must have exactly one version marked as storage version" in message
    message = await refusal(api, definition(versions=[{**first, "schema": None}]))
    assert "spec.versions[0].schema.openAPIV3Schema: Required value: schemas are required" in message
    assert "spec.versions[0].name" in await refusal(api, definition(versions=[{**first, "name": "V1"}]))


async def test_a_version_that_was_stored_stays_until_it_is_given_up(tabs: Api) -> None:
    v1, v2 = ({**CRONTAB["spec"]["versions"][0], "name": name} for name in ("v1", "v2"))
    path = f"{CRDS}/{NAME}"
    both = await tabs.patch(path, {"spec": {"versions": [{**v1, "storage": False}, v2]}})
    assert both.json["status"]["storedVersions"] == ["v1", "v2"]
    refused = await tabs.patch(path, {"spec": {"versions": [v2]}})
    assert refused.status == 422
    assert "missing from spec.versions; v1 was previously a storage version" in refused.message
    kept = await tabs.patch(f"{path}/status", {"status": {"storedVersions": ["v2"]}})
    assert kept.status == 200, kept.body
    assert (await tabs.patch(path, {"spec": {"versions": [v2]}})).status == 200
    assert (await tabs.get(TABS)).status == 404
    assert (await tabs.get(TABS.replace("/v1/", "/v2/"))).status == 200


@pytest.mark.parametrize("field", ["scope", "names"])
async def test_scope_and_kind_are_immutable(tabs: Api, field: str) -> None:
    change = (
        {"scope": "Cluster"} if field == "scope" else {"names": {"kind": "Other", "listKind": "OtherList"}}
    )
    refused = await tabs.patch(f"{CRDS}/{NAME}", {"spec": change})
    assert refused.status == 422
    assert "field is immutable" in refused.message


async def test_a_change_ends_the_watches_and_is_served_at_once(tabs: Api) -> None:
    frames = await tabs.watch(f"{TABS}?watch=true")
    changed = with_schema({"type": "object", "properties": {"size": {"type": "string"}}})
    patch = {"spec": {"versions": changed["spec"]["versions"]}}
    assert (await tabs.patch(f"{CRDS}/{NAME}", patch)).status == 200
    assert await frames.ended()
    made = await tabs.create(TABS, crontab(spec={"size": "XL"}))
    assert made["spec"] == {"size": "XL"}


async def test_labels_of_a_definition_end_no_watch(tabs: Api) -> None:
    frames = await tabs.watch(f"{TABS}?watch=true")
    generation = tabs.server.catalog.generation
    await tabs.patch(f"{CRDS}/{NAME}", {"metadata": {"labels": {"a": "b"}}})
    assert tabs.server.catalog.generation == generation
    await tabs.create(TABS, crontab())
    assert (await frames.next())["type"] == "ADDED"
    await frames.close()


async def test_rules_in_cel_are_kept_with_a_warning(api: Api) -> None:
    rules = [{"rule": "self.a < 3", "message": "too many"}]
    spec = {"type": "object", "properties": {"a": {"type": "integer"}}, "x-kubernetes-validations": rules}
    answer = await api.send("POST", CRDS, with_schema(spec))
    assert answer.status == 201, answer.body
    assert "CEL rules are kept but not evaluated" in answer.headers["Warning"]
    assert "properties[spec].x-kubernetes-validations" in answer.headers["Warning"]
    stored = answer.json["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    assert stored["properties"]["spec"]["x-kubernetes-validations"] == rules


async def test_boards_do_not_offer_custom_kinds(tmp_path: Any) -> None:
    limits = limits_for("board")
    Security.create(tmp_path, limits, advertise=[])
    server = make_server(tmp_path, limits)
    await server.start()
    api = Api(server)
    assert (await api.get(CRDS)).status == 404
    assert (await api.get("/apis/apiextensions.k8s.io/v1")).status == 404
    groups = [g["name"] for g in (await api.get("/apis")).json["groups"]]
    assert "apiextensions.k8s.io" not in groups
    assert "rbac.authorization.k8s.io" not in groups
    await server.close()
