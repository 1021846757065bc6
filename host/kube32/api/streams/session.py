"""One SPDY connection: its streams, and who serves them."""

from collections.abc import Callable

from kube32.api.streams.channel import Channel
from kube32.api.streams.spdy import (
    RST_PROTOCOL_ERROR,
    RST_REFUSED,
    Data,
    Decoder,
    Encoder,
    Goodbye,
    Opened,
    Ping,
    Reset,
)


class Stream:
    """One stream. `on_data` gets what comes, `on_end` is called once when the peer sends no more or resets."""

    def __init__(self, session: "Session", number: int, headers: dict[str, str]) -> None:
        self.number = number
        self.headers = headers
        self.on_data: Callable[[bytes], None] = lambda data: None
        self.on_end: Callable[[bool], None] = lambda reset: None
        self.peer_ended = False
        self._session = session
        self._ended = False

    async def write(self, data: bytes) -> None:
        """Sends data; nothing once the stream has ended."""
        if not self._ended:
            await self._session.send(Encoder.data(self.number, data))

    async def end(self) -> None:
        """Sends no more."""
        if not self._ended:
            self._ended = True
            await self._session.send(Encoder.data(self.number, b"", fin=True))
            self._session.drop_if_done(self)

    async def reset(self, status: int = RST_PROTOCOL_ERROR) -> None:
        """Gives the stream up."""
        if not self._ended:
            self._ended = self.peer_ended = True
            await self._session.send(Encoder.reset(self.number, status))
            self._session.drop_if_done(self)

    @property
    def done(self) -> bool:
        """Whether neither side sends any more."""
        return self._ended and self.peer_ended

    def take(self, data: bytes, fin: bool) -> None:
        """What came."""
        if self.peer_ended:
            return
        if data:
            self.on_data(data)
        if fin:
            self.peer_ended = True
            self.on_end(False)

    def cut(self) -> None:
        """The peer reset the stream, or the connection is gone."""
        self._ended = True
        if not self.peer_ended:
            self.peer_ended = True
            self.on_end(True)


class Session:
    """Serves the peer's streams until the connection ends. `accept` says whether a new stream is taken."""

    def __init__(self, channel: Channel, accept: Callable[[Stream], bool], most: int) -> None:
        self.streams: dict[int, Stream] = {}
        self._channel = channel
        self._accept = accept
        self._most = most
        self._encoder = Encoder()
        self._last = 0

    async def send(self, frame: bytes) -> None:
        """Sends one frame."""
        await self._channel.write(frame)

    async def run(self) -> None:
        """Until the peer goes; SpdyError, ConnectionError."""
        decoder = Decoder()
        try:
            while data := await self._channel.read():
                for frame in decoder.feed(data):
                    match frame:
                        case Opened():
                            await self._open(frame)
                        case Data():
                            stream = self.streams.get(frame.stream)
                            if stream is not None:
                                stream.take(frame.data, frame.fin)
                                self.drop_if_done(stream)
                        case Reset():
                            stream = self.streams.pop(frame.stream, None)
                            if stream is not None:
                                stream.cut()
                        case Ping():
                            await self.send(Encoder.ping(frame.number))
                        case Goodbye():
                            return
        finally:
            for stream in list(self.streams.values()):
                stream.cut()
            self.streams.clear()

    async def _open(self, frame: Opened) -> None:
        if frame.stream <= self._last or not frame.stream % 2:
            await self.send(Encoder.reset(frame.stream, RST_PROTOCOL_ERROR))
            return
        self._last = frame.stream
        stream = Stream(self, frame.stream, frame.headers)
        if len(self.streams) >= self._most or not self._accept(stream):
            await self.send(Encoder.reset(frame.stream, RST_REFUSED))
            return
        self.streams[frame.stream] = stream
        await self.send(self._encoder.reply(frame.stream))
        if frame.fin:
            stream.take(b"", True)

    def drop_if_done(self, stream: Stream) -> None:
        """Forgets a stream on which neither side sends any more."""
        if stream.done:
            self.streams.pop(stream.number, None)

    async def goodbye(self) -> None:
        """Tells the peer that no more streams are taken."""
        await self.send(Encoder.goodbye(self._last))
