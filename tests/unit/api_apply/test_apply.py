"""PATCH with application/apply-patch+yaml on a whole API server."""

import asyncio
from typing import Any

import orjson
import pytest
from tests.unit.api_apply.conftest import APPLY, owners

from kube32.contract import Limits, limits_for, text

CORE = "/api/v1/namespaces/default"
APPS = "/apis/apps/v1/namespaces/default"
MAP = f"{CORE}/configmaps/a"
DEPLOYMENT = f"{APPS}/deployments/web"
PARTS = {"f:data": {"f:k": {}}}


def config_map(name: str = "a", **more: Any) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, **more}


def deployment(*containers: dict[str, Any], **spec: Any) -> dict[str, Any]:
    template = {"metadata": {"labels": {"app": "web"}}, "spec": {"containers": list(containers)}}
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "web"},
        "spec": {"selector": {"matchLabels": {"app": "web"}}, "template": template, **spec},
    }


MAIN = {"name": "main", "image": "wasm://echo"}


async def test_an_apply_of_what_is_not_there_creates_it(apply: Any) -> None:
    made = await apply(MAP, config_map(data={"k": "1"}))
    assert made.status == 201
    entry = made.json["metadata"]["managedFields"][0]
    assert entry.pop("time") == made.json["metadata"]["creationTimestamp"]
    assert entry == {
        "manager": "me",
        "operation": "Apply",
        "apiVersion": "v1",
        "fieldsType": "FieldsV1",
        "fieldsV1": PARTS,
    }


async def test_a_repeated_apply_makes_no_revision(api: Any, apply: Any) -> None:
    first = await apply(DEPLOYMENT, deployment(MAIN, replicas=2))
    revision = api.server.store.revision
    again = await apply(DEPLOYMENT, deployment(MAIN, replicas=2))
    assert (first.status, again.status) == (201, 200)
    assert again.body == first.body and api.server.store.revision == revision


async def test_defaults_are_filled_in_and_belong_to_nobody(apply: Any) -> None:
    made = (await apply(DEPLOYMENT, deployment(MAIN))).json
    assert made["spec"]["replicas"] == 1 and made["spec"]["strategy"]["type"] == "RollingUpdate"
    assert owners(made)["me"]["f:spec"] == {
        "f:selector": {},
        "f:template": {
            "f:metadata": {"f:labels": {"f:app": {}}},
            "f:spec": {"f:containers": {'k:{"name":"main"}': {".": {}, "f:image": {}, "f:name": {}}}},
        },
    }
    other = await apply(DEPLOYMENT, _only({"replicas": 3}), "scaler")
    assert other.status == 200 and other.json["spec"]["replicas"] == 3


def _only(spec: dict[str, Any], **metadata: Any) -> dict[str, Any]:
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "web", **metadata},
        "spec": spec,
    }


async def test_what_a_manager_no_longer_applies_goes(apply: Any) -> None:
    await apply(MAP, config_map(data={"k": "1", "l": "1"}))
    made = (await apply(MAP, config_map(data={"k": "2"}))).json
    assert made["data"] == {"k": "2"}
    assert "data" not in (await apply(MAP, config_map())).json


async def test_what_another_manager_has_too_stays(apply: Any) -> None:
    await apply(MAP, config_map(data={"k": "1", "l": "1"}), "a")
    shared = (await apply(MAP, config_map(data={"k": "1"}), "b")).json
    assert owners(shared)["b"] == PARTS and "f:k" in owners(shared)["a"]["f:data"]
    left = (await apply(MAP, config_map(), "a")).json
    assert left["data"] == {"k": "1"} and list(owners(left)) == ["b"]


