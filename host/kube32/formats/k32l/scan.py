"""Reads an image: finds the run of sectors and every record in it that is whole (docs/formats.md, "K32L").

Nothing is believed but what a CRC confirms. The time is bounded by the image's size, whatever it holds.
"""

from dataclasses import dataclass, field
from zlib import crc32

from kube32.contract import K32L
from kube32.formats.k32l.records import (
    CRC_BYTES,
    HEADER_BYTES,
    RECORD_BYTES,
    Geometry,
    Record,
    sequence_bytes,
)

_FAILURES_PER_SECTOR = 16
_MAGIC_BYTE, _RESERVED = K32L.record_magic, K32L.record_reserved
_MAGIC = bytes([_MAGIC_BYTE])
_UNPACK = K32L.record_header.unpack_from
_TYPES = frozenset(K32L.types.values())
_FLAGS = K32L.begins | K32L.boot


@dataclass(frozen=True, slots=True)
class Fault:
    """Bytes from `address` up to `end` that belong to no whole record and are not erased."""

    address: int
    end: int
    cause: str


@dataclass(slots=True)
class Scan:
    """What an image holds. `head` is the sequence of the newest sector, -1 when there is none.

    `records` and `faults` are by address; `blank`: every byte reads as erased; `sequences`: what the header in
    each slot says, None where none is good.
    """

    image: bytes
    geometry: Geometry
    head: int = -1
    blank: bool = False
    records: list[Record] = field(default_factory=list)
    faults: list[Fault] = field(default_factory=list)
    sequences: list[int | None] = field(default_factory=list)

    @property
    def oldest(self) -> int:
        """The sequence of the oldest sector that the ring can still hold."""
        return max(0, self.head - self.geometry.sectors + 1)

    def value(self, record: Record) -> bytes:
        """The value of one of the records."""
        start = record.address + RECORD_BYTES
        return join(self.image, self.geometry, start, len(record.key) + record.value_bytes)[len(record.key) :]

    def is_older(self, sequence: int) -> bool:
        """Whether the slot of a sector that is not opened yet has the good header of an earlier round."""
        return self.sequences[sequence % self.geometry.sectors] is not None

    def is_blank(self, sequence: int) -> bool:
        """Whether a sector's slot reads as erased."""
        size = self.geometry.sector_bytes
        at = sequence % self.geometry.sectors * size
        return self.image.count(K32L.blank, at, at + size) == size

    def place(self, address: int) -> str:
        """An address in words: where in the image it is."""
        sequence, offset = divmod(address, self.geometry.sector_bytes)
        return f"slot {sequence % self.geometry.sectors} offset {offset} (sector {sequence})"


def scan(image: bytes, geometry: Geometry) -> Scan:
    """Reads a whole image of `geometry.size` bytes."""
    if len(image) != geometry.size:
        raise ValueError(f"the image has {len(image)} bytes, {geometry.size} were expected")
    return _Scanner(image, geometry).run()


def join(image: bytes, geometry: Geometry, address: int, length: int) -> bytes:
    """`length` bytes of the log from `address` on, sector headers left out."""
    size, total = geometry.sector_bytes, geometry.size
    offset = address % size or HEADER_BYTES
    at = (address - address % size + offset) % total
    if offset + length <= size:
        return image[at : at + length]
    parts = []
    while length > 0:
        if offset == 0:
            offset = HEADER_BYTES
            at += HEADER_BYTES
        taken = min(length, size - offset)
        parts.append(image[at : at + taken])
        length -= taken
        at = (at + taken) % total
        offset = 0
    return b"".join(parts)


