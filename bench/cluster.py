"""Real kube32-sim processes to measure, below a folder that goes with them; clients for them."""

import asyncio
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from kube32.client.api import ApiClient
from kube32.client.http import HttpTransport
from kube32.client.kubeconfig import load_kubeconfig

BIN = Path(sys.executable).parent
START_S = 60.0


class BenchFailed(Exception):
    """What was to be measured did not work; str() says what."""


@dataclass
class Process:
    """One process: what its ready file said, and when it was spawned, on time.perf_counter."""

    name: str
    folder: Path
    popen: subprocess.Popen[bytes]
    spawned: float
    facts: dict[str, Any] = field(default_factory=dict)

    @property
    def ready_file(self) -> Path:
        """Written by kube32-sim when its node is Ready."""
        return self.folder / "ready.json"

    async def until_ready(self) -> float:
        """Waits for the ready file; seconds since the process was spawned."""
        while not self.ready_file.exists():
            self.check()
            await asyncio.sleep(0.002)
        taken = time.perf_counter() - self.spawned
        self.facts = json.loads(self.ready_file.read_text())
        return taken

    def check(self) -> None:
        """BenchFailed when it has ended or takes too long to start."""
        late = time.perf_counter() - self.spawned > START_S
        if self.popen.poll() is not None or late:
            raise BenchFailed(f"{self.name} did not start:\n{(self.folder / 'log.txt').read_text()}")

    def stop(self) -> None:
        """Ends the process, in order when it can."""
        if self.popen.poll() is None:
            self.popen.send_signal(signal.SIGTERM)
        try:
            self.popen.wait(30)
        except subprocess.TimeoutExpired:
            self.popen.kill()
            self.popen.wait()


class BenchCluster:
    """Processes of one bench; all of them, and their folder, are gone at the end of `with`."""

    def __init__(self) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="kube32-bench-"))
        self.processes: list[Process] = []
        # As on anybody's machine Python finds its byte code where it left it, here outside of the checkout.
        self._environment = {**os.environ, "PYTHONPYCACHEPREFIX": str(self.folder / "pycache")}
        self._environment.pop("PYTHONDONTWRITEBYTECODE", None)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        for process in reversed(self.processes):
            process.stop()
        shutil.rmtree(self.folder, ignore_errors=True)

    def spawn(self, name: str, *command: str) -> Process:
        """Starts a command with a folder and a log of its own."""
        folder = self.folder / name
        folder.mkdir(exist_ok=True)
        spawned = time.perf_counter()
        with (folder / "log.txt").open("ab") as log:
            popen = subprocess.Popen(
                command, stdout=log, stderr=log, start_new_session=True, env=self._environment
            )
        process = Process(name, folder, popen, spawned)
        self.processes.append(process)
        return process

    def sim(self, name: str, *arguments: str) -> Process:
        """Starts kube32-sim; `until_ready` waits for it."""
        folder = self.folder / name
        (folder / "ready.json").unlink(missing_ok=True)
        command = [str(BIN / "kube32-sim"), "--name", name, "--data-dir", str(folder)]
        return self.spawn(name, *command, "--ready-file", str(folder / "ready.json"), *arguments)

    async def control_plane(self) -> Process:
        """The control plane "control", Ready."""
        process = self.sim("control", "--listen", "127.0.0.1:0")
        await process.until_ready()
        return process

    async def worker(self, name: str) -> Process:
        """A worker of "control", Ready."""
        kubeconfig = self.folder / "control" / "worker.kubeconfig"
        process = self.sim(name, "--worker", "--kubeconfig", str(kubeconfig))
        await process.until_ready()
        return process

    def client(self) -> ApiClient:
        """A client with the admin's rights; its transport is to be closed."""
        access = load_kubeconfig(self.folder / "control" / "kubeconfig")
        return ApiClient(HttpTransport(access.server, ssl_context=access.ssl_context, token=access.token))


def free_port() -> int:
    """A port of loopback that nobody listens on now."""
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        return int(sock.getsockname()[1])


def note_of_machine() -> str:
    """How loaded the machine is, since figures of a busy one are worse."""
    return f"load {os.getloadavg()[0]:.1f} on {os.cpu_count()} CPUs" if hasattr(os, "getloadavg") else ""
