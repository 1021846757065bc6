"""WatchHub: feeds watches from the store (specification, "Versions and watches").

It hears of changes after the store's lock is released, in the order of revisions, from any thread. Lock
order: the hub's, then the store's; a function given to `Store.update` runs under the latter and must not
open a watch.
"""

import asyncio
from collections.abc import Callable
from threading import RLock

from kube32.contract import Limits
from kube32.store.entry import Change, Entry, restamp
from kube32.store.errors import SlowWatcher, TooManyStreams, WatchExpired
from kube32.store.reading import ReadingStore
from kube32.store.ring import EventRing, Match, resource_of_key
from kube32.store.watch_stream import Scope, WatchEvent, WatchStream

__all__ = ["SlowWatcher", "TooManyStreams", "WatchEvent", "WatchExpired", "WatchHub", "WatchStream"]


class WatchHub:
    """All watches of a store, and the count of the streams that have a cap.

    Watches cannot resume from before the hub was made: the revision at that time is the boot revision.
    `loop` is not needed: a stream belongs to the event loop that reads it. `places` is another hub whose
    streams count together with this one's.
    """

    def __init__(
        self,
        store: ReadingStore,
        limits: Limits,
        *,
        loop: asyncio.AbstractEventLoop | None = None,
        places: "WatchHub | None" = None,
    ) -> None:
        self.lock = RLock()
        self._store = store
        self._limits = limits
        self._closed = False
        self._streams: list[WatchStream] = []
        self._releases: dict[WatchStream, Callable[[], None]] = {}
        self._count = 0
        self._places = places
        with self.lock:
            # A computed store delivers at the first look at it.
            self._ring = EventRing(limits.watch_ring_events, store.revision)
            self._unsubscribe = store.subscribe("/registry/", self._changed)
            self._ring = EventRing(limits.watch_ring_events, store.revision)

    @property
    def stream_count(self) -> int:
        """Open streams that count against `watch_streams`, logs included."""
        return self._count if self._places is None else self._places.stream_count

    @property
    def seen(self) -> int:
        """The revision up to which streams have been fed."""
        return self._ring.seen

    def take_stream(self) -> Callable[[], None]:
        """Takes one of `watch_streams` places and gives what frees it. Raises TooManyStreams."""
        if self._places is not None:
            return self._places.take_stream()
        taken = [True]
        with self.lock:
            if self._count >= self._limits.watch_streams:
                raise TooManyStreams(self._limits.watch_streams)
            self._count += 1

        def release() -> None:
            with self.lock:
                if taken:
                    taken.clear()
                    self._count -= 1

        return release

    def open(
        self,
        prefix: str,
        *,
        resource_prefix: str,
        since: int | None,
        match: Match | None = None,
        bookmarks: bool = False,
        initial_events_end: bool = False,
        counted: bool = True,
    ) -> WatchStream:
        """A watch of the keys under `prefix`, which is within `resource_prefix` ("/registry/pods/").

        `since` None or 0: ADDED for what `match` accepts now, then what happens. `since` N: what happened
        after N. An object that begins or ceases to match is ADDED or DELETED. `initial_events_end` ends the
        list with a marked BOOKMARK; `bookmarks` asks for the others. Raises WatchExpired when the ring has
        lost an event of the resource later than N, or N is before the boot revision or was not given out
        yet; TooManyStreams when `counted` and no place is free.
        """
        resource = resource_of_key(resource_prefix)
        if not prefix.startswith(resource_prefix) or resource.count("/") != 3:
            raise ValueError(f"prefix {prefix!r} is not within a resource's {resource_prefix!r}")
        scope = Scope(prefix, resource, match, bookmarks, initial_events_end)
        with self.lock:
            if since:
                self._check(since, resource)
            release = self.take_stream() if counted else None
            stream = WatchStream(self, scope, self._limits, since or 0)
            if release is not None:
                self._releases[stream] = release
            self._streams.append(stream)
            try:
                if since:
                    stream.go_live(self._ring.after(since))
                else:
                    stream.list_entries(*self._store.scan(prefix))
            except Exception:  # the match function's
                stream.close()
                raise
            if self._closed:
                stream.close()
        return stream

    def _check(self, since: int, resource: str) -> None:
        oldest = self._ring.oldest(resource)
        if since < oldest or since > self._store.revision:
            raise WatchExpired(since, oldest)

    def catch_up(self, stream: WatchStream) -> None:
        """For a stream whose list is read: live if the ring reaches back to it, else the difference."""
        with self.lock:
            if self._ring.oldest(stream.scope.resource) <= stream.revision:
                stream.go_live(self._ring.after(stream.revision))
            else:
                entries, revision = self._store.scan(stream.scope.prefix)
                stream.list_further(_difference(stream, entries, revision), revision)

    def detach(self, stream: WatchStream) -> None:
        """Feeds the stream no more and frees its place."""
        with self.lock:
            if stream in self._streams:
                self._streams.remove(stream)
            release = self._releases.pop(stream, None)
            if release is not None:
                release()

    def end(self, prefix: str) -> None:
        """Ends the watches of keys under `prefix`: each has what was sent until now, then its end."""
        with self.lock:
            for stream in list(self._streams):
                if stream.scope.prefix.startswith(prefix):
                    stream.finish()

    def close(self) -> None:
        """Ends all streams and the subscription to the store; a watch that is opened later ends at once."""
        self._unsubscribe()
        with self.lock:
            self._closed = True
            for stream in list(self._streams):
                stream.close()

    def _changed(self, change: Change) -> None:
        with self.lock:
            if change.revision <= self._ring.boot:
                return
            record = self._ring.append(change)
            for stream in list(self._streams):
                if stream.live:
                    stream.feed(record)


def _difference(stream: WatchStream, entries: list[Entry], revision: int) -> list[WatchEvent]:
    """What leads from the objects that the stream has listed to `entries`, the state at `revision`."""
    match = stream.scope.match
    gone = dict(stream.listed)
    events: list[WatchEvent] = []
    for entry in entries:
        known = gone.get(entry.key)
        if entry.revision <= stream.revision:
            gone.pop(entry.key, None)
        elif match is None or match(entry.obj):
            gone.pop(entry.key, None)
            events.append(WatchEvent("MODIFIED" if known else "ADDED", entry, entry.revision))
    events.sort(key=lambda event: event.revision)
    events.extend(WatchEvent("DELETED", restamp(entry, revision), revision) for entry in gone.values())
    return events
