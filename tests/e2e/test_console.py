"""The simulator's serial console: K32_CMD:STORE on a socket or a pty."""

import asyncio
import os
import pty
import select
import socket
import tty
from collections.abc import Callable
from pathlib import Path

import pytest

from kube32.contract import LIMITS
from kube32.sim.console import Console
from kube32.sim.options import StartError
from tests.conftest import SimCluster

IMPATIENT = LIMITS.replace(console_write_ms=100)


def ask(path: Path, data: bytes, end: bytes = b"K32_OK:STORE\r\n") -> str:
    """Sends bytes and reads until `end`."""
    with socket.socket(socket.AF_UNIX) as client:
        client.settimeout(30)
        client.connect(str(path))
        client.sendall(data)
        answer = b""
        while not answer.endswith(end):
            piece = client.recv(4096)
            assert piece, answer
            answer += piece
    return answer.decode()


def facts(answer: str) -> dict[str, str]:
    lines = answer.split("\r\n")
    return dict(
        line.removeprefix("K32_STORE:").split("=", 1) for line in lines if line.startswith("K32_STORE:")
    )


@pytest.fixture
def console(own_cluster: SimCluster) -> Path:
    path = own_cluster.folder / "console"
    own_cluster.control_plane("control", "--enable-flash", "--console", str(path))
    return path


def test_the_console_tells_what_the_store_holds(own_cluster: SimCluster, console: Path) -> None:
    before = facts(ask(console, b"K32_CMD:STORE\r\n"))
    own_cluster.kubectl("create", "configmap", "a", "--from-literal=k=v")
    after = facts(ask(console, b"K32_CMD:STORE\n"))
    assert int(after["liveKeys"]) == int(before["liveKeys"]) + 1
    assert int(after["liveBytes"]) > int(before["liveBytes"])
    assert int(after["revision"]) > int(before["revision"])
    assert int(after["reservedRevision"]) > int(after["revision"])
    assert (after["sectors"], after["capacityBytes"], after["failure"]) == ("1024", "1945600", "")
    assert oct(console.stat().st_mode & 0o777) == "0o600"


def test_other_lines_get_one_line_that_says_what_there_is(console: Path) -> None:
    known = "there are K32_CMD:STORE"
    assert ask(console, b"help\r", b"STORE\r\n") == f"K32_ERR:commands begin with K32_CMD: ; {known}\r\n"
    assert (
        ask(console, b"\r\n\nK32_CMD:\x1b[2J\n", b"STORE\r\n")
        == f'K32_ERR:unknown command "?[2J"; {known}\r\n'
    )
    limit = "K32_ERR:a line has more than 256 bytes\r\n"
    assert ask(console, b"x" * 100_000 + b"\nK32_CMD:STORE\n").startswith(limit + "K32_STORE:")


def test_those_who_do_not_read_or_stay_harm_nobody(own_cluster: SimCluster, console: Path) -> None:
    idle = []
    for _ in range(4):
        client = socket.socket(socket.AF_UNIX)
        client.connect(str(console))
        client.setblocking(False)
        idle.append(client)
    own_cluster.until("four are connected", lambda: "4 terminals" in ask(console, b"", b"\r\n"))
    with pytest.raises(BlockingIOError):
        while True:
            idle[0].send(b"K32_CMD:STORE\n" * 100)
    own_cluster.kubectl("get", "nodes")
    for client in idle:
        client.close()
    own_cluster.until(
        "there is room again", lambda: "terminals" not in ask(console, b"K32_CMD:STORE\n", b"\r\n")
    )


def test_a_pty_is_a_console_too(own_cluster: SimCluster) -> None:
    ours, theirs = pty.openpty()
    tty.setraw(theirs)
    own_cluster.control_plane("control", "--console", os.ttyname(theirs))
    os.write(ours, b"K32_CMD:STORE\r")
    answer = b""
    while not answer.endswith(b"K32_OK:STORE\r\n"):
        assert select.select([ours], [], [], 30)[0], answer
        answer += os.read(ours, 4096)
    assert facts(answer.decode())["journal"] == "none, objects live in memory"