class _Scanner:
    def __init__(self, image: bytes, geometry: Geometry) -> None:
        self._image = image
        self._geometry = geometry
        self._size = geometry.sector_bytes
        self._blank = bytes([K32L.blank]) * self._size
        self._firsts: dict[int, int] = {}
        self._scan = Scan(image, geometry)
        self._resume = 0
        self._seed_of, self._seed = -1, 0
        # A failed CRC may cost a long record's bytes: as many of them as an honest image could never use up.
        self._budget = 16 * geometry.size

    def run(self) -> Scan:
        scan, geometry = self._scan, self._geometry
        scan.blank = self._image.count(K32L.blank) == len(self._image)
        scan.sequences = [None] * geometry.sectors
        if scan.blank:
            return scan
        sequences = self._scan.sequences = [self._header(slot) for slot in range(geometry.sectors)]
        scan.head = max((s for s in sequences if s is not None), default=-1)
        self._find_headless()
        sequence = scan.oldest - 1
        while sequence < scan.head:
            sequence += 1
            seen = sequences[sequence % geometry.sectors]
            if seen is None or seen == sequence:
                self._sector(sequence, known=seen is not None)
            else:
                start = sequence * self._size
                cause = f"sector {sequence} is lost: an older one, {seen}, is in its place"
                scan.faults.append(Fault(start, start + self._size, cause))
        return scan

    def _header(self, slot: int) -> int | None:
        """The sequence of the sector in `slot`; None where no header is whole."""
        at = slot * self._size
        magic, version, first, sequence, crc = K32L.sector_header.unpack_from(self._image, at)
        if magic != K32L.magic or version != K32L.version or sequence % self._geometry.sectors != slot:
            return None
        if crc32(self._image[at : at + HEADER_BYTES - CRC_BYTES]) != crc:
            return None
        self._firsts[sequence] = first
        return int(sequence)

    def _find_headless(self) -> None:
        """Newest sectors whose header is spoilt are known by their records: a CRC covers the sequence."""
        scan, sectors = self._scan, self._geometry.sectors
        for sequence in range(scan.head + 1, scan.head + 1 + sectors):
            if self._scan.sequences[sequence % sectors] is not None or not self._has_record(sequence):
                return
            scan.head = sequence

    def _has_record(self, sequence: int) -> bool:
        start = sequence * self._size
        at, failures = start + HEADER_BYTES, 0
        while failures < _FAILURES_PER_SECTOR:
            found = self._candidate(at, start + self._size)
            if found < 0:
                return False
            if self._record(found) is not None:
                return True
            failures += 1
            at = found + K32L.alignment
        return False

    def _sector(self, sequence: int, known: bool) -> None:
        """Every record that begins in a sector."""
        size, page = self._size, self._geometry.page_bytes
        start, end = sequence * size, (sequence + 1) * size
        base = sequence % self._geometry.sectors * size - start
        first = self._firsts[sequence] if known else HEADER_BYTES
        records = self._scan.records
        at = max(self._resume, start + first) if first < size else end
        if not known:
            if self._image[start + base : end + base] == self._blank:
                self._fault(start, end, f"sector {sequence} is erased")
                return
            self._fault(start, start + HEADER_BYTES, f"the header of sector {sequence} is damaged")
        failures = 0
        while at + RECORD_BYTES <= end:
            record = self._record(at)
            if record is not None:
                records.append(record)
                at = self._resume = record.end + -record.end % K32L.alignment
                continue
            if self._image[at + base : at + base + K32L.alignment] == self._blank[: K32L.alignment]:
                if self._image[at + base : end + base] == self._blank[: end - at]:
                    return
                following = min(at + page - at % page, end)
                if self._image[at + base : following + base] != self._blank[: following - at]:
                    found = self._candidate(at + K32L.alignment, following)
                    following = found if found >= 0 else following
                    self._fault(at, following, "bytes that belong to no record")
                at = following
                continue
            failures += 1
            found = -1 if failures > _FAILURES_PER_SECTOR else self._candidate(at + K32L.alignment, end)
            self._fault(at, found if found >= 0 else end, self._name(at))
            if found < 0:
                return
            at = found

    def _candidate(self, at: int, end: int) -> int:
        """The next address before `end` where a record may begin; -1 for none."""
        base = at % self._geometry.size - at
        while True:
            found = self._image.find(_MAGIC, at + base, end - RECORD_BYTES + 1 + base)
            if found < 0:
                return -1
            if found % K32L.alignment == 0 and self._image[found + 3] == K32L.record_reserved:
                return found - base
            at = found + 1 - base

    def _record(self, address: int) -> Record | None:
        """The record that begins at `address`, if its CRC confirms it."""
        size, image = self._size, self._image
        at = address % len(image)
        if image[at] != _MAGIC_BYTE:
            return None
        _, kind, flags, reserved, key_bytes, run, value_bytes, revision, crc = _UNPACK(image, at)
        if kind not in _TYPES or reserved != _RESERVED or flags & ~_FLAGS:
            return None
        sequence, offset = divmod(address, size)
        if sequence != self._seed_of:
            self._seed_of, self._seed = sequence, crc32(sequence_bytes(sequence))
        length = key_bytes + value_bytes
        body = at + RECORD_BYTES
        found = crc32(image[at : body - CRC_BYTES], self._seed)
        if offset + RECORD_BYTES + length <= size:
            if crc32(image[body : body + length], found) != crc:
                return None
            key = image[body : body + key_bytes]
            end = address + RECORD_BYTES + length
            return Record(kind, flags, key, value_bytes, revision, run, address, end, crc)
        return self._spanning(address, (kind, flags, key_bytes, value_bytes, revision, run), found, crc)

    def _spanning(
        self, address: int, fields: tuple[int, int, int, int, int, int], found: int, crc: int
    ) -> Record | None:
        """A record that goes on in the next sectors, which must be the next ones of the log."""
        size, geometry = self._size, self._geometry
        kind, flags, key_bytes, value_bytes, revision, run = fields
        length = key_bytes + value_bytes
        sequence, offset = divmod(address, size)
        rest = length - (size - offset - RECORD_BYTES)
        further = -(-rest // geometry.room)
        if further >= geometry.sectors or self._budget < length:
            return None
        for number in range(sequence + 1, sequence + further + 1):
            if self._scan.sequences[number % geometry.sectors] not in (number, None):
                return None
        body = join(self._image, geometry, address + RECORD_BYTES, length)
        if crc32(body, found) != crc:
            self._budget -= length
            return None
        self._scan.head = max(self._scan.head, sequence + further)
        end = (sequence + further) * size + HEADER_BYTES + rest - (further - 1) * geometry.room
        return Record(kind, flags, body[:key_bytes], value_bytes, revision, run, address, end, crc)

    def _name(self, address: int) -> str:
        """What a damaged record seems to have been."""
        at = address % self._geometry.size
        header = self._image[at : at + RECORD_BYTES]
        if len(header) == RECORD_BYTES and header[0] == K32L.record_magic:
            key_bytes = K32L.record_header.unpack(header)[4]
            key = self._image[at + RECORD_BYTES : at + RECORD_BYTES + min(key_bytes, 512)]
            if key.startswith(b"/registry/") and key.isascii() and key.decode().isprintable():
                return f"a record is damaged, it seems of {key.decode()}"
        return "a record is damaged"

    def _fault(self, address: int, end: int, cause: str) -> None:
        """Notes a damaged place; places that touch are one."""
        faults = self._scan.faults
        if faults and faults[-1].end >= address and faults[-1].cause == cause:
            faults[-1] = Fault(faults[-1].address, end, cause)
        else:
            faults.append(Fault(address, end, cause))
