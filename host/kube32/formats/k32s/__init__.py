"""K32S, the snapshot format: records, a streaming writer and reader (specification, "Snapshot format")."""

from kube32.formats.k32s.decode import decode
from kube32.formats.k32s.reader import Reader
from kube32.formats.k32s.records import (
    Channel,
    Expectation,
    Global,
    Header,
    HeldEvent,
    SectionSeen,
    Snapshot,
    SnapshotRefused,
    Table,
)
from kube32.formats.k32s.writer import Encoder, encode

__all__ = [
    "Channel",
    "Encoder",
    "Expectation",
    "Global",
    "Header",
    "HeldEvent",
    "Reader",
    "SectionSeen",
    "Snapshot",
    "SnapshotRefused",
    "Table",
    "decode",
    "encode",
]
