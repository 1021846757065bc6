"""The object store: revisions, compare-and-swap, scans, subscribers (specification, "Object store").

The way of a write: under the lock the expected version, the new revision, the tree; then, with the lock
released, `Store._settle`; then the answer. `_settle` is the place of the journal: every write passes it,
after its change is in the tree and before its caller or a subscriber hears of it. A commit goes there in
front of `_deliver`, which then delivers up to the last committed revision only. A refusal for lack of space
belongs in `_replace`.
"""

import logging
from collections import deque
from collections.abc import Callable
from threading import RLock, get_ident
from typing import Any

import orjson

from kube32.contract import Limits
from kube32.store.entry import Change, Entry, encode, parsed_if_as_long, restamp, same_content
from kube32.store.errors import AlreadyExists, Conflict, NotEncodable, NotFound, TooLarge
from kube32.store.radix_tree import RadixTree

_log = logging.getLogger(__name__)


class _Subscriber:
    """One callback for the changes under a prefix."""

    __slots__ = ("active", "callback", "prefix")

    def __init__(self, prefix: str, callback: Callable[[Change], None]) -> None:
        self.prefix = prefix
        self.callback = callback
        self.active = True


class Store:
    """All objects of a control plane by key. Any thread may call; nothing here waits for I/O or for a reader.

    A write that equals what is stored, `metadata.resourceVersion` apart, makes no revision and no event.
    `first_revision` is taken by the start itself: an empty store already has a resourceVersion to watch from.
    """

    def __init__(self, limits: Limits, first_revision: int = 1) -> None:
        self._limit = limits.store_value_bytes
        self._lock = RLock()
        self._tree: RadixTree[Entry] = RadixTree()
        self._revision = first_revision
        self._subscribers: tuple[_Subscriber, ...] = ()
        self._pending: deque[tuple[Change, tuple[_Subscriber, ...]]] = deque()
        self._delivering = False
        self._updating_thread = 0

    @property
    def revision(self) -> int:
        """The last revision used."""
        return self._revision

    def get(self, key: str) -> Entry | None:
        """The object at `key`, or None."""
        with self._lock:
            return self._tree.get(key)

    def scan(self, prefix: str, *, after: str = "", limit: int = 0) -> tuple[list[Entry], int]:
        """Objects under `prefix` with keys after `after`, by key, `limit` at most (0: all); the revision."""
        with self._lock:
            return self._tree.scan(prefix, after, limit), self._revision

    def count(self, prefix: str) -> int:
        """How many objects are under `prefix`."""
        with self._lock:
            return self._tree.count(prefix)

    def put(self, key: str, obj: dict[str, Any]) -> Entry:
        """Writes whatever is there: the last writer wins. Raises TooLarge, NotEncodable."""
        return self.put_extended(key, obj)

    def put_extended(self, key: str, obj: dict[str, Any], *, expected_version: int | None = None) -> Entry:
        """Writes if `expected_version` is stored; 0 means that nothing must be there, None that all is well.

        Raises AlreadyExists, NotFound, Conflict, TooLarge, NotEncodable.
        """
        with self._lock:
            current = self._tree.get(key)
            if expected_version is not None:
                _check(key, expected_version, current)
            entry = self._replace(key, current, obj)
        self._settle()
        return entry

    def update(self, key: str, fn: Callable[[dict[str, Any]], dict[str, Any] | None]) -> Entry:
        """Writes what `fn` makes of its own copy of the object; None leaves the object.

        `fn` runs under the lock and must be quick. Raises NotFound, TooLarge, NotEncodable and what `fn`
        raises.
        """
        try:
            with self._lock:
                outer, self._updating_thread = self._updating_thread, get_ident()
                try:
                    changed = fn(orjson.loads(self._existing(key).value))
                    current = self._existing(key)
                finally:
                    self._updating_thread = outer
                return current if changed is None else self._replace(key, current, changed)
        finally:
            self._settle()

    def delete(self, key: str, *, expected_version: int | None = None) -> Entry:
        """Removes the object; gives its last state, with the deletion's revision. NotFound, Conflict."""
        with self._lock:
            current = self._existing(key)
            if expected_version is not None:
                _check(key, expected_version, current)
            entry = restamp(current, self._revision + 1)
            self._tree.pop(key)
            self._changed(Change("DELETED", key, entry, current, entry.revision))
        self._settle()
        return entry

    def claim(self) -> int:
        """Takes a revision for a change of something that is not stored, so that it has its place in the
        one order of all changes.
        """
        with self._lock:
            self._revision += 1
            return self._revision

    def subscribe(self, prefix: str, callback: Callable[[Change], None]) -> Callable[[], None]:
        """Calls `callback` for every later change under `prefix`, in the order of revisions, one at a time.

        It runs in a writer's thread (not always that of its own write) with the lock released, so it may
        use the store; it must not wait. What it raises is logged. Gives what ends the subscription.
        """
        subscriber = _Subscriber(prefix, callback)
        with self._lock:
            self._subscribers = (*self._subscribers, subscriber)

        def unsubscribe() -> None:
            subscriber.active = False
            with self._lock:
                self._subscribers = tuple(s for s in self._subscribers if s is not subscriber)

        return unsubscribe

    def _existing(self, key: str) -> Entry:
        entry = self._tree.get(key)
        if entry is None:
            raise NotFound(key)
        return entry

    def _replace(self, key: str, current: Entry | None, obj: dict[str, Any]) -> Entry:
        """Under the lock: puts `obj` in the place of `current` unless it says the same."""
        revision = self._revision + 1
        try:
            value = encode(obj, revision)
        except TypeError as error:
            raise NotEncodable(key, str(error)) from error
        parsed = parsed_if_as_long(current, value, revision) if current else None
        if current and parsed and same_content(current, parsed):
            return current
        if len(value) > self._limit:
            raise TooLarge(key, len(value), self._limit)
        entry = Entry(key, value, revision, parsed)
        self._tree.set(key, entry)
        self._changed(Change("MODIFIED" if current else "ADDED", key, entry, current, revision))
        return entry

    def _changed(self, change: Change) -> None:
        """Under the lock: takes the change's revision and queues it for those who are subscribed now."""
        self._revision = change.revision
        if self._subscribers:
            self._pending.append((change, self._subscribers))

    def _settle(self) -> None:
        """After a write has released the lock: the place of the journal (see above), then the subscribers."""
        if self._pending and self._updating_thread != get_ident():
            self._deliver()

    def _deliver(self) -> None:
        """Hands queued changes out; one thread at a time does it for all, which keeps their order."""
        with self._lock:
            if self._delivering:
                return
            self._delivering = True
        try:
            while self._deliver_next():
                pass
        except BaseException:
            self._delivering = False
            raise

    def _deliver_next(self) -> bool:
        """Hands out the oldest queued change; False, and the turn is over, when there is none."""
        with self._lock:
            if not self._pending:
                self._delivering = False
                return False
            change, subscribers = self._pending.popleft()
        for subscriber in subscribers:
            if subscriber.active and change.key.startswith(subscriber.prefix):
                try:
                    subscriber.callback(change)
                except Exception:
                    _log.exception(
                        "subscriber of %s failed at revision %d", subscriber.prefix, change.revision
                    )
        return True


def _check(key: str, expected: int, current: Entry | None) -> None:
    """Compares the stored revision with the expected one."""
    if expected == 0:
        if current is not None:
            raise AlreadyExists(key, current)
    elif current is None:
        raise NotFound(key)
    elif current.revision != expected:
        raise Conflict(key, expected, current)
