"""The simulator's serial console: a Unix socket or a terminal device that answers K32_CMD lines.

Whoever may open it may ask; it changes nothing.
"""

import asyncio
import os
import select
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


class _Terminal(Protocol):
    async def read(self) -> bytes: ...
    async def send(self, data: bytes) -> None: ...
    def close(self) -> None: ...


class _Client:
    """A connection to the socket."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, patience_s: float) -> None:
        self._reader = reader
        self._writer = writer
        self._patience_s = patience_s

    async def read(self) -> bytes:
        """What has come; b"" at the end. OSError."""
        return await self._reader.read(_READ_BYTES)

    async def send(self, data: bytes) -> None:
        """Returns when it is on its way. OSError; TimeoutError for one who does not read, and is cut off."""
        self._writer.write(data)
        try:
            async with asyncio.timeout(self._patience_s):
                await self._writer.drain()
        except TimeoutError:
            # A mere close would wait for the reader, and keep the descriptor as long.
            self._writer.transport.abort()
            raise

    def close(self) -> None:
        """Ends the connection."""
        self._writer.close()


class _Device:
    """A terminal device. (Event loops differ in which devices their pipes take.)"""

    def __init__(self, path: Path, patience_s: float) -> None:
        self._fd = os.open(path, os.O_RDWR | os.O_NOCTTY | os.O_NONBLOCK)
        self._patience_s = patience_s
        self._broken_off = False
        if not os.isatty(self._fd):
            os.close(self._fd)
            raise StartError(f"--console {path}: the device is no terminal")

    async def read(self) -> bytes:
        """What has come; b"" when the other end has hung up."""
        # Whoever sends without a pause leaves time for everything else.
        await asyncio.sleep(0)
        while True:
            try:
                data = os.read(self._fd, _READ_BYTES)
            except BlockingIOError:
                await self._until(reading=True)
                continue
            except OSError:
                return b""
            # Ctrl-D on a terminal that edits lines is no end.
            if data or self._is_hung_up():
                return data

    def _is_hung_up(self) -> bool:
        poll = select.poll()
        poll.register(self._fd, 0)
        return bool(poll.poll(0))

    async def send(self, data: bytes) -> None:
        """Returns when it is sent, or nobody has read for so long that the rest is dropped. OSError."""
        unsent = b"\r\n" + data if self._broken_off else data
        try:
            async with asyncio.timeout(self._patience_s):
                while unsent:
                    try:
                        unsent = unsent[os.write(self._fd, unsent) :]
                    except BlockingIOError:
                        await self._until(reading=False)
        except TimeoutError:
            self._broken_off = True
        else:
            self._broken_off = False

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
        self._patience_s = limits.console_write_ms / 1000
        self._server: asyncio.Server | None = None
        self._made: tuple[int, int] | None = None
        self._sessions: set[asyncio.Task[None]] = set()

    async def start(self) -> None:
        """Begins to answer."""
        try:
            if self._path.exists() and stat.S_ISCHR(self._path.stat().st_mode):
                device = _Device(self._path, self._patience_s)
                self._keep(asyncio.create_task(self._answer_all(device)))
                return
            self._clear_stale()
            self._server = await asyncio.start_unix_server(self._connected, sock=self._bind())
        except OSError as error:
            raise StartError(f"--console {self._path}: {error.strerror or error}") from None

    def _bind(self) -> socket.socket:
        """The socket, only for its owner: nobody can connect before it listens."""
        bound = socket.socket(socket.AF_UNIX)
        try:
            bound.bind(str(self._path))
            self._path.chmod(0o600)
            self._made = self._identity()
        except BaseException:
            bound.close()
            raise
        return bound

    def _identity(self) -> tuple[int, int] | None:
        """Which file is at the path."""
        try:
            status = self._path.lstat()
        except OSError:
            return None
        return status.st_dev, status.st_ino

    def _clear_stale(self) -> None:
        """Removes a socket that nobody listens on; anything else at the path is somebody's."""
        if not self._path.is_symlink() and not self._path.exists():
            return
        if not self._path.is_socket():
            raise StartError(f"--console {self._path}: there is a file already, and no socket")
        with socket.socket(socket.AF_UNIX) as probe:
            # A process that has no room for further connections is there all the same.
            probe.setblocking(False)
            try:
                probe.connect(str(self._path))
            except ConnectionRefusedError:
                self._path.unlink()
                return
            except BlockingIOError:
                pass
        raise StartError(f"--console {self._path}: another process answers there")

    async def stop(self) -> None:
        """Ends all sessions and removes the socket, if it is still the one that was made."""
        if self._server is not None:
            self._server.close()
            if self._made is not None and self._made == self._identity():
                with suppress(OSError):
                    self._path.unlink()
        for session in list(self._sessions):
            session.cancel()
        await asyncio.gather(*self._sessions, return_exceptions=True)

    def _keep(self, session: "asyncio.Task[None]") -> None:
        self._sessions.add(session)
        session.add_done_callback(self._sessions.discard)

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        client = _Client(reader, writer, self._patience_s)
        if len(self._sessions) >= self._limits.console_clients:
            with suppress(OSError, TimeoutError):
                await self._say(client, [text("console", "busy", limit=self._limits.console_clients)])
            client.close()
            return
        session = asyncio.current_task()
        assert session is not None
        self._keep(session)
        await self._answer_all(client)

    async def _answer_all(self, terminal: _Terminal) -> None:
        """One terminal, to its end."""
        limit, pending, skipping = self._limits.console_line_bytes, b"", False
        try:
            while data := await terminal.read():
                *lines, pending = (pending + data).replace(b"\r", b"\n").split(b"\n")
                for line in lines:
                    if not skipping:
                        await self._say(terminal, self._answer(line))
                    skipping = False
                if len(pending) > limit:
                    if not skipping:
                        await self._say(terminal, [text("console", "too_long", limit=limit)])
                    pending, skipping = b"", True
        except (OSError, TimeoutError, asyncio.CancelledError):
            pass
        finally:
            terminal.close()

    async def _say(self, terminal: _Terminal, lines: list[str]) -> None:
        if lines:
            await terminal.send("".join(f"{line}\r\n" for line in lines).encode())

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
