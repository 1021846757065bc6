"""The simulator's serial console: a Unix socket or a terminal device that answers K32_CMD lines.

Whoever may open it may ask; it changes nothing.
"""

import asyncio
import os
import socket
import stat
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Protocol

from kube32.contract import Limits, text
from kube32.sim.options import StartError

_PREFIX = b"K32_CMD:"
_READ_BYTES = 4096
Facts = Mapping[str, int | float | str]
Command = Callable[[], Facts]


class _Reader(Protocol):
    async def read(self, n: int) -> bytes: ...


class _Writer(Protocol):
    def write(self, data: bytes) -> None: ...
    async def drain(self) -> None: ...
    def close(self) -> None: ...


class _Device:
    """A character device as reader and writer. (Event loops differ in which devices their pipes take.)"""

    def __init__(self, path: Path) -> None:
        self._fd = os.open(path, os.O_RDWR | os.O_NOCTTY | os.O_NONBLOCK)
        self._unsent = bytearray()

    async def read(self, n: int) -> bytes:
        """Up to `n` bytes; b"" when the other end has hung up."""
        while True:
            try:
                return os.read(self._fd, n)
            except BlockingIOError:
                await self._until(reading=True)
            except OSError:
                return b""

    def write(self, data: bytes) -> None:
        """Keeps bytes for `drain`."""
        self._unsent += data

    async def drain(self) -> None:
        """Sends what was written. OSError."""
        while self._unsent:
            try:
                del self._unsent[: os.write(self._fd, self._unsent)]
            except BlockingIOError:
                await self._until(reading=False)

    async def _until(self, *, reading: bool) -> None:
        loop = asyncio.get_running_loop()
        ready: asyncio.Future[None] = loop.create_future()
        add, remove = (
            (loop.add_reader, loop.remove_reader) if reading else (loop.add_writer, loop.remove_writer)
        )
        add(self._fd, _resolve, ready)
        try:
            await ready
        finally:
            remove(self._fd)

    def close(self) -> None:
        """Gives the device up."""
        os.close(self._fd)


def _resolve(ready: "asyncio.Future[None]") -> None:
    if not ready.done():
        ready.set_result(None)


class Console:
    """Answers on `path`: a socket that it makes, or a character device that is there (a pty).

    `commands` gives the facts for each name. StartError from `start` says what is wrong with the path.
    """

    def __init__(self, path: Path, commands: dict[str, Command], limits: Limits) -> None:
        self._path = path
        self._commands = commands
        self._limits = limits
        self._server: asyncio.Server | None = None
        self._sessions: set[asyncio.Task[None]] = set()

    async def start(self) -> None:
        """Begins to answer."""
        try:
            if self._path.exists() and stat.S_ISCHR(self._path.stat().st_mode):
                device = _Device(self._path)
                self._keep(asyncio.create_task(self._answer_all(device, device)))
                return
            self._clear_stale()
            mask = os.umask(0o177)
            try:
                self._server = await asyncio.start_unix_server(self._connected, self._path)
            finally:
                os.umask(mask)
        except OSError as error:
            raise StartError(f"--console {self._path}: {error.strerror or error}") from None

    def _clear_stale(self) -> None:
        """Removes a socket that nobody listens on; anything else at the path is somebody's."""
        if not self._path.is_symlink() and not self._path.exists():
            return
        if not self._path.is_socket():
            raise StartError(f"--console {self._path}: there is a file already, and no socket")
        with socket.socket(socket.AF_UNIX) as probe:
            try:
                probe.connect(str(self._path))
            except ConnectionRefusedError:
                self._path.unlink()
                return
        raise StartError(f"--console {self._path}: another process answers there")

    async def stop(self) -> None:
        """Ends all sessions and removes the socket."""
        if self._server is not None:
            self._server.close()
            with suppress(OSError):
                self._path.unlink()
        for session in list(self._sessions):
            session.cancel()
        await asyncio.gather(*self._sessions, return_exceptions=True)

    def _keep(self, session: "asyncio.Task[None]") -> None:
        self._sessions.add(session)
        session.add_done_callback(self._sessions.discard)

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if len(self._sessions) >= self._limits.console_clients:
            with suppress(OSError, TimeoutError):
                await self._say(writer, [text("console", "busy", limit=self._limits.console_clients)])
            writer.close()
            return
        session = asyncio.current_task()
        assert session is not None
        self._keep(session)
        await self._answer_all(reader, writer)

    async def _answer_all(self, reader: "_Reader", writer: "_Writer") -> None:
        """One terminal, to its end."""
        limit, pending, skipping = self._limits.console_line_bytes, b"", False
        try:
            while data := await reader.read(_READ_BYTES):
                *lines, pending = (pending + data).replace(b"\r", b"\n").split(b"\n")
                for line in lines:
                    if not skipping:
                        await self._say(writer, self._answer(line))
                    skipping = False
                if len(pending) > limit:
                    if not skipping:
                        await self._say(writer, [text("console", "too_long", limit=limit)])
                    pending, skipping = b"", True
        except (OSError, TimeoutError, asyncio.CancelledError):
            pass
        finally:
            writer.close()

    async def _say(self, writer: "_Writer", lines: list[str]) -> None:
        if lines:
            writer.write("".join(f"{line}\r\n" for line in lines).encode())
            async with asyncio.timeout(self._limits.console_write_ms / 1000):
                await writer.drain()

    def _answer(self, line: bytes) -> list[str]:
        """The lines that answer one; none for an empty one."""
        asked = line.strip()
        if not asked:
            return []
        known = ", ".join(f"K32_CMD:{name}" for name in self._commands)
        if len(line) > self._limits.console_line_bytes:
            return [text("console", "too_long", limit=self._limits.console_line_bytes)]
        if not asked.startswith(_PREFIX):
            return [text("console", "no_command", known=known)]
        name = _printable(asked.removeprefix(_PREFIX))
        command = self._commands.get(name)
        if command is None:
            return [text("console", "unknown", command=name, known=known)]
        facts = command().items()
        lines = [text("console", "fact", command=name, name=fact, value=value) for fact, value in facts]
        return [*lines, text("console", "ok", command=name)]


def _printable(raw: bytes) -> str:
    """What was typed, without what would steer a terminal."""
    return "".join(c if c.isprintable() else "?" for c in raw.decode("utf-8", "replace"))
