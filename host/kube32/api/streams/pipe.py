"""A forwarded connection as a transport: aiohttp's HTTP protocol on one side, a stream of the client's on the
other.
"""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable
from typing import Any

_HIGH_BYTES = 65536
_LOW_BYTES = 16384


class Pipe(asyncio.Transport):
    """Feeds `protocol` with what the client sends, hands what it writes to `send`, then calls `ended`.

    What the protocol does not read now is kept, `most` bytes at most; a client that sends more is cut.
    """

    def __init__(
        self,
        protocol: asyncio.Protocol,
        send: Callable[[bytes], Awaitable[None]],
        ended: Callable[[], Awaitable[None]],
        most: int,
    ) -> None:
        super().__init__()
        self._protocol = protocol
        self._send = send
        self._ended = ended
        self._most = most
        self._out: deque[bytes] = deque()
        self._out_bytes = 0
        self._in: deque[bytes] = deque()
        self._in_bytes = 0
        self._in_ended = False
        self._reading = True
        self._writing_paused = False
        self._closing = False
        self._lost = False
        self._wake = asyncio.Event()
        self._task = asyncio.get_running_loop().create_task(self._write_all())
        protocol.connection_made(self)

    # --- from the client ---

    def feed(self, data: bytes) -> None:
        """What the client sent."""
        if self._closing:
            return
        if self._reading and not self._in:
            self._protocol.data_received(data)
            return
        self._in.append(data)
        self._in_bytes += len(data)
        if self._in_bytes > self._most:
            self.abort()

    def feed_end(self) -> None:
        """The client sends no more."""
        self._in_ended = True
        if not self._in:
            self._tell_end()

    def _tell_end(self) -> None:
        if not self._lost and not self._closing and not self._protocol.eof_received():
            self.close()

    def pause_reading(self) -> None:
        """The protocol has enough."""
        self._reading = False

    def resume_reading(self) -> None:
        """The protocol takes more."""
        self._reading = True
        while self._in and self._reading:
            data = self._in.popleft()
            self._in_bytes -= len(data)
            self._protocol.data_received(data)
        if self._in_ended and not self._in:
            self._tell_end()

    def is_reading(self) -> bool:
        """Whether the protocol takes more."""
        return self._reading

    # --- to the client ---

    def write(self, data: bytes | bytearray | memoryview) -> None:
        """Queues data for the client."""
        if self._closing or not data:
            return
        self._out.append(bytes(data))
        self._out_bytes += len(data)
        self._wake.set()
        if self._out_bytes > _HIGH_BYTES and not self._writing_paused:
            self._writing_paused = True
            self._protocol.pause_writing()

    async def _write_all(self) -> None:
        try:
            while True:
                while self._out:
                    data = self._out.popleft()
                    self._out_bytes -= len(data)
                    await self._send(data)
                    if self._writing_paused and self._out_bytes < _LOW_BYTES:
                        self._writing_paused = False
                        self._protocol.resume_writing()
                if self._closing:
                    break
                self._wake.clear()
                await self._wake.wait()
            await self._ended()
        except ConnectionError:
            pass
        finally:
            self._lose()

    def _lose(self) -> None:
        self._closing = True
        if not self._lost:
            self._lost = True
            self._protocol.connection_lost(None)

    def get_write_buffer_size(self) -> int:
        """Bytes that the client has not taken."""
        return self._out_bytes

    def close(self) -> None:
        """Sends what is queued, then ends."""
        self._closing = True
        self._wake.set()

    def abort(self) -> None:
        """Ends at once."""
        self._closing = True
        self._out.clear()
        self._out_bytes = 0
        self._wake.set()

    def is_closing(self) -> bool:
        """Whether it ends."""
        return self._closing

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        """A forwarded connection has no socket, no peer and no certificate."""
        return default

    async def wait_closed(self) -> None:
        """Until everything is sent."""
        await asyncio.gather(self._task, return_exceptions=True)

    def cancel(self) -> None:
        """The client is gone: nothing can be sent any more."""
        self._task.cancel()
