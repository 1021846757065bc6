"""Changes the protocol of an aiohttp connection and hands it to whoever serves it."""

import asyncio
from collections import deque

from aiohttp import WSMsgType, web
from aiohttp.abc import AbstractStreamWriter

from kube32.api.connection import Connection
from kube32.api.streams.channel import Channel, Upgrade
from kube32.contract import Limits

_MESSAGE_BYTES = (1 << 20) + 65536
_BUFFER_BYTES = 262144
_HEARTBEAT_S = 30.0


async def upgraded(request: web.BaseRequest, response: Upgrade, limits: Limits) -> web.StreamResponse:
    """Answers 101 and serves the connection until it ends."""
    assert response.serve is not None
    if response.kind == "websocket":
        protocols = (response.protocol,) if response.protocol else ()
        socket = web.WebSocketResponse(
            protocols=protocols, heartbeat=_HEARTBEAT_S, max_msg_size=_MESSAGE_BYTES, compress=False
        )
        await socket.prepare(request)
        try:
            await response.serve(_WebSocketChannel(socket))
        except ConnectionError:
            pass
        finally:
            await socket.close()
        return socket
    connection = request.protocol
    assert isinstance(connection, Connection)
    channel = _RawChannel(connection)
    connection.raw = channel.feed
    head = f"HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: {response.kind}\r\n"
    if response.protocol:
        head += f"X-Stream-Protocol-Version: {response.protocol}\r\n"
    try:
        await channel.write(f"{head}\r\n".encode())
        await response.serve(channel)
    except ConnectionError:
        pass
    return _Done()


class _WebSocketChannel(Channel):
    def __init__(self, socket: web.WebSocketResponse) -> None:
        self._socket = socket

    async def read(self) -> bytes:
        while True:
            message = await self._socket.receive()
            if message.type not in (WSMsgType.BINARY, WSMsgType.TEXT):
                return b""
            data = message.data.encode() if isinstance(message.data, str) else bytes(message.data)
            if data:
                return data

    async def write(self, data: bytes) -> None:
        if self._socket.closed:
            raise ConnectionResetError("the client is gone")
        await self._socket.send_bytes(data)


class _RawChannel(Channel):
    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._waiting: deque[bytes] = deque()
        self._size = 0
        self._came = asyncio.Event()
        self._paused = False

    def feed(self, data: bytes) -> None:
        """What came, b"" for the end."""
        self._waiting.append(data)
        self._size += len(data)
        self._came.set()
        transport = self._connection.transport
        if self._size > _BUFFER_BYTES and not self._paused and transport is not None:
            self._paused = True
            transport.pause_reading()

    async def read(self) -> bytes:
        while not self._waiting:
            self._came.clear()
            await self._came.wait()
        data = self._waiting.popleft()
        self._size -= len(data)
        transport = self._connection.transport
        if self._paused and self._size <= _BUFFER_BYTES // 2 and transport is not None:
            self._paused = False
            transport.resume_reading()
        return data

    async def write(self, data: bytes) -> None:
        transport = self._connection.transport
        if transport is None or transport.is_closing():
            raise ConnectionResetError("the client is gone")
        transport.write(data)
        await self._connection._drain_helper()


class _Done(web.StreamResponse):
    """What is left to answer once the connection has served another protocol: nothing."""

    def __init__(self) -> None:
        super().__init__(status=101)

    @property
    def keep_alive(self) -> bool | None:
        """The connection is over."""
        return False

    async def prepare(self, request: web.BaseRequest) -> AbstractStreamWriter | None:
        """Nothing is sent."""
        return None

    async def write_eof(self, data: bytes = b"") -> None:
        """Nothing is sent."""
