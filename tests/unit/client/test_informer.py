"""The Informer against a server that does everything that servers do to watches."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from tests.unit.client.scripted import Answer, Chunk, Scripted, bookmark, frame, listed, obj, status

from kube32.client import informer as informer_module
from kube32.client.api import ApiClient
from kube32.client.informer import Informer
from kube32.client.transport import TransportError
from kube32.contract import LIMITS

Told = list[tuple[str, str, str]]


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Short delays; that they grow is shown by a test of its own."""
    monkeypatch.setattr(informer_module, "_BACKOFF_FIRST_S", 0.001)


class Bench:
    """An Informer with its transport, what it told, and when a script is through."""

    def __init__(self, *answers: Answer | Exception, limits: Any = LIMITS) -> None:
        self.over = asyncio.Event()
        self.transport = Scripted([*answers], self._rest)
        self.informer = Informer(ApiClient(self.transport, limits), "ConfigMap")
        self.told: Told = []
        self.informer.subscribe(self._tell)

    def _tell(self, kind: str, new: Any, old: Any) -> None:
        self.told.append((kind, new["metadata"]["name"], new["metadata"]["resourceVersion"]))

    def _rest(self) -> Answer:
        """A watch that stays open."""
        return Answer(200, [self._open])

    async def _open(self) -> None:
        self.over.set()
        await asyncio.Event().wait()

    async def run(self) -> None:
        """Runs the Informer until the script is through."""
        task = asyncio.create_task(self.informer.run())
        try:
            async with asyncio.timeout(10):
                waiting = asyncio.create_task(self.over.wait())
                await asyncio.wait([waiting, task], return_when=asyncio.FIRST_COMPLETED)
            assert not task.done(), "run must never end by itself"
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    @property
    def watched_from(self) -> list[str]:
        """The resourceVersions that watches were opened with."""
        return [s.query["resourceVersion"] for s in self.transport.sent if "watch" in s.query]

    @property
    def lists(self) -> int:
        """How often it listed."""
        return sum("watch" not in s.query for s in self.transport.sent)


def watch(*chunks: Chunk) -> Answer:
    """A watch's answer."""
    return Answer(200, list(chunks))


async def test_it_lists_then_watches_from_there() -> None:
    bench = Bench(
        listed(5, obj("a", 3)),
        watch(frame("ADDED", obj("b", 6)), frame("MODIFIED", obj("a", 7)), frame("DELETED", obj("b", 8))),
    )
    await bench.run()
    assert bench.told == [
        ("ADDED", "a", "3"),
        ("ADDED", "b", "6"),
        ("MODIFIED", "a", "7"),
        ("DELETED", "b", "8"),
    ]
    assert list(bench.informer.items) == [("default", "a")]
    assert bench.watched_from == ["5", "8"] and bench.lists == 1
    assert bench.transport.sent[1].query["allowWatchBookmarks"] == "true"


async def test_a_cut_stream_resumes_from_the_last_event_or_bookmark() -> None:
    bench = Bench(
        listed(5),
        watch(frame("ADDED", obj("a", 6)), TransportError("reset")),
        watch(bookmark(90), TransportError("reset")),
        watch(frame("ADDED", obj("b", 95))),
    )
    await bench.run()
    assert bench.watched_from == ["5", "6", "90", "95"] and bench.lists == 1
    assert [t[1] for t in bench.told] == ["a", "b"]


async def test_events_cut_into_any_pieces_are_put_together_and_a_torn_one_is_asked_for_again() -> None:
    events = frame("ADDED", obj("a", 6)) + frame("ADDED", obj("b", 7))
    pieces: list[Chunk] = [events[n : n + 3] for n in range(0, len(events) - 10, 3)]
    bench = Bench(listed(5), watch(*pieces), watch(frame("ADDED", obj("b", 7))))
    await bench.run()
    assert [t[1] for t in bench.told] == ["a", "b"]
    assert bench.watched_from[:2] == ["5", "6"]


