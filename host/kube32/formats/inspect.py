"""Describes a K32S file for people: all that can be read of it, and in words what is wrong with it.

Streams, so that a file of any size takes no more memory than its small sections.
"""

import hashlib
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO

import construct

from kube32.contract import K32S, LIMITS, Limits
from kube32.formats.k32s import Global, Reader, SnapshotRefused, Table

_CHUNK_BYTES = 262144
_HEADER = construct.Struct(
    *(
        field["name"]
        / (
            construct.Bytes(int(field["type"][6:]))
            if field["type"].startswith("bytes:")
            else {"u16": construct.Int16ul, "u32": construct.Int32ul, "u64": construct.Int64ul}[field["type"]]
        )
        for field in K32S.raw["header"]
    )
)
_JSON_NAMES = {
    "image_sha256": "imageSha256",
    "memory_bytes": "memoryBytes",
    "memory_pages": "memoryPages",
    "pod_time_ms": "podTimeMs",
    "unix_time_ms": "unixTimeMs",
    "section_count": "sectionCount",
}


def describe(path: Path, limits: Limits = LIMITS) -> dict[str, Any]:
    """A JSON-able description of the snapshot in `path`; `problem` is None for a good one.

    Keys: file, sizeBytes, header (or None), sections, globals, tables, channels, events, trailer, problem.
    OSError when the file cannot be read.
    """
    reader = Reader(limits=limits, keep_memory=False)
    problem: str | None = None
    with path.open("rb") as file:
        size = file.seek(0, 2)
        file.seek(0)
        try:
            for piece in _pieces(file, size):
                reader.feed(piece)
            reader.finish()
        except SnapshotRefused as refusal:
            problem = refusal.cause
        file.seek(0)
        header = _header(file)
        sections = [] if header is None else _sections(file, size, header["sectionCount"], limits)
        trailer = _trailer(file, size, reader)
    return {
        "file": str(path),
        "sizeBytes": size,
        "header": header,
        "sections": sections,
        "globals": [_global(g) for g in reader.globals],
        "tables": [_table(t) for t in reader.tables],
        "channels": [{"handle": c.handle, "name": c.name} for c in reader.channels],
        "events": [{"topic": e.topic, "payloadBytes": len(e.payload)} for e in reader.events],
        "trailer": trailer,
        "problem": problem,
    }


def _pieces(file: BinaryIO, size: int) -> Iterator[memoryview]:
    """The next `size` bytes of the file, through one buffer."""
    buffer = memoryview(bytearray(_CHUNK_BYTES))
    while size > 0 and (got := file.readinto(buffer[: min(size, _CHUNK_BYTES)])):  # type: ignore[attr-defined]
        size -= got
        yield buffer[:got]


def _header(file: BinaryIO) -> dict[str, Any] | None:
    """The header's fields as they stand, believed or not; None when it is cut or nothing like one."""
    raw = file.read(K32S.header.size)
    if len(raw) < K32S.header.size or not raw.startswith(K32S.magic):
        return None
    fields = _HEADER.parse(raw)
    shown: dict[str, Any] = {}
    for name in K32S.header_fields[1:]:
        value = fields[name]
        shown[_JSON_NAMES.get(name, name)] = value.hex() if isinstance(value, bytes) else value
    return shown


def _sections(file: BinaryIO, size: int, count: int, limits: Limits) -> list[dict[str, Any]]:
    """Walks the section headers without reading contents; ends where the file does. Offsets in bytes."""
    found: list[dict[str, Any]] = []
    end = size - K32S.trailer_bytes
    offset = K32S.header.size
    while len(found) < min(count, limits.k32s_sections) and offset + K32S.section_header.size <= end:
        file.seek(offset)
        kind, length = K32S.section_header.unpack(file.read(K32S.section_header.size))
        name = K32S.section_names.get(kind, "unknown")
        start = offset + K32S.section_header.size
        found.append(
            {
                "type": kind,
                "name": name,
                "offset": offset,
                "length": length,
                "complete": start + length <= end,
            }
        )
        offset = start + length
    return found


def _trailer(file: BinaryIO, size: int, reader: Reader) -> dict[str, Any] | None:
    """The file's last 32 bytes against the hash of all before them; None for a file shorter than that."""
    if size < K32S.trailer_bytes:
        return None
    if reader.complete and reader.position == size:
        stored = computed = reader.trailer
    else:
        file.seek(0)
        running = hashlib.sha256()
        for piece in _pieces(file, size - K32S.trailer_bytes):
            running.update(piece)
        stored, computed = file.read(K32S.trailer_bytes), running.digest()
    return {"sha256": stored.hex(), "computed": computed.hex(), "ok": stored == computed}


def _global(entry: Global) -> dict[str, Any]:
    """A global with its bits in hex and its value as the module would see it (text for what JSON lacks)."""
    wide = entry.type in ("i64", "f64")
    raw = entry.bits.to_bytes(8, "little")[: 8 if wide else 4]
    shown = {"index": entry.index, "type": entry.type, "bits": f"0x{entry.bits:0{16 if wide else 8}x}"}
    if entry.type == "funcref":
        return {**shown, "value": "null" if entry.bits == K32S.null_funcref else f"function {entry.bits}"}
    form = {"i32": "<i", "i64": "<q", "f32": "<f", "f64": "<d"}[entry.type]
    return {**shown, "value": str(struct.unpack(form, raw)[0])}


def _table(table: Table) -> dict[str, Any]:
    """A table with its entries, null as None."""
    entries = [None if e == K32S.null_funcref else e for e in table.entries]
    return {"index": table.index, "size": len(entries), "entries": entries}
