"""What readers see of computed objects: the reading half of store.Store, over objects that nobody writes.

An object's resourceVersion is a revision of the main store that was claimed when it last came out differently:
computed and stored kinds share one order, and a client's version of either is never from the future.
"""

import logging
from collections import deque
from collections.abc import Callable
from threading import RLock
from typing import Any

from kube32.store import Change, Entry, Store
from kube32.store.entry import encode, restamp, same_content
from kube32.store.radix_tree import RadixTree

_log = logging.getLogger(__name__)
Callback = Callable[[Change], None]


class ComputedStore:
    """Computed objects by key. `set`, `remove` and `deliver` are for the views alone.

    Every reading first calls `settle`, which computes what is out of date.
    """

    def __init__(self, store: Store, settle: Callable[[], None]) -> None:
        self._store = store
        self._settle = settle
        self._lock = RLock()
        self._tree: RadixTree[Entry] = RadixTree()
        self._subscribers: tuple[tuple[str, Callback], ...] = ()
        self._pending: deque[Change] = deque()
        self._delivering = False

    @property
    def revision(self) -> int:
        """The last revision used, that of the main store."""
        self._settle()
        return self._store.revision

    def get(self, key: str) -> Entry | None:
        """The object at `key`, or None."""
        self._settle()
        with self._lock:
            return self._tree.get(key)

    def scan(self, prefix: str, *, after: str = "", limit: int = 0) -> tuple[list[Entry], int]:
        """Objects under `prefix` with keys after `after`, by key, `limit` at most (0: all); the revision."""
        self._settle()
        with self._lock:
            # Under the lock: a change that is computed later gets a later one.
            return self._tree.scan(prefix, after, limit), self._store.revision

    def count(self, prefix: str) -> int:
        """How many objects are under `prefix`."""
        self._settle()
        with self._lock:
            return self._tree.count(prefix)

    def subscribe(self, prefix: str, callback: Callback) -> Callable[[], None]:
        """As Store.subscribe."""
        row = (prefix, callback)
        with self._lock:
            self._subscribers = (*self._subscribers, row)

        def unsubscribe() -> None:
            with self._lock:
                self._subscribers = tuple(s for s in self._subscribers if s is not row)

        return unsubscribe

    def set(self, key: str, obj: dict[str, Any]) -> None:
        """The object, which is the store's from now on, came out as `obj`; nothing happens if it is as before."""
        with self._lock:
            current = self._tree.get(key)
            if current is not None:
                obj["metadata"]["resourceVersion"] = str(current.revision)
                if same_content(current, obj):
                    return
            revision = self._store.claim()
            obj["metadata"]["resourceVersion"] = str(revision)
            entry = Entry(key, encode(obj, revision), revision, obj)
            self._tree.set(key, entry)
            self._changed(Change("MODIFIED" if current else "ADDED", key, entry, current, revision))

    def remove(self, key: str) -> None:
        """There is no such object any more."""
        with self._lock:
            current = self._tree.get(key)
            if current is None:
                return
            revision = self._store.claim()
            entry = restamp(current, revision)
            self._tree.pop(key)
            self._changed(Change("DELETED", key, entry, current, revision))

    def _changed(self, change: Change) -> None:
        if self._subscribers:
            self._pending.append(change)

    def deliver(self) -> None:
        """Tells the subscribers, in the order of revisions: one thread at a time does it for all."""
        with self._lock:
            if self._delivering or not self._pending:
                return
            self._delivering = True
        try:
            while self._deliver_next():
                pass
        except BaseException:
            self._delivering = False
            raise

    def _deliver_next(self) -> bool:
        with self._lock:
            if not self._pending:
                self._delivering = False
                return False
            change, subscribers = self._pending.popleft(), self._subscribers
        for prefix, callback in subscribers:
            if change.key.startswith(prefix):
                try:
                    callback(change)
                except Exception:
                    _log.exception("a subscriber failed at revision %d", change.revision)
        return True
