"""FileFlash: a journal's file (issue C: full disk, read-only, two processes, a sync that fails)."""

import os
from pathlib import Path

import pytest

from kube32.formats.k32l import Geometry
from kube32.store import flash as flash_module
from kube32.store.flash import FileFlash, FlashError

GEOMETRY = Geometry(16)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "journal.img"


def test_a_new_image_is_erased_and_has_its_full_size(path: Path) -> None:
    FileFlash.open(path, GEOMETRY).close()
    assert path.read_bytes() == b"\xff" * GEOMETRY.size
    assert oct(path.stat().st_mode & 0o777) == "0o600"
    # Preallocated: later writes need no room on the disk.
    assert path.stat().st_blocks * 512 >= GEOMETRY.size


def test_operations_are_seen_at_once_and_in_the_file_after_a_sync(path: Path) -> None:
    flash = FileFlash.open(path, GEOMETRY)
    flash.program(4096 + 256, b"one")
    flash.program(4096 + 259, b"two")
    flash.erase(3)
    flash.program(3 * 4096, b"three")
    flash.program(5 * 4096 - 2, b"ab")
    assert flash.read(4096 + 255, 8) == b"\xffonetwo\xff"
    assert flash.read(3 * 4096 - 1, 7) == b"\xffthree\xff"
    assert path.read_bytes() == b"\xff" * GEOMETRY.size
    flash.sync()
    content = path.read_bytes()
    assert content[4096 + 256 : 4096 + 262] == b"onetwo"
    assert content[3 * 4096 : 3 * 4096 + 6] == b"three\xff"
    assert content[5 * 4096 - 2 : 5 * 4096] == b"ab"
    assert len(content) == GEOMETRY.size
    flash.erase(1)
    flash.sync()
    assert path.read_bytes()[4096:8192] == b"\xff" * 4096


def test_what_was_not_synced_is_not_in_the_file(path: Path) -> None:
    flash = FileFlash.open(path, GEOMETRY)
    flash.program(0, b"lost")
    flash.close()
    assert path.read_bytes() == b"\xff" * GEOMETRY.size


def test_a_second_one_is_refused_and_a_reader_is_not(path: Path) -> None:
    first = FileFlash.open(path, GEOMETRY)
    with pytest.raises(FlashError, match=rf"^{path} is in use by another process$"):
        FileFlash.open(path, GEOMETRY)
    FileFlash.open(path, GEOMETRY, read_only=True).close()
    first.close()
    FileFlash.open(path, GEOMETRY).close()


@pytest.mark.parametrize(
    ("size", "cause"), [(0, "has 0 bytes"), (65535, "has 65535 bytes"), (131072, "has 131072")]
)
def test_a_file_of_another_size_is_left_alone(path: Path, size: int, cause: str) -> None:
    path.write_bytes(b"x" * size)
    with pytest.raises(FlashError, match=cause):
        FileFlash.open(path, GEOMETRY)
    assert path.read_bytes() == b"x" * size


def test_what_is_no_file_is_said(tmp_path: Path, path: Path) -> None:
    path.mkdir()
    with pytest.raises(FlashError, match=f"^{path}: Is a directory$"):
        FileFlash.open(path, GEOMETRY)
    link = tmp_path / "link"
    link.symlink_to(tmp_path / "nowhere" / "image")
    with pytest.raises(FlashError, match=f"^{link}: No such file or directory$"):
        FileFlash.open(link, GEOMETRY, read_only=True)
    missing = tmp_path / "no" / "journal.img"
    with pytest.raises(FlashError, match=f"^{missing}: No such file or directory$"):
        FileFlash.open(missing, GEOMETRY)


def test_nothing_works_after_a_sync_that_failed(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    flash = FileFlash.open(path, GEOMETRY)
    flash.program(0, b"x")

    def broken(fd: int, data: bytes, offset: int) -> int:
        raise OSError(5, "Input/output error")

    monkeypatch.setattr(flash_module.os, "pwrite", broken)
    with pytest.raises(FlashError, match=f"^{path}: Input/output error$"):
        flash.sync()
    monkeypatch.undo()
    for call in (
        flash.sync,
        lambda: flash.program(8, b"x"),
        lambda: flash.erase(0),
        lambda: flash.read(0, 1),
    ):
        with pytest.raises(FlashError, match="Input/output error"):
            call()


def test_a_write_that_comes_in_parts_is_finished(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    flash = FileFlash.open(path, GEOMETRY)
    whole = os.pwrite
    monkeypatch.setattr(flash_module.os, "pwrite", lambda fd, data, at: whole(fd, bytes(data)[:3], at))
    flash.program(100, b"0123456789")
    flash.sync()
    assert path.read_bytes()[100:110] == b"0123456789"
