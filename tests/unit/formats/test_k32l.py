"""K32L: layout, what a reader takes and what it does not (docs/formats.md, "K32L")."""

import os
import struct
import zlib
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kube32.formats.k32l import Geometry, RecordType, Scan, resolve, scan
from kube32.store.flash_log import FlashLog, LogFull, LogUnreadable, Write
from kube32.store.flash_memory import MemoryFlash

GEOMETRY = Geometry(12, 1024, 256)
# More of them: `make fuzz`.
EXAMPLES = int(os.environ.get("KUBE32_FUZZ_EXAMPLES", "150"))


def log_of(flash: MemoryFlash) -> FlashLog:
    return FlashLog.open(flash, live_bytes=1400, record_bytes=300, revision_block=20)


def filled(commits: int, seed: int = 1) -> tuple[MemoryFlash, dict[bytes, bytes]]:
    """A flash with a history of commits, and what lives in it."""
    flash, random, state = MemoryFlash(GEOMETRY, seed=seed), Random(seed), {}
    log = log_of(flash)
    for number in range(commits):
        revision = log.reserved - 15
        key = b"/registry/configmaps/default/c%d" % random.randrange(8)
        value = (
            None if random.random() < 0.2 else b'{"n":%d,"v":"%s"}' % (number, b"x" * random.randrange(60))
        )
        log.commit([Write(key, value, revision)])
        if value is None:
            state.pop(key, None)
        else:
            state[key] = value
    return flash, state


def live(scanned: Scan) -> dict[bytes, bytes]:
    return {key: scanned.value(record) for key, record in resolve(scanned).live.items()}


def test_the_bytes_are_those_of_the_page() -> None:
    flash = MemoryFlash(Geometry(12))
    log = FlashLog.open(flash, live_bytes=1000, record_bytes=400, revision_block=10_000)
    log.commit([Write(b"/registry/a/b", b'{"x":1}', 7)])
    image = bytes(flash.image)
    magic, version, first, sequence, crc = struct.unpack_from("<4sHHII", image)
    assert (magic, version, first, sequence) == (b"K32L", 1, 16, 0)
    assert crc == zlib.crc32(image[:12])
    at = 4096 + 16  # behind the fence's sector
    fields = struct.unpack_from("<BBBBHHIQI", image, at)
    assert fields[:8] == (0xF9, 1, 1, 0xFF, 13, 1, 7, 7)
    body = image[at : at + 20] + b'/registry/a/b{"x":1}'
    assert fields[8] == zlib.crc32(body, zlib.crc32(struct.pack("<I", 1)))
    assert image[at + 24 : at + 44] == b'/registry/a/b{"x":1}'
    assert set(image[at + 44 : 8192]) == {0xFF}


def test_a_mark_says_which_revision_is_not_usable_yet() -> None:
    flash = MemoryFlash(Geometry(12))
    FlashLog.open(flash, live_bytes=1000, record_bytes=400, revision_block=10_000)
    scanned = scan(bytes(flash.image), Geometry(12))
    marks = [scanned.value(r) for r in scanned.records if r.type == RecordType.MARK]
    assert [struct.unpack_from("<Q", mark)[0] for mark in marks] == [10_001, 10_001]


def test_a_value_goes_on_in_the_next_sectors() -> None:
    flash = MemoryFlash(Geometry(32))
    log = FlashLog.open(flash, live_bytes=30_000, record_bytes=20_000, revision_block=100)
    value = bytes(range(0x20, 0x7F)) * 150
    log.commit([Write(b"/registry/a/large", value, 5), Write(b"/registry/a/next", b"{}", 6)])
    scanned = scan(bytes(flash.image), Geometry(32))
    assert live(scanned) == {b"/registry/a/large": value, b"/registry/a/next": b"{}"}
    firsts = [struct.unpack_from("<H", flash.image, 4096 * slot + 6)[0] for slot in range(1, 5)]
    assert firsts[0] == 16
    assert firsts[1:3] == [0xFFFF, 0xFFFF]
    assert 16 < firsts[3] < 4096


@pytest.mark.parametrize("seed", range(3))
def test_a_flipped_bit_costs_one_record_and_is_said(seed: int) -> None:
    flash, state = filled(60, seed)
    random, whole = Random(seed), bytes(flash.image)
    records = scan(whole, GEOMETRY).records
    bits = {
        8 * (r.address % GEOMETRY.size) + bit for r in records[-6:] for bit in range(8 * (24 + len(r.key)))
    }
    bits |= {random.randrange(8 * GEOMETRY.size) for _ in range(1500)}
    for bit in bits:
        flash.image[:] = whole
        flash.flip(bit)
        scanned = scan(bytes(flash.image), GEOMETRY)
        found = live(scanned)
        changed = [key for key in found.keys() | state.keys() if found.get(key) != state.get(key)]
        assert len(changed) <= 1, (bit, changed)
        says = resolve(scanned)
        assert not changed or says.faults or says.torn, (bit, changed)


