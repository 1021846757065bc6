"""Objects of custom kinds: validation, defaults, pruning, status, versions, tables, watches."""

from typing import Any

import orjson
import pytest
from tests.unit.api_core.conftest import Api
from tests.unit.api_custom.conftest import CRDS, CRONTAB, TABS, crontab, definition, with_schema

TABLE = {"Accept": "application/json;as=Table;g=meta.k8s.io;v=v1"}
PARTIAL = {"Accept": "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1"}
NAME = "crontabs.stable.example.com"


async def message(api: Api, obj: dict[str, Any], code: int = 422) -> str:
    answer = await api.send("POST", TABS, obj)
    assert answer.status == code, answer.body
    return answer.message


async def test_an_object_gets_its_defaults_and_loses_what_is_unknown(tabs: Api) -> None:
    obj = crontab(spec={"cronSpec": "* * * * */5", "extra": 1, "replicas": None})
    answer = await tabs.send("POST", TABS, obj)
    made = answer.json
    assert made["spec"] == {"cronSpec": "* * * * */5", "image": "wasm://cron"}
    assert made["metadata"]["generation"] == 1
    assert answer.headers["Warning"] == '299 - "unknown field \\"spec.extra\\""'
    strict = await tabs.send(
        "POST", f"{TABS}?fieldValidation=Strict", crontab("b", spec={"extra": 1}, other=2)
    )
    assert strict.status == 400
    assert strict.message == (
        'CronTab in version "v1" cannot be handled as a CronTab: strict decoding error: '
        'unknown field "spec.extra", unknown field "other"'
    )
    ignored = await tabs.send("POST", f"{TABS}?fieldValidation=Ignore", crontab("c", spec={"extra": 1}))
    assert ignored.status == 201 and "Warning" not in ignored.headers


async def test_unknown_metadata_is_named(tabs: Api) -> None:
    answer = await tabs.send("POST", TABS, crontab(metadata={"colour": "red"}))
    assert answer.headers["Warning"] == '299 - "unknown field \\"metadata.colour\\""'
    assert "colour" not in answer.json["metadata"]


async def test_faults_are_named_as_kubernetes_names_them(tabs: Api) -> None:
    assert await message(tabs, crontab(spec={"cronSpec": "x", "replicas": 11, "image": 3})) == (
        'CronTab.stable.example.com "tab" is invalid: ['
        'spec.cronSpec: Invalid value: "x": spec.cronSpec in body should match '
        r"'^(\d+|\*)(/\d+)?(\s+(\d+|\*)(/\d+)?){4}$', "
        "spec.replicas: Invalid value: 11: spec.replicas in body should be less than or equal to 10, "
        'spec.image: Invalid value: "integer": spec.image in body must be of type string: "integer"]'
    )


async def test_status_is_written_by_its_subresource_alone(tabs: Api) -> None:
    made = await tabs.create(TABS, crontab(status={"replicas": 9}))
    assert "status" not in made
    path = f"{TABS}/tab"
    written = await tabs.send(
        "PUT", f"{path}/status", {**made, "spec": {"replicas": 5}, "status": {"replicas": 2}}
    )
    assert written.status == 200, written.body
    assert (written.json["spec"]["replicas"], written.json["status"]) == (3, {"replicas": 2})
    assert written.json["metadata"]["generation"] == 1
    changed = await tabs.patch(path, {"spec": {"replicas": 4}, "status": {"replicas": 7}})
    assert changed.json["status"] == {"replicas": 2}
    assert changed.json["metadata"]["generation"] == 2
    refused = await tabs.patch(f"{path}/status", {"status": {"replicas": "two"}})
    assert 'status.replicas in body must be of type integer: "string"' in refused.message


async def test_without_the_subresource_status_is_a_field_like_any_other(api: Api) -> None:
    await api.create(CRDS, with_schema({"type": "object"}, subresources=None))
    made = await api.create(TABS, crontab(spec={}, status={"replicas": 1}))
    assert made["status"] == {"replicas": 1}
    assert (await api.get(f"{TABS}/tab/status")).status == 404
    changed = await api.patch(f"{TABS}/tab", {"status": {"replicas": 2}})
    assert changed.json["metadata"]["generation"] == 2
    labelled = await api.patch(f"{TABS}/tab", {"metadata": {"labels": {"a": "b"}}})
    assert labelled.json["metadata"]["generation"] == 2