async def test_lists_of_maps_are_joined_item_by_item(apply: Any) -> None:
    await apply(DEPLOYMENT, deployment(MAIN, {"name": "side", "image": "wasm://log"}), "a")
    extra = {"template": {"spec": {"containers": [{"name": "main", "env": [{"name": "A", "value": "1"}]}]}}}
    made = (await apply(DEPLOYMENT, _only(extra), "b")).json
    main, _ = made["spec"]["template"]["spec"]["containers"]
    assert (main["image"], main["env"]) == ("wasm://echo", [{"name": "A", "value": "1"}])
    dropped = (await apply(DEPLOYMENT, deployment(MAIN), "a")).json
    containers = dropped["spec"]["template"]["spec"]["containers"]
    assert [c["name"] for c in containers] == ["main"] and containers[0]["env"][0]["name"] == "A"


async def test_a_conflict_names_the_field_and_its_manager(api: Any, apply: Any) -> None:
    created = deployment(MAIN, replicas=1)
    await api.create(f"{APPS}/deployments?fieldManager=kubectl-client-side-apply", created)
    refused = await apply(DEPLOYMENT, _only({"replicas": 5}))
    assert refused.status == 409 and refused.json["reason"] == "Conflict"
    assert refused.message == (
        'Apply failed with 1 conflict: conflict with "kubectl-client-side-apply" using apps/v1: .spec.replicas'
    )
    assert refused.json["details"] == {
        "causes": [
            {
                "reason": "FieldManagerConflict",
                "message": 'conflict with "kubectl-client-side-apply" using apps/v1',
                "field": ".spec.replicas",
            }
        ]
    }


async def test_several_conflicts_are_listed_by_manager(apply: Any) -> None:
    await apply(MAP, config_map(data={"k": "1", "l": "1"}), "b")
    await apply(MAP, config_map(data={"m": "1"}), "a")
    refused = await apply(MAP, config_map(data={"k": "2", "l": "2", "m": "2"}))
    assert refused.message == (
        'Apply failed with 3 conflicts: conflicts with "a":\n- .data.m\nconflicts with "b":\n- .data.k\n- .data.l'
    )


async def test_force_takes_the_fields(apply: Any) -> None:
    await apply(MAP, config_map(data={"k": "1", "l": "1"}), "a")
    taken = (await apply(MAP, config_map(data={"k": "2"}), "b", "&force=true")).json
    assert taken["data"] == {"k": "2", "l": "1"}
    assert owners(taken) == {"a": {"f:data": {"f:l": {}}}, "b": PARTS}


async def test_the_same_value_is_no_conflict(api: Any, apply: Any) -> None:
    await api.create(f"{CORE}/configmaps", config_map(data={"k": "1"}))
    made = await apply(MAP, config_map(data={"k": "1"}))
    assert made.status == 200 and len(made.json["metadata"]["managedFields"]) == 2


async def test_amounts_are_compared_by_their_canonical_form(api: Any, apply: Any) -> None:
    def sized(cpu: str) -> dict[str, Any]:
        return deployment({**MAIN, "resources": {"limits": {"cpu": cpu}}})

    await apply(DEPLOYMENT, sized("1000m"), "a")
    revision = api.server.store.revision
    assert (await apply(DEPLOYMENT, sized("1"), "b")).status == 200
    assert (await apply(DEPLOYMENT, sized("1000m"), "a")).status == 200
    assert api.server.store.revision == revision + 1


@pytest.mark.parametrize(
    ("query", "said"),
    [
        ("", "fieldManager: Required value: is required for apply patch"),
        ("?fieldManager=", "fieldManager: Required value: is required for apply patch"),
        ("?fieldManager=" + "x" * 129, "fieldManager: Too long: may not be more than 128 bytes"),
        (
            "?fieldManager=a%01",
            'fieldManager: Invalid value: "a\\u0001": should only contain printable characters',
        ),
        ("?fieldManager=a&force=maybe", 'force: Invalid value: "maybe": must be true or false'),
    ],
)
async def test_bad_options_are_named(api: Any, query: str, said: str) -> None:
    refused = await api.send("PATCH", MAP + query, config_map(), media=APPLY)
    assert refused.status == 422
    assert refused.message == f'PatchOptions.meta.k8s.io "" is invalid: {said}'


