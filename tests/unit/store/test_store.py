"""Store: revisions, compare-and-swap, sizes, subscribers."""

import logging
from typing import Any

import orjson
import pytest

from kube32.contract import LIMITS
from kube32.store import AlreadyExists, Change, Conflict, NotEncodable, NotFound, Store, TooLarge

POD = "/registry/pods/default/web"


def pod(**spec: Any) -> dict[str, Any]:
    return {"kind": "Pod", "metadata": {"name": "web"}, "spec": spec}


@pytest.fixture
def store() -> Store:
    return Store(LIMITS)


def test_each_write_takes_the_next_revision_and_stores_it_in_the_object(store: Store) -> None:
    start = store.revision
    first = store.put(POD, pod(a=1))
    other = store.put("/registry/nodes/n", pod())
    second = store.put(POD, pod(a=2))
    assert [first.revision, other.revision, second.revision] == [start + 1, start + 2, start + 3]
    assert orjson.loads(second.value)["metadata"]["resourceVersion"] == str(second.revision)
    assert second.obj == orjson.loads(second.value)
    assert store.get(POD) is second
    assert store.revision == second.revision


def test_an_empty_store_has_a_revision_to_watch_from() -> None:
    assert Store(LIMITS).scan("/registry/pods/") == ([], 1)
    assert Store(LIMITS, first_revision=10001).put(POD, pod()).revision == 10002


@pytest.mark.parametrize(
    "same",
    [
        {"kind": "Pod", "metadata": {"name": "web"}, "spec": {"a": 1, "b": [True, None]}},
        {
            "spec": {"b": [True, None], "a": 1},
            "metadata": {"resourceVersion": "77", "name": "web"},
            "kind": "Pod",
        },
    ],
    ids=["as it was", "other order and version"],
)
def test_a_write_that_changes_nothing_makes_no_revision_and_no_event(
    store: Store, same: dict[str, Any]
) -> None:
    entry = store.put(POD, pod(a=1, b=[True, None]))
    seen: list[Change] = []
    store.subscribe("/registry/", seen.append)
    assert store.put(POD, same) is entry
    assert store.put_extended(POD, same, expected_version=entry.revision) is entry
    assert store.update(POD, lambda obj: same) is entry
    assert store.update(POD, lambda obj: None) is entry
    assert store.revision == entry.revision
    assert seen == []


def test_equal_in_python_is_not_equal_in_json(store: Store) -> None:
    values = [1, True, 1.0, "1", [1, 1.0], [1.0, 1], {"1": 1}, 0, False, -0.0, 0.0, None, 1]
    revisions = [store.put(POD, pod(a=value)).revision for value in values]
    assert len(set(revisions)) == len(values)


def test_a_write_does_not_touch_or_keep_the_callers_object(store: Store) -> None:
    mine = pod(a=[1])
    store.put(POD, mine)
    assert mine == pod(a=[1])
    mine["spec"]["a"].append(2)
    mine["metadata"]["name"] = "other"
    entry = store.get(POD)
    assert entry is not None
    assert entry.obj["spec"]["a"] == [1]
    assert entry.obj["metadata"]["name"] == "web"


def test_expected_version_zero_creates_only_what_is_not_there(store: Store) -> None:
    entry = store.put_extended(POD, pod(), expected_version=0)
    with pytest.raises(AlreadyExists) as refused:
        store.put_extended(POD, pod(a=1), expected_version=0)
    assert refused.value.current is entry
    assert store.get(POD) is entry


def test_a_wrong_expected_version_changes_nothing(store: Store) -> None:
    entry = store.put(POD, pod())
    with pytest.raises(Conflict) as refused:
        store.put_extended(POD, pod(a=1), expected_version=entry.revision + 5)
    assert (refused.value.key, refused.value.expected, refused.value.current) == (
        POD,
        entry.revision + 5,
        entry,
    )
    with pytest.raises(Conflict):
        store.delete(POD, expected_version=entry.revision - 1)
    with pytest.raises(NotFound):
        store.put_extended(POD + "2", pod(), expected_version=entry.revision)
    with pytest.raises(NotFound):
        store.delete(POD + "2")
    with pytest.raises(NotFound):
        store.update(POD + "2", lambda obj: obj)
    assert store.scan("/registry/") == ([entry], entry.revision)


def test_a_value_over_the_limit_is_refused_and_leaves_the_old(store: Store) -> None:
    entry = store.put(POD, pod())
    room = LIMITS.store_value_bytes - len(entry.value) - len(b'"a":""')
    full = store.put(POD, pod(a="x" * room))
    assert len(full.value) == LIMITS.store_value_bytes
    with pytest.raises(TooLarge) as refused:
        store.put(POD, pod(a="y" * (room + 1)))
    assert (refused.value.size, refused.value.limit) == (
        LIMITS.store_value_bytes + 1,
        LIMITS.store_value_bytes,
    )
    assert store.get(POD) is full
    assert store.revision == full.revision


def deep(levels: int) -> dict[str, Any]:
    obj: dict[str, Any] = {}
    for _ in range(levels):
        obj = {"a": obj}
    return obj


