"""Durable writes by others, on the same file system: SQLite (in this process) and Debian's etcd-server."""

import base64
import json
import shutil
import socket
import sqlite3
import subprocess
import threading
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from contextlib import suppress
from multiprocessing import get_context
from pathlib import Path
from types import TracebackType
from typing import Self

from bench.cluster import BenchFailed

_START_S = 20.0


def sqlite_writes(folder: Path, writers: int, each: int, value: bytes) -> float:
    """Seconds for `writers` threads that put `each` values, one transaction a write: WAL, synchronous FULL."""
    path = folder / "rival.db"
    for old in folder.glob("rival.db*"):
        old.unlink()
    with _connected(path) as setup:
        setup.execute("create table kv (key text primary key, value blob)")

    def work(number: int) -> None:
        with _connected(path) as connection:
            for turn in range(each):
                key = f"/registry/configmaps/default/c{number}-{turn % 30}"
                connection.execute("insert or replace into kv values (?, ?)", (key, value))

    return in_threads(work, writers)


class _connected:
    """A connection whose every statement is a transaction of its own."""

    def __init__(self, path: Path) -> None:
        self._connection = sqlite3.connect(path, isolation_level=None, timeout=60)
        self._connection.execute("pragma journal_mode=wal")
        self._connection.execute("pragma synchronous=full")

    def __enter__(self) -> sqlite3.Connection:
        return self._connection

    def __exit__(self, *_: object) -> None:
        self._connection.close()


def in_threads(work: Callable[[int], None], count: int) -> float:
    """Seconds until `work` has ended in all of `count` threads."""
    threads = [threading.Thread(target=work, args=(number,)) for number in range(count)]
    begun = time.perf_counter()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return time.perf_counter() - begun


class Etcd:
    """An etcd-server on loopback. BenchFailed when it does not start."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._port = _free_port()
        self._popen: subprocess.Popen[bytes] | None = None

    @staticmethod
    def installed() -> str:
        """Its version, "" where it is not installed."""
        if shutil.which("etcd") is None:
            return ""
        return subprocess.run(["etcd", "--version"], capture_output=True, text=True).stdout.splitlines()[0]

    def __enter__(self) -> Self:
        url, peer = f"http://127.0.0.1:{self._port}", f"http://127.0.0.1:{_free_port()}"
        log = (self._folder / "etcd.log").open("wb")
        self._popen = subprocess.Popen(
            [
                *("etcd", "--data-dir", str(self._folder / "etcd"), "--listen-client-urls", url),
                *("--advertise-client-urls", url, "--listen-peer-urls", peer),
                *("--initial-advertise-peer-urls", peer, "--initial-cluster", f"default={peer}"),
            ],
            stdout=log,
            stderr=log,
        )
        deadline = time.monotonic() + _START_S
        while time.monotonic() < deadline:
            with suppress(OSError):
                _put(self._port, 0, 1, b"x")
                return self
            time.sleep(0.05)
        raise BenchFailed("etcd did not start")

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._popen is not None:
            self._popen.kill()
            self._popen.wait()

    def writes(self, processes: int, connections: int, each: int, value: bytes) -> float:
        """Seconds for clients that put `each` values over each of their connections, through the JSON gateway."""
        with ProcessPoolExecutor(processes, get_context("spawn")) as pool:
            list(pool.map(_nothing, range(processes)))
            begun = time.perf_counter()
            done = [pool.submit(_client, self._port, n, connections, each, value) for n in range(processes)]
            for future in done:
                future.result()
            return time.perf_counter() - begun


def _nothing(_: int) -> None:
    """Has a process started before the clock runs."""


def _client(port: int, number: int, connections: int, each: int, value: bytes) -> None:
    in_threads(lambda n: _put(port, number * connections + n, each, value), connections)


def _put(port: int, number: int, each: int, value: bytes) -> None:
    """Puts over one connection, request after request, with as little work as can be."""
    bodies = []
    for turn in range(min(each, 30)):
        key = base64.b64encode(f"/registry/configmaps/default/c{number}-{turn}".encode()).decode()
        body = json.dumps({"key": key, "value": base64.b64encode(value).decode()})
        head = f"POST /v3/kv/put HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: {len(body)}\r\n\r\n"
        bodies.append((head + body).encode())
    with socket.create_connection(("127.0.0.1", port), timeout=30) as connection:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for turn in range(each):
            connection.sendall(bodies[turn % len(bodies)])
            answer = b""
            while b"\r\n\r\n" not in answer or not answer.rstrip().endswith(b"}"):
                piece = connection.recv(4096)
                if not piece:
                    raise OSError("etcd closed the connection")
                answer += piece
            if not answer.startswith(b"HTTP/1.1 200"):
                raise BenchFailed(answer.decode(errors="replace"))


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