@pytest.mark.parametrize(
    "expired",
    [
        status(410, "Expired"),
        watch(frame("ERROR", {"kind": "Status", "code": 410, "reason": "Expired", "message": "too old"})),
    ],
)
async def test_410_is_answered_by_a_list_whose_differences_are_told(expired: Answer) -> None:
    kept, changed, gone, remade = (obj(n, 3) for n in ("kept", "changed", "gone", "remade"))
    bench = Bench(
        listed(5, kept, changed, gone, remade),
        expired,
        listed(50, kept, obj("changed", 40), obj("remade", 41, uid="other"), obj("new", 42)),
    )
    await bench.run()
    assert bench.told[4:] == [
        ("DELETED", "gone", "3"),
        ("MODIFIED", "changed", "40"),
        ("DELETED", "remade", "3"),
        ("ADDED", "remade", "41"),
        ("ADDED", "new", "42"),
    ]
    assert bench.watched_from == ["5", "50"] and bench.lists == 2


async def test_a_replaced_pod_is_one_change_of_one_object() -> None:
    bench = Bench(listed(5, obj("a", 3)), watch(frame("MODIFIED", obj("a", 6, uid="new"))))
    seen: list[tuple[str, str]] = []
    bench.informer.subscribe(
        lambda kind, new, old: seen.append((kind, (old or new)["metadata"]["uid"])), replay=False
    )
    await bench.run()
    assert seen[-1] == ("MODIFIED", "a")


async def test_events_that_come_late_or_twice_change_nothing() -> None:
    bench = Bench(
        listed(10, obj("a", 9)),
        watch(
            frame("MODIFIED", obj("a", 7)),
            frame("ADDED", obj("a", 9)),
            frame("DELETED", obj("a", 8)),
            frame("DELETED", obj("nobody", 11)),
            frame("MODIFIED", obj("a", 12)),
        ),
    )
    await bench.run()
    assert bench.told == [("ADDED", "a", "9"), ("MODIFIED", "a", "12")]


async def test_long_lists_come_in_pages() -> None:
    bench = Bench(listed(5, obj("a", 1), more="token"), listed(5, obj("b", 2)))
    await bench.run()
    assert [t[1] for t in bench.told] == ["a", "b"]
    assert bench.transport.sent[1].query["continue"] == "token"


@pytest.mark.parametrize(
    "fault",
    [
        TransportError("refused"),
        TimeoutError(),
        status(500, "InternalError"),
        status(403, "Forbidden"),
        status(429, "TooManyRequests"),
        Answer(200, [b"<html>"]),
        Answer(200, [b'{"items": 7}']),
        Answer(200, [b"[]"]),
    ],
)
async def test_whatever_a_list_answers_it_is_tried_again(fault: Answer | Exception) -> None:
    bench = Bench(fault, listed(5, obj("a", 3)))
    await bench.run()
    assert bench.told == [("ADDED", "a", "3")] and bench.informer.synced.is_set()


@pytest.mark.parametrize(
    "chunk",
    [b"no json\n", b"[]\n", b'{"type":"ADDED"}\n', b'{"type":"ADDED","object":{"metadata":{}}}\n', b"7\n"],
)
async def test_a_stream_of_nonsense_is_survived(chunk: bytes) -> None:
    bench = Bench(
        listed(5, obj("a", 3)), watch(chunk), listed(6, obj("a", 3)), watch(frame("ADDED", obj("b", 7)))
    )
    bench.transport.afterwards = lambda: Answer(200, [frame("ADDED", obj("b", 7)), bench._open])
    await bench.run()
    assert [t[1] for t in bench.told][:1] == ["a"] and ("ADDED", "b", "7") in bench.told


