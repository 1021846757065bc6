"""The snapshot pool: what is dropped for whom, what never is, and that memory stays bounded meanwhile."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kube32.api.snapshot_pool import SnapshotFacts, SnapshotPool, SnapshotTooLarge
from kube32.contract import LIMITS, limits_for

FACTS = SnapshotFacts("a" * 64, "b" * 64, 5)
LIMIT = 1000


def pool_of(*protected: str) -> SnapshotPool:
    return SnapshotPool(LIMITS.replace(snapshot_pool_bytes=LIMIT), lambda key: key in protected)


def put(pool: SnapshotPool, key: str, size: int) -> None:
    pool.put(key, bytes(size), FACTS)


def kept(pool: SnapshotPool, *keys: str) -> list[str]:
    return [key for key in keys if pool.get(key) is not None]


def test_the_pools_of_simulator_and_board_have_the_specifications_sizes() -> None:
    assert limits_for("sim").snapshot_pool_bytes == 16 * 1024 * 1024
    assert limits_for("board-psram").snapshot_pool_bytes == 256 * 1024


def test_bytes_come_out_as_they_went_in() -> None:
    pool = SnapshotPool(LIMITS, lambda key: False)
    data = bytes(range(256)) * 1000
    incoming = pool.begin("k", len(data))
    for at in range(0, len(data), 777):
        incoming.write(data[at : at + 777])
    incoming.commit(FACTS)
    snapshot = pool.get("k")
    assert snapshot is not None
    assert bytes(snapshot) == data
    assert (snapshot.size, snapshot.facts) == (len(data), FACTS)
    assert all(chunk.readonly for chunk in snapshot.chunks())


def test_the_oldest_others_go_first_and_only_as_many_as_needed() -> None:
    pool = pool_of()
    for key in "abcd":
        put(pool, key, 250)
    put(pool, "e", 300)
    assert kept(pool, *"abcde") == ["c", "d", "e"]


def test_storing_again_makes_a_snapshot_the_newest() -> None:
    pool = pool_of()
    for key in "ab":
        put(pool, key, 400)
    put(pool, "a", 400)
    put(pool, "c", 400)
    assert kept(pool, *"abc") == ["a", "c"]


def test_larger_than_the_whole_pool_is_refused_before_anything_is_dropped() -> None:
    pool = pool_of()
    put(pool, "a", LIMIT)
    with pytest.raises(SnapshotTooLarge, match="has 1001 bytes, the space for all snapshots is 1000"):
        pool.begin("b", LIMIT + 1)
    assert kept(pool, "a") == ["a"]


def test_what_moves_need_is_never_dropped() -> None:
    pool = pool_of("a")
    for key in "abc":
        put(pool, key, 300)
    put(pool, "d", 700)
    assert kept(pool, *"abcd") == ["a", "d"]
    with pytest.raises(
        SnapshotTooLarge, match="701 bytes, 700 of 1000 are free and the others are in use by moves"
    ):
        put(pool, "e", 701)
    assert kept(pool, *"abcde") == ["a", "d"]


def test_a_snapshot_as_large_as_the_pool_can_be_replaced_by_another() -> None:
    pool = pool_of()
    put(pool, "a", LIMIT)
    pool.put("a", b"x" * LIMIT, FACTS)
    snapshot = pool.get("a")
    assert snapshot is not None
    assert bytes(snapshot) == b"x" * LIMIT
    assert pool.used_bytes == LIMIT


def test_what_was_there_stays_until_the_new_one_is_complete() -> None:
    pool = pool_of()
    put(pool, "a", 10)
    incoming = pool.begin("a", 20)
    incoming.write(b"x" * 20)
    snapshot = pool.get("a")
    assert snapshot is not None and snapshot.size == 10
    incoming.abort()
    assert pool.used_bytes == 10


def test_an_announced_size_alone_drops_nothing() -> None:
    pool = pool_of()
    put(pool, "a", 600)
    incoming = pool.begin("b", LIMIT)
    incoming.write(bytes(400))
    assert kept(pool, "a") == ["a"]
    incoming.write(b"x")
    assert kept(pool, "a") == []
    incoming.abort()
    assert pool.used_bytes == 0


def test_two_that_arrive_together_share_the_room() -> None:
    pool = pool_of()
    first, second = pool.begin("a", 600), pool.begin("b", 600)
    first.write(bytes(500))
    second.write(bytes(500))
    with pytest.raises(SnapshotTooLarge):
        first.write(b"x")
    second.abort()
    first.write(bytes(100))
    first.commit(FACTS)
    assert pool.used_bytes == 600


def test_more_than_was_announced_is_not_taken() -> None:
    incoming = pool_of().begin("a", 10)
    with pytest.raises(ValueError, match="announced"):
        incoming.write(bytes(11))


def test_a_reader_keeps_its_bytes_when_they_are_dropped_and_replaced() -> None:
    pool = pool_of()
    pool.put("a", b"old", FACTS)
    snapshot = pool.get("a")
    assert snapshot is not None
    chunks = snapshot.chunks()
    pool.put("a", b"new", FACTS)
    pool.forget("a")
    assert b"".join(chunks) == b"old"


def test_forgetting_frees_the_room() -> None:
    pool = pool_of()
    put(pool, "a", LIMIT)
    pool.forget("a")
    pool.forget("a")
    pool.forget("never")
    assert pool.used_bytes == 0


Step = tuple[str, str, int]


@given(
    st.lists(
        st.tuples(st.sampled_from(["put", "cut", "forget"]), st.sampled_from("abcd"), st.integers(0, 700))
    ),
    st.sets(st.sampled_from("abcd"), max_size=2),
)
def test_any_sequence_stays_within_the_limit_and_spares_what_is_protected(
    steps: list[Step], protected: set[str]
) -> None:
    pool = pool_of(*protected)
    sizes: dict[str, int] = {}
    for what, key, size in steps:
        if what == "forget":
            pool.forget(key)
            sizes.pop(key, None)
            continue
        try:
            incoming = pool.begin(key, size)
            incoming.write(bytes(size))
            assert pool.used_bytes <= LIMIT
            if what == "put":
                incoming.commit(FACTS)
                sizes[key] = size
            incoming.abort()
        except SnapshotTooLarge:
            others = sum(s for k, s in sizes.items() if k in protected and k != key)
            assert size > LIMIT - others
        sizes = {k: s for k, s in sizes.items() if k in protected or pool.get(k) is not None}
        assert all(pool.get(k) is not None for k in sizes)
        assert pool.used_bytes == sum(sizes.values()) <= LIMIT
