"""Apply and update as functions of objects and owners: laws that hold for every pair of appliers."""

import copy
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kube32.api.apply import engine, field_sets, nodes, values
from kube32.api.apply.engine import Conflicts, Scope, Writer
from kube32.api.apply.owners import (
    APPLY,
    UPDATE,
    Owner,
    Owners,
    capped,
    entries_of,
    stored,
)
from kube32.api.apply.owners import (
    given as given_entries,
)

SCHEMA = {
    "type": "object",
    "properties": {
        "spec": {
            "type": "object",
            "properties": {
                "size": {"type": "integer"},
                "tags": {"type": "array", "x-kubernetes-list-type": "set", "items": {"type": "string"}},
                "plain": {"type": "array", "items": {"type": "integer"}},
                "labels": {"type": "object", "additionalProperties": {"type": "string"}},
                "free": {"type": "object", "x-kubernetes-preserve-unknown-fields": True},
                "parts": {
                    "type": "array",
                    "x-kubernetes-list-type": "map",
                    "x-kubernetes-list-map-keys": ["name"],
                    "items": {
                        "type": "object",
                        "properties": {
                            "name": {"type": "string"},
                            "size": {"type": "integer"},
                            "tags": {"type": "array", "x-kubernetes-list-type": "set"},
                        },
                    },
                },
            },
        }
    },
}
NODE = nodes.of_schema(SCHEMA)
SCOPE = Scope()
SMALL = st.integers(0, 2)
TAGS = st.lists(st.sampled_from("abc"), unique=True, min_size=1, max_size=3)
LABELS = st.dictionaries(st.sampled_from("xyz"), st.sampled_from("12"), min_size=1, max_size=3)
PARTS = st.lists(
    st.fixed_dictionaries({"name": st.sampled_from("abcd")}, optional={"size": SMALL, "tags": TAGS}),
    unique_by=lambda part: part["name"],
    min_size=1,
    max_size=4,
)
SPECS = st.fixed_dictionaries(
    {},
    optional={
        "size": SMALL,
        "tags": TAGS,
        "plain": st.lists(SMALL, max_size=2),
        "labels": LABELS,
        "free": st.dictionaries(st.sampled_from("pq"), SMALL | LABELS, min_size=1, max_size=2),
        "parts": PARTS,
    },
)
CONFIGS = SPECS.map(lambda spec: {"metadata": {"name": "x"}, **({"spec": spec} if spec else {})})


def writer(manager: str, time: str = "2026-01-01T00:00:00Z") -> Writer:
    return Writer(manager, "example.com/v1", "", time)


def apply(
    live: dict[str, Any], config: dict[str, Any], owners: Owners, manager: str = "a", force: bool = True
) -> tuple[dict[str, Any], Owners]:
    before = copy.deepcopy((live, config, owners))
    made = engine.apply(NODE, live, config, SCOPE, writer(manager), owners, force=force)
    assert (live, config, owners) == before
    return made


def owns_only_what_is_there(obj: dict[str, Any], owners: Owners) -> bool:
    there = field_sets.union(values.tree(obj, NODE), {})
    return all(not field_sets.difference(owner.fields, there) for owner in owners.values())


@given(CONFIGS)
def test_what_is_applied_to_nothing_is_what_is_there(config: dict[str, Any]) -> None:
    obj, owners = apply({}, config, {})
    assert obj == config
    assert owns_only_what_is_there(obj, owners)


@given(CONFIGS, CONFIGS)
def test_an_apply_that_is_repeated_changes_nothing(live: dict[str, Any], config: dict[str, Any]) -> None:
    live_owners = apply({}, live, {}, "other")[1]
    once = apply(live, config, live_owners)
    assert apply(*_flip(once, config), force=False) == once


def _flip(
    made: tuple[dict[str, Any], Owners], config: dict[str, Any]
) -> tuple[dict[str, Any], dict[str, Any], Owners]:
    return made[0], config, made[1]


@given(CONFIGS, CONFIGS)
def test_the_only_applier_gets_exactly_what_it_applied_last(
    first: dict[str, Any], second: dict[str, Any]
) -> None:
    obj, owners = apply({}, first, {})
    obj, owners = apply(obj, second, owners, force=False)
    assert obj == second
    assert owns_only_what_is_there(obj, owners)


@given(CONFIGS, CONFIGS)
def test_what_one_applier_drops_and_another_has_stays(mine: dict[str, Any], theirs: dict[str, Any]) -> None:
    obj, owners = apply({}, mine, {}, "a")
    obj, owners = apply(obj, theirs, owners, "b")
    nothing = {"metadata": {"name": "x"}}
    obj, owners = apply(obj, nothing, owners, "a")
    assert not [owner for owner in owners.values() if owner.manager == "a" and owner.fields]
    kept, _ = apply(obj, theirs, owners, "b", force=False)
    assert kept == obj
    obj, owners = apply(obj, nothing, owners, "b", force=False)
    assert obj == nothing and entries_of(owners) == []


@given(CONFIGS, CONFIGS)
def test_fields_with_the_same_value_are_shared_and_never_in_conflict(
    mine: dict[str, Any], theirs: dict[str, Any]
) -> None:
    obj, owners = apply({}, mine, {}, "a")
    try:
        apply(obj, theirs, owners, "b", force=False)
    except Conflicts as conflicts:
        changed, _ = values.compare(obj, apply(obj, theirs, owners, "b")[0], NODE)
        for owner, places in conflicts.found:
            assert owner.manager == "a"
            assert not field_sets.difference(places, changed)
    same, both = apply(obj, mine, owners, "b", force=False)
    assert same == obj
    assert [owner.fields for owner in both.values()][:1] * len(both) == [o.fields for o in both.values()]