def test_a_boot_says_which_record_was_damaged_and_serves_the_others() -> None:
    flash, state = filled(30)
    scanned = scan(bytes(flash.image), GEOMETRY)
    victim = min(resolve(scanned).live.values(), key=lambda record: record.address)
    flash.flip(8 * ((victim.address + 24 + len(victim.key) + 3) % GEOMETRY.size))
    log = log_of(flash)
    found = {w.key: w.value for w in log.take_recovered()}
    others = {key: value for key, value in state.items() if key != victim.key}
    assert {key: value for key, value in found.items() if key != victim.key} == others
    (line,) = log.report.faults
    slot = victim.address // GEOMETRY.sector_bytes % GEOMETRY.sectors
    assert line.startswith(f"slot {slot} offset {victim.address % GEOMETRY.sector_bytes} ")
    assert line.endswith(f"a record is damaged, it seems of {victim.key.decode()}")


def test_revisions_do_not_go_back_when_marks_are_damaged() -> None:
    flash, _ = filled(30)
    before = log_of(flash)
    flash.image[:] = flash.image
    marks = [r for r in scan(bytes(flash.image), GEOMETRY).records if r.type == RecordType.MARK]
    for mark in marks:
        flash.flip(8 * ((mark.address + 25) % GEOMETRY.size))
    assert log_of(flash).next_revision >= before.next_revision


def test_a_record_of_an_earlier_round_does_not_count() -> None:
    flash, _ = filled(20)
    size = GEOMETRY.sector_bytes
    head = scan(bytes(flash.image), GEOMETRY).head
    slot = (head + 1) % GEOMETRY.sectors
    stale = bytes(flash.image[head % GEOMETRY.sectors * size :][:size])
    flash.image[slot * size : (slot + 1) * size] = stale
    scanned = scan(bytes(flash.image), GEOMETRY)
    assert scanned.head == head
    assert all(r.address // size <= head for r in scanned.records)


@settings(max_examples=EXAMPLES, deadline=None)
@given(st.data())
def test_no_image_makes_a_reader_fail(data: st.DataObject) -> None:
    """Damaged in any way, and forged with good CRCs too."""
    geometry = Geometry(8, 512, 64)
    image = bytearray(data.draw(st.sampled_from((b"\xff", b"\x00", b"\xf9"))) * geometry.size)
    for _ in range(data.draw(st.integers(0, 6))):
        slot = data.draw(st.integers(0, 7))
        sequence = slot + 8 * data.draw(st.sampled_from((0, 1, 2, 0x1FFFFFFF)))
        header = struct.pack(
            "<4sHHI", b"K32L", 1, data.draw(st.sampled_from((16, 20, 500, 0xFFFF))), sequence
        )
        image[slot * 512 : slot * 512 + 16] = header + struct.pack("<I", zlib.crc32(header))
        at = slot * 512 + 16
        for _ in range(data.draw(st.integers(0, 3))):
            kind, flags = data.draw(st.sampled_from((1, 2, 3, 9))), data.draw(st.integers(0, 3))
            body = data.draw(st.binary(max_size=40))
            key_bytes = data.draw(st.integers(0, len(body)))
            length = data.draw(st.sampled_from((len(body) - key_bytes, 0xFFFFFFFF, 60_000)))
            run, revision = (
                data.draw(st.integers(0, 0xFFFF)),
                data.draw(st.sampled_from((1, 2**63, 2**64 - 1))),
            )
            unsigned = struct.pack("<BBBBHHIQ", 0xF9, kind, flags, 0xFF, key_bytes, run, length, revision)
            crc = zlib.crc32(unsigned + body, zlib.crc32(struct.pack("<I", sequence)))
            record = unsigned + struct.pack("<I", crc) + body
            image[at : at + len(record)] = record
            at += -(-len(record) // 4) * 4
    for _ in range(data.draw(st.integers(0, 4))):
        image[data.draw(st.integers(0, geometry.size - 1))] = data.draw(st.integers(0, 255))
    image = image[: geometry.size]
    scanned = scan(bytes(image), geometry)
    says = resolve(scanned)
    for record in scanned.records:
        assert len(scanned.value(record)) == record.value_bytes
        says.state(record)
    # A boot ends too: it serves, or says in one sentence why not, and then has written nothing.
    flash = MemoryFlash(geometry)
    flash.image[:] = image
    boot_ends(flash)


def boot_ends(flash: MemoryFlash) -> None:
    before = bytes(flash.image)
    try:
        FlashLog.open(flash, live_bytes=0, record_bytes=200, revision_block=20)
    except LogUnreadable as error:
        assert "\n" not in str(error)
        assert bytes(flash.image) == before
    except LogFull:
        pass


def test_the_time_of_a_scan_is_bounded_by_the_size() -> None:
    """An image of nothing but beginnings of records, each of which claims a length of its own."""
    geometry = Geometry(64)
    beginning = struct.pack("<BBBBHHIQI", 0xF9, 1, 0, 0xFF, 8, 0, 60_000, 1, 0)
    image = bytearray(beginning * (geometry.size // len(beginning) + 1))[: geometry.size]
    for slot in range(64):
        header = struct.pack("<4sHHI", b"K32L", 1, 16, slot)
        image[slot * 4096 : slot * 4096 + 16] = header + struct.pack("<I", zlib.crc32(header))
    scanned = scan(bytes(image), geometry)
    assert scanned.records == []
    assert len(scanned.faults) <= 64 * 17
