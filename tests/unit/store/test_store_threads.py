"""Store and WatchHub with several writing threads."""

import asyncio
import threading
from collections.abc import Callable
from typing import Any

from kube32.contract import LIMITS
from kube32.store import Change, Conflict, Store, WatchHub

PODS = "/registry/pods/"


def pod(**spec: Any) -> dict[str, Any]:
    return {"metadata": {"name": "web"}, "spec": spec}


def in_threads(count: int, work: Callable[[int], None]) -> None:
    threads = [threading.Thread(target=work, args=(n,)) for n in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def test_callbacks_come_in_revision_order_one_at_a_time_and_none_is_missing() -> None:
    store = Store(LIMITS)
    seen: list[int] = []
    busy = threading.Lock()

    def callback(change: Change) -> None:
        assert busy.acquire(blocking=False)
        seen.append(change.revision)
        busy.release()

    failures: list[Change] = []

    def checked(change: Change) -> None:
        try:
            callback(change)
        except AssertionError:
            failures.append(change)

    store.subscribe("/registry/", checked)

    def write(n: int) -> None:
        for i in range(150):
            store.put(f"{PODS}ns/{n}", pod(i=i))
            store.update(f"{PODS}ns/{n}", lambda obj: {**obj, "more": 1})
            store.delete(f"{PODS}ns/{n}")

    in_threads(4, write)
    assert not failures
    assert seen == list(range(2, 2 + 4 * 150 * 3))


def test_compare_and_swap_loses_no_increment() -> None:
    store = Store(LIMITS)
    store.put(PODS + "a/counter", pod(n=0))

    def increment(_: int) -> None:
        for _ in range(100):
            while True:
                entry = store.get(PODS + "a/counter")
                assert entry is not None
                try:
                    store.put_extended(
                        entry.key, pod(n=entry.obj["spec"]["n"] + 1), expected_version=entry.revision
                    )
                    break
                except Conflict:
                    continue

    in_threads(4, increment)
    entry = store.get(PODS + "a/counter")
    assert entry is not None
    assert entry.obj["spec"]["n"] == 400


async def test_watches_opened_while_threads_write_lose_and_double_nothing() -> None:
    store = Store(LIMITS)
    hub = WatchHub(store, LIMITS.replace(watch_stream_buffer_events=10_000))
    stop = threading.Event()

    def write(n: int) -> None:
        for i in range(120):
            store.put(f"{PODS}ns/{n}-{i % 7}", pod(i=i))
            if i % 5 == 0:
                store.delete(f"{PODS}ns/{n}-{i % 7}")
            stop.wait(0.0005)

    async def watch(delay: float) -> list[int]:
        """Follows the watch and checks each event against what it knows already."""
        await asyncio.sleep(delay)
        known: dict[str, int] = {}
        revisions: list[int] = []
        async with hub.open(
            PODS, resource_prefix=PODS, since=None, initial_events_end=True, counted=False
        ) as stream:
            listed = False
            async for event in stream:
                if event.entry is None:
                    listed = True
                    revisions.append(event.revision)
                    continue
                key = event.entry.key
                if event.type == "ADDED":
                    assert key not in known
                else:
                    assert known[key] < event.revision
                known[key] = event.revision
                if event.type == "DELETED":
                    del known[key]
                if listed:
                    revisions.append(event.revision)
                if key.endswith("/last"):
                    break
        expected = {entry.key: entry.revision for entry in store.scan(PODS)[0]}
        assert known == expected
        return revisions

    watchers = [asyncio.create_task(watch(n * 0.01)) for n in range(6)]
    await asyncio.to_thread(in_threads, 3, write)
    await asyncio.to_thread(store.put, PODS + "ns/last", pod())
    for revisions in await asyncio.wait_for(asyncio.gather(*watchers), 20):
        # After the list every revision comes: pods are all that is written here.
        assert revisions == list(range(revisions[0], store.revision + 1))
