"""Journals that cannot be used: one clear sentence, exit code 2, and not a byte changed."""

import fcntl
import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.conftest import BIN, SimCluster

IMAGE = "kube32/store/journal.img"


def refused(folder: Path, *arguments: str, limit_bytes: int = 0) -> str:
    """Starts a control plane that must refuse; what it says, in one line."""

    def limit() -> None:
        import resource

        if limit_bytes:
            resource.setrlimit(resource.RLIMIT_FSIZE, (limit_bytes, limit_bytes))

    command = [str(BIN / "kube32-sim"), "--name", "x", "--listen", "127.0.0.1:0", "--enable-flash"]
    done = subprocess.run(
        [*command, "--data-dir", str(folder), *arguments],
        capture_output=True,
        text=True,
        timeout=60,
        preexec_fn=limit,
    )
    assert done.returncode == 2, done.stdout + done.stderr
    lines = done.stderr.strip().splitlines()
    assert len(lines) == 1, done.stderr
    assert lines[0].startswith("kube32-sim: ")
    return lines[0].removeprefix("kube32-sim: ")


@pytest.fixture
def image(own_cluster: SimCluster) -> Path:
    """The journal of a control plane that has ended."""
    process = own_cluster.control_plane("control", "--enable-flash")
    own_cluster.kubectl("create", "configmap", "kept", "--from-literal=a=b")
    process.stop()
    return own_cluster.folder / "control" / IMAGE


def test_two_processes(own_cluster: SimCluster) -> None:
    process = own_cluster.control_plane("control", "--enable-flash")
    message = refused(own_cluster.folder / "control")
    assert message == f"{process.folder} is in use by process {process.popen.pid}; choose another --data-dir"


def test_an_image_that_another_process_has_open(image: Path) -> None:
    with image.open("rb+") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        assert refused(image.parents[2]) == f"{image} is in use by another process"


@pytest.mark.parametrize(
    ("content", "cause"),
    [
        (b"no journal", "has 10 bytes, a journal of 4194304 was expected"),
        (b"", "has 0 bytes, a journal of 4194304 was expected"),
        (b"\x00" * 4194304, "it holds no whole record of a K32L journal, and is not erased either"),
        (bytes(range(256)) * 16384, "it holds no whole record of a K32L journal, and is not erased either"),
    ],
)
def test_an_image_that_is_none(tmp_path: Path, content: bytes, cause: str) -> None:
    image = tmp_path / IMAGE
    image.parent.mkdir(parents=True)
    image.write_bytes(content)
    message = refused(tmp_path)
    assert message.startswith(str(image))
    assert cause in message
    assert image.read_bytes() == content


def test_an_image_of_another_profile(image: Path) -> None:
    message = refused(image.parents[2], "--profile", "board")
    assert message == f"{image} has 4194304 bytes, a journal of 1048576 was expected"


def test_a_directory_in_its_place(tmp_path: Path) -> None:
    (tmp_path / IMAGE).mkdir(parents=True)
    assert refused(tmp_path) == f"{tmp_path / IMAGE}: Is a directory"


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write to every file")
def test_a_read_only_image(image: Path) -> None:
    image.chmod(0o400)
    assert refused(image.parents[2]) == f"{image}: Permission denied"


def test_a_file_system_that_is_full_leaves_nothing_behind(tmp_path: Path) -> None:
    message = refused(tmp_path, limit_bytes=1_000_000)
    assert message == f"{tmp_path / IMAGE}: File too large"
    assert list((tmp_path / IMAGE).parent.iterdir()) == []


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A tmpfs of 5 MiB."""
    folder = tmp_path / "disk"
    folder.mkdir()
    if shutil.which("mount") is None or os.geteuid() != 0:
        pytest.skip("only root may mount a small file system")
    if subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=5m", "tmpfs", str(folder)], capture_output=True
    ).returncode:
        pytest.skip("no tmpfs may be mounted here")
    yield folder
    subprocess.run(["umount", "-l", str(folder)], check=True)


def test_a_disk_that_fills_up_takes_nothing_from_a_running_journal(small_disk: Path) -> None:
    """The image is preallocated: its writes need no more room (user-demand B5, "tmpfs at 100 %")."""
    cluster = SimCluster(small_disk.parent)
    try:
        folder = cluster.folder / "control"
        folder.symlink_to(small_disk)
        process = cluster.control_plane("control", "--enable-flash")
        filler = os.open(small_disk / "filler", os.O_WRONLY | os.O_CREAT)
        with pytest.raises(OSError, match="No space left"):
            while True:
                os.write(filler, b"x" * 4096)
        os.close(filler)
        cluster.kubectl("create", "configmap", "a", "--from-literal=a=b")
        process.stop()
        (small_disk / "filler").unlink()
        cluster.control_plane("control", "--enable-flash")
        assert cluster.get("configmap/a")["data"] == {"a": "b"}
    finally:
        cluster.close()


def test_a_damaged_record_is_said_and_the_others_are_served(own_cluster: SimCluster, image: Path) -> None:
    data = image.read_bytes()
    at = data.index(b'"name":"kept"')
    image.write_bytes(data[:at] + b"\x00" + data[at + 1 :])
    process = own_cluster.control_plane("control", "--enable-flash")
    assert "journal.img: is damaged, what stood there is lost: slot " in process.log
    assert own_cluster.kubectl("get", "configmap", "kept", "--ignore-not-found") == ""
    own_cluster.kubectl("get", "configmap", "kube-root-ca.crt")
