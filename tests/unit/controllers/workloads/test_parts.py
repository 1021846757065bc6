"""The small parts: order of deletion, indexes, delays, selectors, hashes, names, batches."""

import asyncio
import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.controllers.peers import Obj

from kube32.controllers.workloads.delays import Delays
from kube32.controllers.workloads.jobs.indexes import parse_spans, spans
from kube32.controllers.workloads.order import in_deletion_order
from kube32.controllers.workloads.pods import in_batches
from kube32.controllers.workloads.selectors import matches
from kube32.formats.template_hash import template_hash


def pod(
    name: str, *, node: str = "a", phase: str = "Running", ready: str = "2026-01-01T00:00:00Z", **more: Any
) -> Obj:
    """A Ready pod; `ready` "" makes it not so."""
    condition = {"type": "Ready", "status": "True" if ready else "False", "lastTransitionTime": ready}
    rows = [{"restartCount": more.pop("restarts", 0)}]
    return {
        "metadata": {
            "name": name,
            "creationTimestamp": more.pop("created", "2026-01-01T00:00:00Z"),
            "annotations": more.pop("annotations", {}),
        },
        "spec": {"nodeName": node},
        "status": {"phase": phase, "conditions": [condition], "containerStatuses": rows},
    }


COST = "controller.kubernetes.io/pod-deletion-cost"


@pytest.mark.parametrize(
    ("first", "then"),
    [
        (pod("x", node=""), pod("y", phase="Pending", ready="")),
        (pod("x", phase="Pending", ready=""), pod("y", ready="")),
        (pod("x", ready=""), pod("y")),
        (pod("x", annotations={COST: "-5"}), pod("y", ready="2026-02-01T00:00:00Z")),
        (pod("x", ready="2026-02-01T00:00:00Z"), pod("y", restarts=9)),
        (pod("x", restarts=2), pod("y", created="2026-03-01T00:00:00Z")),
        (pod("x", created="2026-03-01T00:00:00Z"), pod("y")),
        (pod("x", annotations={COST: "3"}), pod("y", annotations={COST: "10"})),
        (pod("x", annotations={COST: "many"}), pod("y", annotations={COST: "1"})),
    ],
)
def test_pods_that_are_missed_least_go_first(first: Obj, then: Obj) -> None:
    assert in_deletion_order([then, first], lambda _: False) == [first, then]


def test_pods_with_neighbours_go_earlier_and_those_that_move_last() -> None:
    pods = [pod("alone", node="b"), pod("one"), pod("two")]
    assert [p["metadata"]["name"] for p in in_deletion_order(pods, lambda _: False, pods)] == [
        "one",
        "two",
        "alone",
    ]
    moving = in_deletion_order(
        [pod("moves", ready=""), pod("serves")], lambda p: p["metadata"]["name"] == "moves"
    )
    assert [p["metadata"]["name"] for p in moving] == ["serves", "moves"]


@given(st.sets(st.integers(0, 300)))
def test_spans_of_indexes_read_back(indexes: set[int]) -> None:
    assert parse_spans(spans(indexes), 301) == indexes


def test_spans_are_written_as_kubernetes_does() -> None:
    assert spans({1, 3, 4, 5, 9}) == "1,3-5,9" and spans(set()) == ""
    assert parse_spans("1,3-5,x,7-", 5) == {1, 3, 4}
    assert parse_spans("0-999999999999", 3) == {0, 1, 2}


async def test_delays_grow_and_begin_anew_when_forgotten() -> None:
    delays: Delays[str] = Delays(10, 60)
    assert delays.wait("x") == 0
    seen = []
    for _ in range(5):
        delays.more("x")
        seen.append(round(delays.wait("x")))
    assert seen == [10, 20, 40, 60, 60]
    delays.forget(lambda key: key == "x")
    assert delays.wait("x") == 0


@pytest.mark.parametrize(
    ("selector", "fits"),
    [
        ({"matchLabels": {"a": "1"}}, True),
        ({"matchLabels": {"a": "1", "b": "2"}}, False),
        ({"matchExpressions": [{"key": "a", "operator": "In", "values": ["1", "2"]}]}, True),
        ({"matchExpressions": [{"key": "b", "operator": "NotIn", "values": ["1"]}]}, True),
        ({"matchExpressions": [{"key": "a", "operator": "DoesNotExist"}]}, False),
        ({"matchExpressions": [{"key": "a", "operator": "Exists"}]}, True),
        ({}, False),
    ],
)
def test_selectors(selector: Obj, fits: bool) -> None:
    assert matches(selector, {"a": "1"}) is fits


def test_a_template_has_one_hash_whatever_the_order_of_its_fields() -> None:
    one = {"metadata": {"labels": {"a": "1", "b": "2"}}, "spec": {"x": [1, 2], "y": {}}}
    two = {"spec": {"y": {}, "x": [1, 2]}, "metadata": {"labels": {"b": "2", "a": "1"}}}
    assert template_hash(one) == template_hash(two)
    assert re.fullmatch("[bcdfghjklmnpqrstvwxz2456789]{10}", template_hash(one))
    labelled = {**one, "metadata": {"labels": {**one["metadata"]["labels"], "pod-template-hash": "zz"}}}
    assert template_hash(labelled) == template_hash(one)
    assert template_hash({**one, "spec": {"x": [2, 1], "y": {}}}) != template_hash(one)


async def test_batches_begin_small_and_end_with_the_first_that_fails() -> None:
    sizes: list[int] = []
    running = 0

    def work(number: int) -> Any:
        async def one() -> None:
            nonlocal running
            running += 1
            await asyncio.sleep(0)
            sizes.append(running)
            await asyncio.sleep(0)
            running -= 1
            if number == 8:
                raise ValueError(number)

        return one

    await in_batches([work(n) for n in range(7)])
    assert sizes == [1, 2, 2, 4, 4, 4, 4]
    sizes.clear()
    with pytest.raises(ValueError, match="8"):
        await in_batches([work(n) for n in range(5, 40)])
    assert len(sizes) == 7
