"""What a boot does with a log before anything new is acknowledged (docs/formats.md, "K32L").

A cut leaves cells that read differently each time. So what this boot read at the log's end is written again,
then a fence that makes those copies count and the originals void; only then the log is served.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field

from kube32.contract import K32L
from kube32.formats.k32l import (
    Fault,
    Fence,
    Placement,
    Record,
    RecordType,
    Scan,
    crc_of_copies,
    mark_value,
    resolve,
    scan,
)
from kube32.store.flash import Flash
from kube32.store.ring_room import RingRoom

# As many torn fences would have to read as erased, all at once, before one of them escapes a boot.
_BLANK_SECTORS = 4
_MOST_SECTORS = (1 << 32) - 1
_MOST_REVISION = (1 << 63) - 1


class LogUnreadable(Exception):
    """The journal cannot be used, and nothing was written to it; str() says why in one sentence."""


@dataclass(frozen=True, slots=True)
class Write:
    """One change for the log: `value` is None for a deletion."""

    key: bytes
    value: bytes | None
    revision: int


@dataclass(slots=True)
class Report:
    """What a recovery found. `faults` and `torn` are lines for people; a mere power cut gives no fault."""

    new: bool = False
    records: int = 0
    faults: list[str] = field(default_factory=list)
    torn: list[str] = field(default_factory=list)


@dataclass(slots=True)
class Recovered:
    """The state of a log after recovery, from which FlashLog goes on.

    `head`: the fence's sector. `next_start`: the page behind the fence.
    """

    report: Report
    objects: list[Write]
    live: dict[bytes, Record]
    mark: Record
    head: int
    next_start: int
    tail: int
    next_revision: int
    reserved: int
    programmed: int


def recover(flash: Flash, room: RingRoom, revision_block: int, stated_tail: int = 0) -> Recovered:
    """Reads the whole flash, makes what it chose durable, and gives it. LogUnreadable, FlashError.

    `stated_tail`: what is known to be durably stated, since it was synced without a cut meanwhile.
    """
    geometry = flash.geometry
    found = scan(flash.read(0, geometry.size), geometry)
    if found.blank or _never_begun(found):
        return _Recovery(flash, found, room, revision_block, stated_tail, new=True).run()
    return _Recovery(flash, found, room, revision_block, stated_tail, new=False).run()


def _never_begun(found: Scan) -> bool:
    """Whether the power failed while the very first sector was written."""
    size = found.geometry.sector_bytes
    rest = found.image[size:]
    return not found.records and found.head <= 0 and rest.count(K32L.blank) == len(rest)


class _Recovery:
    def __init__(
        self, flash: Flash, found: Scan, room: RingRoom, block: int, stated_tail: int, *, new: bool
    ) -> None:
        self._flash = flash
        self._geometry = flash.geometry
        self._scan = found
        self._says = says = resolve(found)
        if not new and says.last < 0:
            raise LogUnreadable("it holds no whole record of a K32L journal, and is not erased either")
        if says.last + 2 * flash.geometry.sectors > _MOST_SECTORS:
            raise LogUnreadable(
                f"sector {says.last} is the last one that counts, and leaves no further numbers"
            )
        self._room = room
        # No sector from here on may be opened: its slot holds one that counts, or may count after a cut.
        self._bound = max(says.stable_tail, stated_tail) + flash.geometry.sectors
        self._report = Report(new=new, records=len(found.records))
        self._tail = says.tail
        self._programmed = 0
        self._erased: set[int] = set()
        self._next_revision = says.next_revision + block * self._damaged_pages()
        self._reserved = self._next_revision + block
        if self._reserved > _MOST_REVISION:
            raise LogUnreadable(f"it says that revision {says.next_revision} was given out, which cannot be")

    def run(self) -> Recovered:
        says, size = self._says, self._geometry.sector_bytes
        self._report.faults = [self._line(fault) for fault in says.faults]
        self._report.torn = [self._line(fault) for fault in says.torn]
        objects = [Write(key, self._scan.value(r), r.revision) for key, r in says.live.items()]
        plan = self._plan()
        if not self._has_room(plan):
            # So many boots in a row have been cut that what they say of the tail has to be believed.
            self._bound = says.tail + self._geometry.sectors
        if not self._has_room(plan):
            raise LogUnreadable("no sector is left in which recovery could write what it found")
        for sequence in reversed(range(says.last + 1, self._end_of_traces())):
            self._erase(sequence)
        self._write(plan.copies)
        self._write(plan.fence)
        live = {**says.live, **{r.key: r for r in plan.placed if r.type == RecordType.PUT}}
        return Recovered(
            self._report,
            objects,
            live,
            plan.mark,
            plan.mark.address // size,
            plan.fence.next_start,
            plan.tail,
            self._next_revision,
            self._reserved,
            self._programmed,
        )

    def _end_of_traces(self) -> int:
        """The first sector to which no boot before this one, that did not end, can have come.

        They open sectors one after the other, so none came past a sector that still has its older header. In
        the ring's first round there is none: there, a few sectors that read as erased are the end. Torn fences
        are among the traces. They are erased first, or one could come to life in front of newer copies.
        """
        sequence, blank, end = self._scan.head + 1, 0, self._bound
        while sequence < end and not self._scan.is_older(sequence) and blank < _BLANK_SECTORS:
            blank = blank + 1 if self._scan.is_blank(sequence) else 0
            sequence += 1
        return sequence

    def _damaged_pages(self) -> int:
        """How many marks may be lost: each commit has a page of its own."""
        page = self._geometry.page_bytes
        return sum(-(-(fault.end - fault.address) // page) for fault in self._says.faults)

    def _plan(self) -> "_Plan":
        """The copies that are due; where free sectors are few, also those that free the tail's."""
        says, sectors, size = self._says, self._geometry.sectors, self._geometry.sector_bytes
        again, tail = list(says.copies), says.tail
        plan = self._lay_out(again, tail)
        largest = max((r.stored_bytes for r in says.live.values()), default=1)
        low = self._room.moving(largest) + self._room.reserve + 1
        due = {record.key for record in again}
        by_sector: dict[int, list[Record]] = {}
        for record in says.live.values():
            by_sector.setdefault(record.address // size, []).append(record)
        step = sectors
        while step and tail <= says.last:
            missing = low - (tail + sectors - 1 - plan.mark.address // size)
            if missing <= 0:
                break
            # Many at once where many are missing: each time all copies are laid out anew.
            step = min(step, max(1, missing // 4))
            end = min(tail + step, says.last + 1)
            more = [r for s in range(tail, end) for r in by_sector.get(s, ()) if r.key not in due]
            further = self._lay_out([*again, *more], end)
            # One for the fence of the next boot.
            if self._has_room(further, spare=1):
                again += more
                plan, tail = further, end
            else:
                step //= 2
        return plan

    def _lay_out(self, records: Iterable[Record], tail: int) -> "_Plan":
        """The copies of `records`, and the fence that states `tail` once they are durable."""
        says, size = self._says, self._geometry.sector_bytes
        copies = Placement(self._geometry, (says.last + 1) * size)
        placed = []
        for record in records:
            run = copies.sequence - says.tail
            copy = Record(record.type, K32L.boot, record.key, record.value_bytes, record.revision, run, 0, 0)
            copies.add(copy, self._scan.value(record))
            placed.append(copy)
        # In a sector of its own: no erase can spoil copies and leave their fence.
        fence = Placement(self._geometry, -(-copies.next_start // size) * size)
        standing = [r for r in says.standing if r.address >= tail * size]
        crc = crc_of_copies([*standing, *placed])
        says_then = Fence(self._reserved, says.void_start, says.void_end, crc)
        content = mark_value(self._reserved, says_then, self._geometry)
        mark = Record(
            RecordType.MARK, K32L.boot, b"", len(content), self._next_revision, fence.sequence - tail, 0, 0
        )
        fence.add(mark, content)
        return _Plan(copies, placed, fence, mark, tail)

    def _has_room(self, plan: "_Plan", spare: int = 0) -> bool:
        """Whether only sectors would be erased that no reading of what a cut has torn can need."""
        return plan.mark.end // self._geometry.sector_bytes + spare < self._bound

    def _erase(self, sequence: int) -> None:
        """Erases a sector's slot, once in one recovery."""
        if sequence not in self._erased:
            self._erased.add(sequence)
            self._flash.erase(sequence % self._geometry.sectors)

    def _write(self, placement: Placement) -> None:
        """Programs what was placed and makes it durable."""
        sectors, size = self._geometry.sectors, self._geometry.sector_bytes
        for piece in placement.pieces():
            if piece.fresh:
                self._erase(piece.sequence)
            self._flash.program(piece.sequence % sectors * size + piece.offset, bytes(piece.data))
            self._programmed += len(piece.data)
        self._flash.sync()

    def _line(self, fault: Fault) -> str:
        return f"{self._scan.place(fault.address)}: {fault.cause}"


@dataclass(slots=True)
class _Plan:
    """What a recovery writes: copies, then the fence with its mark, which states `tail`."""

    copies: Placement
    placed: list[Record]
    fence: Placement
    mark: Record
    tail: int
