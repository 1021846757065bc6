"""Each way in which a snapshot can be wrong has its own cause, in the contract's words."""

import struct
from collections.abc import Callable

import pytest

from kube32.contract import LIMITS, limits_for, text
from kube32.formats.k32s import Expectation, Reader, SnapshotRefused, decode
from kube32.formats.wasm_module import TableDecl

Build = Callable[..., bytes]
IMAGE = bytes(range(32))
PAGE = 65536


def cause(data: bytes, expect: Expectation | None = None) -> str:
    with pytest.raises(SnapshotRefused) as refusal:
        decode(data, expect=expect)
    assert str(refusal.value) == refusal.value.cause
    return refusal.value.cause


def expectation(**changes: object) -> Expectation:
    values: dict[str, object] = {
        "image_sha256": IMAGE,
        "memory_limit_bytes": PAGE,
        "memory_maximum_pages": None,
        "memory_minimum_pages": 1,
        "mutable_globals": [],
        "tables": [],
        "function_count": 4,
    }
    return Expectation(**{**values, **changes})  # type: ignore[arg-type]


def one_global(index: int, code: int, bits: int) -> bytes:
    return struct.pack("<IBQ", index, code, bits)


def one_table(index: int, *entries: int) -> bytes:
    return struct.pack(f"<II{len(entries)}I", index, len(entries), *entries)


def test_a_good_one_is_taken(forge: Build) -> None:
    assert decode(forge(), expect=expectation()).memory == b"m" * PAGE


def test_magic_is_refused_at_the_first_wrong_byte(forge: Build) -> None:
    assert cause(forge(magic=b"K32L")) == text("refusals", "magic")
    with pytest.raises(SnapshotRefused, match="does not begin with K32S"):
        Reader(limits=LIMITS).feed(b"X")


def test_version_is_refused_after_six_bytes(forge: Build) -> None:
    wanted = text("refusals", "version", version=2, supported=1)
    assert cause(forge(version=2)) == wanted
    assert cause(forge(version=2)[:6]) == wanted


def test_flags_are_refused(forge: Build) -> None:
    assert cause(forge(flags=0x8000)) == text("refusals", "flags", flags=0x8000)


def test_another_modules_snapshot_is_refused_naming_both(forge: Build) -> None:
    found = cause(forge(image=bytes(32)), expectation())
    assert found == text("refusals", "image", found="00" * 32, expected=IMAGE.hex())


def test_more_memory_than_the_pod_may_have_is_refused_at_the_header(forge: Build) -> None:
    wanted = text("refusals", "memory_limit", limit=32768, found=PAGE)
    assert cause(forge()[:68], expectation(memory_limit_bytes=32768)) == wanted


@pytest.mark.parametrize(
    ("size", "pages"), [(PAGE, 2), (PAGE, 0), (100, 0), (2 * PAGE, 1), (PAGE + 1, 1), (5, 2)]
)
def test_bytes_and_pages_that_contradict_each_other_are_refused(forge: Build, size: int, pages: int) -> None:
    data = forge(memory_bytes=size, pages=pages)
    assert cause(data) == text("refusals", "memory_shape", bytes=size, pages=pages)


@pytest.mark.parametrize(
    ("memory", "pages"), [(b"", 0), (b"", 1), (b"x" * 9, 1), (b"x" * PAGE, 1), (b"xy" * PAGE, 2)]
)
def test_whole_pages_and_a_part_of_one_are_taken(forge: Build, memory: bytes, pages: int) -> None:
    assert decode(forge(memory=memory, pages=pages)).memory == memory


def test_a_memory_section_of_another_length_is_refused(forge: Build, section: Build) -> None:
    data = forge(section(1, b"12345"), with_memory=False)
    assert cause(data) == text("refusals", "memory_section", found=5, expected=PAGE)


def test_no_memory_section_is_refused(forge: Build) -> None:
    assert cause(forge(with_memory=False)) == text("refusals", "memory_missing")


def test_less_memory_than_the_modules_minimum_is_refused(forge: Build) -> None:
    found = cause(forge(), expectation(memory_minimum_pages=2, memory_limit_bytes=4 * PAGE))
    assert found == text("refusals", "memory_minimum", found=PAGE, expected=2 * PAGE)


def test_more_memory_than_the_modules_maximum_is_refused(forge: Build) -> None:
    data = forge(memory=b"xy" * PAGE, pages=2)
    found = cause(data, expectation(memory_maximum_pages=1, memory_limit_bytes=4 * PAGE))
    assert found == text("refusals", "memory_maximum", found=2, expected=1)


def test_part_of_a_page_restores_under_a_larger_limit(forge: Build) -> None:
    assert (
        decode(forge(memory=b"x" * 100), expect=expectation(memory_limit_bytes=4 * PAGE)).memory_bytes == 100
    )


