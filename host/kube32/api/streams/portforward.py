"""pods/portforward: each forwarded connection speaks HTTP with the pod's k32_handle, whatever its port.

Kubernetes' protocol portforward.k8s.io: for each connection an error stream and a data stream with one requestid.
Over a WebSocket SPDY is tunnelled (kubectl 1.30 and later), or channels are used (v4.channel.k8s.io).
"""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from kube32.api.streams.channel import Channel
from kube32.api.streams.pipe import Pipe
from kube32.api.streams.session import Session, Stream
from kube32.api.streams.spdy import SpdyError
from kube32.contract import Limits

MakeProtocol = Callable[[], asyncio.Protocol]
_PORTS = range(1, 65536)
_TYPES = ("error", "data")


@dataclass(slots=True)
class _Pair:
    """The two streams of one forwarded connection."""

    error: Stream | None = None
    pipe: Pipe | None = None


class Forward:
    """Serves one client over SPDY. `make_protocol` makes the HTTP side of one forwarded connection."""

    def __init__(self, channel: Channel, make_protocol: MakeProtocol, limits: Limits) -> None:
        self._make_protocol = make_protocol
        self._limits = limits
        self._pairs: dict[str, _Pair] = {}
        self._session = Session(channel, self._accept, 2 * limits.port_forward_connections)

    async def run(self) -> None:
        """Until the client goes."""
        try:
            await self._session.run()
        except SpdyError:
            await self._session.goodbye()
        finally:
            for pair in self._pairs.values():
                if pair.pipe is not None:
                    pair.pipe.cancel()

    def _accept(self, stream: Stream) -> bool:
        headers = stream.headers
        kind, port, number = (headers.get(name, "") for name in ("streamtype", "port", "requestid"))
        if kind not in _TYPES or not port.isascii() or not port.isdigit() or int(port[:6]) not in _PORTS:
            return False
        pair = self._pairs.setdefault(number, _Pair())
        if kind == "error":
            pair.error = stream
            return True
        if pair.error is None or pair.pipe is not None:
            return False
        error = pair.error

        async def ended() -> None:
            # Nothing went wrong with the connection as such: the error stream ends without a word.
            await error.end()
            await stream.end()
            self._pairs.pop(number, None)

        pair.pipe = Pipe(self._make_protocol(), stream.write, ended, self._limits.pod_request_body_bytes)
        stream.on_data = pair.pipe.feed
        stream.on_end = lambda reset: self._end(number, reset)
        return True

    def _end(self, number: str, reset: bool) -> None:
        pair = self._pairs.get(number)
        if pair is None or pair.pipe is None:
            return
        if reset:
            self._pairs.pop(number, None)
            pair.pipe.cancel()
        else:
            pair.pipe.feed_end()


async def serve_channels(
    channel: Channel, ports: list[int], make_protocol: MakeProtocol, limits: Limits
) -> None:
    """v4.channel.k8s.io: message by message, channel 2n is the data and 2n+1 the errors of the nth port."""
    pipes: list[Pipe] = []

    async def ended() -> None:
        """The protocol has no end of one channel: the connection ends with the last one."""

    async def read() -> None:
        while message := await channel.read():
            number, odd = divmod(message[0], 2)
            if not odd and number < len(pipes) and len(message) > 1:
                pipes[number].feed(message[1:])

    try:
        for index, port in enumerate(ports):
            # The first message of each channel tells its port.
            for number in (2 * index, 2 * index + 1):
                await channel.write(bytes([number]) + port.to_bytes(2, "little"))
            pipes.append(
                Pipe(make_protocol(), _sender(channel, 2 * index), ended, limits.pod_request_body_bytes)
            )
        reading = asyncio.create_task(read())
        closing = asyncio.create_task(_all_closed(pipes))
        await asyncio.wait((reading, closing), return_when=asyncio.FIRST_COMPLETED)
        reading.cancel()
        closing.cancel()
        await asyncio.gather(reading, closing, return_exceptions=True)
    finally:
        for pipe in pipes:
            pipe.cancel()


async def _all_closed(pipes: list[Pipe]) -> None:
    await asyncio.gather(*(pipe.wait_closed() for pipe in pipes))


def _sender(channel: Channel, number: int) -> Callable[[bytes], Awaitable[None]]:
    """Sends data as messages of one channel."""

    async def send(data: bytes) -> None:
        await channel.write(bytes([number]) + data)

    return send
