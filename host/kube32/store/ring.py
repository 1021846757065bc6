"""The last changes of all kinds, for watches that resume (specification, "Versions and watches").

What falls out of the ring raises its resource's low-water mark; a watch is too old only when its own
resource has lost something that it has not seen (decisions, "Departures").
"""

from collections import deque
from collections.abc import Callable, Iterator
from typing import Any

from kube32.store.entry import Change, Entry, restamp

Match = Callable[[dict[str, Any]], bool]


def resource_of_key(key: str) -> str:
    """The resource of a key or of a prefix within it: "/registry/pods/" of "/registry/pods/default/web"."""
    first = key.find("/", 1)
    second = key.find("/", first + 1)
    return key[: second + 1] if first > 0 and second > 0 else key


class Record:
    """A change in the ring; `number` counts changes of all kinds."""

    __slots__ = ("_left", "change", "number", "resource")

    def __init__(self, change: Change, number: int) -> None:
        self.change = change
        self.number = number
        self.resource = resource_of_key(change.key)
        self._left: Entry | None = None

    def seen_through(self, match: Match | None) -> tuple[str, Entry] | None:
        """The event's type and object for a watch of what `match` accepts; None when it sees nothing."""
        change = self.change
        if match is None:
            return change.type, change.entry
        before = change.old is not None and match(change.old.obj)
        if change.type != "DELETED" and match(change.entry.obj):
            return "MODIFIED" if before else "ADDED", change.entry
        return ("DELETED", self._last_seen()) if before else None

    def _last_seen(self) -> Entry:
        """The old object under the change's revision, for watches that the object left."""
        if self.change.type == "DELETED" or self.change.old is None:
            return self.change.entry
        if self._left is None:
            self._left = restamp(self.change.old, self.change.revision)
        return self._left


class EventRing:
    """`size` records at most; watches may resume from `boot` on. Guarded by the hub's lock."""

    def __init__(self, size: int, boot: int) -> None:
        self.size = size
        self.boot = boot
        self.seen = boot
        self._records: deque[Record] = deque()
        self._lost: dict[str, int] = {}
        self._number = 0

    def append(self, change: Change) -> Record:
        """Takes a change in, and the oldest one out when the ring is full."""
        if len(self._records) == self.size:
            oldest = self._records.popleft()
            self._lost[oldest.resource] = oldest.change.revision
        self._number += 1
        record = Record(change, self._number)
        self._records.append(record)
        self.seen = change.revision
        return record

    def oldest(self, resource: str) -> int:
        """The low-water mark: the earliest revision from which nothing of the resource has been lost."""
        return max(self._lost.get(resource, 0), self.boot)

    def after(self, revision: int) -> Iterator[Record]:
        """The records with later revisions, oldest first."""
        return (r for r in self._records if r.change.revision > revision)