@given(CONFIGS, CONFIGS)
def test_an_update_takes_what_it_changes_from_everybody_else(
    old: dict[str, Any], new: dict[str, Any]
) -> None:
    owners = apply({}, old, {}, "a")[1]
    made = engine.updated(NODE, old, new, SCOPE, writer("b"), owners)
    assert owns_only_what_is_there(new, made)
    taken, _ = values.compare(old, new, NODE)
    mine = [owner for owner in made.values() if owner.manager == "b"]
    assert [owner.fields for owner in mine] == ([engine.owned(taken)] if engine.owned(taken) else [])
    for owner in made.values():
        if owner.manager == "a":
            assert not field_sets.intersection(owner.fields, taken)


@given(CONFIGS, CONFIGS)
def test_entries_are_read_back_as_they_were_written(mine: dict[str, Any], theirs: dict[str, Any]) -> None:
    obj, owners = apply({}, mine, {}, "a")
    _, owners = apply(obj, theirs, owners, "b")
    entries = entries_of(owners)
    kept = {key: owner for key, owner in owners.items() if owner.fields}
    assert stored(entries) == given_entries(entries) == kept
    assert entries_of(stored(entries)) == entries


STEPS = st.lists(
    st.tuples(st.sampled_from(["apply", "force", "update"]), st.sampled_from("abc"), CONFIGS), max_size=8
)


@given(STEPS)
def test_whatever_happens_owners_own_what_is_there_and_appliers_have_what_they_applied(steps: Any) -> None:
    obj: dict[str, Any] = {"metadata": {"name": "x"}}
    owners: Owners = {}
    for what, manager, config in steps:
        if what == "update":
            owners = engine.updated(NODE, obj, config, SCOPE, writer(manager), owners)
            obj = config
        else:
            try:
                obj, owners = apply(obj, config, owners, manager, force=what == "force")
            except Conflicts:
                continue
            assert not field_sets.difference(values.applied(config, NODE), values.applied(obj, NODE))
            (mine,) = (o for o in owners.values() if (o.manager, o.operation) == (manager, APPLY))
            assert mine.fields == engine.owned(values.applied(config, NODE))
        assert owns_only_what_is_there(obj, owners)
        entries = entries_of(owners)
        assert entries_of(given_entries(entries)) == entries


def test_items_come_in_the_applied_order_and_others_keep_their_place() -> None:
    def spec(*names: str) -> dict[str, Any]:
        return {"metadata": {"name": "x"}, "spec": {"parts": [{"name": name} for name in names]}}

    def names(live: str, config: str) -> str:
        made, _ = apply(spec(*live), spec(*config), {})
        return "".join(part["name"] for part in made["spec"]["parts"])

    assert names("abc", "c") == "abc"
    assert names("abc", "ca") == "bca"
    assert names("abc", "dae") == "dabce"
    assert names("abcd", "db") == "acdb"
    assert names("", "ab") == "ab"
    assert names("ab", "ab") == "ab"


def test_the_oldest_updates_are_put_together() -> None:
    owners: Owners = {}
    for number in range(14):
        time = f"2026-01-01T00:00:{number:02}Z"
        owner = Owner(f"m{number}", UPDATE, "v1", "", time, {f"f:a{number:02}": {}})
        owners = capped({**owners, owner.key: owner})
    entries = entries_of(owners)
    assert len(entries) == 10
    assert entries[0]["manager"] == "ancient-changes" and entries[0]["time"] == "2026-01-01T00:00:04Z"
    assert sorted(entries[0]["fieldsV1"]) == [f"f:a{number:02}" for number in range(5)]
    assert [entry["manager"] for entry in entries[1:]] == [f"m{number}" for number in range(5, 14)]


def test_appliers_are_never_put_together() -> None:
    made = (Owner(f"m{number}", APPLY, "v1", "", None, {"f:a": {}}) for number in range(14))
    owners = {owner.key: owner for owner in made}
    assert capped(owners) is owners


@pytest.mark.parametrize(
    "entry",
    [
        None,
        {},
        {"manager": "a", "operation": "Apply", "apiVersion": "v1"},
        {"manager": "a", "operation": "Sing", "apiVersion": "v1", "fieldsType": "FieldsV1"},
        {"manager": "a", "operation": "Apply", "apiVersion": "", "fieldsType": "FieldsV1"},
        {"manager": "a" * 200, "operation": "Apply", "apiVersion": "v1", "fieldsType": "FieldsV1"},
        {"manager": 1, "operation": "Apply", "apiVersion": "v1", "fieldsType": "FieldsV1"},
        {"manager": "a", "operation": "Apply", "apiVersion": "v1", "fieldsType": "FieldsV1", "time": "noon"},
        {"manager": "a", "operation": "Apply", "apiVersion": "v1", "fieldsType": "FieldsV1", "fieldsV1": [1]},
    ],
)
def test_entries_that_kubernetes_does_not_read_are_refused(entry: Any) -> None:
    with pytest.raises(ValueError):
        given_entries([entry])