async def test_patches_are_merge_and_json_but_not_strategic(tabs: Api) -> None:
    await tabs.create(TABS, crontab())
    merged = await tabs.patch(f"{TABS}/tab", {"spec": {"replicas": 5}})
    assert merged.json["spec"]["replicas"] == 5
    operations = [{"op": "replace", "path": "/spec/replicas", "value": 6}]
    assert (await tabs.patch(f"{TABS}/tab", operations, "json")).json["spec"]["replicas"] == 6
    strategic = await tabs.patch(f"{TABS}/tab", {"spec": {"replicas": 7}}, "strategic")
    assert strategic.status == 415
    assert "application/merge-patch+json" in strategic.message
    invalid = await tabs.patch(f"{TABS}/tab", {"spec": {"replicas": 70}})
    assert invalid.status == 422
    nobody = await tabs.patch(f"{TABS}/nobody", {"spec": {}})
    assert nobody.message == 'crontabs.stable.example.com "nobody" not found'


async def test_dry_runs_and_generated_names(tabs: Api) -> None:
    dry = await tabs.send("POST", f"{TABS}?dryRun=All", crontab())
    assert dry.status == 201 and dry.json["spec"]["image"] == "wasm://cron"
    assert (await tabs.get(f"{TABS}/tab")).status == 404
    made = await tabs.create(TABS, {"metadata": {"generateName": "tab-"}, "spec": {}})
    assert made["metadata"]["name"].startswith("tab-") and len(made["metadata"]["name"]) == 9


async def test_a_table_has_the_columns_of_the_definition(tabs: Api) -> None:
    await tabs.create(TABS, crontab())
    table = (await tabs.get(TABS, headers=TABLE)).json
    assert [(c["name"], c["type"], c["priority"]) for c in table["columnDefinitions"]] == [
        ("Name", "string", 0),
        ("Spec", "string", 0),
        ("Replicas", "integer", 1),
        ("Age", "date", 0),
    ]
    (row,) = table["rows"]
    assert row["cells"][:3] == ["tab", "* * * * */5", 3]
    assert row["cells"][3].endswith("s")
    assert row["object"]["kind"] == "PartialObjectMetadata"
    one = (await tabs.get(f"{TABS}/tab", headers=TABLE)).json
    assert one["rows"][0]["cells"][:3] == ["tab", "* * * * */5", 3]
    assert (await tabs.get(f"{TABS}/tab", headers=PARTIAL)).json["metadata"]["name"] == "tab"


async def test_without_columns_there_is_the_age(api: Api) -> None:
    await api.create(CRDS, with_schema({"type": "object"}, additionalPrinterColumns=None))
    table = (await api.get(TABS, headers=TABLE)).json
    assert [c["name"] for c in table["columnDefinitions"]] == ["Name", "Age"]


@pytest.mark.parametrize("form", ["json", "table", "partial"])
async def test_watches_and_watch_lists_work_in_every_form(tabs: Api, form: str) -> None:
    headers = {"json": {}, "table": TABLE, "partial": PARTIAL}[form]
    await tabs.create(TABS, crontab())
    options = "sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true"
    frames = await tabs.watch(f"{TABS}?watch=true&{options}", headers=headers)
    assert (await frames.next())["type"] == "ADDED"
    mark = await frames.next()
    obj = mark["object"]["rows"][0]["object"] if form == "table" else mark["object"]
    assert mark["type"] == "BOOKMARK"
    assert obj["metadata"]["annotations"] == {"k8s.io/initial-events-end": "true"}
    await tabs.patch(f"{TABS}/tab", {"spec": {"replicas": 4}})
    assert (await frames.next())["type"] == "MODIFIED"
    await tabs.send("DELETE", f"{TABS}/tab")
    assert (await frames.next())["type"] == "DELETED"
    await frames.close()


def two_versions() -> dict[str, Any]:
    old = {**CRONTAB["spec"]["versions"][0], "name": "v1beta1", "storage": False}
    return definition(versions=[old, CRONTAB["spec"]["versions"][0]])


