"""JSON Patch (RFC 6902), JSON Merge Patch (RFC 7386), strategic merge patch."""

import copy
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kube32.api import patch_json, patch_strategic
from kube32.contract import resource_of

CORE = "/api/v1/namespaces/default"
POD = resource_of("Pod")
JSON_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-5, 5) | st.text("ab", max_size=2),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["a", "b", "c", ""]), inner, max_size=3)
    ),
    max_leaves=12,
)


def merged_by_the_rfc(target: Any, patch: Any) -> Any:
    """RFC 7386, section 2, word for word."""
    if isinstance(patch, dict):
        if not isinstance(target, dict):
            target = {}
        for name, value in patch.items():
            if value is None:
                if name in target:
                    del target[name]
            else:
                target[name] = merged_by_the_rfc(target.get(name), value)
        return target
    return patch


@given(JSON_VALUES, JSON_VALUES)
def test_merge_patch_is_the_one_of_rfc_7386(target: Any, patch: Any) -> None:
    expected = merged_by_the_rfc(copy.deepcopy(target), copy.deepcopy(patch))
    assert patch_json.merge(copy.deepcopy(target), patch) == expected


@pytest.mark.parametrize(
    ("document", "patch", "expected"),
    [
        ({"a": 1}, [{"op": "add", "path": "/b", "value": [1]}], {"a": 1, "b": [1]}),
        ({"a": [1, 3]}, [{"op": "add", "path": "/a/1", "value": 2}], {"a": [1, 2, 3]}),
        ({"a": [1]}, [{"op": "add", "path": "/a/-", "value": 2}], {"a": [1, 2]}),
        ({"a": 1}, [{"op": "add", "path": "", "value": {"b": 2}}], {"b": 2}),
        ({"a": 1}, [{"op": "add", "path": "/a", "value": None}], {"a": None}),
        ({"a/b": {"c~d": 1}}, [{"op": "remove", "path": "/a~1b/c~0d"}], {"a/b": {}}),
        ({"~1": 1}, [{"op": "remove", "path": "/~01"}], {}),
        ({"a": [1, 2]}, [{"op": "remove", "path": "/a/0"}], {"a": [2]}),
        ({"": 1}, [{"op": "replace", "path": "/", "value": 2}], {"": 2}),
        ({"a": [1, 2]}, [{"op": "replace", "path": "/a/1", "value": 3}], {"a": [1, 3]}),
        (
            {"a": {"b": 1}, "c": {}},
            [{"op": "move", "from": "/a/b", "path": "/c/b"}],
            {"a": {}, "c": {"b": 1}},
        ),
        ({"a": [1, 2, 3]}, [{"op": "move", "from": "/a/0", "path": "/a/2"}], {"a": [2, 3, 1]}),
        ({"a": {"b": 1}}, [{"op": "copy", "from": "/a", "path": "/c"}], {"a": {"b": 1}, "c": {"b": 1}}),
        ({"a": 1.0}, [{"op": "test", "path": "/a", "value": 1}], {"a": 1.0}),
        ({"a": {"x": [1]}}, [{"op": "test", "path": "/a", "value": {"x": [1]}}], {"a": {"x": [1]}}),
    ],
)
def test_json_patch_operations(document: Any, patch: Any, expected: Any) -> None:
    assert patch_json.apply(document, patch, 1000) == expected


def test_a_copy_shares_nothing_with_its_source() -> None:
    patch = [
        {"op": "copy", "from": "/a", "path": "/b"},
        {"op": "add", "path": "/b/x", "value": 1},
    ]
    assert patch_json.apply({"a": {}}, patch, 1000) == {"a": {}, "b": {"x": 1}}


