"""The answer that is sent most often, a small JSON object with 200, without aiohttp's header machinery."""

import time
from email.utils import formatdate

from aiohttp import HttpVersion11, web
from aiohttp.abc import AbstractStreamWriter

SERVER = "kube32"
_HEAD = (
    b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nServer: "
    + SERVER.encode()
    + b"\r\n%s%sContent-Length: %d\r\n\r\n"
)


class Date:
    """The Date header's line, made once a second."""

    __slots__ = ("_at", "_line")

    def __init__(self) -> None:
        self._at = 0
        self._line = b""

    def line(self) -> bytes:
        """ "Date: Tue, 01 Dec 2026 00:00:00 GMT" with its line end."""
        now = int(time.time())
        if now != self._at:
            self._at = now
            self._line = f"Date: {formatdate(now, usegmt=True)}\r\n".encode()
        return self._line


class Plain(web.StreamResponse):
    """A whole answer for aiohttp's connection: that prepares it, ends it and asks whether to stay open."""

    def __init__(self, request: web.BaseRequest, body: bytes, date: bytes) -> None:
        # What the base class would set up (headers, cookies, state of the stream) is not used here.
        self._keeps = request.keep_alive
        self._writer = request.writer
        self._transport = request.transport
        connection = b"" if self._keeps and request.version == HttpVersion11 else _connection(self._keeps)
        self._head = _HEAD % (date, connection, len(body))
        self._content = b"" if request.method == "HEAD" else body

    @property
    def keep_alive(self) -> bool | None:
        """Whether the connection stays open."""
        return self._keeps

    async def prepare(self, request: web.BaseRequest) -> AbstractStreamWriter | None:
        """Nothing is sent before `write_eof`."""
        return None

    async def write_eof(self, data: bytes = b"") -> None:
        """Sends everything; waits while the peer does not take it."""
        transport = self._transport
        if transport is None or transport.is_closing():
            raise ConnectionResetError("the peer is gone")
        transport.write(self._head + self._content)
        await self._writer.drain()


def _connection(keep: bool) -> bytes:
    return b"Connection: keep-alive\r\n" if keep else b"Connection: close\r\n"
