"""Reads K32S as it streams in: refuses as soon as a lie shows, and grows only by bytes that have arrived."""

import hashlib
from collections.abc import Callable

from kube32.contract import K32S, Limits
from kube32.formats.k32s import small_sections
from kube32.formats.k32s.records import (
    Buffer,
    Channel,
    Expectation,
    Global,
    Header,
    HeldEvent,
    SectionSeen,
    Snapshot,
    SnapshotRefused,
    Table,
    refused,
)

MemorySink = Callable[[int, memoryview], None]
_MEMORY = K32S.section_types["MEMORY"]


class Reader:
    """Push parser: `feed` the stream in any pieces, then `finish`. After a refusal each call repeats it.

    With `memory_sink` each piece of linear memory goes to it as (offset, view) and none is kept; the view is
    valid during the call only. The sink is called before the trailer is checked: what it wrote counts only
    after `finish`. `on_header` is called once the header has passed its checks. `keep_memory=False` drops the
    memory. Unfinished, `sections`, `globals` and the like hold what has been read so far.
    """

    def __init__(
        self,
        *,
        limits: Limits,
        expect: Expectation | None = None,
        memory_sink: MemorySink | None = None,
        on_header: Callable[[Header], None] | None = None,
        keep_memory: bool = True,
    ) -> None:
        self._limits = limits
        self._expect = expect
        self._sink = memory_sink
        self._on_header = on_header
        self._keep = keep_memory and memory_sink is None
        self._hash = hashlib.sha256()
        self._state: Callable[[Reader, memoryview, int], int] = Reader._read_header
        self._partial = bytearray()
        self._section = (0, 0)
        self._left = 0
        self._seen_types: set[int] = set()
        self._refusal: SnapshotRefused | None = None
        self.header: Header | None = None
        self.trailer = b""
        self.position = 0
        self.sections: list[SectionSeen] = []
        self.memory: Buffer = b""
        self.globals: list[Global] = []
        self.tables: list[Table] = []
        self.channels: list[Channel] = []
        self.events: list[HeldEvent] = []

    def feed(self, data: Buffer) -> None:
        """Takes the next piece of the stream, which may be empty. Raises SnapshotRefused."""
        if self._refusal is not None:
            raise self._refusal
        view = memoryview(data).cast("B")
        try:
            self._consume(view)
        except SnapshotRefused as refusal:
            self._refusal = refusal
            raise

    def finish(self) -> Snapshot:
        """The snapshot, once the stream has ended after a good trailer; else SnapshotRefused."""
        if self._refusal is not None:
            raise self._refusal
        if self.header is None or not self.complete:
            self._refusal = refused("truncated")
            raise self._refusal
        return Snapshot(
            image_sha256=self.header.image_sha256,
            memory_bytes=self.header.memory_bytes,
            memory_pages=self.header.memory_pages,
            pod_time_ms=self.header.pod_time_ms,
            unix_time_ms=self.header.unix_time_ms,
            memory=self.memory,
            globals=self.globals,
            tables=self.tables,
            channels=self.channels,
            events=self.events,
        )

    @property
    def complete(self) -> bool:
        """Whether the whole snapshot has been read and its trailer matched."""
        return self._state is Reader._read_nothing

    def _consume(self, view: memoryview) -> None:
        """Runs the states over one piece, which is hashed as a whole up to where the trailer begins."""
        at = 0
        while at < len(view) and self._state not in (Reader._read_trailer, Reader._read_nothing):
            taken = self._state(self, view, at)
            at += taken
            self.position += taken
        self._hash.update(view[:at])
        while at < len(view):
            taken = self._state(self, view, at)
            at += taken
            self.position += taken

    def _gather(self, view: memoryview, at: int, size: int) -> int:
        """Moves bytes to the partial buffer until it has `size`; the number taken."""
        taken = min(size - len(self._partial), len(view) - at)
        self._partial += view[at : at + taken]
        return taken

    def _read_header(self, view: memoryview, at: int) -> int:
        taken = self._gather(view, at, K32S.header.size)
        start = bytes(self._partial[:8])
        if start[:4] != K32S.magic[: len(start[:4])]:
            raise refused("magic")
        version, flags = int.from_bytes(start[4:6], "little"), int.from_bytes(start[6:8], "little")
        if len(start) >= 6 and version != K32S.version:
            raise refused("version", version=version, supported=K32S.version)
        if len(start) == 8 and flags != K32S.raw["flags"]:
            raise refused("flags", flags=flags)
        if len(self._partial) == K32S.header.size:
            header = Header(*K32S.header.unpack(self._partial)[1:])
            self._check_header(header)
            self._partial.clear()
            self.header = header
            if self._on_header is not None:
                self._on_header(header)
            self._next_section()
        return taken

    def _check_header(self, header: Header) -> None:
        """What the header alone can tell, before any memory is taken for it."""
        found, pages, expect = header.memory_bytes, header.memory_pages, self._expect
        if expect is not None and header.image_sha256 != expect.image_sha256:
            raise refused("image", found=header.image_sha256.hex(), expected=expect.image_sha256.hex())
        if expect is not None and found > expect.memory_limit_bytes:
            raise refused("memory_limit", limit=expect.memory_limit_bytes, found=found)
        part_of_page = pages == 1 and found < K32S.page_bytes
        if pages * K32S.page_bytes != found and not part_of_page:
            raise refused("memory_shape", bytes=found, pages=pages)
        if header.section_count > self._limits.k32s_sections:
            raise refused("section_count", found=header.section_count, limit=self._limits.k32s_sections)
        if expect is None:
            return
        if pages < expect.memory_minimum_pages:
            least = expect.memory_minimum_pages * K32S.page_bytes
            raise refused("memory_minimum", found=found, expected=least)
        most = expect.memory_maximum_pages
        if most is not None and pages > most and not part_of_page:
            raise refused("memory_maximum", found=pages, expected=most)

    def _next_section(self) -> None:
        """Goes to the next section, or, when none of those due is missing, to the trailer."""
        assert self.header is not None
        if len(self.sections) < self.header.section_count:
            self._state = Reader._read_section_header
            return
        if _MEMORY not in self._seen_types:
            raise refused("memory_missing")
        if self._expect is not None:
            wanted = len(self._expect.mutable_globals)
            if wanted and K32S.section_types["GLOBALS"] not in self._seen_types:
                raise refused("globals_missing", expected=wanted)
            there = {t.index for t in self.tables}
            for index in range(len(self._expect.tables)):
                if index not in there:
                    raise refused("table_missing", index=index)
        self._state = Reader._read_trailer

    def _read_section_header(self, view: memoryview, at: int) -> int:
        taken = self._gather(view, at, K32S.section_header.size)
        if len(self._partial) == K32S.section_header.size:
            kind, length = K32S.section_header.unpack(self._partial)
            self._partial.clear()
            self._begin_section(kind, length)
            self.sections.append(SectionSeen(kind, self.position + taken - K32S.section_header.size, length))
            if length == 0:
                self._end_section(b"")
        return taken

    def _begin_section(self, kind: int, length: int) -> None:
        """Checks a section by its type and length, and sets how its content is read."""
        assert self.header is not None
        self._section, self._left = (kind, length), length
        name = K32S.section_names.get(kind)
        if name is None:
            self._state = Reader._read_unknown
            return
        if kind in self._seen_types and name != "TABLE":
            raise refused("duplicate_section", name=name)
        self._seen_types.add(kind)
        if kind == _MEMORY:
            if length != self.header.memory_bytes:
                raise refused("memory_section", found=length, expected=self.header.memory_bytes)
            self._state = Reader._read_memory
            return
        if name == "TABLE" and len(self.tables) >= self._limits.pod_tables:
            limit = self._limits.pod_tables
            raise refused("section_limit", name=name, found=f"more than {limit}", unit="tables", limit=limit)
        small_sections.check_length(name, length, self._limits, self._expect)
        self._state = Reader._read_small

    def _read_unknown(self, view: memoryview, at: int) -> int:
        taken = min(self._left, len(view) - at)
        self._left -= taken
        if self._left == 0:
            self._end_section(b"")
        return taken

    def _read_memory(self, view: memoryview, at: int) -> int:
        taken = min(self._left, len(view) - at)
        piece = view[at : at + taken]
        if self._sink is not None:
            self._sink(self._section[1] - self._left, piece)
        elif self._keep:
            self._keep_memory(piece)
        self._left -= taken
        if self._left == 0:
            self._end_section(b"")
        return taken

    def _keep_memory(self, piece: memoryview) -> None:
        """Keeps a piece. Memory that came in one piece of immutable bytes stays a view, without a copy."""
        if len(piece) == self._section[1] and isinstance(piece.obj, bytes):
            self.memory = piece
            return
        if not isinstance(self.memory, bytearray):
            self.memory = bytearray()
        self.memory += piece

    def _read_small(self, view: memoryview, at: int) -> int:
        length = self._section[1]
        if not self._partial and len(view) - at >= length:
            self._end_section(view[at : at + length])
            return length
        taken = self._gather(view, at, length)
        if len(self._partial) == length:
            content, self._partial = self._partial, bytearray()
            self._end_section(content)
        return taken

    def _end_section(self, content: Buffer) -> None:
        """Reads what a small section holds (`content` is empty for the others) and goes on."""
        name = K32S.section_names.get(self._section[0])
        if name == "GLOBALS":
            self.globals = small_sections.read_globals(content, self._expect)
        elif name == "TABLE":
            table = small_sections.read_table(content, self._limits, self._expect)
            if any(t.index == table.index for t in self.tables):
                raise refused("duplicate_table", index=table.index)
            self.tables.append(table)
        elif name == "CHANNELS":
            self.channels = small_sections.read_channels(content, self._limits)
        elif name == "EVENTS":
            self.events = small_sections.read_events(content, self._limits)
        self._next_section()

    def _read_trailer(self, view: memoryview, at: int) -> int:
        taken = self._gather(view, at, K32S.trailer_bytes)
        if len(self._partial) == K32S.trailer_bytes:
            self.trailer = bytes(self._partial)
            self._partial.clear()
            if self.trailer != self._hash.digest():
                raise refused("trailer")
            self._state = Reader._read_nothing
        return taken

    def _read_nothing(self, view: memoryview, at: int) -> int:
        raise refused("trailing", count=len(view) - at)
