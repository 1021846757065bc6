"""The Transport over HTTP and HTTPS: connections are kept and shared, bodies stream both ways."""

import socket
import ssl
from collections.abc import AsyncIterator, Mapping
from urllib.parse import urlencode

import aiohttp
from multidict import CIMultiDict
from yarl import URL

from kube32.client.transport import Body, ClientResponse, ConnectFailed, Query, Transport, TransportError
from kube32.contract import LIMITS

_CONNECT_TIMEOUT_S = 10


def _error_line(error: BaseException) -> str:
    return (str(error) or type(error).__name__).replace("\n", " ")


def watch_socket(sock: socket.socket) -> None:
    """Lets the kernel notice a vanished peer within half of the time after which a node is lost."""
    seconds = LIMITS.node_lost_ms // 2000
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in (
        ("TCP_KEEPIDLE", seconds // 2),
        ("TCP_KEEPALIVE", seconds // 2),
        ("TCP_KEEPINTVL", max(1, seconds // 5)),
        ("TCP_KEEPCNT", 2),
        ("TCP_USER_TIMEOUT", seconds * 1000),
    ):
        if hasattr(socket, name):
            sock.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)


class HttpResponse(ClientResponse):
    """An answer of aiohttp."""

    def __init__(self, response: aiohttp.ClientResponse) -> None:
        self.status = response.status
        self.headers = CIMultiDict(response.headers)
        self._response = response

    async def read(self) -> bytes:
        """The whole body."""
        try:
            return await self._response.read()
        except aiohttp.ClientError as error:
            raise TransportError(_error_line(error)) from error

    async def chunks(self) -> AsyncIterator[bytes]:
        """The body as it arrives."""
        try:
            async for chunk in self._response.content.iter_any():
                yield chunk
        except aiohttp.ClientError as error:
            raise TransportError(_error_line(error)) from error

    async def close(self) -> None:
        """Frees the connection; one whose body was not read to the end is closed."""
        self._response.close()


class HttpTransport(Transport):
    """One API server at `base_url`. `token` goes as the bearer, a client certificate in the ssl_context."""

    def __init__(
        self,
        base_url: str,
        *,
        ssl_context: ssl.SSLContext | None = None,
        token: str | None = None,
        server_hostname: str | None = None,
        user_agent: str = "kube32",
    ) -> None:
        self._base = base_url.rstrip("/")
        self._ssl = ssl_context
        self._server_hostname = server_hostname
        self._headers = {"User-Agent": user_agent}
        if token:
            self._headers["Authorization"] = f"Bearer {token}"
        self._session: aiohttp.ClientSession | None = None
        self._former: aiohttp.ClientSession | None = None

    def _open(self) -> aiohttp.ClientSession:
        if self._session is None or self._session.closed:
            # No cap on connections: every watch holds one. Bodies come as they are: some are streamed on.
            connector = aiohttp.TCPConnector(limit=0, ssl=self._ssl if self._ssl is not None else True)
            self._session = aiohttp.ClientSession(
                connector=connector,
                headers=self._headers,
                skip_auto_headers=("Accept-Encoding",),
                cookie_jar=aiohttp.DummyCookieJar(),
                auto_decompress=False,
            )
            # By itself aiohttp sends a GET, PUT or DELETE twice when its connection breaks, also one for a pod.
            self._session._retry_connection = False
        return self._session

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
        """As Transport.send; redirects are not followed."""
        target = f"{self._base}{path}?{urlencode(query)}" if query else self._base + path
        try:
            response = await self._open().request(
                method,
                URL(target, encoded=True),
                data=body,
                headers=headers,
                allow_redirects=False,
                server_hostname=self._server_hostname,
                timeout=aiohttp.ClientTimeout(total=timeout_s, sock_connect=_CONNECT_TIMEOUT_S),
            )
        except (aiohttp.ClientConnectorError, aiohttp.ConnectionTimeoutError) as error:
            raise ConnectFailed(f"{self._base}: {_error_line(error)}") from error
        except aiohttp.ClientError as error:
            raise TransportError(f"{self._base}: {_error_line(error)}") from error
        except (ConnectionError, OSError) as error:
            if isinstance(error, TimeoutError):
                raise
            raise TransportError(f"{self._base}: {_error_line(error)}") from error
        self._watch_socket(response)
        return HttpResponse(response)

    @staticmethod
    def _watch_socket(response: aiohttp.ClientResponse) -> None:
        connection = response.connection
        sock = connection.transport.get_extra_info("socket") if connection and connection.transport else None
        if sock is not None and sock.family != getattr(socket, "AF_UNIX", None):
            watch_socket(sock)

    async def renew(self) -> None:
        """As Transport.renew. Requests under way keep their connections until they end, or the next renewal."""
        ended, self._former, self._session = self._former, self._session, None
        if ended is not None:
            await ended.close()

    async def close(self) -> None:
        """Closes every connection."""
        for session in (self._session, self._former):
            if session is not None:
                await session.close()
        self._session = self._former = None