def test_globals_must_be_there_when_the_module_has_them(forge: Build) -> None:
    found = cause(forge(), expectation(mutable_globals=[(0, "i32")]))
    assert found == text("refusals", "globals_missing", expected=1)


@pytest.mark.parametrize("mutable", [[], [(0, "i32"), (1, "i64")]])
def test_fewer_or_more_globals_are_refused(
    forge: Build, section: Build, mutable: list[tuple[int, str]]
) -> None:
    data = forge(section(2, one_global(0, 0x7F, 1)))
    found = cause(data, expectation(mutable_globals=mutable))
    assert found == text("refusals", "globals_count", found=1, expected=len(mutable))


@pytest.mark.parametrize("mutable", [[(1, "i32")], [(0, "i64")], [(0, "f32")]])
def test_a_global_of_another_index_or_type_is_refused(
    forge: Build, section: Build, mutable: list[tuple[int, str]]
) -> None:
    data = forge(section(2, one_global(0, 0x7F, 1)))
    found = cause(data, expectation(mutable_globals=mutable))
    assert found == text("refusals", "global_mismatch", index=0, found="i32")


def test_an_unknown_value_type_is_refused(forge: Build, section: Build) -> None:
    assert cause(forge(section(2, one_global(4, 0x6F, 0)))) == text(
        "refusals", "global_mismatch", index=4, found="0x6F"
    )


def test_globals_out_of_order_or_twice_are_refused(forge: Build, section: Build) -> None:
    for second in (0, 1):
        data = forge(section(2, one_global(1, 0x7F, 1) + one_global(second, 0x7F, 1)))
        assert cause(data) == text("refusals", "global_order", index=second)


@pytest.mark.parametrize(("code", "kind"), [(0x7F, "i32"), (0x7D, "f32"), (0x70, "funcref")])
def test_narrow_globals_with_high_bits_are_refused(
    forge: Build, section: Build, code: int, kind: str
) -> None:
    found = cause(forge(section(2, one_global(0, code, 1 << 32))))
    assert found == text("refusals", "global_bits", index=0, type=kind, bits="0x0000000100000000")


def test_a_funcref_global_of_a_function_that_cannot_be_there_is_refused(forge: Build, section: Build) -> None:
    data = forge(section(2, one_global(0, 0x70, 3)))
    module = expectation(mutable_globals=[(0, "funcref")], restorable_functions=frozenset({1}))
    assert cause(data, module) == text("refusals", "global_function", index=0, function=3)
    null = forge(section(2, one_global(0, 0x70, 0xFFFFFFFF)))
    assert decode(null, expect=module).globals[0].bits == 0xFFFFFFFF


def test_a_table_must_be_there_for_each_of_the_module(forge: Build, section: Build) -> None:
    two = [TableDecl("funcref", 1, None), TableDecl("funcref", 1, None)]
    found = cause(forge(section(3, one_table(0, 1))), expectation(tables=two))
    assert found == text("refusals", "table_missing", index=1)


@pytest.mark.parametrize(
    ("declared", "index"),
    [(TableDecl("funcref", 3, None), 0), (TableDecl("funcref", 0, 1), 0), (TableDecl("funcref", 0, None), 1)],
)
def test_a_table_too_small_too_large_or_unknown_is_refused(
    forge: Build, section: Build, declared: TableDecl, index: int
) -> None:
    found = cause(forge(section(3, one_table(index, 1, 2))), expectation(tables=[declared]))
    assert found == text("refusals", "table_mismatch", index=index, found=2)


def test_a_table_entry_that_names_no_function_of_the_module_is_refused(forge: Build, section: Build) -> None:
    tables = [TableDecl("funcref", 1, None)]
    data = forge(section(3, one_table(0, 0xFFFFFFFF, 3, 4)))
    assert cause(data, expectation(tables=tables)) == text(
        "refusals", "table_entry", index=0, entry=2, function=4
    )
    grown = decode(forge(section(3, one_table(0, 0xFFFFFFFF, 3, 3))), expect=expectation(tables=tables))
    assert list(grown.tables[0].entries) == [0xFFFFFFFF, 3, 3]


@pytest.mark.parametrize(("kind", "name"), [(1, "MEMORY"), (2, "GLOBALS"), (4, "CHANNELS"), (5, "EVENTS")])
def test_a_section_that_stands_twice_is_refused(forge: Build, section: Build, kind: int, name: str) -> None:
    content = {1: b"m" * PAGE, 2: one_global(0, 0x7F, 1), 4: b"", 5: b""}[kind]
    extra = [section(kind, content)] * (1 if kind == 1 else 2)
    assert cause(forge(*extra)) == text("refusals", "duplicate_section", name=name)


def test_a_table_that_stands_twice_is_refused(forge: Build, section: Build) -> None:
    data = forge(section(3, one_table(2, 1)), section(3, one_table(2, 1)))
    assert cause(data) == text("refusals", "duplicate_table", index=2)


