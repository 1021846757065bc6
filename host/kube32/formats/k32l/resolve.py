"""Which records of a scanned image count, and what recovery has to make durable (docs/formats.md, "K32L")."""

from bisect import bisect_left, bisect_right
from collections.abc import Iterable
from dataclasses import dataclass

from kube32.formats.k32l.records import HEADER_BYTES, Fence, Record, RecordType, crc_of_copies, read_mark
from kube32.formats.k32l.scan import Fault, Scan

# No ring has room for more boots in a row that did not end.
_MOST_BOOTS = 64


@dataclass(slots=True)
class Resolution:
    """What a log says.

    `live`: the newest Put of each key that exists. `last`: the sequence of the last sector that counts (-1:
    none). `tail`: the oldest that does. `stable_tail`: the same as far as it was stated before another commit
    began: whatever a cut has torn, sectors in front of it are free. `next_revision`: above every revision that
    was ever given out. `void_start` (an address) and `void_end` (a sequence): what the next fence has to say.
    `copies`: the records to write again before it; `standing`: those that earlier boots have, if nothing was
    committed since. `faults`: damage that may have cost something; `torn`: places behind the last commit's
    beginning that a cut spoilt, which nobody was told of.
    """

    live: dict[bytes, Record]
    last: int
    tail: int
    stable_tail: int
    next_revision: int
    void_start: int
    void_end: int
    standing: list[Record]
    copies: list[Record]
    faults: list[Fault]
    torn: list[Fault]
    voided: "Ranges"
    settled: int
    sector_bytes: int

    def state(self, record: Record) -> str:
        """What became of a record of the scan: live, superseded, void, freed, unfinished, or mark."""
        if record.address < self.tail * self.sector_bytes:
            return "freed"
        if record.boot and record.address > self.settled:
            return "unfinished"
        if self.voided.has(record.address):
            return "void"
        if record.type == RecordType.MARK:
            return "mark"
        return "live" if self.live.get(record.key) is record else "superseded"


def resolve(scan: Scan) -> Resolution:
    """Judges all records of a scan; see Resolution."""
    size = scan.geometry.sector_bytes
    fences: list[tuple[Record, Fence]] = []
    next_revision, last_service = 1, -1
    for record in scan.records:
        if record.type == RecordType.MARK:
            mark = read_mark(scan.value(record), scan.geometry)
            if mark is None:
                continue
            next_revision = max(next_revision, mark[0])
            if mark[1] is not None:
                fences.append((record, mark[1]))
        elif record.revision >= next_revision:
            next_revision = record.revision + 1
        if not record.boot:
            last_service = record.address
    fences = _trusted(scan, fences, last_service)
    last_fence, says = fences[-1] if fences else (None, None)
    settled = max(last_service, last_fence.address if last_fence is not None else -1)
    counted = [r for r in scan.records if r.address <= settled]
    last = max(((r.end - 1) // size for r in counted), default=-1)
    stating = [r for r in counted if r.begins or (r.boot and r.type == RecordType.MARK)]
    tail = max([scan.oldest, *(r.address // size - r.run for r in stating)])
    last_begun = max((r.address for r in counted if r.begins), default=-1)
    stable = [r.address // size - r.run for r in stating if r.address < last_begun]
    voided = Ranges((fence.void_start, fence.void_end * size) for _, fence in fences)
    if voided:
        counted = [r for r in counted if not voided.has(r.address)]
    service_from = 0 if last_fence is None else last_fence.address
    service = [r for r in counted if r.address >= service_from and not r.boot]
    places = [f for f in scan.faults if f.end > tail * size and not voided.has(f.address)]
    if places:
        between = _between_boots(scan, fences)
        places = [f for f in places if not between.has(f.address)]
    if last_fence is not None and says is not None and not service:
        # Nothing but boots since: only fences can be torn, and the next one says it all again.
        start, end = says.void_start, says.void_end
        standing = _copies(counted, end * size, last_fence.address)
        trusted_end, again_from = last_fence.end, settled + 1
    else:
        after_fence = 0 if last_fence is None else ((last_fence.end - 1) // size + 1) * size
        start = _with_header(max((r.address for r in service if r.begins), default=after_fence), size)
        end = last + 1
        standing = []
        trusted_end = again_from = start
    newest = {r.key: r for r in counted if r.address >= tail * size and r.type != RecordType.MARK}
    live = {key: r for key, r in newest.items() if r.type == RecordType.PUT}
    copies = [r for r in newest.values() if r.address >= again_from]
    copies.sort(key=lambda r: r.address)
    return Resolution(
        live=live,
        last=last,
        tail=tail,
        stable_tail=max([scan.oldest, *stable]),
        next_revision=next_revision,
        void_start=start,
        void_end=end,
        standing=standing,
        copies=copies,
        faults=[f for f in places if f.address < trusted_end],
        torn=[f for f in places if f.address >= trusted_end],
        voided=voided,
        settled=settled,
        sector_bytes=size,
    )


def _trusted(scan: Scan, fences: list[tuple[Record, Fence]], last_service: int) -> list[tuple[Record, Fence]]:
    """The fences without those at the end that are left of boots that did not end."""
    doubtful = [number for number, (record, _) in enumerate(fences) if record.address > last_service]
    for number in reversed(doubtful[-_MOST_BOOTS:]):
        if _is_whole(scan, *fences[number]):
            return fences[: number + 1]
    return fences[: doubtful[0]] if doubtful else fences


def _between_boots(scan: Scan, fences: list[tuple[Record, Fence]]) -> "Ranges":
    """Where damage can only be an earlier fence that a cut has torn: all copies around it are there."""
    size = scan.geometry.sector_bytes
    newest = fences[-_MOST_BOOTS:]
    return Ranges((f.void_end * size, record.end) for record, f in newest if _is_whole(scan, record, f))


def _is_whole(scan: Scan, record: Record, fence: Fence) -> bool:
    """Whether the copies that a fence speaks of are there."""
    start = max(fence.void_end, record.address // scan.geometry.sector_bytes - record.run)
    copies = _copies(scan.records, start * scan.geometry.sector_bytes, record.address)
    return crc_of_copies(copies) == fence.copies


def _copies(records: list[Record], start: int, end: int) -> list[Record]:
    """What boots have copied to addresses from `start` on, in front of `end`."""
    first = bisect_left(records, start, key=lambda r: r.address)
    behind = bisect_left(records, end, key=lambda r: r.address)
    return [r for r in records[first:behind] if r.boot and r.type != RecordType.MARK]


def _with_header(address: int, size: int) -> int:
    """The sector's beginning for its first record: both stand in one page, and are torn together."""
    return address - HEADER_BYTES if address % size == HEADER_BYTES else address


class Ranges:
    """Addresses from a start up to an end, any number of times; false when there are none."""

    def __init__(self, ranges: Iterable[tuple[int, int]]) -> None:
        self._starts: list[int] = []
        self._ends: list[int] = []
        most = 0
        for start, end in sorted(set(ranges)):
            if end > start:
                most = max(most, end)
                self._starts.append(start)
                self._ends.append(most)

    def __bool__(self) -> bool:
        return bool(self._starts)

    def has(self, address: int) -> bool:
        """Whether an address is in one of them."""
        found = bisect_right(self._starts, address) - 1
        return found >= 0 and address < self._ends[found]
