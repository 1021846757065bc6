"""What readers see of computed objects: the reading half of store.Store, over objects that nobody writes.

An object's resourceVersion is a revision of the main store that was claimed when it last came out differently:
computed and stored kinds share one order, and a client's version of either is never from the future.
"""

import logging
from collections.abc import Callable
from threading import RLock
from typing import Any

from kube32.store import Change, Entry, Store
from kube32.store.entry import encode, restamp, same_content
from kube32.store.radix_tree import RadixTree

_log = logging.getLogger(__name__)
Callback = Callable[[Change], None]


class ComputedStore:
    """Computed objects by key. `set` and `remove` are for the views alone."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._lock = RLock()
        self._tree: RadixTree[Entry] = RadixTree()
        self._subscribers: tuple[tuple[str, Callback], ...] = ()

    @property
    def revision(self) -> int:
        """The last revision used, that of the main store."""
        return self._store.revision

    def get(self, key: str) -> Entry | None:
        """The object at `key`, or None."""
        with self._lock:
            return self._tree.get(key)

    def scan(self, prefix: str, *, after: str = "", limit: int = 0) -> tuple[list[Entry], int]:
        """Objects under `prefix` with keys after `after`, by key, `limit` at most (0: all); the revision."""
        with self._lock:
            # Taken first: a change that is under way gets a later one.
            revision = self._store.revision
            return self._tree.scan(prefix, after, limit), revision

    def count(self, prefix: str) -> int:
        """How many objects are under `prefix`."""
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
        """The object came out as `obj`; nothing happens when it is as before."""
        with self._lock:
            current = self._tree.get(key)
            if current is not None:
                stamped = {**obj, "metadata": {**obj["metadata"], "resourceVersion": str(current.revision)}}
                if same_content(current, stamped):
                    return
            revision = self._store.claim()
            entry = Entry(key, encode(obj, revision), revision)
            self._tree.set(key, entry)
        self._tell(Change("MODIFIED" if current else "ADDED", key, entry, current, revision))

    def remove(self, key: str) -> None:
        """There is no such object any more."""
        with self._lock:
            current = self._tree.get(key)
            if current is None:
                return
            revision = self._store.claim()
            entry = restamp(current, revision)
            self._tree.pop(key)
        self._tell(Change("DELETED", key, entry, current, revision))

    def _tell(self, change: Change) -> None:
        for prefix, callback in self._subscribers:
            if change.key.startswith(prefix):
                try:
                    callback(change)
                except Exception:
                    _log.exception("a subscriber failed at revision %d", change.revision)