async def test_force_is_for_applies_only(api: Any, apply: Any) -> None:
    await apply(MAP, config_map())
    refused = await api.patch(f"{MAP}?force=true", {"data": {"k": "1"}})
    assert refused.status == 422
    assert refused.message.endswith("force: Forbidden: may not be specified for non-apply patch")


@pytest.mark.parametrize(
    ("obj", "said"),
    [
        (config_map(metadata={"name": "a", "managedFields": []}), "metadata.managedFields must be nil"),
        (
            config_map(metadata={"name": "b"}),
            "the name of the object (b) does not match the name on the URL (a)",
        ),
        (
            config_map(metadata={}),
            "the name of the object (a based on URL) was undeterminable: name must be provided",
        ),
        (config_map(kind="Secret"), "invalid object type: /v1, Kind=Secret"),
        (config_map(apiVersion="apps/v1"), "invalid object type: apps/v1, Kind=ConfigMap"),
        ({"metadata": {"name": "a"}}, "invalid object type: /, Kind="),
        (b"a: *x\nb: &x 1", "error decoding YAML: yaml: "),
        (b"{", "error decoding YAML: yaml: "),
        (b"- 1", "error decoding YAML: error unmarshaling JSON"),
        (b"", "cannot unmarshal nil into Go value"),
        (b"a: &a [x]\nb: [*a, *a]", "error decoding YAML: yaml: aliases are not read"),
        (b"x: " + b"y" * 300_000, "at most 131072 are read; send JSON"),
        (
            config_map(datta={"k": "1"}),
            "failed to create typed patch object (default/a; /v1, Kind=ConfigMap): .datta: "
            "field not declared in schema",
        ),
        (config_map(data={"k": 1}), "cannot unmarshal number into Go struct field ConfigMap.data of type"),
    ],
)
async def test_bodies_that_cannot_be_applied_are_refused(apply: Any, obj: Any, said: str) -> None:
    obj = obj if isinstance(obj, bytes) else orjson.dumps(obj)
    refused = await apply(MAP, obj)
    assert refused.status == 400, refused.body
    assert said in refused.message


async def test_yaml_is_read_as_kubernetes_reads_it(apply: Any) -> None:
    body = b"apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\ndata: {time: 12:30:59, day: 2026-01-01}\n"
    made = await apply(MAP, body)
    assert made.status == 201 and made.json["data"] == {"time": "12:30:59", "day": "2026-01-01"}


async def test_deep_bodies_are_refused(apply: Any) -> None:
    body = (
        b'{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"a","managedFields":'
        + b"[" * 900
        + b"]" * 900
    )
    assert (await apply(MAP, body + b"}}")).status == 400


async def test_what_can_never_be_stored_is_refused_before_it_is_looked_at(apply: Any) -> None:
    data = {f"k{number}": "1" for number in range(100_000)}
    refused = await apply(MAP, config_map(data=data))
    assert refused.status == 413
    assert 'configmaps "a" is too large: the object has' in refused.message


async def test_keys_that_stand_twice_are_refused_or_warned_of(apply: Any) -> None:
    body = b"apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\ndata:\n  k: '1'\n  k: '2'\n"
    strict = await apply(MAP, body, "me", "&fieldValidation=Strict")
    assert strict.status == 400
    said = (
        "error strict decoding YAML: error converting YAML to JSON: yaml: unmarshal errors:\n"
        '  line 6: key "k" already set in map'
    )
    assert strict.message == said
    warned = await apply(MAP, body)
    assert warned.status == 201 and 'key \\"k\\" already set' in warned.headers["Warning"]
    json_body = b'{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"a"},"data":{"k":"1","k":"2"}}'
    assert (await apply(MAP, json_body, "me", "&fieldValidation=Strict")).status == 400
    quiet = await apply(MAP, json_body, "me", "&fieldValidation=Ignore")
    assert quiet.status == 200 and "Warning" not in quiet.headers


