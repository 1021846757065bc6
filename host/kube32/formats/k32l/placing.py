"""Lays the records of one commit out over sectors (docs/formats.md, "K32L")."""

from dataclasses import dataclass

from kube32.contract import K32L
from kube32.formats.k32l.records import (
    HEADER_BYTES,
    RECORD_BYTES,
    Geometry,
    Record,
    record_header,
    sector_header,
)

_PAD = bytes([K32L.blank]) * K32L.alignment


@dataclass(slots=True)
class Piece:
    """Bytes for one sector from `offset` on. `fresh`: the sector is erased first; they begin with its header."""

    sequence: int
    offset: int
    data: bytearray
    fresh: bool
    first: int = K32L.no_record


class Placement:
    """Takes records one after the other from address `start`; `pieces` are then what is to be written.

    `start` is the beginning of a page in a sector that is open, or the beginning of a sector to be opened.
    """

    def __init__(self, geometry: Geometry, start: int) -> None:
        self._geometry = geometry
        self._pieces: list[Piece] = []
        self._start = self._at = start

    @property
    def sequence(self) -> int:
        """The sector in which the next record would begin."""
        size = self._geometry.sector_bytes
        sequence, offset = divmod(self._at, size)
        return sequence if offset + RECORD_BYTES <= size else sequence + 1

    def add(self, record: Record, value: bytes) -> None:
        """Places a record and sets its `address` and `end`."""
        size = self._geometry.sector_bytes
        sequence, offset = divmod(self._at, size)
        if offset + RECORD_BYTES > size:
            sequence, offset = sequence + 1, 0
        piece = self._open(sequence, offset)
        offset = piece.offset + len(piece.data)
        if piece.first == K32L.no_record:
            piece.first = offset
        record.address = sequence * size + offset
        data = record_header(sequence, record, value) + record.key + value
        begun = size - offset
        piece.data += data[:begun]
        while begun < len(data):
            sequence += 1
            piece = self._open(sequence, 0)
            piece.data += data[begun : begun + self._geometry.room]
            begun += self._geometry.room
        record.end = sequence * size + piece.offset + len(piece.data)
        piece.data += _PAD[: -len(piece.data) % K32L.alignment]
        self._at = sequence * size + piece.offset + len(piece.data)

    def _open(self, sequence: int, offset: int) -> Piece:
        """The piece to go on with; made where the log has not come to it yet."""
        if self._pieces and self._pieces[-1].sequence == sequence:
            return self._pieces[-1]
        data = bytearray(HEADER_BYTES) if offset == 0 else bytearray()
        self._pieces.append(Piece(sequence, offset, data, offset == 0))
        return self._pieces[-1]

    def extent(self, further: int = 0) -> tuple[int, int]:
        """How many sectors get bytes, and how many of them are new, if a record of `further` bytes follows."""
        size = self._geometry.sector_bytes
        begin = self._pieces[0].sequence if self._pieces else self._start // size
        end = self._pieces[-1].sequence if self._pieces else begin - 1
        if further:
            end, offset = divmod(self._at, size)
            if offset + RECORD_BYTES > size:
                end, offset = end + 1, 0
            rest = further - (size - (offset or HEADER_BYTES))
            end += max(0, -(-rest // self._geometry.room))
        touched = end - begin + 1
        return touched, touched - (1 if touched and self._start % size else 0)

    @property
    def next_start(self) -> int:
        """Where the next commit begins: on a page of its own, since a cut may spoil a whole page."""
        size, page = self._geometry.sector_bytes, self._geometry.page_bytes
        start = -(-self._at // page) * page
        return start if start % size + RECORD_BYTES <= size else (start // size + 1) * size

    def pieces(self) -> list[Piece]:
        """All pieces by address, headers filled in."""
        size = self._geometry.sector_bytes
        for piece in self._pieces:
            if piece.fresh:
                first = piece.first
                if first == K32L.no_record and self.next_start // size == piece.sequence:
                    first = self.next_start % size
                piece.data[:HEADER_BYTES] = sector_header(piece.sequence, first)
        return self._pieces
