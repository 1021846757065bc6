"""Which records of a scanned image count, and what recovery has to make durable (docs/formats.md, "K32L")."""

from bisect import bisect_right
from collections.abc import Iterable
from dataclasses import dataclass

from kube32.formats.k32l.records import Fence, Record, RecordType, read_mark
from kube32.formats.k32l.scan import Fault, Scan


@dataclass(slots=True)
class Resolution:
    """What a log says.

    `live`: the newest Put of each key that exists. `last`: the sequence of the last sector that counts (-1:
    none). `tail`: the oldest that does. `next_revision`: above every revision that was ever given out.
    `void_from` (an address), `void_end` (a sequence) and `copies`: what the next fence has to say, and the
    records to write again before it. `faults`: damage that may have cost something; `torn`: places behind
    the last commit's beginning that a cut spoilt, which nobody was told of.
    """

    live: dict[bytes, Record]
    last: int
    tail: int
    next_revision: int
    void_from: int
    void_end: int
    copies: list[Record]
    faults: list[Fault]
    torn: list[Fault]
    void: "Void"
    settled: int
    sector_bytes: int

    def state(self, record: Record) -> str:
        """What became of a record of the scan: live, superseded, void, freed, unfinished, or mark."""
        if record.address < self.tail * self.sector_bytes:
            return "freed"
        if record.boot and record.address > self.settled:
            return "unfinished"
        if self.void.has(record.address):
            return "void"
        if record.type == RecordType.MARK:
            return "mark"
        return "live" if self.live.get(record.key) is record else "superseded"


def resolve(scan: Scan) -> Resolution:
    """Judges all records of a scan; see Resolution."""
    size = scan.geometry.sector_bytes
    fences: list[Fence] = []
    last_fence: Record | None = None
    last_fence_says: Fence | None = None
    settled, next_revision, tail = -1, 1, scan.oldest
    for record in scan.records:
        if record.type == RecordType.MARK:
            mark = read_mark(scan.value(record), scan.geometry)
            if mark is None:
                continue
            next_revision = max(next_revision, mark[0])
            if mark[1] is not None:
                fences.append(mark[1])
                last_fence, last_fence_says = record, mark[1]
        elif record.revision >= next_revision:
            next_revision = record.revision + 1
        if not record.boot or record.type == RecordType.MARK:
            settled = record.address
            if record.begins or record.boot:
                tail = max(tail, record.address // size - record.run)
    counted = [r for r in scan.records if r.address <= settled]
    last = max(((r.end - 1) // size for r in counted), default=-1)
    service_from = -1 if last_fence is None else last_fence.address + 1
    void = Void(fences, size)
    if void:
        counted = [r for r in counted if not void.has(r.address)]
    service = [r for r in counted if r.address >= service_from and not r.boot]
    if last_fence is not None and last_fence_says is not None and not service:
        void_from, void_end = last_fence_says.void_from, last_fence_says.void_end
        trusted_end = last_fence.end
        to_copy: list[Record] = []
    else:
        after_fence = 0 if last_fence is None else ((last_fence.end - 1) // size + 1) * size
        void_from = max((r.address for r in service if r.begins), default=after_fence)
        void_end = last + 1
        trusted_end = void_from
        to_copy = counted
    newest = {r.key: r for r in counted if r.address >= tail * size and r.type != RecordType.MARK}
    live = {key: r for key, r in newest.items() if r.type == RecordType.PUT}
    copies = [r for r in newest.values() if r.address >= void_from] if to_copy else []
    copies.sort(key=lambda r: r.address)
    places = [f for f in scan.faults if f.end > tail * size and not void.has(f.address)]
    return Resolution(
        live=live,
        last=last,
        tail=tail,
        next_revision=next_revision,
        void_from=void_from,
        void_end=void_end,
        copies=copies,
        faults=[f for f in places if f.address < trusted_end],
        torn=[f for f in places if f.address >= trusted_end],
        void=void,
        settled=settled,
        sector_bytes=size,
    )


class Void:
    """The addresses that fences have made void; false when there are none."""

    def __init__(self, fences: Iterable[Fence], sector_bytes: int) -> None:
        self._starts: list[int] = []
        self._ends: list[int] = []
        end = 0
        for start, end_sector in sorted({(f.void_from, f.void_end) for f in fences}):
            if end_sector * sector_bytes > start:
                end = max(end, end_sector * sector_bytes)
                self._starts.append(start)
                self._ends.append(end)

    def __bool__(self) -> bool:
        return bool(self._starts)

    def has(self, address: int) -> bool:
        """Whether a record at `address` does not count."""
        found = bisect_right(self._starts, address) - 1
        return found >= 0 and address < self._ends[found]
