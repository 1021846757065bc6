"""What a K32L image is made of: geometry, sector headers, records (docs/formats.md, "K32L").

An address is a place in the endless log: a sector's sequence number times the sector's size, plus the offset
in the sector.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from enum import IntEnum
from zlib import crc32

from kube32.contract import K32L

HEADER_BYTES = K32L.sector_header.size
RECORD_BYTES = K32L.record_header.size
CRC_BYTES = 4
_SEQUENCES = [sequence.to_bytes(4, "little") for sequence in range(256)]


class RecordType(IntEnum):
    """What a record says of its key."""

    PUT = K32L.types["Put"]
    DELETE = K32L.types["Delete"]
    MARK = K32L.types["RevisionMark"]


@dataclass(frozen=True, slots=True)
class Geometry:
    """Sizes of a ring. A program operation writes within one page; an erase clears one sector."""

    sectors: int
    sector_bytes: int = K32L.sector_bytes
    page_bytes: int = K32L.page_bytes

    @property
    def size(self) -> int:
        """Bytes of the whole image."""
        return self.sectors * self.sector_bytes

    @property
    def room(self) -> int:
        """Bytes of a sector that records can use."""
        return self.sector_bytes - HEADER_BYTES


@dataclass(slots=True)
class Record:
    """One record with a good CRC. `end` is the address behind its value; `run` counts sectors since the tail."""

    type: int
    flags: int
    key: bytes
    value_bytes: int
    revision: int
    run: int
    address: int
    end: int
    crc: int = 0

    @property
    def begins(self) -> bool:
        """Whether it is the first of a commit."""
        return bool(self.flags & K32L.begins)

    @property
    def boot(self) -> bool:
        """Whether recovery wrote it: a copy, or the fence that makes the copies count."""
        return bool(self.flags & K32L.boot)

    @property
    def stored_bytes(self) -> int:
        """What it takes of the live capacity."""
        return stored_bytes(len(self.key), self.value_bytes)


@dataclass(frozen=True, slots=True)
class Fence:
    """What recovery decided: records from address `void_start` up to sector `void_end` (a sequence) do not
    count. `copies` is the CRC of the CRCs of the copies that stand from there, or from the tail where that is
    later, to the fence.
    """

    revision: int
    void_start: int
    void_end: int
    copies: int


def stored_bytes(key_bytes: int, value_bytes: int) -> int:
    """The bytes of a record in the log, padding included, sector headers not."""
    return -(-(RECORD_BYTES + key_bytes + value_bytes) // K32L.alignment) * K32L.alignment


def sequence_bytes(sequence: int) -> bytes:
    """What a record's CRC begins with."""
    return _SEQUENCES[sequence] if sequence < 256 else sequence.to_bytes(4, "little")


def sector_header(sequence: int, first: int) -> bytes:
    """The header of a sector in which the first record begins at offset `first`."""
    unsigned = K32L.sector_header.pack(K32L.magic, K32L.version, first, sequence, 0)[:-CRC_BYTES]
    return unsigned + crc32(unsigned).to_bytes(CRC_BYTES, "little")


def crc_of_copies(copies: Iterable[Record]) -> int:
    """What a fence says of the copies in front of it."""
    return crc32(b"".join(record.crc.to_bytes(CRC_BYTES, "little") for record in copies))


def record_header(sequence: int, record: Record, value: bytes) -> bytes:
    """The header of `record`, which begins in sector `sequence` and holds `value`; sets its `crc`."""
    unsigned = K32L.record_header.pack(
        K32L.record_magic,
        record.type,
        record.flags,
        K32L.record_reserved,
        len(record.key),
        record.run,
        len(value),
        record.revision,
        0,
    )[:-CRC_BYTES]
    crc = record.crc = crc32(value, crc32(record.key, crc32(unsigned, crc32(sequence_bytes(sequence)))))
    return unsigned + crc.to_bytes(CRC_BYTES, "little")


def mark_value(revision: int, fence: Fence | None, geometry: Geometry) -> bytes:
    """The value of a RevisionMark: the first revision not yet usable, and for a fence what it says."""
    if fence is None:
        return K32L.mark.pack(revision)
    sequence, offset = divmod(fence.void_start, geometry.sector_bytes)
    return K32L.fence.pack(revision, sequence, offset, fence.void_end, fence.copies)


def read_mark(value: bytes, geometry: Geometry) -> tuple[int, Fence | None] | None:
    """The revision of a mark, with the fence if it is one; None for a value that is neither."""
    if len(value) == K32L.mark.size:
        return int(K32L.mark.unpack(value)[0]), None
    if len(value) != K32L.fence.size:
        return None
    revision, sequence, offset, end, copies = K32L.fence.unpack(value)
    return int(revision), Fence(
        int(revision), sequence * geometry.sector_bytes + offset, int(end), int(copies)
    )