@pytest.mark.parametrize(
    "operation",
    [
        {"op": "add", "path": "/a/b/c", "value": 1},
        {"op": "add", "path": "/l/3", "value": 1},
        {"op": "add", "path": "/l/01", "value": 1},
        {"op": "add", "path": "/l/x", "value": 1},
        {"op": "add", "path": "/s/x", "value": 1},
        {"op": "remove", "path": "/x"},
        {"op": "remove", "path": ""},
        {"op": "remove", "path": "/l/-"},
        {"op": "replace", "path": "/x", "value": 1},
        {"op": "replace", "path": "/l/2", "value": 1},
        {"op": "move", "from": "/x", "path": "/y"},
        {"op": "move", "from": "/a", "path": "/a/b"},
        {"op": "copy", "from": "/x", "path": "/y"},
        {"op": "test", "path": "/s", "value": "other"},
        {"op": "test", "path": "/t", "value": 1},
        {"op": "test", "path": "/x", "value": None},
    ],
)
def test_an_operation_that_does_not_apply_is_named(operation: dict[str, Any]) -> None:
    document = {"a": {}, "l": [0, 1], "s": "s", "t": True}
    with pytest.raises(patch_json.PatchFailed) as failure:
        patch_json.apply(document, [{"op": "test", "path": "/a", "value": {}}, operation], 1000)
    assert str(failure.value).startswith(f"{operation['op']} operation 1 of the JSON patch at path")


@pytest.mark.parametrize(
    "patch",
    [
        {},
        [5],
        [{"op": "jump", "path": "/a"}],
        [{"path": "/a"}],
        [{"op": "add", "path": "/a"}],
        [{"op": "add", "value": 1}],
        [{"op": "add", "path": "a", "value": 1}],
        [{"op": "move", "path": "/a"}],
        [{"op": "test", "path": "/a", "value": 0}] * 10001,
    ],
)
def test_a_malformed_json_patch_is_refused(patch: Any) -> None:
    with pytest.raises(patch_json.PatchError) as failure:
        patch_json.apply({"a": 0}, patch, 1000)
    assert not isinstance(failure.value, patch_json.PatchFailed)


def test_copies_cannot_multiply_past_the_limit() -> None:
    patch = [{"op": "copy", "from": "", "path": f"/{n}"} for n in range(40)]
    with pytest.raises(patch_json.PatchError, match="bytes"):
        patch_json.apply({"a": "x"}, patch, 100_000)


# --- strategic merge ---


def strategic(document: Any, patch: Any) -> Any:
    return patch_strategic.apply(POD, copy.deepcopy(document), patch)


def spec(**fields: Any) -> dict[str, Any]:
    return {"spec": fields}


CONTAINERS = [
    {"name": "a", "image": "1", "env": [{"name": "X", "value": "1"}, {"name": "Y", "value": "2"}]},
    {"name": "b", "image": "2"},
]


