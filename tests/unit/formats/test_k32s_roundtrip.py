"""What is written is read back, however the stream is cut into pieces; what is damaged is refused."""

import hashlib
import struct
from array import array

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kube32.contract import LIMITS
from kube32.formats.k32s import (
    Channel,
    Encoder,
    Global,
    Header,
    HeldEvent,
    Reader,
    Snapshot,
    SnapshotRefused,
    Table,
    decode,
    encode,
)

U32 = st.integers(0, 2**32 - 1)
U64 = st.integers(0, 2**64 - 1)
TEXT = st.text(st.characters(codec="utf-8"), max_size=12)


@st.composite
def a_global(draw: st.DrawFn) -> Global:
    kind = draw(st.sampled_from(["i32", "i64", "f32", "f64", "funcref"]))
    return Global(draw(st.integers(0, 500)), kind, draw(U64 if kind in ("i64", "f64") else U32))


@st.composite
def a_memory(draw: st.DrawFn) -> tuple[bytes, int]:
    """Bytes and pages: part of a page, or one or two whole ones."""
    if draw(st.booleans()):
        return draw(st.binary(max_size=300)), 1
    pages = draw(st.integers(0, 2))
    return (draw(st.binary(min_size=1, max_size=16)) * 65536 * pages)[: pages * 65536], pages


@st.composite
def a_snapshot(draw: st.DrawFn) -> Snapshot:
    memory, pages = draw(a_memory())
    globals_ = draw(st.lists(a_global(), max_size=6, unique_by=lambda g: g.index))
    tables = draw(st.lists(st.lists(U32, max_size=5), max_size=3))
    names = draw(st.lists(TEXT, max_size=4, unique=True))
    events = draw(st.lists(st.tuples(TEXT, st.binary(max_size=40)), max_size=LIMITS.pod_held_events))
    return Snapshot(
        image_sha256=draw(st.binary(min_size=32, max_size=32)),
        memory_bytes=len(memory),
        memory_pages=pages,
        pod_time_ms=draw(U64),
        unix_time_ms=draw(U64),
        memory=memory,
        globals=sorted(globals_, key=lambda g: g.index),
        tables=[Table(i, entries) for i, entries in enumerate(tables)],
        channels=[Channel(i, n) for i, n in enumerate(names, start=1)],
        events=[HeldEvent(t, p) for t, p in events],
    )


SMALL = Snapshot(
    image_sha256=bytes(range(32)),
    memory_bytes=40,
    memory_pages=1,
    pod_time_ms=1234,
    unix_time_ms=0,
    memory=bytes(range(40)),
    globals=[Global(0, "i32", 4096), Global(3, "f64", 0x7FF8000000000001)],
    tables=[Table(0, [1, 0xFFFFFFFF, 2])],
    channels=[Channel(1, "chat")],
    events=[HeldEvent("news", b"\x00\xff")],
)


@settings(deadline=None)
@given(a_snapshot())
def test_any_snapshot_written_is_read_back_equal(snapshot: Snapshot) -> None:
    written = encode(snapshot)
    assert decode(written) == snapshot
    assert len(written) == Encoder(snapshot).length
    assert encode(decode(written)) == written


@settings(deadline=None)
@given(a_snapshot(), st.lists(st.integers(0, 400), max_size=12), st.integers(1, 500))
def test_any_cutting_of_the_stream_gives_the_same(snapshot: Snapshot, sizes: list[int], parts: int) -> None:
    written = encode(snapshot)
    rest = len(written) // parts + 1
    got = bytearray(snapshot.memory_bytes)

    def sink(offset: int, piece: memoryview) -> None:
        got[offset : offset + len(piece)] = piece

    keeping = Reader(limits=LIMITS)
    sinking = Reader(limits=LIMITS, memory_sink=sink)
    at = 0
    for size in [*sizes, *[rest] * parts]:
        # One buffer is used again, as a socket's is: nothing may keep a view of it.
        buffer = bytearray(written[at : at + size])
        keeping.feed(buffer)
        sinking.feed(buffer)
        buffer[:] = b"\xee" * len(buffer)
        at += size
    assert keeping.finish() == snapshot
    assert sinking.finish().memory == b""
    assert bytes(got) == bytes(snapshot.memory)
    assert keeping.trailer == Encoder(snapshot).trailer == written[-32:]


@settings(deadline=None)
@given(a_snapshot(), st.data())
def test_any_flipped_byte_is_refused(snapshot: Snapshot, data: st.DataObject) -> None:
    written = bytearray(encode(snapshot))
    written[data.draw(st.integers(0, len(written) - 1))] ^= data.draw(st.integers(1, 255))
    with pytest.raises(SnapshotRefused):
        decode(bytes(written))


@settings(deadline=None)
@given(a_snapshot(), st.data())
def test_any_cut_is_refused_as_ending_before_the_trailer(snapshot: Snapshot, data: st.DataObject) -> None:
    written = encode(snapshot)
    with pytest.raises(SnapshotRefused, match="the stream ends before the trailer"):
        decode(written[: data.draw(st.integers(0, len(written) - 1))])