@pytest.mark.parametrize(
    "obj",
    [pod(a=deep(900)), pod(a={1}), pod(a="\ud800"), pod(a=2**70), {"metadata": "no object"}],
    ids=["too deep", "a set", "half a character", "too large a number", "metadata that is text"],
)
def test_what_is_no_json_is_refused_and_the_store_goes_on(store: Store, obj: dict[str, Any]) -> None:
    entry = store.put(POD, pod())
    with pytest.raises(NotEncodable):
        store.put(POD, obj)
    assert store.get(POD) is entry
    assert store.put(POD, pod(a=1)).revision == entry.revision + 1


def test_a_deletion_gives_the_last_state_under_its_own_revision(store: Store) -> None:
    entry = store.put(POD, pod(a=1))
    seen: list[Change] = []
    store.subscribe("/registry/pods/", seen.append)
    gone = store.delete(POD, expected_version=entry.revision)
    assert gone.revision == store.revision == entry.revision + 1
    assert gone.obj["metadata"] == {"name": "web", "resourceVersion": str(gone.revision)}
    assert gone.obj["spec"] == {"a": 1}
    assert seen == [Change("DELETED", POD, gone, entry, gone.revision)]
    assert store.get(POD) is None
    assert store.count("/registry/") == 0


def test_update_gets_a_copy_and_a_failing_one_changes_nothing(store: Store) -> None:
    entry = store.put(POD, pod(a=[1]))

    def fails(obj: dict[str, Any]) -> None:
        obj["spec"]["a"].append(2)
        raise ArithmeticError

    with pytest.raises(ArithmeticError):
        store.update(POD, fails)
    assert store.get(POD) is entry
    assert entry.obj["spec"]["a"] == [1]


def test_writes_inside_an_update_are_delivered_after_it_in_order(store: Store) -> None:
    store.put(POD, pod(a=1))
    seen: list[tuple[str, int]] = []
    store.subscribe("/registry/", lambda change: seen.append((change.key, change.revision)))

    def writes_others(obj: dict[str, Any]) -> dict[str, Any]:
        store.put("/registry/nodes/n", pod())
        store.update("/registry/nodes/n", lambda node: pod(b=1))
        store.put(POD, pod(a=2))
        assert seen == []
        return pod(a=3)

    entry = store.update(POD, writes_others)
    assert seen == [("/registry/nodes/n", 3), ("/registry/nodes/n", 4), (POD, 5), (POD, 6)]
    assert entry.obj["spec"] == {"a": 3}
    with pytest.raises(ArithmeticError):
        store.update(POD, lambda obj: pod(x=store.delete("/registry/nodes/n").revision // 0))
    assert seen[-1] == ("/registry/nodes/n", 7)


def test_a_callback_runs_without_the_lock_and_its_own_writes_follow(store: Store) -> None:
    seen: list[int] = []

    def callback(change: Change) -> None:
        seen.append(change.revision)
        if len(seen) < 4:
            store.put(POD, pod(n=len(seen)))
            assert seen[-1] == change.revision

    store.subscribe("/registry/pods/", callback)
    store.put(POD, pod())
    assert seen == [2, 3, 4, 5]


def test_a_failing_callback_hurts_nobody(store: Store, caplog: pytest.LogCaptureFixture) -> None:
    def fails(change: Change) -> None:
        raise ArithmeticError("broken")

    seen: list[Change] = []
    store.subscribe("/registry/", fails)
    store.subscribe("/registry/", seen.append)
    with caplog.at_level(logging.CRITICAL + 1):
        store.put(POD, pod(a=1))
        store.put(POD, pod(a=2))
    assert [change.type for change in seen] == ["ADDED", "MODIFIED"]


def test_a_subscriber_hears_of_its_prefix_from_then_until_it_leaves(store: Store) -> None:
    store.put(POD, pod(a=1))
    seen: list[Change] = []
    leave = store.subscribe("/registry/pods/", seen.append)
    store.put("/registry/nodes/n", pod())
    store.put(POD, pod(a=2))
    leave()
    store.put(POD, pod(a=3))
    leave()
    assert [(change.type, change.revision) for change in seen] == [("MODIFIED", 4)]


def test_who_has_left_hears_nothing_of_changes_on_their_way(store: Store) -> None:
    seen: list[Change] = []
    leave: list[Any] = []
    store.subscribe("/registry/", lambda change: leave[0]())
    leave.append(store.subscribe("/registry/", seen.append))
    store.put(POD, pod(a=1))
    assert seen == []


def test_a_scan_in_pages_and_its_count(store: Store) -> None:
    entries = [store.put(f"/registry/pods/default/web-{i:02}", pod(i=i)) for i in range(10)]
    store.put("/registry/pods/default2/web", pod())
    page, revision = store.scan("/registry/pods/default/", limit=4)
    assert (page, revision) == (entries[:4], store.revision)
    page, _ = store.scan("/registry/pods/default/", after=page[-1].key)
    assert page == entries[4:]
    assert store.count("/registry/pods/default/") == 10
    assert store.count("/registry/pods/") == 11
    assert store.count("/registry/secrets/") == 0
