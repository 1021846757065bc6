"""Journal: what reaches the flash, and when (specification, "Persistence journal")."""

import asyncio
import threading
from itertools import pairwise
from typing import Any

import pytest
from tests.unit.store.conftest import World

from kube32.contract import LIMITS
from kube32.store import JournalFailed, StorageFull, Store
from kube32.store.flash import FlashError
from kube32.store.flash_memory import MemoryFlash

CONFIG = "/registry/configmaps/default/"
POD = "/registry/pods/default/web"
NODE = "/registry/nodes/board"


def config(size: int = 10, **extra: Any) -> dict[str, Any]:
    return {"kind": "ConfigMap", "metadata": {"name": "c"}, "data": {"v": "x" * size}, **extra}


def pod(phase: str, **spec: Any) -> dict[str, Any]:
    return {"kind": "Pod", "metadata": {"name": "web", "uid": "1"}, "spec": spec, "status": {"phase": phase}}


def node(beat: int, ready: str = "True") -> dict[str, Any]:
    condition = {"type": "Ready", "status": ready, "lastHeartbeatTime": f"t{beat}"}
    return {"kind": "Node", "metadata": {"name": "board"}, "status": {"conditions": [condition]}}


def put_as_agent(store: Store, key: str, obj: dict[str, Any]) -> None:
    store.put_extended(key, obj, agent=True)


# --- what a restart finds ---


def test_a_users_write_is_durable_when_it_returns(world: World) -> None:
    entry = world.store.put(CONFIG + "a", config())
    assert world.boot().get(CONFIG + "a") == entry


def test_a_deletion_is_durable_when_it_returns(world: World) -> None:
    world.store.put(CONFIG + "a", config())
    world.store.delete(CONFIG + "a")
    assert world.boot().get(CONFIG + "a") is None


def test_revisions_go_on_above_all_that_were_given_out(world: World) -> None:
    given = [world.store.put("/registry/leases/x/l", config(n=n)).revision for n in range(50)]
    assert world.boot().revision > max(given)
    assert world.store.put(CONFIG + "a", config()).revision > max(given)


def test_leases_and_events_are_forgotten(world: World) -> None:
    programmed = world.flash.programmed_bytes
    for n in range(100):
        world.store.put("/registry/leases/kube-node-lease/board", config(n=n))
        world.store.put(f"/registry/events/default/e{n}", config(n=n))
    world.now += 3600
    world.journal.flush_due()
    assert world.flash.programmed_bytes == programmed
    assert world.boot().count("/registry/") == 0


def test_an_object_that_is_no_json_is_left_out_and_said(world: World) -> None:
    from kube32.store.flash_log import FlashLog, Write

    log: FlashLog = world.journal._log
    log.commit(
        [
            Write(b"/registry/configmaps/default/bad", b"{", 5),
            Write(b"/registry/a/good", b'{"metadata":{}}', 6),
        ]
    )
    store = world.boot()
    assert [e.key for e in store.scan("/registry/")[0]] == ["/registry/a/good"]
    assert world.journal.faults == ["the record of b'/registry/configmaps/default/bad' holds no object"]


# --- when ---


def test_a_controllers_write_is_flushed_within_a_second(world: World) -> None:
    world.store.put(POD, pod("Pending"))
    put_as_agent(world.store, POD, pod("Running"))
    before = world.stored()
    world.now += 0.5
    world.journal.flush_due()
    assert world.stored() == before
    world.now += 0.5
    world.journal.flush_due()
    assert world.boot().get(POD).obj["status"] == {"phase": "Running"}  # type: ignore[union-attr]


def test_pending_writes_of_a_key_become_one(world: World) -> None:
    world.store.put(POD, pod("Pending"))
    accepted = world.journal.stats()["acceptedBytes"]
    for n in range(50):
        put_as_agent(world.store, POD, pod("Running") | {"n": n})
    world.now += 1
    world.journal.flush_due()
    stored = world.store.get(POD)
    assert stored is not None
    assert world.journal.stats()["acceptedBytes"] == accepted + len(POD) + len(stored.value)


def test_a_key_that_is_as_it_was_is_not_written(world: World) -> None:
    world.store.put(POD, pod("Running"))
    programmed = world.flash.programmed_bytes
    put_as_agent(world.store, POD, pod("Failed"))
    put_as_agent(world.store, POD, pod("Running"))
    world.now += 1
    world.journal.flush_due()
    assert world.flash.programmed_bytes == programmed


def test_an_answered_write_keeps_its_revision_also_where_it_changes_something_back(world: World) -> None:
    world.store.put(POD, pod("Pending"))
    put_as_agent(world.store, POD, pod("Running"))
    answered = world.store.put(POD, pod("Pending"))
    assert world.boot().get(POD) == answered


def test_what_was_made_and_removed_in_between_is_not_written(world: World) -> None:
    programmed = world.flash.programmed_bytes
    put_as_agent(world.store, POD, pod("Pending"))
    world.store.delete(POD, agent=True)
    world.now += 1
    world.journal.flush_due()
    assert world.flash.programmed_bytes == programmed


