"""What an upgraded connection is to those who serve it: bytes or messages in, bytes or messages out."""

from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from kube32.api.http import Response


class Channel(ABC):
    """Both directions of an upgraded connection. A WebSocket keeps the borders of messages."""

    @abstractmethod
    async def read(self) -> bytes:
        """What came next; b"" when the peer sends no more."""

    @abstractmethod
    async def write(self, data: bytes) -> None:
        """Sends; returns when there is room for more. ConnectionError when the peer is gone."""


Serve = Callable[[Channel], Awaitable[None]]


@dataclass(slots=True)
class Upgrade(Response):
    """An answer that changes the protocol of its connection to `kind`: "websocket" or "SPDY/3.1".

    `protocol` is the negotiated subprotocol; `serve` has the connection until it returns.
    """

    kind: str = ""
    protocol: str = ""
    serve: Serve | None = None
