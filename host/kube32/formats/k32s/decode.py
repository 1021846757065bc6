"""Reads a snapshot that is in memory as a whole."""

from kube32.contract import LIMITS, Limits
from kube32.formats.k32s.reader import Reader
from kube32.formats.k32s.records import Buffer, Expectation, Snapshot


def decode(data: Buffer, *, limits: Limits = LIMITS, expect: Expectation | None = None) -> Snapshot:
    """The snapshot in `data`; its memory is a view of `data` where that is bytes. Raises SnapshotRefused."""
    reader = Reader(limits=limits, expect=expect)
    reader.feed(data)
    return reader.finish()
