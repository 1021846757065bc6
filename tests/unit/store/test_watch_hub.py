"""WatchHub: lists, resuming, 410, bookmarks, slow readers, the cap."""

import asyncio
import threading
from collections.abc import AsyncIterator
from typing import Any

import pytest

from kube32.contract import LIMITS, Limits
from kube32.store import (
    SlowWatcher,
    Store,
    TooManyStreams,
    WatchEvent,
    WatchExpired,
    WatchHub,
    WatchStream,
)

PODS, MAPS, LEASES = "/registry/pods/", "/registry/configmaps/", "/registry/leases/"


def obj(n: int = 0, node: str = "") -> dict[str, Any]:
    return {"metadata": {"name": "x"}, "spec": {"n": n, "nodeName": node}}


def on_node(node: str) -> Any:
    return lambda o: o["spec"]["nodeName"] == node


@pytest.fixture
def store() -> Store:
    return Store(LIMITS)


@pytest.fixture
def hub(store: Store) -> WatchHub:
    return WatchHub(store, LIMITS)


def watch(hub: WatchHub, prefix: str = PODS, since: int | None = None, **options: Any) -> WatchStream:
    return hub.open(prefix, resource_prefix=prefix, since=since, **options)


def drain(stream: WatchStream) -> list[WatchEvent]:
    events = []
    while (event := stream.poll()) is not None:
        events.append(event)
    return events


async def take(stream: WatchStream, count: int) -> list[WatchEvent]:
    return [await asyncio.wait_for(anext(stream), 10) for _ in range(count)]


def types(events: list[WatchEvent]) -> list[str]:
    return [event.type for event in events]


def renew_leases(store: Store, count: int) -> None:
    for n in range(count):
        store.put(f"{LEASES}kube-node-lease/n{n % 3}", obj(store.revision))


# --- the initial part ---


@pytest.mark.parametrize("since", [None, 0])
@pytest.mark.parametrize("count", [0, 1, 100])
async def test_a_list_of_any_length_comes_whole_then_the_marked_bookmark(
    store: Store, hub: WatchHub, since: int | None, count: int
) -> None:
    for n in range(count):
        store.put(f"{MAPS}default/c{n:03}", obj(n))
    renew_leases(store, 3)
    stream = watch(hub, MAPS, since, bookmarks=True, initial_events_end=True)
    events = await take(stream, count + 1)
    assert types(events) == ["ADDED"] * count + ["BOOKMARK"]
    assert [e.entry.key for e in events if e.entry] == [f"{MAPS}default/c{n:03}" for n in range(count)]
    assert (events[-1].initial_end, events[-1].revision) == (True, store.revision)
    assert watch(hub, MAPS, events[-1].revision).poll() is None


async def test_a_list_is_not_closed_by_writes_while_it_is_read(store: Store, hub: WatchHub) -> None:
    for n in range(40):
        store.put(f"{PODS}default/p{n:02}", obj(n))
    stream = watch(hub, initial_events_end=True)
    first = await take(stream, 5)
    for n in range(100):  # three rings full
        store.put(f"{PODS}default/p{n % 40:02}", obj(1000 + n))
    store.delete(f"{PODS}default/p07")
    store.put(f"{PODS}default/p99", obj(1))
    rest = drain(stream)
    known = {e.entry.key: e.entry for e in first + rest if e.entry and e.type != "DELETED"}
    known.pop(f"{PODS}default/p07")
    assert list(known.values()) == store.scan(PODS)[0] or sorted(known) == [
        e.key for e in store.scan(PODS)[0]
    ]
    assert {k: e.revision for k, e in known.items()} == {e.key: e.revision for e in store.scan(PODS)[0]}
    assert [e.type for e in rest if e.entry and e.entry.key == f"{PODS}default/p07"] == ["ADDED", "DELETED"]
    assert sum(e.initial_end for e in rest) == 1
    store.put(f"{PODS}default/p00", obj(-1))
    assert types(drain(stream)) == ["MODIFIED"]


async def test_other_tasks_run_while_a_list_that_matches_nothing_is_searched(
    store: Store, hub: WatchHub
) -> None:
    for n in range(1000):
        store.put(f"{PODS}default/p{n}", obj(n))
    looked: list[int] = []

    def never(o: dict[str, Any]) -> bool:
        looked.append(o["spec"]["n"])
        return False

    stream = watch(hub, match=never)
    reader = asyncio.create_task(take(stream, 1))
    steps = []
    while len(looked) < 1000:
        await asyncio.sleep(0)
        steps.append(len(looked))
    assert len(set(steps)) > 3
    assert watch(hub, match=never).poll() is None
    assert len(looked) < 1500
    store.put(f"{PODS}default/p0", obj(-1))
    reader.cancel()