async def test_items_that_stand_twice_are_refused(apply: Any) -> None:
    refused = await apply(DEPLOYMENT, deployment(MAIN, MAIN))
    assert refused.status == 400
    assert '.spec.template.spec.containers: duplicate entries for key [name="main"]' in refused.message


async def test_the_resource_version_of_the_applied_object_is_checked(apply: Any) -> None:
    first = (await apply(MAP, config_map(data={"k": "1"}))).json
    version = first["metadata"]["resourceVersion"]

    def at(value: str, version: str) -> dict[str, Any]:
        return config_map(data={"k": value}, metadata={"name": "a", "resourceVersion": version})

    assert (await apply(MAP, at("2", version))).status == 200
    stale = await apply(MAP, at("3", version))
    assert stale.status == 409 and "the object has been modified" in stale.message


async def test_an_object_that_is_gone_is_not_made_again_under_its_old_uid(apply: Any) -> None:
    for key, said in (("uid", "uid mismatch"), ("resourceVersion", "the object has been modified")):
        refused = await apply(MAP, config_map(metadata={"name": "a", key: "7"}))
        assert refused.status == 409 and said in refused.message


async def test_an_apply_to_status_changes_and_owns_status_only(api: Any, apply: Any) -> None:
    await apply(DEPLOYMENT, deployment(MAIN, replicas=1))
    condition = {"type": "Lit", "status": "True"}
    body = {**_only({"replicas": 9}), "status": {"readyReplicas": 1, "conditions": [condition]}}
    made = (await apply(f"{DEPLOYMENT}/status", body, "lamp")).json
    assert made["spec"]["replicas"] == 1 and made["status"]["conditions"] == [condition]
    conditions = {'k:{"type":"Lit"}': {".": {}, "f:status": {}, "f:type": {}}}
    assert owners(made)["lamp/status"] == {"f:status": {"f:conditions": conditions, "f:readyReplicas": {}}}
    left = (await apply(f"{DEPLOYMENT}/status", {**_only({}), "status": {"readyReplicas": 1}}, "lamp")).json
    assert "conditions" not in left["status"]
    missing = await apply(f"{APPS}/deployments/none/status", {**_only({}), "metadata": {"name": "none"}})
    assert missing.status == 404


async def test_the_status_in_an_apply_of_the_object_is_left_out(apply: Any) -> None:
    made = (await apply(DEPLOYMENT, {**deployment(MAIN), "status": {"replicas": 9}})).json
    assert "replicas" not in made.get("status", {}) and "f:status" not in owners(made)["me"]


async def test_an_apply_of_a_scale_owns_the_replicas(apply: Any) -> None:
    await apply(DEPLOYMENT, deployment(MAIN))
    scale = {
        "apiVersion": "autoscaling/v1",
        "kind": "Scale",
        "metadata": {"name": "web"},
        "spec": {"replicas": 4},
    }
    made = await apply(f"{DEPLOYMENT}/scale", scale, "scaler")
    assert (made.status, made.json["kind"], made.json["spec"]) == (200, "Scale", {"replicas": 4})
    obj = (await apply(DEPLOYMENT, deployment(MAIN))).json
    assert owners(obj)["scaler/scale"] == {"f:spec": {"f:replicas": {}}}
    refused = await apply(DEPLOYMENT, deployment(MAIN, replicas=1))
    said = 'Apply failed with 1 conflict: conflict with "scaler" with subresource "scale": .spec.replicas'
    assert refused.message == said


async def test_a_dry_run_answers_and_stores_nothing(api: Any, apply: Any) -> None:
    revision = api.server.store.revision
    tried = await apply(MAP, config_map(data={"k": "1"}), "me", "&dryRun=All")
    assert tried.status == 201 and owners(tried.json) == {"me": PARTS}
    assert api.server.store.revision == revision
    assert (await api.get(MAP)).status == 404


