"""exec and attach: refused on the error stream of the client's own protocol, where it prints the reason."""

import asyncio

from kube32.api.status import ApiFailure, dump
from kube32.api.streams.channel import Channel
from kube32.api.streams.session import Session, Stream
from kube32.api.streams.spdy import SpdyError

_ERROR_CHANNEL = b"\x03"
_MOST_STREAMS = 8
_WAIT_S = 5.0


def words(failure: ApiFailure, protocol: str) -> bytes:
    """The refusal as the protocol has it: a Status from v4 on, plain text before."""
    structured = protocol.startswith(("v4.", "v5."))
    return dump(failure.status()) if structured else failure.message.encode()


async def refuse_on_websocket(channel: Channel, failure: ApiFailure, protocol: str) -> None:
    """One message on the error channel."""
    await channel.write(_ERROR_CHANNEL + words(failure, protocol))


async def refuse_on_spdy(channel: Channel, failure: ApiFailure, protocol: str, streams: int) -> None:
    """Waits for the client's `streams` streams, answers on the error stream and ends them all."""
    opened: list[Stream] = []
    complete = asyncio.Event()

    def accept(stream: Stream) -> bool:
        opened.append(stream)
        if len(opened) >= streams:
            complete.set()
        return True

    session = Session(channel, accept, _MOST_STREAMS)
    reading = asyncio.create_task(session.run())
    try:
        async with asyncio.timeout(_WAIT_S):
            await complete.wait()
            for stream in opened:
                if stream.headers.get("streamtype") == "error":
                    await stream.write(words(failure, protocol))
            for stream in opened:
                await stream.end()
            await reading
    except (TimeoutError, SpdyError):
        pass
    finally:
        reading.cancel()
        await asyncio.gather(reading, return_exceptions=True)