# --- resuming ---


def test_a_watch_resumes_with_exactly_what_it_missed(store: Store, hub: WatchHub) -> None:
    since = store.put(f"{PODS}default/a", obj(1)).revision
    store.put(f"{PODS}default/a", obj(2))
    store.put(f"{MAPS}default/a", obj(1))
    store.delete(f"{PODS}default/a")
    stream = watch(hub, since=since)
    assert [(e.type, e.revision) for e in drain(stream)] == [("MODIFIED", since + 1), ("DELETED", since + 3)]
    store.put(f"{PODS}default/b", obj(1))
    assert [(e.type, e.revision) for e in drain(stream)] == [("ADDED", since + 4)]
    assert drain(watch(hub, since=store.revision)) == []


def test_an_evicted_event_of_the_kind_expires_older_watches_only(store: Store, hub: WatchHub) -> None:
    before = store.revision
    lost = store.put(f"{PODS}default/a", obj(1)).revision
    renew_leases(store, LIMITS.watch_ring_events - 1)
    assert types(drain(watch(hub, since=before))) == ["ADDED"]
    renew_leases(store, 1)
    with pytest.raises(WatchExpired) as refused:
        watch(hub, since=before)
    assert (refused.value.asked, refused.value.oldest) == (before, lost)
    assert str(refused.value) == f"too old resource version: {before} ({lost})"
    assert drain(watch(hub, since=lost)) == []


def test_revisions_not_given_out_and_those_of_another_life_expire() -> None:
    store = Store(LIMITS, first_revision=10_000)
    for n in range(3):
        store.put(f"{PODS}default/p{n}", obj())
    hub = WatchHub(store, LIMITS)
    boot = store.revision
    assert drain(watch(hub, since=boot)) == []
    for since in (1, 9_999, boot - 1, boot + 1, -1):
        with pytest.raises(WatchExpired):
            watch(hub, since=since)
    assert hub.stream_count == 1


def test_a_quiet_kind_survives_the_leases(store: Store, hub: WatchHub) -> None:
    """user-demand E2: ten minutes of Leases, a reconnect with the revision of the list."""
    store.put(f"{MAPS}default/c", obj(1))
    listed = store.scan(MAPS)[1]
    renew_leases(store, 500)
    stream = watch(hub, MAPS, listed)
    store.put(f"{MAPS}default/c", obj(2))
    assert [(e.type, e.revision) for e in drain(stream)] == [("MODIFIED", store.revision)]


async def test_a_watch_that_sees_little_of_a_busy_kind_gets_bookmarks_before_its_position_is_lost(
    store: Store, hub: WatchHub
) -> None:
    """user-demand E2: the pods of other nodes turn the ring over; each reconnect resumes."""
    store.put(f"{PODS}default/mine", obj(0, node="a"))
    position = store.revision
    for _ in range(20):
        stream = watch(hub, since=position, match=on_node("a"), bookmarks=True)
        for n in range(LIMITS.watch_ring_events):
            store.put(f"{PODS}default/other", obj(store.revision + n, node="b"))
            for event in drain(stream):
                assert event.type == "BOOKMARK"
                assert not event.initial_end
                position = event.revision
        stream.close()
    stream = watch(hub, since=position, match=on_node("a"), bookmarks=True)
    store.put(f"{PODS}default/mine", obj(1, node="a"))
    assert drain(stream)[-1].type == "MODIFIED"


async def test_an_early_bookmark_wakes_a_waiting_reader_and_is_not_sent_unasked(
    store: Store, hub: WatchHub
) -> None:
    asked = watch(hub, since=store.revision, match=on_node("a"), bookmarks=True)
    unasked = watch(hub, since=store.revision, match=on_node("a"))
    waiting = [asyncio.create_task(anext(stream)) for stream in (asked, unasked)]
    await asyncio.sleep(0)
    for n in range(LIMITS.watch_ring_events):
        store.put(f"{PODS}default/other", obj(n, node="b"))
    event = await asyncio.wait_for(waiting[0], 10)
    assert (event.type, event.revision) == ("BOOKMARK", store.revision)
    assert not waiting[1].done()
    store.put(f"{PODS}default/mine", obj(1, node="a"))
    assert (await asyncio.wait_for(waiting[1], 10)).type == "ADDED"


async def test_a_bookmark_never_overtakes_events_that_are_still_to_be_read(store: Store) -> None:
    hub = WatchHub(store, LIMITS.replace(watch_bookmark_ms=0))
    stream = watch(hub, since=store.revision, bookmarks=True)
    first = store.put(f"{PODS}default/a", obj(1)).revision
    store.put(f"{PODS}default/a", obj(2))
    stream.poll()
    assert [(e.type, e.revision) for e in await take(stream, 1)] == [("BOOKMARK", first)]
    assert types(drain(stream)) == ["MODIFIED"]
    renew_leases(store, 1)
    assert [(e.type, e.revision) for e in await take(stream, 1)] == [("BOOKMARK", store.revision)]


