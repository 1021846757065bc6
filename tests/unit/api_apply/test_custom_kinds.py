"""Server-side apply of custom kinds: ownership comes from their structural schema."""

import copy
from typing import Any

import pytest
from tests.unit.api_apply.conftest import owners
from tests.unit.api_core.conftest import Api
from tests.unit.api_custom.conftest import CRDS, TABS, crontab, definition, with_schema

TAB = f"{TABS}/tab"
PARTS = {
    "type": "object",
    "properties": {
        "replicas": {"type": "integer", "default": 1},
        "tags": {"type": "array", "x-kubernetes-list-type": "set", "items": {"type": "string"}},
        "plain": {"type": "array", "items": {"type": "string"}},
        "parts": {
            "type": "array",
            "x-kubernetes-list-type": "map",
            "x-kubernetes-list-map-keys": ["name"],
            "items": {
                "type": "object",
                "required": ["name"],
                "properties": {"name": {"type": "string"}, "size": {"type": "integer"}},
            },
        },
        "free": {"type": "object", "x-kubernetes-preserve-unknown-fields": True},
    },
}


@pytest.fixture
async def tabs(api: Api) -> Api:
    """A server on which CronTab is defined, with lists of all types."""
    await api.create(CRDS, with_schema(PARTS))
    return api


async def test_lists_are_joined_by_their_types(tabs: Api, apply: Any) -> None:
    first = {"tags": ["a"], "plain": ["x"], "parts": [{"name": "p", "size": 1}], "free": {"k": 1}}
    made = await apply(TAB, crontab(spec=first), "a")
    assert made.status == 201 and made.json["spec"]["replicas"] == 1
    second = {"tags": ["b"], "parts": [{"name": "q"}], "free": {"l": 1}}
    joined = (await apply(TAB, crontab(spec=second), "b")).json
    assert joined["spec"] == {
        "replicas": 1,
        "tags": ["a", "b"],
        "plain": ["x"],
        "parts": [{"name": "p", "size": 1}, {"name": "q"}],
        "free": {"k": 1, "l": 1},
    }
    assert owners(joined)["b"] == {
        "f:spec": {
            "f:free": {"f:l": {}},
            "f:parts": {'k:{"name":"q"}': {".": {}, "f:name": {}}},
            "f:tags": {'v:"b"': {}},
        }
    }
    left = (await apply(TAB, crontab(spec={}), "a")).json
    assert left["spec"] == {"replicas": 1, "tags": ["b"], "parts": [{"name": "q"}], "free": {"l": 1}}
    refused = await apply(TAB, crontab(spec={"plain": ["y"], "parts": [{"name": "q", "size": 2}]}), "a")
    assert refused.status == 200


async def test_a_repeated_apply_makes_no_revision(tabs: Api, apply: Any) -> None:
    first = await apply(TAB, crontab(spec={"tags": ["a"]}))
    assert (await apply(TAB, crontab(spec={"tags": ["a"]}))).body == first.body


async def test_unknown_fields_are_refused(tabs: Api, apply: Any) -> None:
    refused = await apply(TAB, crontab(spec={"colour": 1}))
    assert refused.status == 400
    assert refused.message == (
        "failed to create typed patch object (default/tab; stable.example.com/v1, Kind=CronTab): "
        ".spec.colour: field not declared in schema"
    )


async def test_status_and_updates_are_tracked(tabs: Api) -> None:
    await tabs.create(f"{TABS}?fieldManager=a", crontab(spec={"tags": ["a"]}))
    made = (await tabs.patch(f"{TAB}/status?fieldManager=b", {"status": {"replicas": 2}})).json
    assert owners(made) == {
        "a": {"f:spec": {".": {}, "f:replicas": {}, "f:tags": {".": {}, 'v:"a"': {}}}},
        "b/status": {"f:status": {".": {}, "f:replicas": {}}},
    }


async def test_versions_share_their_owners(api: Api, apply: Any) -> None:
    made = definition()
    second = copy.deepcopy(made["spec"]["versions"][0])
    second.update(name="v2", storage=False)
    made["spec"]["versions"].append(second)
    await api.create(CRDS, made)
    await apply(TAB, crontab(spec={"replicas": 2, "image": "wasm://x"}))
    newer = {**crontab(spec={"replicas": 3}), "apiVersion": "stable.example.com/v2"}
    changed = await apply(TAB.replace("/v1/", "/v2/"), newer)
    assert changed.status == 200 and changed.json["spec"] == {"replicas": 3, "image": "wasm://cron"}
    (entry,) = changed.json["metadata"]["managedFields"]
    assert entry["apiVersion"] == "stable.example.com/v2"


async def _change_plain(tabs: Api, kind: str) -> None:
    """Changes the type of the list `plain`."""
    changed = copy.deepcopy(PARTS)
    changed["properties"]["plain"]["x-kubernetes-list-type"] = kind  # type: ignore[index]
    versions = with_schema(changed)["spec"]["versions"]
    answer = await tabs.patch(f"{CRDS}/crontabs.stable.example.com", {"spec": {"versions": versions}})
    assert answer.status == 200


async def test_a_list_that_is_told_apart_from_now_on_belongs_to_its_applier_item_by_item(
    tabs: Api, apply: Any
) -> None:
    await apply(TAB, crontab(spec={"plain": ["x"]}), "a")
    await _change_plain(tabs, "set")
    joined = (await apply(TAB, crontab(spec={"plain": ["y"]}), "b")).json
    assert joined["spec"]["plain"] == ["x", "y"]
    left = (await apply(TAB, crontab(spec={}), "a")).json
    assert left["spec"]["plain"] == ["y"]


async def test_a_list_that_becomes_atomic_belongs_whole_to_whoever_had_a_part(tabs: Api, apply: Any) -> None:
    await _change_plain(tabs, "set")
    await apply(TAB, crontab(spec={"plain": ["x"]}), "a")
    await _change_plain(tabs, "atomic")
    refused = await apply(TAB, crontab(spec={"plain": ["y"]}), "b")
    assert refused.message.endswith('conflict with "a": .spec.plain')