async def test_every_version_shows_the_same_objects(api: Api) -> None:
    await api.create(CRDS, two_versions())
    beta = TABS.replace("/v1/", "/v1beta1/")
    obj = {**crontab(), "apiVersion": "stable.example.com/v1beta1"}
    made = await api.create(beta, obj)
    assert made["apiVersion"] == "stable.example.com/v1beta1"
    stored = api.server.store.get("/registry/stable.example.com/crontabs/default/tab")
    assert stored is not None and stored.obj["apiVersion"] == "stable.example.com/v1"
    for path, version in ((TABS, "v1"), (beta, "v1beta1")):
        wanted = f"stable.example.com/{version}"
        assert (await api.get(f"{path}/tab")).json["apiVersion"] == wanted
        listed = (await api.get(path)).json
        assert (listed["apiVersion"], listed["items"][0]["apiVersion"]) == (wanted, wanted)
        frames = await api.watch(f"{path}?watch=true")
        assert (await frames.next())["object"]["apiVersion"] == wanted
        await frames.close()
        whole = (await api.get(f"{path}?includeObject=Object", headers=TABLE)).json
        assert whole["rows"][0]["object"]["apiVersion"] == wanted
        patched = await api.patch(f"{path}/tab", {"spec": {"replicas": 5}})
        assert (patched.json["apiVersion"], patched.json["metadata"]["generation"]) == (wanted, 2)
        dry = await api.send(
            "PATCH", f"{path}/tab?dryRun=All", {"spec": {"replicas": 6}}, media="application/merge-patch+json"
        )
        assert (dry.json["spec"]["replicas"], dry.json["apiVersion"]) == (6, wanted)
    group = (await api.get("/apis/stable.example.com")).json
    assert [v["version"] for v in group["versions"]] == ["v1", "v1beta1"]
    assert group["preferredVersion"]["version"] == "v1"
    assert (await api.send("PUT", f"{beta}/tab", crontab())).status == 400


async def test_a_deprecated_version_says_so(api: Api) -> None:
    made = two_versions()
    made["spec"]["versions"][0]["deprecated"] = True
    await api.create(CRDS, made)
    await api.create(TABS, crontab())
    beta = TABS.replace("/v1/", "/v1beta1/")
    said = '299 - "stable.example.com/v1beta1 CronTab is deprecated; use stable.example.com/v1 CronTab"'
    for path in (beta, f"{beta}/tab"):
        assert (await api.get(path)).headers["Warning"] == said
    assert "Warning" not in (await api.get(f"{TABS}/tab")).headers


async def test_objects_of_an_older_schema_are_read_by_the_new_one(tabs: Api) -> None:
    await tabs.create(TABS, crontab())
    changed = with_schema(
        {
            "type": "object",
            "properties": {
                "cronSpec": {"type": "string"},
                "paused": {"type": "boolean", "default": False},
            },
        }
    )
    await tabs.patch(f"{CRDS}/{NAME}", {"spec": {"versions": changed["spec"]["versions"]}})
    wanted = {"cronSpec": "* * * * */5", "paused": False}
    assert (await tabs.get(f"{TABS}/tab")).json["spec"] == wanted
    assert (await tabs.get(TABS)).json["items"][0]["spec"] == wanted
    written = await tabs.patch(f"{TABS}/tab", {"metadata": {"labels": {"a": "b"}}})
    assert written.json["spec"] == wanted
    stored = tabs.server.store.get("/registry/stable.example.com/crontabs/default/tab")
    assert stored is not None and stored.obj["spec"] == wanted


async def test_an_update_may_keep_what_was_wrong_before(tabs: Api) -> None:
    await tabs.create(TABS, crontab())
    spec = {
        "type": "object",
        "properties": {"cronSpec": {"type": "string", "maxLength": 3}, "replicas": {"type": "integer"}},
    }
    patch = {"spec": {"versions": with_schema(spec)["spec"]["versions"]}}
    await tabs.patch(f"{CRDS}/{NAME}", patch)
    assert (await tabs.patch(f"{TABS}/tab", {"spec": {"replicas": 4}})).status == 200
    refused = await tabs.patch(f"{TABS}/tab", {"spec": {"cronSpec": "longer"}})
    assert "spec.cronSpec: Too long: may not be more than 3 bytes" in refused.message


