"""The snapshot pool: Checkpoint data in memory, beside the object store.

Specification, "Checkpoint objects and data". What does not fit drops the oldest other snapshots, but never
one that is in use by a move or named by a pod. Bytes count from the moment they arrive, so memory stays
bounded while snapshots are received.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from kube32.contract import Limits, text

_SEGMENT = 65536


class SnapshotTooLarge(Exception):
    """A snapshot that does not fit: larger than the whole pool, or than what others in use leave of it."""


@dataclass(frozen=True, slots=True)
class SnapshotFacts:
    """What is told of a stored snapshot; digests are lower-case hex."""

    snapshot_sha256: str
    image_sha256: str
    pod_time_ms: int


@dataclass(frozen=True, slots=True, eq=False)
class StoredSnapshot:
    """A snapshot's bytes. They stay as long as somebody holds this, also when the pool has dropped it."""

    segments: tuple[bytearray, ...]
    size: int
    facts: SnapshotFacts

    def chunks(self) -> Iterator[memoryview]:
        """The bytes in order, without copying them."""
        left = self.size
        for segment in self.segments:
            yield memoryview(segment)[: min(left, len(segment))].toreadonly()
            left -= len(segment)

    def __bytes__(self) -> bytes:
        return b"".join(self.chunks())


class Incoming:
    """A snapshot on its way in, until `commit` or `abort`. What its key had stays until `commit`."""

    def __init__(self, pool: "SnapshotPool", key: str, announced: int) -> None:
        self.key = key
        self.size = 0
        self._announced = announced
        self._pool = pool
        self._segments: list[bytearray] = []
        self._open = True

    def write(self, data: bytes | memoryview) -> None:
        """Takes the next bytes. SnapshotTooLarge without room, ValueError past the announced size."""
        view = memoryview(data)
        if self.size + len(view) > self._announced:
            raise ValueError(f"more than the announced {self._announced} bytes")
        self._pool.make_room(self, len(view))
        while view:
            used = self.size % _SEGMENT
            if not used:
                # At most one segment is ahead of what has arrived: an announced size is only a claim.
                self._segments.append(bytearray(min(_SEGMENT, self._announced - self.size)))
            part = min(len(view), _SEGMENT - used)
            self._segments[-1][used : used + part] = view[:part]
            self.size += part
            view = view[part:]

    def commit(self, facts: SnapshotFacts) -> StoredSnapshot:
        """Stores the bytes as the newest snapshot, in place of an older one of the same key."""
        snapshot = StoredSnapshot(tuple(self._segments), self.size, facts)
        self._pool.store(self, snapshot)
        self._open = False
        return snapshot

    def abort(self) -> None:
        """Drops the bytes, unless they were stored."""
        if self._open:
            self._open = False
            self._pool.end(self)


class SnapshotPool:
    """All snapshots by their Checkpoint's key. `protected` tells which ones are not dropped to make room."""

    def __init__(self, limits: Limits, protected: Callable[[str], bool]) -> None:
        self._limit = limits.snapshot_pool_bytes
        self._protected = protected
        self._stored: dict[str, StoredSnapshot] = {}  # oldest first
        self._stored_bytes = 0
        self._incoming: set[Incoming] = set()

    @property
    def used_bytes(self) -> int:
        """Bytes in use. A snapshot and the one that replaces it count as the larger of the two."""
        received: dict[str, int] = {}
        for incoming in self._incoming:
            received[incoming.key] = received.get(incoming.key, 0) + incoming.size
        extra = sum(max(0, size - self._size(key)) for key, size in received.items())
        return self._stored_bytes + extra

    def get(self, key: str) -> StoredSnapshot | None:
        """The snapshot of a Checkpoint, or None."""
        return self._stored.get(key)

    def forget(self, key: str) -> None:
        """Drops a snapshot, if it is there."""
        self._stored_bytes -= self._size(key)
        self._stored.pop(key, None)

    def begin(self, key: str, size: int) -> Incoming:
        """Starts to receive `size` bytes; SnapshotTooLarge when they cannot fit. Drops nothing yet."""
        self.check(key, size)
        incoming = Incoming(self, key, size)
        self._incoming.add(incoming)
        return incoming

    def put(self, key: str, data: bytes, facts: SnapshotFacts) -> StoredSnapshot:
        """Stores a whole snapshot; SnapshotTooLarge."""
        incoming = self.begin(key, len(data))
        try:
            incoming.write(data)
            return incoming.commit(facts)
        finally:
            incoming.abort()

    def check(self, key: str, size: int) -> None:
        """Raises SnapshotTooLarge when a snapshot of `size` bytes cannot be stored under `key`."""
        if size > self._limit:
            raise SnapshotTooLarge(text("answers", "snapshot_too_large", found=size, limit=self._limit))
        if size <= self._limit - self._stored_bytes:
            return
        kept = sum(s.size for k, s in self._stored.items() if k != key and self._protected(k))
        if size > self._limit - kept:
            raise self._no_room(size, self._limit - kept)

    def make_room(self, incoming: Incoming, more: int) -> None:
        """Drops the oldest other snapshots until `more` bytes fit; SnapshotTooLarge when they never do."""
        used = self.used_bytes
        own = sum(i.size for i in self._incoming if i.key == incoming.key)
        stored = self._size(incoming.key)
        need = used + max(0, own + more - stored) - max(0, own - stored) - self._limit
        if need <= 0:
            return
        dropped = []
        for key, snapshot in self._stored.items():
            if need <= 0:
                break
            if key != incoming.key and not self._protected(key) and not self._is_replaced(key):
                dropped.append(key)
                need -= snapshot.size
        if need > 0:
            raise self._no_room(incoming.size + more, incoming.size + more - need)
        for key in dropped:
            self.forget(key)

    def store(self, incoming: Incoming, snapshot: StoredSnapshot) -> None:
        """The end of an Incoming that is complete."""
        self._incoming.discard(incoming)
        self.forget(incoming.key)
        self._stored[incoming.key] = snapshot
        self._stored_bytes += snapshot.size

    def end(self, incoming: Incoming) -> None:
        """The end of an Incoming that is not wanted."""
        self._incoming.discard(incoming)

    def _size(self, key: str) -> int:
        snapshot = self._stored.get(key)
        return 0 if snapshot is None else snapshot.size

    def _is_replaced(self, key: str) -> bool:
        """Whether a replacement is on its way in: dropping the old bytes would free little or nothing."""
        return any(incoming.key == key for incoming in self._incoming)

    def _no_room(self, size: int, free: int) -> SnapshotTooLarge:
        fields = {"found": size, "free": max(free, 0), "limit": self._limit}
        return SnapshotTooLarge(text("answers", "snapshot_no_room", **fields))