async def test_bookmarks_come_again_and_again_to_a_quiet_watch_that_asked(store: Store) -> None:
    hub = WatchHub(store, LIMITS.replace(watch_bookmark_ms=10))
    stream = watch(hub, since=store.revision, bookmarks=True)
    quiet = asyncio.create_task(anext(watch(hub, since=store.revision)))
    events = await take(stream, 3)
    assert types(events) == ["BOOKMARK"] * 3
    assert events[-1].revision == store.revision
    renew_leases(store, 2)
    assert (await take(stream, 1))[0].revision == store.revision
    assert not quiet.done()
    quiet.cancel()


# --- what a selecting watch sees ---


def test_an_object_that_comes_to_match_is_added_and_one_that_ceases_is_deleted(
    store: Store, hub: WatchHub
) -> None:
    """A replaced pod is MODIFIED for all, DELETED for its source's watch, ADDED for its target's."""
    everything, source, target, other = (
        watch(hub, match=match) for match in (None, on_node("a"), on_node("b"), on_node("c"))
    )
    drain(everything)
    store.put(f"{PODS}default/web", obj(1, node="a"))
    moved = store.put(f"{PODS}default/web", obj(2, node="b"))
    gone = store.delete(f"{PODS}default/web")
    assert types(drain(everything)) == ["ADDED", "MODIFIED", "DELETED"]
    left = drain(source)[1]
    assert (left.type, left.revision) == ("DELETED", moved.revision)
    assert left.entry is not None
    assert left.entry.obj["spec"] == {"n": 1, "nodeName": "a"}
    assert left.entry.obj["metadata"]["resourceVersion"] == str(moved.revision)
    assert [(e.type, e.entry) for e in drain(target)] == [("ADDED", moved), ("DELETED", gone)]
    assert drain(other) == []