def test_heartbeats_are_flushed_at_most_every_ten_minutes(world: World) -> None:
    world.store.put(NODE, node(0))
    written = []
    for beat in range(1, 361):  # an hour, every 10 s
        world.now += 10
        put_as_agent(world.store, NODE, node(beat))
        before = world.flash.programmed_bytes
        world.journal.flush_due()
        if world.flash.programmed_bytes != before:
            written.append(world.now)
    assert len(written) == 6
    assert all(later - sooner >= 600 for sooner, later in pairwise(written))


def test_a_node_that_is_not_ready_any_more_is_flushed_within_a_second(world: World) -> None:
    world.store.put(NODE, node(0))
    put_as_agent(world.store, NODE, node(1, ready="Unknown"))
    world.now += 1
    world.journal.flush_due()
    assert world.boot().get(NODE).obj["status"]["conditions"][0]["status"] == "Unknown"  # type: ignore[union-attr]


def test_the_thread_flushes_what_is_due_by_itself() -> None:
    world = World.make(LIMITS.replace(journal_controller_flush_ms=20, journal_live_bytes=200_000))
    from kube32.store import Journal
    from kube32.store.journal import open_log

    journal = Journal(open_log(world.flash, world.limits), world.limits)
    store = Store(world.limits, journal=journal)
    journal.start()
    flushed = threading.Event()
    program = world.flash.program

    def seen(offset: int, data: bytes) -> None:
        program(offset, data)
        flushed.set()

    world.flash.program = seen  # type: ignore[method-assign]
    put_as_agent(store, POD, pod("Running"))
    assert flushed.wait(30)
    journal.close()
    assert POD in world.stored()


def test_a_stop_flushes_everything(world: World) -> None:
    world.store.put(NODE, node(0))
    put_as_agent(world.store, NODE, node(1))
    put_as_agent(world.store, POD, pod("Running"))
    world.journal.close()
    assert world.boot().get(NODE).obj["status"] == node(1)["status"]  # type: ignore[union-attr]
    assert world.store.get(POD) is not None


# --- readers and subscribers see what is durable ---


async def test_readers_see_the_state_before_until_the_commit_has_ended(world: World) -> None:
    store, seen = world.store, []
    store.subscribe("/registry/", lambda change: seen.append(change.revision))
    first = store.put_extended(CONFIG + "a", config(1))
    assert store.settled.get(CONFIG + "a") is None
    assert store.settled.scan(CONFIG)[0] == []
    assert store.settled.count(CONFIG) == 0
    assert store.settled.revision < first.revision
    assert seen == []
    await store.settle()
    assert store.settled.get(CONFIG + "a") is first
    assert (store.settled.scan(CONFIG)[0], store.settled.revision) == ([first], first.revision)
    assert seen == [first.revision]
    second = store.put_extended(CONFIG + "a", config(2))
    store.delete(CONFIG + "a")
    third = store.put_extended(CONFIG + "b", config(3))
    assert store.settled.scan(CONFIG)[0] == [first]
    assert store.get(CONFIG + "a") is None
    await store.settle()
    assert store.settled.scan(CONFIG)[0] == [third]
    assert seen == [first.revision, second.revision, third.revision - 1, third.revision]
    await store.close()


async def test_a_page_of_a_list_is_whole_while_commits_are_under_way(world: World) -> None:
    store = world.store
    for name in "acegi":
        store.put_extended(CONFIG + name, config())
    await store.settle()
    store.delete(CONFIG + "a")
    for name in "bdfh":
        store.put_extended(CONFIG + name, config())
    pages, after = [], ""
    for _ in range(3):
        entries, _ = store.settled.scan(CONFIG, after=after, limit=2)
        pages.append([e.key[-1] for e in entries])
        after = entries[-1].key
    assert pages == [["a", "c"], ["e", "g"], ["i"]]
    await store.close()


async def test_writers_share_a_commit(world: World) -> None:
    store, syncs = world.store, []
    sync = world.flash.sync
    world.flash.sync = lambda: syncs.append(1) or sync()  # type: ignore[method-assign,func-returns-value]

    async def writer(number: int) -> None:
        store.put_extended(f"{CONFIG}c{number}", config())
        await store.settle()

    await asyncio.gather(*(writer(n) for n in range(32)))
    assert len(syncs) == 1
    assert len(world.stored()) == 32
    await store.close()


