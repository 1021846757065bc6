"""Files: mounts, descriptors, room; no path leaves its mount (pod ABI, "Files")."""

import os
from pathlib import Path

import pytest

from kube32.contract import LIMITS
from kube32.wasm import FileTable, Mount

READ, WRITE, CREATE, TRUNCATE, APPEND = 1, 2, 4, 8, 16
NEW = READ | WRITE | CREATE


@pytest.fixture
def table(tmp_path: Path) -> FileTable:
    for name in ("tmp", "config", "outside"):
        (tmp_path / name).mkdir()
    (tmp_path / "config" / "app.txt").write_text("configured")
    (tmp_path / "outside" / "secret").write_text("secret")
    mounts = [
        Mount("/tmp", tmp_path / "tmp", read_only=False, quota=1000),
        Mount("/etc/app/", tmp_path / "config", read_only=True),
        Mount("/tmp/inner", tmp_path / "config", read_only=True),
    ]
    return FileTable(LIMITS.replace(pod_files=4, pod_empty_dir_files=3), mounts)


def read(table: FileTable, fd: int, count: int = 100) -> bytes:
    buffer = bytearray(count)
    return bytes(buffer[: table.read(fd, memoryview(buffer))])


def write(table: FileTable, fd: int, data: bytes) -> int:
    return table.write(fd, memoryview(data))


def test_what_is_written_is_read(table: FileTable) -> None:
    fd = table.open("/tmp/a", NEW)
    assert (fd, write(table, fd, b"hello"), table.size(fd), table.seek(fd, 1, 0)) == (1, 5, 5, 1)
    assert read(table, fd, 3) == b"ell"
    assert read(table, fd) == b"o"
    assert read(table, fd) == b""
    assert [table.seek(fd, -2, 2), table.seek(fd, 1, 1), table.seek(fd, -9, 1), table.seek(fd, 0, 7)] == [
        3,
        4,
        -22,
        -22,
    ]
    assert table.close(fd) == 0
    assert [table.close(fd), table.size(fd), table.seek(fd, 0, 0), write(table, fd, b"x")] == [-9] * 4


def test_append_writes_at_the_end_and_truncate_empties(table: FileTable) -> None:
    fd = table.open("/tmp/a", NEW)
    write(table, fd, b"one")
    more = table.open("/tmp/a", WRITE | APPEND)
    assert [write(table, more, b"two"), table.size(fd), table.close(more)] == [3, 6, 0]
    empty = table.open("/tmp/a", WRITE | TRUNCATE)
    assert table.size(empty) == 0


@pytest.mark.parametrize(
    "flags", [0, CREATE, READ | CREATE, READ | TRUNCATE, READ | APPEND, 32 | READ, 0xFFFFFFFF]
)
def test_flags_that_make_no_sense_are_a_bad_argument(table: FileTable, flags: int) -> None:
    assert table.open("/tmp/a", flags) == -22


def test_reading_needs_read_and_writing_needs_write(table: FileTable) -> None:
    writer = table.open("/tmp/a", WRITE | CREATE)
    reader = table.open("/tmp/a", READ)
    assert table.read(writer, memoryview(bytearray(4))) == -9
    assert write(table, reader, b"x") == -9


@pytest.mark.parametrize(
    "path",
    [
        "/etc/passwd",
        "/",
        "/nowhere",
        "/tmp/../outside/secret",
        "/tmp/../tmp/../../etc/passwd",
        "/tmp/x/../../outside/secret",
        "/tmp/../etc/app/app.txt",
        "/tmp/link/secret",
        "/tmp/filelink",
        "/tmp/uplink/outside/secret",
        "/../outside/secret",
        "/tmpx/a",
        "/tmp/missing/a",
    ],
)
def test_a_path_that_would_leave_its_mount_leads_nowhere(table: FileTable, tmp_path: Path, path: str) -> None:
    (tmp_path / "tmp" / "link").symlink_to(tmp_path / "outside")
    (tmp_path / "tmp" / "filelink").symlink_to(tmp_path / "outside" / "secret")
    (tmp_path / "tmp" / "uplink").symlink_to("..")
    assert table.open(path, READ) == -2
    assert table.open(path, NEW) == -2
    assert table.remove(path) in (-2, -22)
    assert (tmp_path / "outside" / "secret").read_text() == "secret"


