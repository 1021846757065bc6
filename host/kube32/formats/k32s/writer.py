"""Writes K32S: lengths and hash first, then the bytes, linear memory sliced and never copied."""

import hashlib
import struct
import sys
from array import array
from collections.abc import Iterator

from kube32.contract import K32S
from kube32.formats.k32s.records import Channel, Global, HeldEvent, Snapshot, Table

CHUNK_BYTES = 65536
_U16 = struct.Struct("<H")
_U32 = struct.Struct("<I")


class Encoder:
    """The bytes of one snapshot. The frozen pod must not run between `trailer` and the end of `chunks`.

    Sections: MEMORY, GLOBALS if there are any, one TABLE per table by index, CHANNELS by handle and EVENTS by
    arrival if there are any (decisions, "K32S"): equal snapshots give equal bytes.
    """

    def __init__(self, snapshot: Snapshot) -> None:
        self._memory = memoryview(snapshot.memory).cast("B")
        if len(self._memory) != snapshot.memory_bytes:
            raise ValueError(f"memory of {len(self._memory)} bytes, memory_bytes {snapshot.memory_bytes}")
        after = _small_sections(snapshot)
        header = K32S.header.pack(
            K32S.magic,
            K32S.version,
            K32S.raw["flags"],
            snapshot.image_sha256,
            snapshot.memory_bytes,
            snapshot.memory_pages,
            snapshot.pod_time_ms,
            snapshot.unix_time_ms,
            1 + len(after),
        )
        self._before = header + K32S.section_header.pack(K32S.section_types["MEMORY"], len(self._memory))
        self._after = b"".join(after)
        self._trailer: bytes | None = None

    @property
    def length(self) -> int:
        """All bytes of the snapshot, trailer included."""
        return len(self._before) + len(self._memory) + len(self._after) + K32S.trailer_bytes

    @property
    def trailer(self) -> bytes:
        """SHA-256 of every byte before it; hashed when first asked for."""
        if self._trailer is None:
            running = hashlib.sha256(self._before)
            running.update(self._memory)
            running.update(self._after)
            self._trailer = running.digest()
        return self._trailer

    def chunks(self, size: int = CHUNK_BYTES) -> Iterator[bytes | memoryview]:
        """The snapshot in pieces of at most about `size` bytes, memory as views.

        Hashes as it goes when the trailer is not known yet, so that writing alone is one pass.
        """
        running = hashlib.sha256() if self._trailer is None else None
        for piece in self._pieces(size):
            if running is not None:
                running.update(piece)
            yield piece
        if running is not None:
            self._trailer = running.digest()
        yield self.trailer

    def _pieces(self, size: int) -> Iterator[bytes | memoryview]:
        yield self._before
        for part in (self._memory, memoryview(self._after)):
            for start in range(0, len(part), size):
                yield part[start : start + size]


def encode(snapshot: Snapshot) -> bytes:
    """The whole snapshot as one string of bytes; copies the memory."""
    return b"".join(Encoder(snapshot).chunks())


def _small_sections(snapshot: Snapshot) -> list[bytes]:
    """The sections after MEMORY, each with its header, those that are due."""
    sections = []
    if snapshot.globals:
        sections.append(("GLOBALS", b"".join(map(_global, sorted(snapshot.globals, key=lambda g: g.index)))))
    sections += [("TABLE", _table(t)) for t in sorted(snapshot.tables, key=lambda t: t.index)]
    if snapshot.channels:
        sections.append(
            ("CHANNELS", b"".join(map(_channel, sorted(snapshot.channels, key=lambda c: c.handle))))
        )
    if snapshot.events:
        sections.append(("EVENTS", b"".join(map(_event, snapshot.events))))
    return [K32S.section_header.pack(K32S.section_types[n], len(body)) + body for n, body in sections]


def _global(entry: Global) -> bytes:
    return K32S.global_entry.pack(entry.index, K32S.value_types[entry.type], entry.bits)


def _table(table: Table) -> bytes:
    entries = array("I", table.entries)
    if sys.byteorder == "big":
        entries.byteswap()
    return K32S.table_header.pack(table.index, len(entries)) + entries.tobytes()


def _channel(channel: Channel) -> bytes:
    name = channel.name.encode()
    return _U32.pack(channel.handle) + _U16.pack(len(name)) + name


def _event(event: HeldEvent) -> bytes:
    topic = event.topic.encode()
    return _U16.pack(len(topic)) + topic + _U32.pack(len(event.payload)) + event.payload