def test_sections_in_any_order_are_taken(forge: Build, section: Build) -> None:
    parts = [
        section(5, struct.pack("<H1sI", 1, b"t", 0)),
        section(3, one_table(0, 1)),
        section(1, b"m" * PAGE),
        section(4, struct.pack("<IH", 1, 0)),
        section(2, one_global(0, 0x7F, 1)),
    ]
    module = expectation(mutable_globals=[(0, "i32")], tables=[TableDecl("funcref", 1, 1)])
    back = decode(forge(*parts, with_memory=False), expect=module)
    assert (back.globals[0].bits, len(back.tables), len(back.channels), len(back.events)) == (1, 1, 1, 1)


@pytest.mark.parametrize(
    ("kind", "content"),
    [
        (2, b"\0" * 12),
        (3, b"\0" * 7),
        (3, struct.pack("<II", 0, 2) + b"\0" * 4),
        (3, struct.pack("<II", 0, 0) + b"\0" * 4),
        (4, struct.pack("<IH", 1, 5) + b"abcd"),
        (4, b"\1\0\0"),
        (5, struct.pack("<H", 2) + b"x"),
        (5, struct.pack("<H1sI", 1, b"t", 2) + b"p"),
        (5, struct.pack("<H1sI", 1, b"t", 0) + b"\0"),
    ],
)
def test_contents_that_do_not_come_out_even_are_refused(
    forge: Build, section: Build, kind: int, content: bytes
) -> None:
    name = {2: "GLOBALS", 3: "TABLE", 4: "CHANNELS", 5: "EVENTS"}[kind]
    assert cause(forge(section(kind, content))) == text(
        "refusals", "section_length", name=name, length=len(content)
    )


def test_channel_handles_are_positive_and_unlike(forge: Build, section: Build) -> None:
    def channel(handle: int, name: bytes) -> bytes:
        return struct.pack("<IH", handle, len(name)) + name

    def refusal(*channels: bytes) -> str:
        return cause(forge(section(4, b"".join(channels))))

    assert refusal(channel(0, b"a")) == text("refusals", "channel_handle", handle=0)
    assert refusal(channel(1, b"a"), channel(1, b"b")) == text("refusals", "channel_handle", handle=1)
    assert refusal(channel(1, b"a"), channel(2, b"a")) == text("refusals", "channel_name", name="a")
    assert refusal(channel(1 << 31, b"a")) == text("refusals", "channel_range", handle=1 << 31)
    assert refusal(channel(1, b"\xff")) == text("refusals", "text_utf8", name="CHANNELS")
    many = [channel(i, b"%d" % i) for i in range(1, LIMITS.pod_channels + 2)]
    assert "more than 64 entries, at most 64 are read" in refusal(*many)


def test_what_a_larger_profile_holds_is_refused_by_a_smaller_one(forge: Build, section: Build) -> None:
    channels = b"".join(struct.pack("<IH3s", i, 3, b"c%02d" % i) for i in range(1, 11))
    data = forge(section(4, channels))
    assert len(decode(data).channels) == 10
    with pytest.raises(SnapshotRefused, match="section CHANNELS has more than 8 entries"):
        decode(data, limits=limits_for("board"))


def test_event_topics_are_utf8_and_bounded(forge: Build, section: Build) -> None:
    assert cause(forge(section(5, struct.pack("<H1sI", 1, b"\xc0", 0)))) == text(
        "refusals", "text_utf8", name="EVENTS"
    )
    long = b"t" * (LIMITS.pod_topic_bytes + 1)
    assert "129 name bytes" in cause(forge(section(5, struct.pack("<H", len(long)) + long + bytes(4))))
    payload = bytes(LIMITS.pod_payload_bytes + 1)
    assert "payload bytes" in cause(forge(section(5, struct.pack("<HI", 0, len(payload)) + payload)))


def test_bytes_after_the_trailer_are_refused_at_once(forge: Build) -> None:
    assert cause(forge() + b"xy") == text("refusals", "trailing", count=2)
    reader = Reader(limits=LIMITS)
    reader.feed(forge())
    with pytest.raises(SnapshotRefused, match="1 bytes or more follow"):
        reader.feed(b"x")


def test_a_wrong_trailer_is_named_as_damage(forge: Build) -> None:
    data = forge()
    assert cause(data[:-1] + bytes([data[-1] ^ 1])) == text("refusals", "trailer")
    at = 68 + 6 + 1000
    assert cause(data[:at] + b"?" + data[at + 1 :]) == text("refusals", "trailer")


def test_a_refusal_stands(forge: Build) -> None:
    reader = Reader(limits=LIMITS)
    with pytest.raises(SnapshotRefused):
        reader.feed(forge(version=9))
    for call in (lambda: reader.feed(b"more"), reader.finish):
        with pytest.raises(SnapshotRefused, match="version 9"):
            call()


def test_a_stream_without_a_byte_is_cut_off() -> None:
    assert cause(b"") == text("refusals", "truncated")
