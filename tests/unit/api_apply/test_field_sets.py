"""Sets of places: the laws of sets, the canonical form, how paths are printed."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kube32.api.apply import field_sets
from kube32.api.apply.field_sets import FieldSet, difference, intersection, paths, read, union

ELEMENTS = ["f:a", "f:b", 'k:{"name":"x"}', 'k:{"name":"y"}', 'v:"s"', "v:1", "i:0"]
PLACES = st.recursive(
    st.just({}),
    lambda inner: st.dictionaries(st.sampled_from([*ELEMENTS, "."]), inner, min_size=1, max_size=4),
    max_leaves=8,
)
SETS = st.dictionaries(st.sampled_from(ELEMENTS), PLACES, max_size=4).map(read)


def members(places: FieldSet) -> set[tuple[str, ...]]:
    found = list(paths(places))
    assert len(found) == len(set(found))
    return set(found)


def is_canonical(places: FieldSet) -> bool:
    return read(places) == places and list(_keys(read(places))) == list(_keys(places))


def _keys(places: FieldSet) -> Any:
    for key, inner in places.items():
        yield key
        yield from _keys(inner)


@given(SETS, SETS)
def test_union_difference_and_intersection_are_those_of_the_paths(a: FieldSet, b: FieldSet) -> None:
    assert members(union(a, b)) == members(a) | members(b)
    assert members(difference(a, b)) == members(a) - members(b)
    assert members(intersection(a, b)) == members(a) & members(b)


@given(SETS, SETS, SETS)
def test_union_is_commutative_associative_and_idempotent(a: FieldSet, b: FieldSet, c: FieldSet) -> None:
    assert union(a, b) == union(b, a)
    assert union(a, union(b, c)) == union(union(a, b), c)
    assert union(a, a) == a == union(a, {})


@given(SETS, SETS)
def test_results_are_canonical_so_that_equal_sets_are_written_alike(a: FieldSet, b: FieldSet) -> None:
    for made in (union(a, b), difference(a, b), intersection(a, b)):
        assert is_canonical(made)


@given(SETS, SETS)
def test_operations_leave_their_operands_alone(a: FieldSet, b: FieldSet) -> None:
    before = repr((a, b))
    union(a, b), difference(a, b), intersection(a, b)
    assert repr((a, b)) == before


@given(SETS, SETS)
def test_a_set_is_its_difference_and_its_intersection(a: FieldSet, b: FieldSet) -> None:
    assert union(difference(a, b), intersection(a, b)) == a


def test_what_clients_write_is_brought_into_canonical_form() -> None:
    raw = {
        "f:b": {".": {}},
        "f:a": {'k:{"protocol":"TCP", "containerPort":80}': {"f:z": {}, ".": {}}},
        "x:unknown": {},
    }
    assert repr(read(raw)) == repr(
        {"f:a": {'k:{"containerPort":80,"protocol":"TCP"}': {".": {}, "f:z": {}}}, "f:b": {}}
    )


@pytest.mark.parametrize(
    "raw",
    [
        [],
        "f:a",
        {"f:a": None},
        {"f:a": 1},
        {"k:[]": {}},
        {"k:{}": {}},
        {"k:{": {}},
        {"v:x": {}},
        {"i:one": {}},
    ],
)
def test_what_is_no_set_is_refused(raw: Any) -> None:
    with pytest.raises(ValueError):
        read(raw)


def test_a_set_that_is_nested_too_deeply_is_refused() -> None:
    deep: FieldSet = {}
    for _ in range(600):
        deep = {"f:a": deep}
    with pytest.raises(ValueError, match="too deeply"):
        read(deep)


@pytest.mark.parametrize(
    ("path", "text"),
    [
        (("f:spec", "f:replicas"), ".spec.replicas"),
        (("f:spec", "f:containers", 'k:{"name":"app"}', "f:image"), '.spec.containers[name="app"].image'),
        (("f:ports", 'k:{"containerPort":80,"protocol":"TCP"}'), '.ports[containerPort=80,protocol="TCP"]'),
        (("f:metadata", "f:finalizers", 'v:"a/b"'), '.metadata.finalizers[="a/b"]'),
        (("f:list", "i:3"), ".list[3]"),
        (("f:metadata", "f:labels", "f:app.kubernetes.io/name"), ".metadata.labels.app.kubernetes.io/name"),
    ],
)
def test_paths_are_printed_as_kubernetes_prints_them(path: tuple[str, ...], text: str) -> None:
    assert field_sets.shown(path) == text
