"""FlashLog over a flash in memory, and the flash model itself (user-demand D1, D4)."""

import pytest

from kube32.formats.k32l import Geometry, scan
from kube32.store.flash_log import FlashLog, LogFull, LogUnreadable, Write
from kube32.store.flash_memory import MemoryFlash, PowerCut

GEOMETRY = Geometry(64)


def open_log(flash: MemoryFlash, live_bytes: int = 60_000) -> FlashLog:
    return FlashLog.open(flash, live_bytes=live_bytes, record_bytes=9_000, revision_block=100)


def value(number: int, size: int = 1_000) -> bytes:
    return b"%d-" % number + b"v" * size


def keys_of(log: FlashLog) -> set[bytes]:
    return {write.key for write in log.take_recovered()}


@pytest.fixture
def flash() -> MemoryFlash:
    return MemoryFlash(GEOMETRY, seed=1)


def test_what_would_not_fit_is_refused_before_anything_is_written(flash: MemoryFlash) -> None:
    log = open_log(flash)
    for number in range(50):
        log.commit([Write(b"k%d" % number, value(number), 1)])
    before = bytes(flash.image)
    with pytest.raises(LogFull, match="61840 bytes would live, 60000 can"):
        log.commit([Write(b"n%d" % number, value(number), 1) for number in range(10)])
    with pytest.raises(ValueError, match="a record of 10028 bytes, at most 9000"):
        log.commit([Write(b"k", value(0, 10_000), 1)])
    assert bytes(flash.image) == before
    log.commit([Write(b"k%d" % number, None, 1) for number in range(10)] + [Write(b"n", value(0), 1)])


def test_a_commit_of_any_size_is_split_and_frees_room_first(flash: MemoryFlash) -> None:
    log = open_log(flash)
    log.commit([Write(b"k%d" % number, value(number), 1) for number in range(55)])
    writes = [Write(b"n%d" % number, value(number), 1) for number in range(50)]
    log.commit(writes + [Write(b"k%d" % number, None, 1) for number in range(55)])
    assert keys_of(open_log(flash)) == {write.key for write in writes}


def test_sectors_wear_evenly(flash: MemoryFlash) -> None:
    log = open_log(flash)
    log.commit([Write(b"cold%d" % number, value(number), 1) for number in range(30)])
    for number in range(3_000):
        log.commit([Write(b"hot%d" % (number % 3), value(number), 1)])
    assert max(flash.erases) - min(flash.erases) <= 2


def test_a_neighbourhood_that_a_card_has_lost_is_said_and_the_rest_is_served(flash: MemoryFlash) -> None:
    log = open_log(flash)
    old = bytes(flash.image)
    for number in range(40):
        log.commit([Write(b"/registry/a/k%d" % number, value(number), 1)])
    records = {r.key: r for r in scan(bytes(flash.image), GEOMETRY).records}
    lost = {k for k, r in records.items() if k and r.end > 16_384 and r.address < 32_768}
    assert 10 < len(lost) < 20
    flash.lose_neighbourhood(20_000, old)
    again = open_log(flash)
    assert keys_of(again) == {k for k in records if k} - lost
    assert any("sector 5 is erased" in line for line in again.report.faults)


def test_an_image_of_something_else_is_refused_and_not_written_to(flash: MemoryFlash) -> None:
    flash.image[:] = bytes(range(256)) * (GEOMETRY.size // 256)
    before = bytes(flash.image)
    with pytest.raises(LogUnreadable, match="no whole record"):
        open_log(flash)
    assert bytes(flash.image) == before
    assert flash.operations == 0


def test_a_revision_that_cannot_have_been_given_out_is_refused(flash: MemoryFlash) -> None:
    log = open_log(flash)
    log.commit([Write(b"k", b"{}", (1 << 63) - 2)])
    before = bytes(flash.image)
    with pytest.raises(LogUnreadable, match="revision 9223372036854775807 was given out, which cannot be"):
        open_log(flash)
    assert bytes(flash.image) == before


# --- the model: as nasty as real flash ---


def test_a_place_cannot_be_programmed_twice(flash: MemoryFlash) -> None:
    flash.program(10, b"\x00")
    with pytest.raises(AssertionError, match="twice"):
        flash.program(10, b"\x00")
    flash.erase(0)
    flash.program(10, b"\x00")


def test_a_torn_page_reads_differently_each_time_and_its_neighbours_do_not(flash: MemoryFlash) -> None:
    flash.program(0, b"\x11" * 256)
    flash.cut_after(2)
    with pytest.raises(PowerCut):
        flash.program(256, b"\x00" * 1024)
    with pytest.raises(PowerCut):
        flash.sync()
    seen = set()
    for _ in range(20):
        flash.reboot()
        seen.add(flash.read(512, 256))
        assert flash.read(0, 512) == b"\x11" * 256 + b"\x00" * 256
        assert flash.read(768, 512) == b"\xff" * 512
    assert len(seen) > 5
    assert any(0 < page.count(0xFF) < 256 for page in seen)


def test_a_half_erased_sector_has_old_bits_and_ones(flash: MemoryFlash) -> None:
    flash.program(0, b"\x0f" * 4096)
    flash.cut_after(1)
    with pytest.raises(PowerCut):
        flash.erase(0)
    contents = set()
    for _ in range(10):
        flash.reboot()
        contents.add(flash.read(0, 4096))
    assert len(contents) > 5
    flash.erase(0)
    flash.reboot()
    assert flash.read(0, 4096) == b"\xff" * 4096


def test_a_block_device_keeps_any_part_of_what_was_not_synced() -> None:
    kept = set()
    for seed in range(40):
        flash = MemoryFlash(Geometry(16), mode="block", seed=seed)
        flash.erase(0)
        flash.program(0, b"\x00" * 4096)
        flash.sync()
        flash.erase(1)
        flash.program(4096, b"\x00" * 4096)
        flash.cut_after(1)
        with pytest.raises(PowerCut):
            flash.erase(2)
        flash.reboot()
        assert flash.read(0, 4096) == b"\x00" * 4096
        blocks = [flash.read(4096 + at, 512) for at in range(0, 4096, 512)]
        assert all(block in (b"\x00" * 512, b"\xff" * 512) for block in blocks)
        kept.add(tuple(block[0] for block in blocks))
    assert len(kept) > 20