def test_threads_share_commits_and_each_write_is_durable_when_it_returns(world: World) -> None:
    failures = []

    def work(number: int) -> None:
        for turn in range(20):
            entry = world.store.put(f"{CONFIG}c{number}", config(turn))
            if world.stored().get(entry.key, 0) < entry.revision:
                failures.append(entry.key)

    threads = [threading.Thread(target=work, args=(n,)) for n in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []


# --- a flash that fails ---


class Failing(MemoryFlash):
    """A flash whose sync fails once, as a disk's may, and says afterwards that all is well."""

    broken = False

    def sync(self) -> None:
        if self.broken:
            self.broken = False
            raise FlashError("journal.img: Input/output error")
        super().sync()


@pytest.fixture
def failing(world: World) -> World:
    flash = Failing(world.flash.geometry)
    flash.image[:] = world.flash.image
    world.flash = flash
    world.boot()
    world.store.put(CONFIG + "a", config(1))
    flash.broken = True
    return world


def test_a_write_that_fails_leaves_the_object_as_it_was(failing: World) -> None:
    store, seen = failing.store, []
    before = store.get(CONFIG + "a")
    store.subscribe("/registry/", seen.append)
    for write in (
        lambda: store.put(CONFIG + "a", config(2)),
        lambda: store.put(CONFIG + "b", config(2)),
        lambda: store.delete(CONFIG + "a"),
        lambda: store.update(CONFIG + "a", lambda obj: obj | {"n": 1}),
        lambda: store.put("/registry/leases/x/l", config()),
    ):
        with pytest.raises(JournalFailed, match=r"takes no more writes: journal\.img: Input/output error"):
            write()
    assert store.scan("/registry/")[0] == [before]
    assert store.settled.scan("/registry/")[0] == [before]
    assert seen == []


async def test_all_who_wait_for_a_failed_commit_hear_of_it(failing: World) -> None:
    store = failing.store
    before = store.scan("/registry/")[0]

    async def writer(number: int) -> None:
        store.put_extended(f"{CONFIG}c{number}", config())
        await store.settle()

    results = await asyncio.gather(*(writer(n) for n in range(5)), return_exceptions=True)
    assert [type(r) for r in results] == [JournalFailed] * 5
    assert store.scan("/registry/")[0] == before
    await store.close()


# --- a store that is full ---


def fill(store: Store) -> list[str]:
    keys = []
    with pytest.raises(StorageFull):
        for n in range(1000):
            store.put(f"{CONFIG}f{n}", config(5_000))
            keys.append(f"{CONFIG}f{n}")
    return keys


def test_a_full_store_refuses_what_is_new_and_names_the_biggest(world: World) -> None:
    world.store.put(CONFIG + "big", config(30_000))
    fill(world.store)
    with pytest.raises(StorageFull) as refused:
        world.store.put(CONFIG + "more", config(5_000))
    live = world.journal.stats()["liveBytes"]
    assert refused.value.message.startswith(f"the store is full: {live} of 200000 bytes live, ")
    assert f"{CONFIG}big (30" in refused.value.message
    assert refused.value.message.count(CONFIG) == 3


def test_a_full_store_takes_deletions_and_what_does_not_grow(world: World) -> None:
    store = world.store
    keys = fill(store)
    store.put(keys[0], config(5_000, n=1) | {"data": {"v": "y" * 4_900}})
    with pytest.raises(StorageFull):
        store.put(keys[1], config(20_000))
    assert store.get(keys[1]).obj["data"] == {"v": "x" * 5_000}  # type: ignore[union-attr]
    for key in keys:
        store.delete(key)
    assert world.boot().count("/registry/") == 0
    world.store.put(CONFIG + "again", config(5_000))


def test_status_and_small_updates_have_a_reserve(world: World) -> None:
    store = world.store
    keys = fill(store)
    put_as_agent(store, keys[0], config(9_000))
    store.put(keys[1], config(5_500))
    store.put(keys[2], config(8_000) | {"metadata": {"name": "c", "deletionTimestamp": "now"}})
    with pytest.raises(StorageFull):
        put_as_agent(store, CONFIG + "new", config(100))
    with pytest.raises(StorageFull):
        for key in keys:
            put_as_agent(store, key, config(9_000))


def test_full_at_every_size_the_store_can_be_emptied_after_a_cut(world: World) -> None:
    keys = fill(world.store)
    for key in keys:
        world.flash.cut_after(1)
        with pytest.raises(JournalFailed):
            world.store.delete(key)
        world.flash.reboot()
        if world.boot().get(key) is not None:
            world.store.delete(key)
    assert world.boot().count("/registry/") == 0


def test_room_that_is_free_but_not_written_yet_can_be_used(world: World) -> None:
    store = world.store
    keys = fill(store)
    put_as_agent(store, keys[0], config(10))
    put_as_agent(store, keys[1], config(10))
    store.put(CONFIG + "new", config(9_000))
    assert world.boot().get(CONFIG + "new") is not None


def test_a_record_that_rots_is_written_again_from_memory_when_its_sector_is_reclaimed(world: World) -> None:
    store = world.store
    kept = store.put(CONFIG + "kept", config(500))
    at = bytes(world.flash.image).index(kept.value)
    world.flash.flip(8 * at)
    for n in range(2_000):
        store.put(CONFIG + "other", config(1_000, n=n))
    assert world.boot().get(CONFIG + "kept") == kept
    assert world.journal.faults == []


# --- revisions ---


def test_a_block_of_revisions_is_reserved_before_it_is_used(world: World) -> None:
    for _ in range(25_000):
        revision = world.store.claim()
        assert revision < world.journal.reserved
    assert world.boot().revision > revision
