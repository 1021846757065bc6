"""What readers see of a store: the state of which all is durable that has to be."""

from collections.abc import Callable
from threading import RLock
from typing import TYPE_CHECKING

from kube32.store.deliveries import Deliveries
from kube32.store.entry import Change, Entry
from kube32.store.radix_tree import RadixTree

if TYPE_CHECKING:
    from kube32.store.store import Store


class SettledStore:
    """The reading half of a Store, without the changes that are held."""

    def __init__(self, store: "Store", tree: RadixTree[Entry], deliveries: Deliveries, lock: RLock) -> None:
        self._store = store
        self._tree = tree
        self._deliveries = deliveries
        self._lock = lock

    @property
    def revision(self) -> int:
        """The last revision that readers see."""
        with self._lock:
            return (self._deliveries.first_held or self._store.revision + 1) - 1

    def get(self, key: str) -> Entry | None:
        """The object at `key`, or None."""
        with self._lock:
            return self._deliveries.before(key, self._tree.get(key))

    def scan(self, prefix: str, *, after: str = "", limit: int = 0) -> tuple[list[Entry], int]:
        """As Store.scan."""
        with self._lock:
            held = self._deliveries.held_keys(prefix) if self._deliveries.held else {}
            if not held:
                return self._tree.scan(prefix, after, limit), self.revision
            entries = {e.key: e for e in self._tree.scan(prefix, after, limit + len(held) if limit else 0)}
            for key, old in held.items():
                if old is None:
                    entries.pop(key, None)
                elif key > after:
                    entries[key] = old
            found = [entries[key] for key in sorted(entries)]
            return found[:limit] if limit else found, self.revision

    def count(self, prefix: str) -> int:
        """How many objects are under `prefix`."""
        with self._lock:
            if not self._deliveries.held:
                return self._tree.count(prefix)
            return len(self.scan(prefix)[0])

    def subscribe(self, prefix: str, callback: Callable[[Change], None]) -> Callable[[], None]:
        """As Store.subscribe."""
        return self._store.subscribe(prefix, callback)