def test_a_path_that_cannot_be_a_console_is_one_line(own_cluster: SimCluster, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("mine")
    (tmp_path / "null").symlink_to("/dev/null")
    living = socket.socket(socket.AF_UNIX)
    living.bind(str(tmp_path / "living"))
    living.listen()
    stale = socket.socket(socket.AF_UNIX)
    stale.bind(str(tmp_path / "stale"))
    stale.close()
    for name, cause in (
        ("file", "there is a file already, and no socket"),
        ("no/such", "No such file or directory"),
        ("null", "the device is no terminal"),
        ("living", "another process answers there"),
    ):
        process = own_cluster.start(
            "c", "--listen", "127.0.0.1:0", "--console", str(tmp_path / name), wait=False
        )
        assert process.popen.wait(30) == 2
        assert process.log.splitlines()[-1] == f"kube32-sim: --console {tmp_path / name}: {cause}"
    assert (tmp_path / "file").read_text() == "mine"
    living.close()
    process = own_cluster.control_plane("control", "--console", str(tmp_path / "stale"))
    assert facts(ask(tmp_path / "stale", b"K32_CMD:STORE\n"))["liveKeys"] != "0"
    assert process.stop() == 0
    assert not (tmp_path / "stale").exists()


# --- the Console itself ---


def console_on(path: str | Path, command: Callable[[], dict[str, int | float | str]] = dict) -> Console:
    return Console(Path(path), {"STORE": command}, IMPATIENT)


async def read_until(fd: int, end: bytes) -> bytes:
    """What a terminal shows, up to `end`."""

    def read() -> bytes:
        seen = b""
        while not seen.endswith(end):
            assert select.select([fd], [], [], 30)[0], seen
            seen += os.read(fd, 65536)
        return seen

    return await asyncio.to_thread(read)


async def test_a_process_with_no_room_for_connections_is_there_all_the_same(tmp_path: Path) -> None:
    path = tmp_path / "busy"
    clients = [socket.socket(socket.AF_UNIX) for _ in range(3)]
    with socket.socket(socket.AF_UNIX) as busy:
        busy.bind(str(path))
        busy.listen(0)
        full = False
        for client in clients:
            client.setblocking(False)
            try:
                client.connect(str(path))
            except BlockingIOError:
                full = True
        assert full
        with pytest.raises(StartError, match="another process answers there"):
            await asyncio.wait_for(console_on(path).start(), 30)
    for client in clients:
        client.close()


@pytest.mark.parametrize("device", ["/dev/null", "/dev/zero", "/dev/urandom"])
async def test_a_device_that_is_no_terminal_is_refused(device: str) -> None:
    with pytest.raises(StartError, match=f"--console {device}: the device is no terminal"):
        await console_on(device).start()


async def test_a_client_that_never_reads_is_cut_off(tmp_path: Path) -> None:
    """Whatever it keeps open, the process keeps nothing for it."""
    console = console_on(tmp_path / "console", lambda: {"much": "x" * 10_000_000})
    await console.start()
    with socket.socket(socket.AF_UNIX) as client:
        client.connect(str(tmp_path / "console"))
        client.sendall(b"K32_CMD:STORE\n")
        poll = select.poll()
        poll.register(client, 0)
        assert await asyncio.to_thread(poll.poll, 30_000), "the connection is still there"
    await console.stop()


async def test_a_terminal_that_nobody_read_for_a_while_answers_again() -> None:
    ours, theirs = pty.openpty()
    tty.setraw(theirs)
    answers = ["x" * 1_000_000, "second"]
    dropped = asyncio.Event()

    def facts() -> dict[str, int | float | str]:
        if len(answers) == 1:
            dropped.set()
        return {"answer": answers.pop(0)}

    console = console_on(os.ttyname(theirs), facts)
    await console.start()
    os.write(ours, b"K32_CMD:STORE\nK32_CMD:STORE\n")
    await asyncio.wait_for(dropped.wait(), 30)
    shown = await read_until(ours, b"K32_OK:STORE\r\n")
    assert shown.startswith(b"K32_STORE:answer=xxx")
    assert shown.endswith(b"x\r\nK32_STORE:answer=second\r\nK32_OK:STORE\r\n")
    assert len(shown) < 1_000_000
    os.write(ours, b"K32_CMD:OTHER\n")
    assert b"unknown command" in await read_until(ours, b"K32_CMD:STORE\r\n")
    await console.stop()
    os.close(ours)
    os.close(theirs)


async def test_ctrl_d_does_not_end_a_terminal() -> None:
    ours, theirs = pty.openpty()
    console = console_on(os.ttyname(theirs))
    await console.start()
    os.write(ours, b"\x04\x04K32_CMD:STORE\r")
    await read_until(ours, b"K32_OK:STORE\r\r\n")
    await console.stop()
    os.close(ours)
    os.close(theirs)


async def test_the_socket_of_another_is_not_removed_at_the_end(tmp_path: Path) -> None:
    path = tmp_path / "console"
    first, second = console_on(path), console_on(path)
    await first.start()
    path.unlink()
    await second.start()
    await first.stop()
    assert path.is_socket()
    assert oct(path.stat().st_mode & 0o777) == "0o600"
    await second.stop()
    assert not path.exists()