def test_every_single_cut_and_flip_of_a_small_snapshot_is_refused() -> None:
    written = encode(SMALL)
    for at in range(len(written)):
        with pytest.raises(SnapshotRefused):
            decode(written[:at])
        for bit in range(8):
            with pytest.raises(SnapshotRefused):
                decode(written[:at] + bytes([written[at] ^ (1 << bit)]) + written[at + 1 :])


def test_the_bytes_are_those_of_the_specification() -> None:
    body = (
        b"K32S"
        + struct.pack("<HH", 1, 0)
        + bytes(range(32))
        + struct.pack("<IIQQI", 40, 1, 1234, 0, 5)
        + struct.pack("<HI", 1, 40)
        + bytes(range(40))
        + struct.pack("<HI", 2, 26)
        + struct.pack("<IBQ", 0, 0x7F, 4096)
        + struct.pack("<IBQ", 3, 0x7C, 0x7FF8000000000001)
        + struct.pack("<HI", 3, 20)
        + struct.pack("<IIIII", 0, 3, 1, 0xFFFFFFFF, 2)
        + struct.pack("<HI", 4, 10)
        + struct.pack("<IH", 1, 4)
        + b"chat"
        + struct.pack("<HI", 5, 12)
        + struct.pack("<H", 4)
        + b"news"
        + struct.pack("<I", 2)
        + b"\x00\xff"
    )
    assert encode(SMALL) == body + hashlib.sha256(body).digest()


def test_sections_without_content_are_left_out_and_memory_never_is() -> None:
    empty = Snapshot(bytes(32), 0, 0, 0, 0, b"")
    assert len(encode(empty)) == 68 + 6 + 32
    assert decode(encode(empty)) == empty


def test_writers_sort_globals_tables_and_channels() -> None:
    mixed = Snapshot(bytes(32), 0, 0, 0, 0, b"")
    mixed.globals = [Global(2, "i32", 1), Global(1, "i64", 2)]
    mixed.tables = [Table(1, []), Table(0, [5])]
    mixed.channels = [Channel(2, "b"), Channel(1, "a")]
    back = decode(encode(mixed))
    assert [g.index for g in back.globals] == [1, 2]
    assert [t.index for t in back.tables] == [0, 1]
    assert [c.handle for c in back.channels] == [1, 2]


def test_memory_of_any_buffer_is_written_and_sliced_without_a_copy() -> None:
    memory = memoryview(bytearray(65536 * 3))
    pieces = list(Encoder(Snapshot(bytes(32), len(memory), 3, 0, 0, memory)).chunks(65536))
    views = [p for p in pieces if isinstance(p, memoryview) and len(p) == 65536]
    assert len(views) == 3
    memory[0] = 9
    assert views[0][0] == 9


def test_the_trailer_is_the_same_before_and_after_streaming() -> None:
    first, second = Encoder(SMALL), Encoder(SMALL)
    assert first.trailer == b"".join(bytes(c) for c in second.chunks(7))[-32:] == second.trailer


def test_a_writer_refuses_memory_that_is_not_as_long_as_it_says() -> None:
    with pytest.raises(ValueError, match="memory_bytes 41"):
        Encoder(Snapshot(bytes(32), 41, 1, 0, 0, bytes(40)))


def test_memory_that_arrives_in_one_piece_is_not_copied() -> None:
    written = encode(SMALL)
    kept = decode(written).memory
    assert isinstance(kept, memoryview)
    assert kept.obj is written


def test_the_header_is_told_before_any_memory() -> None:
    told: list[object] = []
    reader = Reader(limits=LIMITS, on_header=told.append, memory_sink=lambda at, piece: told.append(at))
    for byte in encode(SMALL):
        reader.feed(bytes([byte]))
    assert isinstance(told[0], Header)
    assert told[0].pod_time_ms == 1234
    assert told[1:] == list(range(40))


def test_a_reader_that_keeps_no_memory_still_checks_it() -> None:
    reader = Reader(limits=LIMITS, keep_memory=False)
    reader.feed(encode(SMALL))
    assert reader.finish().memory == b""
    assert reader.complete


@settings(deadline=None, max_examples=40)
@given(st.lists(st.tuples(st.integers(6, 0xFFFF), st.binary(max_size=60)), max_size=5), st.data())
def test_sections_of_unknown_types_are_skipped_and_hashed(
    unknown: list[tuple[int, bytes]], data: st.DataObject
) -> None:
    sections = [struct.pack("<HI", 1, 40) + bytes(range(40))]
    for kind, content in unknown:
        place = data.draw(st.integers(0, len(sections)))
        sections.insert(place, struct.pack("<HI", kind, len(content)) + content)
    header = b"K32S" + struct.pack("<HH32sIIQQI", 1, 0, bytes(32), 40, 1, 0, 0, len(sections))
    body = header + b"".join(sections)
    assert decode(body + hashlib.sha256(body).digest()).memory == bytes(range(40))
    if unknown:
        with pytest.raises(SnapshotRefused, match="trailer does not match"):
            decode(body + hashlib.sha256(header + sections[0]).digest())


def test_tables_are_equal_whatever_holds_their_entries() -> None:
    assert Table(0, [1, 2]) == Table(0, array("I", [1, 2]))
    assert Table(0, [1, 2]) != Table(0, [2, 1])
    assert Table(0, []) != Table(1, [])