async def test_selectable_fields_select(api: Api) -> None:
    spec = {"type": "object", "properties": {"colour": {"type": "string"}, "size": {"type": "string"}}}
    await api.create(CRDS, with_schema(spec, selectableFields=[{"jsonPath": ".spec.colour"}]))
    for name, colour in (("a", "red"), ("b", "blue")):
        await api.create(TABS, crontab(name, spec={"colour": colour}))
    found = (await api.get(f"{TABS}?fieldSelector=spec.colour=blue")).json["items"]
    assert [o["metadata"]["name"] for o in found] == ["b"]
    refused = await api.get(f"{TABS}?fieldSelector=spec.size=XL")
    assert (refused.status, refused.message) == (400, "field label not supported: spec.size")
    assert len((await api.get(f"{TABS}?fieldSelector=metadata.name=a")).json["items"]) == 1


async def test_lists_come_in_pages_and_collections_are_deleted(tabs: Api) -> None:
    for number in range(5):
        await tabs.create(TABS, crontab(f"tab-{number}", metadata={"labels": {"n": str(number % 2)}}))
    page = (await tabs.get(f"{TABS}?limit=2")).json
    assert len(page["items"]) == 2 and page["metadata"]["remainingItemCount"] == 3
    rest = (await tabs.get(f"{TABS}?continue={page['metadata']['continue']}")).json
    assert len(rest["items"]) == 3
    everywhere = (await tabs.get("/apis/stable.example.com/v1/crontabs?labelSelector=n=1")).json
    assert len(everywhere["items"]) == 2
    assert (await tabs.send("DELETE", f"{TABS}?labelSelector=n=0")).status == 200
    assert len((await tabs.get(TABS)).json["items"]) == 2


async def test_finalizers_hold_an_object(tabs: Api) -> None:
    await tabs.create(TABS, crontab(metadata={"finalizers": ["example.com/wait"]}))
    held = await tabs.send("DELETE", f"{TABS}/tab")
    assert held.json["metadata"]["deletionTimestamp"]
    await tabs.patch(f"{TABS}/tab", {"metadata": {"finalizers": None}})
    assert (await tabs.get(f"{TABS}/tab")).status == 404


async def test_a_kind_of_the_cluster_has_no_namespace(api: Api) -> None:
    await api.create(CRDS, definition(scope="Cluster"))
    await api.create("/apis/stable.example.com/v1/crontabs", crontab())
    assert (await api.get("/apis/stable.example.com/v1/crontabs/tab")).status == 200
    assert (await api.get(f"{TABS}/tab")).status == 404
    refused = await api.send(
        "POST", "/apis/stable.example.com/v1/crontabs", crontab("b", metadata={"namespace": "default"})
    )
    assert refused.status in (400, 422)


async def test_explain_has_what_the_definition_says(tabs: Api) -> None:
    index = (await tabs.get("/openapi/v3")).json["paths"]
    url = index["apis/stable.example.com/v1"]["serverRelativeURL"]
    found = (await tabs.get(url)).json
    schema = found["components"]["schemas"]["com.example.stable.v1.CronTab"]
    assert schema["properties"]["spec"]["properties"]["replicas"]["maximum"] == 10
    gvk = {"group": "stable.example.com", "version": "v1", "kind": "CronTab"}
    assert schema["x-kubernetes-group-version-kind"] == [gvk]
    patch = found["paths"]["/apis/stable.example.com/v1/namespaces/{namespace}/crontabs/{name}"]["patch"]
    assert "application/strategic-merge-patch+json" not in patch["requestBody"]["content"]
    assert "fieldValidation" in {p["name"] for p in patch["parameters"]}
    swagger = (await tabs.get("/openapi/v2")).json
    assert "com.example.stable.v1.CronTab" in swagger["definitions"]


async def test_a_body_of_another_kind_is_refused(tabs: Api) -> None:
    assert await message(tabs, {**crontab(), "kind": "Other"}, 400)
    assert await message(tabs, {**crontab(), "apiVersion": "stable.example.com/v9"}, 400)
    assert (await tabs.send("POST", TABS, orjson.dumps([1]))).status == 400
