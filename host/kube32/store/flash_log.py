"""FlashLog: a ring of flash sectors that keeps the newest record of each key (specification, "Persistence
journal"; format: docs/formats.md, "K32L").

A commit appends records on pages of their own and syncs once. The oldest sectors are reclaimed by appending
what lives in them again, a little with each commit. A sector is erased only when a durable record has said
that the tail is past it. Not thread-safe: the journal calls it from one place at a time.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

from kube32.contract import K32L
from kube32.formats.k32l import (
    HEADER_BYTES,
    RECORD_BYTES,
    Placement,
    Record,
    RecordType,
    mark_value,
    stored_bytes,
)
from kube32.formats.k32l.records import record_header
from kube32.store.flash import Flash, FlashError
from kube32.store.recovery import (
    LogUnreadable,
    Recovered,
    Report,
    Write,
    recover,
)
from kube32.store.ring_room import RingRoom

__all__ = ["FlashLog", "LogFull", "LogUnreadable", "Report", "Write"]

Rescue = Callable[[bytes], Write | None]


class LogFull(Exception):
    """Live records would not fit any more; nothing was written."""


@dataclass(slots=True)
class _Batch:
    """A commit being laid out: its placement and what becomes true when it is durable."""

    placement: Placement
    stated: int
    tail: int
    moved: list[Record] = field(default_factory=list)
    marks: list[tuple[Record, int]] = field(default_factory=list)
    lost: list[Record] = field(default_factory=list)
    written: frozenset[bytes] = frozenset()
    copied: int = 0


class FlashLog:
    """The log on `flash`; made by `open`.

    `reserved` is the first revision not usable without a further mark. `opened` counts sectors since `open`,
    `programmed_bytes` what went to the flash, `accepted_bytes` the keys and values that commits brought.
    """

    def __init__(self, flash: Flash, live_bytes: int, record_bytes: int, rescue: Rescue | None) -> None:
        self.flash = flash
        self.geometry = flash.geometry
        self.record_bytes = record_bytes
        self._room = RingRoom(flash.geometry, record_bytes)
        self.capacity = self._room.capacity
        if live_bytes > self.capacity:
            raise ValueError(f"{live_bytes} live bytes do not fit: at most {self.capacity}")
        self.capacity = live_bytes
        self.rescue = rescue
        self.report = Report()
        self.failed: FlashError | None = None
        self.next_revision = 1
        self.reserved = 1
        self.live_bytes = 0
        self.programmed_bytes = 0
        self.accepted_bytes = 0
        self.opened = 0
        self.head = -1
        self._recovered: list[Write] = []
        self._index: dict[bytes, Record] = {}
        self._spans: Counter[int] = Counter()
        self._begun: dict[int, list[Record]] = {}
        self._mark: Record | None = None
        self._tail = 0
        self._stated_tail = 0
        self._prior_tail = 0
        self._at = 0
        self._at_end_of_boot = 0
        self._block = 0

    @classmethod
    def open(
        cls,
        flash: Flash,
        *,
        live_bytes: int,
        record_bytes: int,
        revision_block: int,
        rescue: Rescue | None = None,
    ) -> "FlashLog":
        """Recovers what is on the flash and makes it ready for commits. LogUnreadable, FlashError, ValueError.

        `live_bytes`: how much may live, in stored bytes; `record_bytes`: the largest record, stored.
        `rescue` gives the newest state of a key whose record turns out to be damaged while it is moved.
        """
        log = cls(flash, live_bytes, record_bytes, rescue)
        log._block = revision_block
        found = recover(flash, log._room, revision_block)
        log.report = found.report
        log.next_revision = found.next_revision
        log._recovered = found.objects
        log._go_on(found)
        log._end_boot()
        return log

    def _end_boot(self) -> None:
        """A first commit, behind the fence: once it is there, nobody can doubt that the fence was whole.

        It brings nothing that could come and go, so it may stand in the fence's sector. Others may not.
        """
        after, self._at = self._at, self._at_end_of_boot
        batch = self._new_batch()
        self._place_mark(batch, self.reserved)
        self._write(batch, ())
        self._at = max(after, self._at)

    def _go_on(self, found: Recovered) -> None:
        """Takes over the state that a recovery has left."""
        size = self.geometry.sector_bytes
        self.reserved = found.reserved
        self.programmed_bytes += found.programmed
        self._index, self._mark = found.live, found.mark
        self.live_bytes = 0
        self._spans.clear()
        self._begun.clear()
        for record in found.live.values():
            self._count(record, 1)
        self.head = found.head
        self._tail = self._stated_tail = self._prior_tail = found.tail
        self._at_end_of_boot = found.next_start
        self._at = (found.head + 1) * size
        for record in (*found.live.values(), found.mark):
            self._begun.setdefault(record.address // size, []).append(record)

    def take_recovered(self) -> list[Write]:
        """The live objects that `open` found; the second time, nothing."""
        found, self._recovered = self._recovered, []
        return found

    @property
    def live_keys(self) -> int:
        """Objects that are there."""
        return len(self._index)

    @property
    def sectors(self) -> int:
        """Sectors of the ring."""
        return self.geometry.sectors

    @property
    def sectors_used(self) -> int:
        """Sectors from the tail to the head."""
        return self.head - self._tail + 1

    def live_size(self, key: bytes) -> int:
        """Stored bytes of a key's record; 0 when there is none."""
        record = self._index.get(key)
        return 0 if record is None else record.stored_bytes

    def sizes(self) -> Iterable[tuple[bytes, int]]:
        """Every live key with its stored bytes."""
        return ((key, record.stored_bytes) for key, record in self._index.items())

    def commit(self, writes: Sequence[Write], reserve: int | None = None) -> None:
        """Makes writes (of different keys) durable, and a new `reserved` if one is given.

        LogFull and ValueError before anything is written; FlashError: what was not durable may be there or
        not, and the log takes nothing more.
        """
        if self.failed is not None:
            raise self.failed
        parts = self._parts(writes)
        mark = reserve if reserve is not None and reserve > self.reserved else None
        try:
            for part in parts[:-1]:
                self._append(part, None)
            if parts or mark:
                self._append(parts[-1] if parts else (), mark)
        except FlashError as error:
            self.failed = error
            raise

    def _parts(self, writes: Sequence[Write]) -> list[Sequence[Write]]:
        """The writes as commits of a bounded size. LogFull, ValueError for what is too large."""
        total = grown = 0
        for write in writes:
            size = stored_bytes(len(write.key), len(write.value or b""))
            if size > self.record_bytes or len(write.key) > 0xFFFF:
                raise ValueError(f"a record of {size} bytes, at most {self.record_bytes}")
            total += size
            grown += (size if write.value is not None else 0) - self.live_size(write.key)
        if grown > 0 and self.live_bytes + grown > self.capacity:
            raise LogFull(f"{self.live_bytes + grown} bytes would live, {self.capacity} can")
        if total <= self._room.batch_bytes:
            return [writes] if writes else []
        # What frees room goes first.
        return list(_split(sorted(writes, key=self._growth), self._room.batch_bytes))

    def _growth(self, write: Write) -> int:
        size = 0 if write.value is None else stored_bytes(len(write.key), len(write.value))
        return size - self.live_size(write.key)

    # --- appending ---

    def _append(self, writes: Sequence[Write], reserve: int | None) -> None:
        """One commit; before it as many that only reclaim as are needed to make room."""
        for _ in range(4 * self.sectors):
            for pace in (True, False):
                batch = self._batch(writes, reserve, pace=pace)
                if self._fits(batch):
                    self._write(batch, writes)
                    return
            if not self._make_room():
                self._compact()
        raise LogFull("no sector could be reclaimed")

    def _compact(self) -> None:
        """As a boot does it: its copies may take the last sectors, since they count only with their fence."""
        try:
            self._go_on(recover(self.flash, self._room, self._block, self._stated_tail))
        except LogUnreadable as error:
            raise LogFull(str(error)) from None

    def _make_room(self) -> bool:
        """A commit that only states the tail, where that frees sectors, or reclaims of the oldest one what
        fits; False: there is no room for that.
        """
        batch = self._new_batch()
        if self._tail > self._prior_tail:
            self._place_mark(batch, self.reserved)
            if not self._leaves(batch, self._room.reserve // 4):
                return False
        elif batch.tail < self.head:
            for record in filter(self._counts, self._begun.get(batch.tail, ())):
                if not self._reclaim(batch, record, checked=True):
                    break
            else:
                batch.tail += 1
        if not batch.moved and not batch.marks:
            return False
        self._write(batch, ())
        return True

    def _is_dead(self, sequence: int) -> bool:
        """Whether nothing that lives begins in a sector."""
        return not any(map(self._counts, self._begun.get(sequence, ())))

    def _batch(self, writes: Sequence[Write], reserve: int | None, *, pace: bool) -> _Batch:
        """The layout of a commit, with some reclaiming if `pace`."""
        batch = self._new_batch()
        batch.written = frozenset(w.key for w in writes)
        if pace:
            self._reclaim_some(batch, sum(len(w.key) + len(w.value or b"") for w in writes))
        for write in writes:
            kind = RecordType.DELETE if write.value is None else RecordType.PUT
            self._place(batch, kind, write.key, write.value or b"", write.revision)
        if reserve is not None:
            self._place_mark(batch, reserve)
        return batch

    def _new_batch(self) -> _Batch:
        while self._tail < self.head and self._is_dead(self._tail):
            self._begun.pop(self._tail, None)
            self._tail += 1
        return _Batch(Placement(self.geometry, self._at), self._tail, self._tail)

    def _place(self, batch: _Batch, kind: RecordType, key: bytes, value: bytes, revision: int) -> Record:
        flags = 0 if batch.moved or batch.marks else K32L.begins
        run = batch.placement.sequence - self._tail
        record = Record(kind, flags, key, len(value), revision, run, 0, 0)
        batch.placement.add(record, value)
        if kind != RecordType.MARK:
            batch.moved.append(record)
        return record

    def _place_mark(self, batch: _Batch, revision: int) -> None:
        value = mark_value(revision, None, self.geometry)
        batch.marks.append((self._place(batch, RecordType.MARK, b"", value, self.next_revision), revision))

    @property
    def _free(self) -> int:
        """Sectors that may be opened, also by a boot that finds this commit torn and so trusts only what was
        stated before the last one.
        """
        return self._prior_tail + self.sectors - 1 - self.head

    def _leaves(self, batch: _Batch, reserve: int, further: int = 0) -> bool:
        """Whether a commit (and a record of `further` bytes in it) leaves room for a recovery that has to write
        it all again, and `reserve` sectors.
        """
        touched, opened = batch.placement.extent(further)
        return opened + self._room.committing(touched) + reserve <= self._free

    def _fits(self, batch: _Batch) -> bool:
        """Whether a commit leaves what it must, and the largest record can still be moved afterwards."""
        sizes = [record.stored_bytes for record in batch.moved]
        largest = max([*sizes, *(span * self.geometry.room for span in self._spans)], default=1)
        opened = batch.placement.extent()[1]
        reserve = self._room.reserve
        return (
            self._leaves(batch, reserve) and opened + self._room.moving(largest) + reserve // 2 <= self._free
        )

    # --- reclaiming ---

    def _reclaim_some(self, batch: _Batch, write_bytes: int) -> None:
        """Moves the tail on when free sectors are few: at the pace of the writes, faster the fewer there are."""
        largest = max(self._spans, default=1) * self.geometry.room
        target = max(self.sectors * 3 // 20, self._room.moving(largest) + self._room.reserve + 2)
        free = self._tail + self.sectors - 1 - self.head
        budget = write_bytes * (2 if free > target // 2 else 4)
        while batch.tail < self.head and batch.tail + self.sectors - 1 - self.head < target:
            if batch.copied >= budget and not self._is_dead(batch.tail):
                return
            self._reclaim_sector(batch)
            budget = max(budget, 1)

    def _reclaim_sector(self, batch: _Batch) -> None:
        """Places what lives in the oldest sector again."""
        if batch.tail >= self.head:
            return
        for record in filter(self._counts, self._begun.get(batch.tail, ())):
            if record.key not in batch.written:
                self._reclaim(batch, record)
        batch.tail += 1

    def _reclaim(self, batch: _Batch, record: Record, *, checked: bool = False) -> bool:
        """Places a record again; if `checked`, only where the commit leaves room enough: else False."""
        if record is self._mark:
            write = Write(b"", mark_value(self.reserved, None, self.geometry), self.next_revision)
        else:
            found = self._read(record) or (self.rescue(record.key) if self.rescue is not None else None)
            if found is None or found.value is None:
                batch.lost.append(record)
                return True
            write = found
        assert write.value is not None
        size = stored_bytes(len(write.key), len(write.value))
        if checked and not self._leaves(batch, self._room.reserve // 2, size):
            return False
        if record is self._mark:
            self._place_mark(batch, self.reserved)
        else:
            self._place(batch, RecordType.PUT, write.key, write.value, write.revision)
            batch.copied += size
        return True

    def _counts(self, record: Record) -> bool:
        return record is self._mark or self._index.get(record.key) is record

    def _read(self, record: Record) -> Write | None:
        """The record's content; None where the flash no longer holds what was written."""
        size = self.geometry.sector_bytes
        sequence, offset = divmod(record.address, size)
        parts, rest = [], RECORD_BYTES + len(record.key) + record.value_bytes
        while rest:
            offset = offset or HEADER_BYTES
            taken = min(rest, size - offset)
            parts.append(self.flash.read(sequence % self.sectors * size + offset, taken))
            rest -= taken
            sequence, offset = sequence + 1, 0
        data = b"".join(parts)
        value = data[RECORD_BYTES + len(record.key) :]
        header = record_header(record.address // size, record, value)
        return Write(record.key, value, record.revision) if data.startswith(header + record.key) else None

    # --- writing ---

    def _write(self, batch: _Batch, writes: Sequence[Write]) -> None:
        """Programs and syncs a commit, then takes note of it."""
        size = self.geometry.sector_bytes
        for piece in batch.placement.pieces():
            slot = piece.sequence % self.sectors
            if piece.fresh:
                self.flash.erase(slot)
                self.opened += 1
            self.flash.program(slot * size + piece.offset, bytes(piece.data))
            self.programmed_bytes += len(piece.data)
            self.head = piece.sequence
        self.flash.sync()
        self._at = batch.placement.next_start
        self._prior_tail, self._stated_tail = self._stated_tail, batch.stated
        for sequence in range(self._tail, batch.tail):
            self._begun.pop(sequence, None)
        self._tail = batch.tail
        for record in batch.lost:
            self._forget(record.key)
            key = record.key.decode("utf-8", "replace")
            self.report.faults.append(f"sector {record.address // size}: the record of {key} is damaged")
        for record in batch.moved:
            self._note(record)
        for record, revision in batch.marks:
            self._mark = record
            self.reserved = max(self.reserved, revision)
            self._begun.setdefault(record.address // size, []).append(record)
        self.accepted_bytes += sum(len(w.key) + len(w.value or b"") for w in writes)

    def _note(self, record: Record) -> None:
        """The record is its key's newest from now on."""
        self._forget(record.key)
        if record.type == RecordType.PUT:
            self._index[record.key] = record
            self._count(record, 1)
            self._begun.setdefault(record.address // self.geometry.sector_bytes, []).append(record)

    def _forget(self, key: bytes) -> None:
        old = self._index.pop(key, None)
        if old is not None:
            self._count(old, -1)

    def _count(self, record: Record, change: int) -> None:
        """A record lives from now on (1), or no longer (-1)."""
        size = record.stored_bytes
        self.live_bytes += change * size
        span = self._room.span(size)
        self._spans[span] += change
        if not self._spans[span]:
            del self._spans[span]


def _split(writes: Sequence[Write], most: int) -> Iterable[Sequence[Write]]:
    """The writes in commits of a bounded size."""
    begin = size = 0
    for number, write in enumerate(writes):
        length = stored_bytes(len(write.key), len(write.value or b""))
        if number > begin and size + length > most:
            yield writes[begin:number]
            begin, size = number, 0
        size += length
    if begin < len(writes):
        yield writes[begin:]
