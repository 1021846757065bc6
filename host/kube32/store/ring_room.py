"""How much of a ring may live, and how many sectors stay free for what (docs/formats.md, "Room")."""

from math import ceil, sqrt

from kube32.formats.k32l import RECORD_BYTES, Geometry

_MOST_BATCH_BYTES = 131072


class RingRoom:
    """The sizes of a log over one geometry, for records of `record_bytes` at most.

    `batch_bytes`: what one commit writes at most, reclaiming apart. `capacity`: the bytes that can live.
    `reserve`: sectors that commits leave free so that recovery, cut several times in a row, can still move
    everything that lives past the tail: it moves as much at once as is free, and each time costs a sector for
    its fence, which costs least when about twice the root of the live sectors is kept.
    """

    def __init__(self, geometry: Geometry, record_bytes: int) -> None:
        self._room = geometry.room
        self.record_bytes = record_bytes
        self.batch_bytes = max(record_bytes, min(_MOST_BATCH_BYTES, geometry.sectors // 16 * geometry.room))
        # One sector is open, and what lives does not fill its sectors to the last byte.
        span = self.span(self.batch_bytes)
        spare = geometry.sectors - 2 - span - self.committing(span + 1)
        live = 0
        while live + 1 + _reserve(live + 1) <= spare:
            live += 1
        self.reserve = _reserve(live)
        # A commit begins on a page of its own, and a record's header stays in one sector.
        self.capacity = live * (geometry.room - geometry.page_bytes - RECORD_BYTES)

    def span(self, size: int) -> int:
        """Sectors that `size` bytes fill."""
        return -(-size // self._room)

    def committing(self, touched: int) -> int:
        """Free sectors that a commit leaves which wrote to `touched` ones: a recovery writes them again and its
        fence, and a second one a fence.
        """
        return touched + 2

    def moving(self, size: int) -> int:
        """Free sectors that a commit needs which moves a record of `size` bytes, with those that it leaves."""
        return self.span(size) + self.committing(self.span(size) + 1)


def _reserve(live: int) -> int:
    return ceil(2 * sqrt(live))
