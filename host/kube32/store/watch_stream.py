"""One watch: initial part, buffer of live events, bookmarks (specification, "Versions and watches").

A stream that begins with a list reads that to its end first. Then the ring gives what happened meanwhile,
or, where it does not reach back, the difference between then and now: a slow reader of a long list loses
nothing.
"""

import asyncio
from collections import deque
from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from threading import get_ident
from typing import Protocol

from kube32.contract import Limits
from kube32.store.entry import Entry
from kube32.store.errors import SlowWatcher
from kube32.store.ring import Match, Record

_ENTRIES_AT_A_TIME = 200


@dataclass(frozen=True, slots=True)
class WatchEvent:
    """ADDED, MODIFIED, DELETED with `entry`, or BOOKMARK without; a watch may resume from `revision`."""

    type: str
    entry: Entry | None
    revision: int
    initial_end: bool = False


class Source(Protocol):
    """What a stream needs of its hub."""

    @property
    def lock(self) -> AbstractContextManager[bool]:
        """Guards every stream's buffers; recursive."""

    @property
    def seen(self) -> int:
        """The revision up to which streams have been fed."""

    def catch_up(self, stream: "WatchStream") -> None:
        """After the list, under the lock: calls the stream's `list_further` or `go_live`."""

    def detach(self, stream: "WatchStream") -> None:
        """Feeds the stream no more and frees its place."""


@dataclass(frozen=True, slots=True)
class Scope:
    """What a watch covers: keys under `prefix` that `match` accepts, of one `resource`."""

    prefix: str
    resource: str
    match: Match | None
    bookmarks: bool
    initial_events_end: bool


