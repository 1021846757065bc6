"""The README's session, typed again: each command works and prints what the README says."""

import os
import re
import shlex
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.conftest import BIN, ROOT

BLOCK = re.compile(r"```console\n(.*?)```", re.S)


def session() -> list[tuple[str, list[str]]]:
    """Every `$ ` command of the README's console blocks with the lines that it prints there."""
    found: list[tuple[str, list[str]]] = []
    for block in BLOCK.findall((ROOT / "README.md").read_text()):
        for line in block.splitlines():
            if line.startswith("$ "):
                found.append((line[2:], []))
            else:
                found[-1][1].append(line)
    return found


def same(shown: list[str], printed: list[str]) -> bool:
    """Equal but for what differs from run to run: words with digits in them, and spacing."""

    def words(lines: list[str]) -> list[list[str]]:
        return [["#" if re.search(r"\d|-[a-z0-9]{5}$", w) else w for w in line.split()] for line in lines]

    # How many phases of a move are seen depends on how fast it is.
    phases = re.compile(r"\d+ ms  (Pending|Saving|Moving)")
    return words([s for s in shown if not phases.search(s)]) == words(
        [p for p in printed if not phases.search(p)]
    )


@pytest.fixture
def home(tmp_path: Path) -> Iterator[tuple[Path, dict[str, str], list[subprocess.Popen[str]]]]:
    """A home directory, the environment, and the processes that the session left running."""
    environment = {**os.environ, "HOME": str(tmp_path), "PATH": f"{BIN}{os.pathsep}{os.environ['PATH']}"}
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    running: list[subprocess.Popen[str]] = []
    yield tmp_path, environment, running
    for process in reversed(running):
        process.send_signal(signal.SIGINT)
    assert [process.wait(30) for process in running] == [0] * len(running)


def test_the_session_of_the_readme(
    home: tuple[Path, dict[str, str], list[subprocess.Popen[str]]],
) -> None:
    folder, environment, running = home
    commands = session()
    assert len(commands) > 8
    for command, shown in commands:
        if command.startswith("export "):
            name, value = command.removeprefix("export ").split("=")
            environment[name] = value.replace("~", str(folder))
        elif command.startswith("kube32-sim"):
            # Another port: 6443 may be taken where the tests run.
            words = shlex.split(command.replace("~", str(folder)))
            if "--worker" not in words:
                words += ["--listen", "127.0.0.1:0"]
            ready = folder / f"{len(running)}.ready"
            words += ["--ready-file", str(ready)]
            process = subprocess.Popen(words, env=environment, cwd=folder, stdout=subprocess.PIPE, text=True)
            running.append(process)
            assert process.stdout is not None
            line = process.stdout.readline().replace(str(folder), "/home/you")
            assert same(shown, [line]), line
            deadline = time.monotonic() + 30
            while not ready.exists():
                assert time.monotonic() < deadline and process.poll() is None
                time.sleep(0.02)
        else:
            done = subprocess.run(
                shlex.split(command), env=environment, cwd=folder, capture_output=True, text=True, timeout=60
            )
            assert done.returncode == 0, f"{command}\n{done.stdout}{done.stderr}"
            assert same(shown, done.stdout.splitlines()), f"{command}\n{done.stdout}"