@pytest.mark.parametrize(
    ("before", "patch", "after"),
    [
        (
            spec(containers=CONTAINERS),
            spec(
                containers=[{"name": "a", "image": "9", "env": [{"name": "Y", "value": "3"}]}, {"name": "c"}]
            ),
            spec(
                containers=[
                    {
                        "name": "a",
                        "image": "9",
                        "env": [{"name": "X", "value": "1"}, {"name": "Y", "value": "3"}],
                    },
                    {"name": "b", "image": "2"},
                    {"name": "c"},
                ]
            ),
        ),
        (
            spec(containers=CONTAINERS),
            spec(containers=[{"$patch": "delete", "name": "a"}]),
            spec(containers=[CONTAINERS[1]]),
        ),
        (
            spec(containers=CONTAINERS),
            spec(containers=[{"$patch": "replace"}, {"name": "z"}]),
            spec(containers=[{"name": "z"}]),
        ),
        (
            spec(containers=CONTAINERS),
            {"spec": {"$setElementOrder/containers": [{"name": "b"}, {"name": "a"}]}},
            spec(containers=[CONTAINERS[1], CONTAINERS[0]]),
        ),
        (
            spec(containers=[{"name": n} for n in "abcd"]),
            {
                "spec": {
                    "containers": [{"name": "x"}],
                    "$setElementOrder/containers": [{"name": "d"}, {"name": "x"}, {"name": "a"}],
                }
            },
            spec(containers=[{"name": n} for n in "bcdxa"]),
        ),
        (
            spec(volumes=[{"name": "v", "emptyDir": {}}]),
            spec(volumes=[{"name": "v", "$retainKeys": ["name", "configMap"], "configMap": {"name": "c"}}]),
            spec(volumes=[{"name": "v", "configMap": {"name": "c"}}]),
        ),
        (
            spec(tolerations=[{"key": "a"}, {"key": "b"}]),
            spec(tolerations=[{"key": "c"}]),
            spec(tolerations=[{"key": "c"}]),
        ),
        (
            spec(nodeSelector={"a": "1", "b": "2"}),
            spec(nodeSelector={"a": None, "c": "3"}),
            spec(nodeSelector={"b": "2", "c": "3"}),
        ),
        (
            spec(nodeSelector={"a": "1"}),
            spec(nodeSelector={"$patch": "replace", "c": "3"}),
            spec(nodeSelector={"c": "3"}),
        ),
        (spec(nodeSelector={"a": "1"}), spec(nodeSelector={"$patch": "delete"}), spec(nodeSelector={})),
        (
            spec(containers=[{"name": "a", "ports": [{"containerPort": 1, "name": "x"}]}]),
            spec(
                containers=[{"name": "a", "ports": [{"containerPort": 1, "name": "y"}, {"containerPort": 2}]}]
            ),
            spec(
                containers=[{"name": "a", "ports": [{"containerPort": 1, "name": "y"}, {"containerPort": 2}]}]
            ),
        ),
        (
            {
                "status": {
                    "conditions": [{"type": "Ready", "status": "False"}, {"type": "X", "status": "True"}]
                }
            },
            {"status": {"conditions": [{"type": "Ready", "status": "True"}]}},
            {
                "status": {
                    "conditions": [{"type": "Ready", "status": "True"}, {"type": "X", "status": "True"}]
                }
            },
        ),
        (
            {"metadata": {"finalizers": ["a", "b"]}},
            {"metadata": {"finalizers": ["c", "a"]}},
            {"metadata": {"finalizers": ["a", "b", "c"]}},
        ),
        (
            {"metadata": {"finalizers": ["a", "b", "c"]}},
            {
                "metadata": {
                    "$deleteFromPrimitiveList/finalizers": ["b"],
                    "$setElementOrder/finalizers": ["c", "a"],
                }
            },
            {"metadata": {"finalizers": ["c", "a"]}},
        ),
        ({}, spec(containers=[{"name": "a", "image": None}]), spec(containers=[{"name": "a"}])),
    ],
)
def test_strategic_merge(before: Any, patch: Any, after: Any) -> None:
    assert strategic(before, patch) == after


@pytest.mark.parametrize(
    "patch",
    [
        spec(containers=[{"image": "x"}]),
        spec(containers=["x"]),
        spec(containers=[{"$patch": "merge", "name": "a"}]),
        spec(containers=[{"$patch": "delete"}]),
        {"$patch": "odd"},
        {"$odd": 1},
        spec(volumes=[{"name": "v", "$retainKeys": "x"}]),
        spec(volumes=[{"name": "v", "$retainKeys": ["name"], "emptyDir": {}}]),
        {"metadata": {"$deleteFromPrimitiveList/finalizers": "b"}},
        {"spec": {"$setElementOrder/containers": 1}},
    ],
)
def test_a_malformed_strategic_patch_is_refused(patch: Any) -> None:
    document = {
        "metadata": {"finalizers": ["b"]},
        "spec": {"containers": CONTAINERS, "volumes": [{"name": "v", "hostPath": {"path": "/"}}]},
    }
    with pytest.raises(patch_json.PatchError, match="strategic merge patch"):
        strategic(document, patch)


@given(JSON_VALUES.filter(lambda v: isinstance(v, dict)), JSON_VALUES.filter(lambda v: isinstance(v, dict)))
def test_strategic_merge_without_merge_keys_is_a_merge_patch(target: Any, patch: Any) -> None:
    where = {"metadata": {"annotations": patch}}
    before = {"metadata": {"annotations": copy.deepcopy(target)}}
    assert strategic(before, where) == merged_by_the_rfc(copy.deepcopy(before), where)


# --- over the API ---


@pytest.mark.parametrize(
    ("kind", "patch"),
    [
        ("json", [{"op": "add", "path": "/data/k", "value": "2"}]),
        ("merge", {"data": {"k": "2"}}),
        ("strategic", {"data": {"k": "2"}}),
    ],
)
async def test_each_kind_of_patch_changes_the_object(api: Any, objects: Any, kind: str, patch: Any) -> None:
    await api.create(f"{CORE}/configmaps", objects.config_map("a", data={"k": "1", "l": "1"}))
    answer = await api.patch(f"{CORE}/configmaps/a", patch, kind)
    assert (answer.status, answer.json["data"]) == (200, {"k": "2", "l": "1"})