class WatchStream:
    """An async iterator of WatchEvent for one reader, in any event loop; made by WatchHub.open.

    Ends with StopAsyncIteration after `close`, with SlowWatcher when the reader fell behind.
    """

    def __init__(self, source: Source, scope: Scope, limits: Limits, revision: int) -> None:
        self.scope = scope
        self.revision = revision  # what the reader knows, or will know once it has read the initial part
        self.live = False
        self._source = source
        self._capacity = limits.watch_stream_buffer_events
        self._bookmark_s = limits.watch_bookmark_ms / 1000
        self._early_after = limits.watch_ring_events // 2
        self._listing: Iterator[WatchEvent | None] | None = None
        self._listed: dict[str, Entry] = {}
        self._replayed: deque[WatchEvent] = deque()
        self._buffer: deque[WatchEvent] = deque()
        self._read_up_to = revision
        self._unseen_since: int | None = None
        self._bookmark_early = False
        self._bookmark_at: float | None = None
        self._failure: Exception | None = None
        self._closed = False
        self._finished = False
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread = 0
        self._waiter: asyncio.Future[None] | None = None

    # --- the reader's side ---

    def __aiter__(self) -> "WatchStream":
        return self

    async def __anext__(self) -> WatchEvent:
        loop = asyncio.get_running_loop()
        if self._bookmark_at is None:
            self._bookmark_at = loop.time() + self._bookmark_s
        while True:
            event, paused = self._take(loop.time() >= self._bookmark_at)
            if event is not None:
                if event.type == "BOOKMARK":
                    self._bookmark_at = loop.time() + self._bookmark_s
                return event
            if self._closed:
                raise StopAsyncIteration
            if paused:
                await asyncio.sleep(0)
            else:
                await self._wait(loop)

    def poll(self) -> WatchEvent | None:
        """The next event if one is there now, to send several at once. May raise SlowWatcher.

        None also where a long list pauses to let others run: then await the next event.
        """
        return self._take(bookmark_due=False)[0]

    def close(self) -> None:
        """Ends the stream and frees its place; a waiting reader gets its end. From any thread, also twice."""
        with self._source.lock:
            if not self._closed:
                self._closed = True
                self._failure = None
                self._listing = None
                self._listed = {}
                self._replayed.clear()
                self._buffer.clear()
                self._source.detach(self)
                self._wake()

    @property
    def closed(self) -> bool:
        """Whether no event will come any more."""
        return self._closed

    async def __aenter__(self) -> "WatchStream":
        return self

    async def __aexit__(self, *_: object) -> None:
        self.close()

    def _take(self, bookmark_due: bool) -> tuple[WatchEvent | None, bool]:
        """The next event, and whether there is none only because the list pauses."""
        with self._source.lock:
            while self._listing is not None:
                try:
                    return next(self._listing), True
                except StopIteration:
                    self._end_list()
                except Exception:  # the match function's
                    self.close()
                    raise
            if bookmark_due and self.scope.bookmarks and not self._closed:
                return self._bookmark(), False
            for events in (self._replayed, self._buffer):
                if events:
                    event = events.popleft()
                    self._read_up_to = event.revision
                    return event, False
            if self._failure is not None:
                failure, self._failure = self._failure, None
                self.close()
                raise failure
            if self._finished:
                self.close()
            elif self._bookmark_early:
                return self._bookmark(), False
            return None, False

    def _end_list(self) -> None:
        """The list is read: goes on with what happened meanwhile."""
        self._listing = None
        self._read_up_to = self.revision
        try:
            self._source.catch_up(self)
        except Exception:  # the match function's
            self.close()
            raise

    def _bookmark(self) -> WatchEvent:
        """A bookmark at the latest revision up to which the reader has had everything."""
        self._bookmark_early = False
        if self.live and not self._replayed and not self._buffer and self._failure is None:
            self._unseen_since = None
            self._read_up_to = max(self._read_up_to, self._source.seen)
        return WatchEvent("BOOKMARK", None, self._read_up_to)

    async def _wait(self, loop: asyncio.AbstractEventLoop) -> None:
        """Until there may be something to take, or a bookmark is due."""
        with self._source.lock:
            if self._replayed or self._buffer or self._closed or self._failure or self._bookmark_early:
                return
            if self._finished:
                return
            self._loop, self._thread = loop, get_ident()
            waiter = self._waiter = loop.create_future()
        timer = None
        if self.scope.bookmarks and self._bookmark_at is not None:
            timer = loop.call_at(self._bookmark_at, _resolve, waiter)
        try:
            await waiter
        finally:
            self._waiter = None
            if timer is not None:
                timer.cancel()

    # --- the hub's side; all under the source's lock ---

    def list_entries(self, entries: list[Entry], revision: int) -> None:
        """Begins with ADDED for these objects, which are the state at `revision`."""
        self.revision = revision
        self._listing = self._added(entries)

    def _added(self, entries: Iterable[Entry]) -> Iterator[WatchEvent | None]:
        match = self.scope.match
        for number, entry in enumerate(entries, 1):
            if match is None or match(entry.obj):
                self._listed[entry.key] = entry
                yield WatchEvent("ADDED", entry, entry.revision)
            if number % _ENTRIES_AT_A_TIME == 0:
                yield None

    def list_further(self, events: list[WatchEvent], revision: int) -> None:
        """Goes on with what changed since the list was made, up to `revision`."""
        for event in events:
            assert event.entry is not None
            if event.type == "DELETED":
                del self._listed[event.entry.key]
            else:
                self._listed[event.entry.key] = event.entry
        self.revision = revision
        self._listing = iter(events)

    @property
    def listed(self) -> dict[str, Entry]:
        """The objects that the reader has been told of by its list, by key."""
        return self._listed

    def go_live(self, records: Iterable[Record]) -> None:
        """Ends the initial part with these records and takes live ones from now on."""
        self._listed = {}
        self.live = True
        if self.scope.initial_events_end:
            self._replayed.append(WatchEvent("BOOKMARK", None, self.revision, initial_end=True))
        for record in records:
            self._offer(record, self._replayed)

    def feed(self, record: Record) -> None:
        """Takes a live record; a reader that is too far behind gets its end instead."""
        try:
            self._offer(record, self._buffer)
        except Exception as error:  # the match function's: this stream's end, nobody else's
            self._fail(error)
        if len(self._buffer) > self._capacity:
            self._buffer.pop()
            self._fail(SlowWatcher(self._capacity, self._buffer[-1].revision))
        if self._buffer or self._bookmark_early or self._failure is not None:
            self._wake()

    def _offer(self, record: Record, events: deque[WatchEvent]) -> None:
        """Adds the record's event if the watch sees one; else notes that the reader's position grows old."""
        change = record.change
        if change.revision <= self.revision:
            return
        if record.resource == self.scope.resource:
            seen = record.seen_through(self.scope.match) if change.key.startswith(self.scope.prefix) else None
            if seen is not None:
                events.append(WatchEvent(seen[0], seen[1], change.revision))
                self._unseen_since = None
                self._bookmark_early = False
            elif self._unseen_since is None:
                self._unseen_since = record.number
        if self._unseen_since is not None and record.number - self._unseen_since >= self._early_after:
            self._bookmark_early = self.scope.bookmarks

    def finish(self) -> None:
        """The end, once everything so far has been read. The place is free from now on."""
        self._finished = True
        self._source.detach(self)
        self._wake()

    def _fail(self, failure: Exception) -> None:
        """The buffer is still read, then the reader gets `failure`. The place is free from now on."""
        self._failure = failure
        self._source.detach(self)

    def _wake(self) -> None:
        waiter, loop = self._waiter, self._loop
        if waiter is None or loop is None:
            return
        try:
            if self._thread == get_ident():
                _resolve(waiter)
            else:
                loop.call_soon_threadsafe(_resolve, waiter)
        except RuntimeError:  # the reader's loop has ended
            self._source.detach(self)


def _resolve(waiter: "asyncio.Future[None]") -> None:
    if not waiter.done():
        waiter.set_result(None)