def test_a_match_function_that_fails_ends_its_own_watch_only(store: Store, hub: WatchHub) -> None:
    broken = watch(hub, since=store.revision, match=lambda o: bool(1 // o["spec"]["n"]))
    whole = watch(hub, since=store.revision)
    store.put(f"{PODS}default/a", obj(1))
    store.put(f"{PODS}default/a", obj(0))
    assert hub.stream_count == 1
    assert types(drain(whole)) == ["ADDED", "MODIFIED"]
    assert broken.poll() is not None
    with pytest.raises(ZeroDivisionError):
        broken.poll()
    with pytest.raises(ZeroDivisionError):
        drain(watch(hub, match=lambda o: bool(1 // o["spec"]["n"])))
    with pytest.raises(ZeroDivisionError):
        watch(hub, since=store.revision - 1, match=lambda o: bool(1 // o["spec"]["n"]))
    assert hub.stream_count == 1


# --- slow readers, ends, the cap ---


async def test_a_slow_reader_gets_its_buffer_then_a_clear_end_and_can_resume(
    store: Store, hub: WatchHub
) -> None:
    slow, fast = watch(hub, since=store.revision), watch(hub, since=store.revision)
    got_fast: list[WatchEvent] = []
    start = store.revision
    for n in range(LIMITS.watch_stream_buffer_events + 5):
        store.put(f"{PODS}default/a", obj(n))
        got_fast += drain(fast)
    assert hub.stream_count == 1
    events = await take(slow, LIMITS.watch_stream_buffer_events)
    assert [e.revision for e in events] == list(
        range(start + 1, start + 1 + LIMITS.watch_stream_buffer_events)
    )
    with pytest.raises(SlowWatcher) as ended:
        await anext(slow)
    assert ended.value.revision == events[-1].revision
    with pytest.raises(StopAsyncIteration):
        await anext(slow)
    assert slow.closed
    resumed = drain(watch(hub, since=ended.value.revision))
    assert [e.revision for e in events + resumed] == [e.revision for e in got_fast]


def test_a_full_buffer_is_no_overflow(store: Store, hub: WatchHub) -> None:
    stream = watch(hub, since=store.revision)
    for _ in range(3):
        for _ in range(LIMITS.watch_stream_buffer_events):
            store.put(f"{PODS}default/a", obj(store.revision))
        assert len(drain(stream)) == LIMITS.watch_stream_buffer_events


def test_replayed_events_do_not_count_against_the_buffer(store: Store, hub: WatchHub) -> None:
    since = store.revision
    for n in range(LIMITS.watch_ring_events):
        store.put(f"{PODS}default/a", obj(n))
    stream = watch(hub, since=since)
    for n in range(LIMITS.watch_stream_buffer_events):
        store.put(f"{PODS}default/b", obj(n))
    assert len(drain(stream)) == LIMITS.watch_ring_events + LIMITS.watch_stream_buffer_events


@pytest.fixture(params=["sim", "board-psram", "board"])
def few(request: pytest.FixtureRequest) -> Limits:
    return LIMITS.replace(watch_streams={"sim": 16, "board-psram": 8, "board": 4}[request.param])


def test_the_cap_counts_watches_and_logs_and_frees_a_place_once(store: Store, few: Limits) -> None:
    hub = WatchHub(store, few)
    release = hub.take_stream()
    streams = [watch(hub) for _ in range(few.watch_streams - 1)]
    with pytest.raises(TooManyStreams) as refused:
        watch(hub)
    assert str(few.watch_streams) in str(refused.value)
    with pytest.raises(TooManyStreams):
        hub.take_stream()
    inside = watch(hub, counted=False)
    assert hub.stream_count == few.watch_streams
    release()
    release()
    assert hub.stream_count == few.watch_streams - 1
    streams[0].close()
    streams[0].close()
    inside.close()
    assert hub.stream_count == few.watch_streams - 2
    for stream in streams:
        stream.close()
    assert hub.stream_count == 0


def test_a_refused_watch_takes_no_place(store: Store, hub: WatchHub) -> None:
    with pytest.raises(WatchExpired):
        watch(hub, since=store.revision + 1)
    with pytest.raises(ValueError, match="not within"):
        hub.open("/registry/", resource_prefix="/registry/", since=None)
    with pytest.raises(ValueError, match="not within"):
        hub.open(MAPS, resource_prefix=PODS, since=None)
    assert hub.stream_count == 0


@pytest.fixture
async def waiting(hub: WatchHub) -> AsyncIterator[tuple[WatchStream, asyncio.Task[list[WatchEvent]]]]:
    """A stream and the task that reads it to its end."""
    stream = watch(hub)

    async def read() -> list[WatchEvent]:
        return [event async for event in stream]

    task = asyncio.create_task(read())
    await asyncio.sleep(0)
    yield stream, task
    task.cancel()


@pytest.mark.parametrize("how", ["close", "close from a thread", "hub"])
async def test_a_waiting_reader_ends_when_its_stream_is_closed(
    waiting: tuple[WatchStream, asyncio.Task[list[WatchEvent]]], hub: WatchHub, store: Store, how: str
) -> None:
    stream, task = waiting
    if how == "close":
        stream.close()
    elif how == "hub":
        hub.close()
    else:
        await asyncio.to_thread(stream.close)
    store.put(f"{PODS}default/a", obj(1))
    assert await asyncio.wait_for(task, 10) == []
    assert stream.closed
    assert hub.stream_count == 0


async def test_a_write_from_another_thread_wakes_the_reader(
    waiting: tuple[WatchStream, asyncio.Task[list[WatchEvent]]], store: Store
) -> None:
    stream, task = waiting
    task.cancel()
    reader = asyncio.create_task(anext(stream))
    await asyncio.sleep(0)
    # A thread of which the loop knows nothing: only the stream can wake it; in debug mode no unsafe way does.
    asyncio.get_running_loop().set_debug(True)
    threading.Timer(0.05, store.put, (f"{PODS}default/a", obj(1))).start()
    event = await asyncio.wait_for(reader, 10)
    assert event == WatchEvent("ADDED", store.get(f"{PODS}default/a"), store.revision)


async def test_a_cancelled_read_loses_no_event(store: Store, hub: WatchHub) -> None:
    stream = watch(hub)
    for n in range(5):
        task = asyncio.create_task(anext(stream))
        await asyncio.sleep(0)
        store.put(f"{PODS}default/a", obj(n))
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert len(drain(stream)) == 1


def test_a_reader_whose_loop_has_ended_loses_its_place_and_hurts_no_writer(
    store: Store, hub: WatchHub
) -> None:
    stream = watch(hub)
    loop = asyncio.new_event_loop()
    loop.set_exception_handler(lambda *_: None)  # it would report the task that is left
    task = loop.create_task(anext(stream))
    loop.run_until_complete(asyncio.sleep(0))
    loop.close()
    assert not task.done()
    for n in range(3):
        store.put(f"{PODS}default/a", obj(n))
    assert hub.stream_count == 0


async def test_a_watch_on_a_closed_hub_ends_after_what_is_there_and_holds_no_place(
    store: Store, hub: WatchHub
) -> None:
    open_before = hub.open(PODS, resource_prefix=PODS, since=None)
    hub.close()
    opened_after = hub.open(PODS, resource_prefix=PODS, since=None)
    for stream in (open_before, opened_after):
        assert [event async for event in stream] == []
    assert hub.stream_count == 0
