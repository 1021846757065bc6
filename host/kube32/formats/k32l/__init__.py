"""K32L, the format of the journal: records, their placing, reading an image (docs/formats.md, "K32L")."""

from kube32.formats.k32l.placing import Piece, Placement
from kube32.formats.k32l.records import (
    HEADER_BYTES,
    RECORD_BYTES,
    Fence,
    Geometry,
    Record,
    RecordType,
    crc_of_copies,
    mark_value,
    read_mark,
    stored_bytes,
)
from kube32.formats.k32l.resolve import Resolution, resolve
from kube32.formats.k32l.scan import Fault, Scan, join, scan

__all__ = [
    "HEADER_BYTES",
    "RECORD_BYTES",
    "Fault",
    "Fence",
    "Geometry",
    "Piece",
    "Placement",
    "Record",
    "RecordType",
    "Resolution",
    "Scan",
    "crc_of_copies",
    "join",
    "mark_value",
    "read_mark",
    "resolve",
    "scan",
    "stored_bytes",
]