async def test_an_untracked_object_belongs_to_nobody_in_particular(api: Any, apply: Any) -> None:
    await api.create(f"{CORE}/configmaps", config_map(data={"k": "1", "l": "1"}))
    await api.patch(MAP, {"metadata": {"managedFields": [{}]}})
    refused = await apply(MAP, config_map(data={"k": "2"}))
    assert refused.message.endswith('conflict with "before-first-apply" using v1: .data.k')
    made = (await apply(MAP, config_map(data={"k": "2"}), "me", "&force=true")).json
    assert owners(made) == {"before-first-apply": {"f:data": {".": {}, "f:l": {}}}, "me": PARTS}


async def test_updates_between_applies_are_kept_and_shown_as_conflicts(api: Any, apply: Any) -> None:
    await apply(MAP, config_map(data={"k": "1"}))
    changed = (await api.patch(f"{MAP}?fieldManager=hand", {"data": {"k": "2"}})).json
    assert owners(changed) == {"hand": PARTS}
    refused = await apply(MAP, config_map(data={"k": "1"}))
    assert refused.message.endswith('conflict with "hand" using v1: .data.k')


async def test_applies_at_the_same_time_all_arrive(api: Any, apply: Any) -> None:
    made = await asyncio.gather(*(apply(MAP, config_map(data={f"k{n}": "1"}), f"m{n}") for n in range(8)))
    assert sorted(answer.status for answer in made) == [200] * 7 + [201]
    obj = (await api.get(MAP)).json
    assert len(obj["data"]) == 8 and len(owners(obj)) == 8


async def test_invalid_results_are_refused_by_validation(apply: Any) -> None:
    refused = await apply(DEPLOYMENT, _only({"replicas": -1}))
    assert refused.status == 422 and "spec.selector" in refused.message


async def test_an_immutable_field_is_refused_as_for_an_update(apply: Any) -> None:
    await apply(DEPLOYMENT, deployment(MAIN))
    body = deployment(MAIN, selector={"matchLabels": {"app": "other"}})
    refused = await apply(DEPLOYMENT, body)
    assert refused.status == 422 and "field is immutable" in refused.message


async def test_a_view_user_may_not_apply(api: Any, apply: Any) -> None:
    refused = await apply(MAP, config_map(), token=api.server.security.join_token)
    assert refused.status == 403


async def test_kubectls_annotation_allows_and_follows_its_server_side_apply(api: Any, apply: Any) -> None:
    key = "kubectl.kubernetes.io/last-applied-configuration"
    last = orjson.dumps(config_map(data={"k": "1"})).decode()
    made = config_map(data={"k": "1"}, metadata={"name": "a", "annotations": {key: last}})
    await api.create(f"{CORE}/configmaps?fieldManager=kubectl-client-side-apply", made)
    refused = await apply(MAP, config_map(data={"k": "2"}), "other")
    assert refused.status == 409
    taken = (await apply(MAP, config_map(data={"k": "2"}), "kubectl")).json
    assert taken["data"] == {"k": "2"}
    assert orjson.loads(taken["metadata"]["annotations"][key])["data"] == {"k": "2"}


class TestProfileWithoutServerSideApply:
    @pytest.fixture
    def limits(self) -> Limits:
        return limits_for("board")

    async def test_an_apply_is_refused_with_a_sentence(self, apply: Any) -> None:
        refused = await apply(MAP, config_map())
        assert refused.status == 415 and refused.message == text("answers", "apply_patch")

    async def test_there_are_no_managed_fields(self, api: Any) -> None:
        entry = {"manager": "a", "operation": "Apply", "apiVersion": "v1", "fieldsType": "FieldsV1"}
        given = {"name": "a", "managedFields": [{**entry, "fieldsV1": PARTS}]}
        made = await api.create(f"{CORE}/configmaps", config_map(metadata=given, data={"k": "1"}))
        assert "managedFields" not in made["metadata"]
        changed = (await api.patch(MAP, {"metadata": {"managedFields": given["managedFields"]}})).json
        assert "managedFields" not in changed["metadata"]