async def test_a_patch_with_an_old_resource_version_is_a_conflict(api: Any, objects: Any) -> None:
    first = await api.create(f"{CORE}/configmaps", objects.config_map("a"))
    await api.patch(f"{CORE}/configmaps/a", {"data": {"k": "1"}})
    version = first["metadata"]["resourceVersion"]
    patch = {"metadata": {"resourceVersion": version}, "data": {"k": "2"}}
    answer = await api.patch(f"{CORE}/configmaps/a", patch)
    assert (answer.status, answer.json["reason"]) == (409, "Conflict")


async def test_a_patch_is_tried_again_when_another_write_was_faster(
    api: Any, objects: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    await api.create(f"{CORE}/configmaps", objects.config_map("a"))
    store = api.server.store
    put, overtakers = store.put_extended, ["1", "2", "3"]

    def overtaken_put(key: str, obj: Any, *, expected_version: int | None = None, agent: bool = False) -> Any:
        if overtakers and expected_version:
            other = copy.deepcopy(store.get(key).obj)
            other["data"] = {**other.get("data", {}), f"other{overtakers.pop()}": "x"}
            put(key, other)
        return put(key, obj, expected_version=expected_version)

    monkeypatch.setattr(store, "put_extended", overtaken_put)
    answer = await api.patch(f"{CORE}/configmaps/a", {"data": {"mine": "1"}})
    assert answer.status == 200
    assert answer.json["data"] == {"mine": "1", "other1": "x", "other2": "x", "other3": "x"}


async def test_a_failed_operation_leaves_the_object(api: Any, objects: Any) -> None:
    created = await api.create(f"{CORE}/configmaps", objects.config_map("a", data={"k": "1"}))
    patch = [{"op": "remove", "path": "/data/k"}, {"op": "test", "path": "/data/k", "value": "1"}]
    answer = await api.patch(f"{CORE}/configmaps/a", patch, "json")
    assert (answer.status, answer.json["reason"]) == (422, "Invalid")
    assert "test operation 1 of the JSON patch" in answer.message
    assert (await api.get(f"{CORE}/configmaps/a")).json == created


@pytest.mark.parametrize(
    ("media", "body", "code", "said"),
    [
        ("application/apply-patch+yaml", b"{}", 422, "fieldManager: Required value"),
        ("application/apply-patch+cbor", b"", 415, "in an unknown format"),
        ("application/json", b"{}", 415, "application/json-patch+json"),
        ("application/merge-patch+json", b"[]", 400, "cannot unmarshal array"),
        ("application/merge-patch+json", b"", 400, "unexpected end of JSON input"),
        ("application/merge-patch+json", b'{"data": NaN}', 400, "error decoding patch"),
        ("application/json-patch+json", b"{}", 400, "cannot unmarshal object"),
        ("application/json-patch+json", b'[{"op":"replace","path":"","value":5}]', 400, "leaves no object"),
        ("application/merge-patch+json", b'{"kind":"Secret"}', 400, "may not change kind"),
        ("application/merge-patch+json", b'{"metadata":{"labels":{"a":5}}}', 400, "cannot unmarshal number"),
        (
            "application/merge-patch+json",
            b'{"metadata":{"name":"b"}}',
            400,
            "does not match the name on the URL",
        ),
        ("application/merge-patch+json", b'{"metadata":null}', 200, ""),
        ("application/merge-patch+json", b'{"a":' * 500 + b"1" + b"}" * 500, 200, ""),
        ("application/merge-patch+json", b'{"a":' * 1010 + b"1" + b"}" * 1010, 400, "nested too deeply"),
    ],
)
async def test_odd_patches_have_an_answer(
    api: Any, objects: Any, media: str, body: bytes, code: int, said: str
) -> None:
    await api.create(f"{CORE}/configmaps", objects.config_map("a"))
    answer = await api.send("PATCH", f"{CORE}/configmaps/a", body, media=media)
    assert answer.status == code, answer.body
    assert said in (answer.message if code != 200 else "")
