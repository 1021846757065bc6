"""Claims larger than the truth are refused with their cause, and nothing is allocated by a claim."""

import hashlib
import struct
import tracemalloc
from collections.abc import Callable

import pytest

from kube32.contract import LIMITS, text
from kube32.formats.k32s import Expectation, Reader, SnapshotRefused

Build = Callable[..., bytes]
HUGE = 0xFFFFFFFF
# What reading a lie may take: two small sections, and the reader's own odds and ends.
ALLOWED_BYTES = 2 * LIMITS.k32s_small_section_bytes + 65536
POD = Expectation(
    image_sha256=bytes(range(32)),
    memory_limit_bytes=65536,
    memory_maximum_pages=None,
    memory_minimum_pages=0,
    mutable_globals=[],
    tables=[],
    function_count=0,
)


def refuse(data: bytes, expect: Expectation | None) -> str:
    """The cause, with the peak of memory asserted while `data` streams in."""
    tracemalloc.start()
    try:
        reader = Reader(limits=LIMITS, expect=expect)
        view = memoryview(data)
        with pytest.raises(SnapshotRefused) as refusal:
            for start in range(0, len(data), 65536):
                reader.feed(view[start : start + 65536])
            reader.finish()
        assert tracemalloc.get_traced_memory()[1] < ALLOWED_BYTES
    finally:
        tracemalloc.stop()
    return refusal.value.cause


@pytest.mark.parametrize("expect", [None, POD])
def test_version_two_is_refused(forge: Build, expect: Expectation | None) -> None:
    assert refuse(forge(version=2), expect) == text("refusals", "version", version=2, supported=1)


def test_memory_of_four_gigabytes_is_refused(forge: Build) -> None:
    lie = forge(memory=b"x", memory_bytes=HUGE, pages=HUGE)
    assert refuse(lie, POD) == text("refusals", "memory_limit", limit=65536, found=HUGE)
    assert refuse(lie, None) == text("refusals", "memory_shape", bytes=HUGE, pages=HUGE)


def test_memory_that_is_claimed_but_does_not_come_takes_no_memory(forge: Build, section: Build) -> None:
    most = HUGE - 65535
    lie = forge(section(1, b"x" * 100, most), memory_bytes=most, pages=65535, with_memory=False)
    assert refuse(lie, None) == text("refusals", "truncated")


@pytest.mark.parametrize("expect", [None, POD])
def test_four_billion_sections_are_refused(forge: Build, expect: Expectation | None) -> None:
    limit = LIMITS.k32s_sections
    assert refuse(forge(count=HUGE), expect) == text("refusals", "section_count", found=HUGE, limit=limit)
    assert refuse(forge(count=limit + 1), expect) == text(
        "refusals", "section_count", found=limit + 1, limit=limit
    )


def test_as_many_sections_as_the_limit_are_read(forge: Build, section: Build) -> None:
    reader = Reader(limits=LIMITS)
    reader.feed(forge(*[section(77, b"")] * (LIMITS.k32s_sections - 1)))
    assert len(reader.sections) == LIMITS.k32s_sections
    reader.finish()


@pytest.mark.parametrize("kind", [2, 3, 4, 5])
def test_a_small_section_of_four_gigabytes_is_refused(forge: Build, section: Build, kind: int) -> None:
    name = {2: "GLOBALS", 3: "TABLE", 4: "CHANNELS", 5: "EVENTS"}[kind]
    assert refuse(forge(section(kind, b"x" * 50, HUGE)), None).startswith(
        f"section {name} has {HUGE} bytes, at most "
    )


def test_an_unknown_section_that_runs_past_the_end_is_a_cut_stream(forge: Build, section: Build) -> None:
    assert refuse(forge(section(9, b"x" * 50, HUGE)), None) == text("refusals", "truncated")


def test_a_section_that_runs_into_the_trailer_is_a_cut_stream(forge: Build, section: Build) -> None:
    assert refuse(forge(section(9, b"x" * 50, 51)), None) == text("refusals", "truncated")


def test_a_table_of_four_billion_entries_is_refused(forge: Build, section: Build) -> None:
    lie = section(3, struct.pack("<II", 0, HUGE) + b"\0" * 400)
    assert refuse(forge(lie), None) == text("refusals", "section_length", name="TABLE", length=408)


def test_a_table_beyond_the_limit_is_refused_even_when_it_is_there(forge: Build, section: Build) -> None:
    entries = LIMITS.pod_table_elements + 1
    whole = section(3, struct.pack("<II", 0, entries) + bytes(4 * entries))
    assert refuse(forge(whole), None).startswith("section TABLE has ")


def test_more_tables_than_a_module_can_have_are_refused(forge: Build, section: Build) -> None:
    tables = [section(3, struct.pack("<II", i, 0)) for i in range(LIMITS.pod_tables + 1)]
    assert refuse(forge(*tables), None) == "section TABLE has more than 16 tables, at most 16 are read"


def test_a_million_events_are_refused(forge: Build, section: Build) -> None:
    million = section(5, struct.pack("<HI", 0, 0) * 1_000_000)
    assert refuse(forge(million), None).startswith("section EVENTS has 6000000 bytes, at most ")
    nine = section(5, struct.pack("<HI", 0, 0) * 9)
    assert refuse(forge(nine), None) == "section EVENTS has more than 8 entries, at most 8 are read"


def test_a_million_globals_are_refused(forge: Build, section: Build) -> None:
    million = section(2, b"".join(struct.pack("<IBQ", i, 0x7F, 0) for i in range(1_000_000)))
    assert refuse(forge(million), POD) == text("refusals", "globals_count", found=1_000_000, expected=0)
    assert refuse(forge(million), None).startswith("section GLOBALS has 13000000 bytes, at most ")


def test_a_true_trailer_does_not_make_a_lie_true(forge: Build) -> None:
    for lie in ({"memory_bytes": HUGE}, {"count": 3}, {"pages": 7}, {"flags": 1}, {"memory_bytes": 65535}):
        data = forge(**lie)
        assert hashlib.sha256(data[:-32]).digest() == data[-32:]
        assert refuse(data, POD)


def test_a_reader_with_a_sink_keeps_nothing_of_a_large_memory(forge: Build) -> None:
    data = forge(memory=bytes(256 * 65536), pages=256)
    seen = 0

    def sink(offset: int, piece: memoryview) -> None:
        nonlocal seen
        assert offset == seen
        seen += len(piece)

    tracemalloc.start()
    try:
        reader = Reader(limits=LIMITS, memory_sink=sink)
        for start in range(0, len(data), 65536):
            reader.feed(memoryview(data)[start : start + 65536])
        reader.finish()
        assert tracemalloc.get_traced_memory()[1] < 65536
    finally:
        tracemalloc.stop()
    assert seen == 256 * 65536
