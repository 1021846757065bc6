"""The HTTPS listener: aiohttp's low-level server in front of ApiServer.dispatch."""

import asyncio
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import TYPE_CHECKING, Any

from aiohttp import ClientError, web
from aiohttp.web_protocol import RequestPayloadError

from kube32.api.bodies import JSON
from kube32.api.compression import compressed
from kube32.api.connection import Connection
from kube32.api.http import BodyCut, Request, Response
from kube32.api.plain import SERVER, Date, Plain
from kube32.api.streams.channel import Upgrade
from kube32.api.streams.upgrade import upgraded
from kube32.contract import Limits

if TYPE_CHECKING:
    from kube32.api.server import ApiServer

_CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"
_BACKLOG = 128
_LINE_BYTES = 8190
Dispatch = Callable[[Request], Awaitable[Response]]


class HttpsListener:
    """Serves `server` at host:port; without `ssl_context` as plain HTTP. OSError from `start`: not bound."""

    def __init__(
        self,
        server: "ApiServer",
        host: str,
        port: int,
        ssl_context: ssl.SSLContext | None,
        limits: Limits,
    ) -> None:
        self._server = server
        self._host = host
        self._port = port
        self._ssl_context = ssl_context
        self._limits = limits
        self._front: Front | None = None
        self._listening: asyncio.AbstractServer | None = None

    @property
    def bound_port(self) -> int:
        """The port, also when it was asked for as 0."""
        # Also uvloop's server, which is no asyncio.Server, has `sockets`.
        sockets = getattr(self._listening, "sockets", ())
        assert sockets, "the listener is not started"
        return int(sockets[0].getsockname()[1])

    async def start(self) -> None:
        """Begins to take connections."""
        loop = asyncio.get_running_loop()
        self._front = Front(self._server.dispatch, self._limits, remote=True)
        tls: dict[str, Any] = {}
        if self._ssl_context is not None:
            tls = {"ssl": self._ssl_context, "ssl_handshake_timeout": self._limits.api_handshake_ms / 1000}
        self._listening = await loop.create_server(
            self._front.connections, self._host, self._port, backlog=_BACKLOG, **tls
        )

    async def stop(self) -> None:
        """Takes no more connections, waits `api_stop_ms` for requests in progress and ends the rest."""
        if self._listening is not None:
            self._listening.close()
        if self._front is not None:
            await self._front.stop()


class Front:
    """HTTP/1.1 in front of `dispatch`: `connections` makes the protocol of one connection."""

    def __init__(self, dispatch: Dispatch, limits: Limits, *, remote: bool) -> None:
        self._dispatch = dispatch
        self._limits = limits
        self._remote = remote
        self._stall_s = limits.api_read_stall_ms / 1000
        self._date = Date()
        self.connections = _Connections(self._handle, limits)

    async def stop(self) -> None:
        """Waits `api_stop_ms` for requests in progress and ends the rest."""
        self.connections.pre_shutdown()
        await self.connections.shutdown(self._limits.api_stop_ms / 1000)

    async def _handle(self, request: web.BaseRequest) -> web.StreamResponse:
        path, _, query = request.raw_path.partition("?")
        transport = request.transport
        response = await self._dispatch(
            Request(
                request.method,
                path,
                query_string=query,
                headers=request.headers,
                body=self._chunks(request) if request.body_exists else None,
                content_length=request.content_length if request.body_exists else None,
                peer_certificate=transport.get_extra_info("peercert") if transport is not None else None,
                remote=self._remote,
            )
        )
        if isinstance(response, Upgrade):
            return await upgraded(request, response, self._limits)
        body = response.body
        if isinstance(body, bytes) and len(body) <= self._limits.api_write_chunk_bytes:
            if response.status == 200 and not response.headers and response.content_type == JSON:
                return Plain(request, body, self._date.line())
            return web.Response(status=response.status, body=body, headers=_headers(response))
        accepted = request.headers.get("Accept-Encoding", "")
        return await self._stream(request, await compressed(response, request.method, accepted, self._limits))

    async def _chunks(self, request: web.BaseRequest) -> AsyncIterator[bytes]:
        """The request's body; BodyCut when it stops coming."""
        content = request.content
        if request.headers.get("Expect", "").lower() == "100-continue" and not content.total_bytes:
            await request.writer.write(_CONTINUE)
            request.writer.output_size = 0
        while True:
            try:
                async with asyncio.timeout(self._stall_s):
                    chunk = await content.readany()
            except TimeoutError:
                raise BodyCut(f"nothing came for {self._stall_s:g} s") from None
            except (ClientError, RequestPayloadError, ConnectionError) as error:
                raise BodyCut(str(error) or type(error).__name__) from None
            if not chunk:
                return
            yield chunk

    async def _stream(self, request: web.BaseRequest, response: Response) -> web.StreamResponse:
        """Sends a large or streamed body piece by piece. A body that fails cuts the connection."""
        body = response.body
        out = web.StreamResponse(status=response.status, headers=_headers(response))
        if isinstance(body, bytes):
            out.content_length = len(body)
        try:
            await out.prepare(request)
            if request.method == "HEAD":
                return out
            pieces = _pieces(body, self._limits.api_write_chunk_bytes) if isinstance(body, bytes) else body
            async for piece in pieces:
                await out.write(piece)
            await out.write_eof()
        except (asyncio.CancelledError, ConnectionError):
            raise
        except Exception as error:
            protocol = request.protocol
            assert isinstance(protocol, Connection)
            protocol.abort(f"the answer's body failed: {error}")
            raise ConnectionError(str(error)) from error
        finally:
            if not isinstance(body, bytes):
                close = getattr(body, "aclose", None)
                if close is not None:
                    await close()
        return out


class _Connections(web.Server):
    """The open connections. At the cap an idle one makes room; without one the newcomer is cut."""

    def __init__(self, handler: Any, limits: Limits) -> None:
        super().__init__(handler, handler_cancellation=True)
        self._limits = limits

    def __call__(self) -> web.RequestHandler:
        limits = self._limits
        return Connection(
            self,
            limits,
            loop=self._loop,
            access_log=None,
            auto_decompress=False,
            keepalive_timeout=limits.api_read_stall_ms / 1000,
            lingering_time=limits.api_linger_ms / 1000,
            max_line_size=limits.api_url_bytes,
            max_field_size=min(limits.api_header_bytes, _LINE_BYTES),
            max_headers=limits.api_header_count,
            tcp_keepalive=False,
        )

    def connection_made(self, handler: web.RequestHandler, transport: asyncio.Transport) -> None:
        """Keeps the number of connections within `api_connections`."""
        if len(self._connections) >= self._limits.api_connections and not self._make_room():
            assert isinstance(handler, Connection)
            handler.abort("as many connections are open as are taken")
            return
        super().connection_made(handler, transport)

    def _make_room(self) -> bool:
        for connection in self._connections:
            if isinstance(connection, Connection) and connection.is_idle:
                connection.force_close()
                return True
        return False


def _headers(response: Response) -> dict[str, str]:
    headers = {"Content-Type": response.content_type, "Server": SERVER}
    if response.headers:
        headers.update(response.headers)
    return headers


async def _pieces(body: bytes, size: int) -> AsyncIterator[memoryview]:
    view = memoryview(body)
    for start in range(0, len(view), size):
        yield view[start : start + size]
