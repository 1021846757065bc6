"""A way to the API server as the client needs it: one request, one answer, bodies that may be streams."""

from abc import ABC, abstractmethod
from collections.abc import AsyncIterable, AsyncIterator, Mapping, Sequence
from types import TracebackType
from typing import Self

from multidict import CIMultiDict

Query = Mapping[str, str] | Sequence[tuple[str, str]]
Body = bytes | AsyncIterable[bytes]


class TransportError(ConnectionError):
    """The API server could not be reached, or the connection broke in the middle; str() is one line."""


class ConnectFailed(TransportError):
    """There was no connection: the server saw nothing of the request."""


class ClientResponse(ABC):
    """An answer. Use it as an async context manager: leaving it frees the connection."""

    status: int
    headers: CIMultiDict[str]

    @abstractmethod
    async def read(self) -> bytes:
        """The whole body; TransportError when it is cut."""

    @abstractmethod
    def chunks(self) -> AsyncIterator[bytes]:
        """The body as it arrives, never held as a whole; TransportError when it is cut."""

    @abstractmethod
    async def close(self) -> None:
        """Ends the answer, read or not."""

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()


class Transport(ABC):
    """A way to one API server. The same code runs over HTTPS and inside the control plane's process."""

    @abstractmethod
    async def send(
        self,
        method: str,
        path: str,
        *,
        query: Query | None = None,
        headers: Mapping[str, str] | None = None,
        body: Body | None = None,
        timeout_s: float | None = 30,
    ) -> ClientResponse:
        """Sends one request. `path` is percent-encoded, with its query unless `query` is given; a stream of known
        size has its Content-Length header.

        `timeout_s` bounds the whole exchange; None leaves it unbounded. TransportError when the server cannot
        be reached, TimeoutError when it takes too long. Any HTTP status is an answer, not an error.
        """

    async def renew(self) -> None:  # noqa: B027 - nothing to do where there are no connections
        """Requests from now on take new connections: those that are there may be dead after an outage."""

    @abstractmethod
    async def close(self) -> None:
        """Closes every connection."""