@pytest.mark.parametrize(
    "path", ["/etc/app/app.txt", "//etc/./app//app.txt", "etc/app/x/../app.txt", "/tmp/inner/app.txt"]
)
def test_a_config_file_is_read_only(table: FileTable, path: str) -> None:
    fd = table.open(path, READ)
    assert read(table, fd) == b"configured"
    assert [table.open(path, WRITE), table.open("/etc/app/new", NEW), table.remove(path)] == [-22] * 3


@pytest.mark.parametrize("path", ["", "/tmp/a\0b"])
def test_a_path_that_is_none_is_a_bad_argument(table: FileTable, path: str) -> None:
    assert (table.open(path, READ), table.remove(path)) == (-22, -22)


def test_a_directory_and_a_special_file_are_a_bad_argument(table: FileTable, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "tmp" / "pipe")
    (tmp_path / "tmp" / "dir").mkdir()
    for path in ("/tmp/pipe", "/tmp/dir", "/tmp"):
        assert table.open(path, READ) == -22
        assert table.remove(path) == -22


def test_an_empty_dir_is_full_at_its_quota(table: FileTable) -> None:
    fd = table.open("/tmp/a", NEW)
    assert [write(table, fd, b"x" * 1000), write(table, fd, b"y"), table.size(fd)] == [1000, -28, 1000]
    assert table.seek(fd, 0, 0) == 0
    assert write(table, fd, b"z" * 1000) == 1000
    assert table.close(table.open("/tmp/a", WRITE | TRUNCATE)) == 0
    assert table.seek(fd, 2000, 0) == 2000
    assert write(table, fd, b"far") == -28
    assert table.seek(fd, 900, 0) == 900
    assert [write(table, fd, b"x" * 101), write(table, fd, b"x" * 100)] == [-28, 100]
    assert table.close(fd) == 0
    assert table.remove("/tmp/a") == 0
    assert write(table, table.open("/tmp/b", NEW), b"x" * 1000) == 1000


def test_an_empty_dir_takes_so_many_files(table: FileTable) -> None:
    for name in "abc":
        assert table.close(table.open(f"/tmp/{name}", NEW)) == 0
    assert table.open("/tmp/d", NEW) == -28
    assert table.remove("/tmp/a") == 0
    assert table.open("/tmp/d", NEW) == 1


def test_what_was_there_before_counts(tmp_path: Path) -> None:
    (tmp_path / "deep").mkdir()
    (tmp_path / "deep" / "old").write_bytes(b"x" * 90)
    table = FileTable(LIMITS, [Mount("/d", tmp_path, read_only=False, quota=100)])
    fd = table.open("/d/new", NEW)
    assert [write(table, fd, b"x" * 11), write(table, fd, b"x" * 10)] == [-28, 10]


def test_so_many_descriptors_and_each_is_the_lowest_free(table: FileTable) -> None:
    assert [table.open("/etc/app/app.txt", READ) for _ in range(5)] == [1, 2, 3, 4, -12]
    assert table.close(2) == 0
    assert table.open("/etc/app/app.txt", READ) == 2
    table.close_all()
    assert table.close(1) == -9


def test_open_files_are_the_specifications_blockers(table: FileTable) -> None:
    table.open("/tmp/a", NEW)
    table.open("/etc/app/app.txt", READ)
    assert table.blockers() == [
        "open file /tmp/a (descriptor 1)",
        "open file /etc/app/app.txt (descriptor 2)",
    ]


def test_an_open_file_is_not_removed(table: FileTable) -> None:
    fd = table.open("/tmp/a", NEW)
    assert table.remove("/tmp/a") == -22
    table.close(fd)
    assert table.remove("/tmp/a") == 0
    assert table.remove("/tmp/a") == -2


def test_a_single_file_can_be_mounted(tmp_path: Path) -> None:
    (tmp_path / "one").write_text("content")
    table = FileTable(LIMITS, [Mount("/etc/one.conf", tmp_path / "one", read_only=True)])
    assert read(table, table.open("/etc/one.conf", READ)) == b"content"
    assert table.open("/etc/one.conf/below", READ) == -2