async def test_a_silent_stream_is_given_up_when_bookmarks_are_overdue(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("kube32.client.api._BOOKMARK_SLACK_MS", 20)

    async def hang() -> None:
        await asyncio.Event().wait()

    silent = watch(frame("ADDED", obj("a", 6)), hang)
    bench = Bench(listed(5), silent, limits=LIMITS.replace(watch_bookmark_ms=30))
    await bench.run()
    assert bench.watched_from[:2] == ["5", "6"] and silent.closed


async def test_a_stream_that_is_given_up_goes_on_from_its_last_event() -> None:
    bench: Bench

    async def give_up() -> None:
        bench.informer.reopen()
        await asyncio.Event().wait()

    silent = watch(frame("ADDED", obj("a", 6)), give_up)
    bench = Bench(listed(5), silent)
    bench.informer.reopen()  # without a stream there is nothing to give up
    await bench.run()
    assert bench.watched_from == ["5", "6"] and silent.closed
    assert bench.told == [("ADDED", "a", "6")]


async def test_a_handler_that_fails_stops_nobody() -> None:
    bench = Bench(listed(5, obj("a", 3)))

    def broken(kind: str, new: Any, old: Any) -> None:
        raise RuntimeError("mine")

    seen: list[str] = []
    bench.informer.subscribe(broken)
    bench.informer.subscribe(lambda kind, new, old: seen.append(kind))
    await bench.run()
    assert seen == ["ADDED"]


async def test_who_subscribes_late_is_told_what_is_there_and_who_leaves_is_told_no_more() -> None:
    bench = Bench(listed(5, obj("a", 3)))
    await bench.run()
    seen: list[str] = []
    end = bench.informer.subscribe(lambda kind, new, old: seen.append(new["metadata"]["name"]))
    assert seen == ["a"]
    end()
    bench.informer._apply("ADDED", obj("b", 9))
    assert seen == ["a"]


@pytest.mark.parametrize(
    "answer",
    [lambda: status(410, "Expired"), lambda: Answer(200, []), lambda: status(503, "ServiceUnavailable")],
)
async def test_a_server_that_fails_every_time_is_not_hammered(
    answer: Callable[[], Answer], monkeypatch: pytest.MonkeyPatch
) -> None:
    slept: list[float] = []
    real = asyncio.sleep

    async def sleep(seconds: float) -> None:
        slept.append(seconds)
        await real(0)
        if len(slept) == 12:
            bench.over.set()

    monkeypatch.setattr(informer_module, "_BACKOFF_FIRST_S", 0.25)
    bench = Bench()
    bench.transport.afterwards = lambda: answer() if "watch" in bench.transport.sent[-1].query else listed(5)
    monkeypatch.setattr("kube32.client.informer.asyncio.sleep", sleep)
    await bench.run()
    # Growing to at least half of the longest delay, with jitter, and one request or two for each pause.
    assert slept[0] <= 0.25 and max(slept) >= 7.5 and len(set(slept)) > 6
    assert len(bench.transport.sent) <= 2 * len(slept) + 3


async def test_retry_after_is_obeyed(monkeypatch: pytest.MonkeyPatch) -> None:
    slept: list[float] = []
    real: Callable[[float], Awaitable[None]] = asyncio.sleep

    async def sleep(seconds: float) -> None:
        slept.append(seconds)
        await real(0)

    monkeypatch.setattr("kube32.client.informer.asyncio.sleep", sleep)
    monkeypatch.setattr("kube32.client.informer.random.uniform", lambda low, high: 1.0)
    bench = Bench(listed(5), status(429, "TooManyRequests", **{"Retry-After": "7"}))
    await bench.run()
    assert slept == [7]


async def test_a_transform_says_what_is_kept_of_lists_and_of_events() -> None:
    bench = Bench(
        listed(5, obj("a", 4, data={"x": "y"})),
        Answer(200, [frame("ADDED", obj("b", 6, data={"x": "y"})), frame("MODIFIED", obj("a", 7, data={}))]),
    )
    kept = Informer(
        ApiClient(bench.transport, LIMITS), "ConfigMap", transform=lambda o: {"metadata": o["metadata"]}
    )
    bench.informer = kept
    await bench.run()
    assert {key: set(value) for key, value in kept.items.items()} == {
        ("default", "a"): {"metadata"},
        ("default", "b"): {"metadata"},
    }
