"""What readers need of a store: the object store itself and what is computed from it offer it alike."""

from collections.abc import Callable
from typing import Protocol

from kube32.store.entry import Change, Entry


class ReadingStore(Protocol):
    """Objects by key, each with its revision, and the changes as they happen; see Store for the methods."""

    @property
    def revision(self) -> int:
        """The last revision used."""
        ...

    def get(self, key: str) -> Entry | None:
        """The object at `key`, or None."""
        ...

    def scan(self, prefix: str, *, after: str = "", limit: int = 0) -> tuple[list[Entry], int]:
        """Objects under `prefix` with keys after `after`, by key, and the revision."""
        ...

    def count(self, prefix: str) -> int:
        """How many objects are under `prefix`."""
        ...

    def subscribe(self, prefix: str, callback: Callable[[Change], None]) -> Callable[[], None]:
        """Calls `callback` for every later change under `prefix`; gives what ends it."""
        ...
