"""One listener: plain HTTP from a client to the pods of a Service, with limits on what comes."""

import asyncio
import logging
from collections.abc import Callable, Mapping

from aiohttp import web

from kube32.client.transport import TransportError
from kube32.contract import NAMES, Limits, text
from kube32.proxy.forward import Forwarder, NoAnswer
from kube32.proxy.pods import PodAnswer, PodRequest

_LOG = logging.getLogger(__name__)
_SHUTDOWN_S = 1.0
_HOP_BY_HOP = frozenset(
    (
        "connection",
        "content-length",
        "expect",
        "keep-alive",
        "proxy-authenticate",
        "proxy-authorization",
        "proxy-connection",
        "te",
        "trailer",
        "transfer-encoding",
        "upgrade",
    )
)
Choose = Callable[[str, str], tuple[str, str, int] | None]


class Listener:
    """Serves HTTP at host:port. `choose` gives the Service's port for a Host header and a path."""

    def __init__(self, host: str, port: int, choose: Choose, forwarder: Forwarder, limits: Limits) -> None:
        self.host = host
        self.port = port
        self._choose = choose
        self._forwarder = forwarder
        self._limits = limits
        self._runner: web.ServerRunner | None = None

    async def start(self) -> None:
        """Binds; OSError when the address is taken. `port` is the bound one afterwards."""
        server = web.Server(
            self._handle,
            access_log=None,
            max_line_size=self._limits.api_url_bytes,
            max_field_size=self._limits.api_header_bytes,
            keepalive_timeout=self._limits.api_read_stall_ms / 1000,
            auto_decompress=False,
        )
        runner = web.ServerRunner(server, shutdown_timeout=_SHUTDOWN_S)
        await runner.setup()
        try:
            await web.TCPSite(runner, self.host, self.port).start()
        except BaseException:
            await runner.cleanup()
            raise
        self._runner = runner
        self.port = runner.addresses[0][1]

    async def stop(self) -> None:
        """Closes every connection."""
        if self._runner is not None:
            runner, self._runner = self._runner, None
            await runner.cleanup()

    async def _handle(self, request: web.BaseRequest) -> web.StreamResponse:
        server = self._runner.server if self._runner is not None else None
        if server is not None and len(server.connections) > self._limits.ingress_connections:
            return _refusal(503, text("routes", "busy"), self._limits.pod_retry_after_s, close=True)
        try:
            return await self._answer(request)
        except (ConnectionResetError, asyncio.CancelledError):
            raise
        except _Refused as refused:
            return _refusal(refused.status, str(refused), refused.retry_s, close=refused.status != 404)
        except Exception:
            _LOG.exception("%s %s", request.method, request.raw_path)
            return _refusal(500, "internal error", 0)

    async def _answer(self, request: web.BaseRequest) -> web.StreamResponse:
        target = request.raw_path
        if not target.startswith("/"):
            target = request.rel_url.raw_path_qs
        host = request.headers.get("Host", "")
        backend = self._choose(host, target.partition("?")[0])
        if backend is None:
            raise _Refused(
                404, text("routes", "no_rule", host=host[:253], path=target.partition("?")[0][:200])
            )
        body = await self._body(request)
        outgoing = PodRequest(request.method, target, _outgoing(request), body)
        try:
            answer = await self._forwarder.send(*backend, outgoing)
        except NoAnswer as none:
            retry_s = self._limits.pod_retry_after_s if none.retry else 0
            raise _Refused(503, str(none), retry_s) from None
        except TimeoutError:
            raise _Refused(504, text("routes", "timeout", service=backend[1])) from None
        except TransportError as error:
            raise _Refused(502, str(error)) from None
        try:
            return await self._pass_on(request, answer)
        finally:
            await answer.close()

    async def _body(self, request: web.BaseRequest) -> bytes:
        """The whole body, since it may have to be sent to a second pod."""
        limit = self._limits.pod_request_body_bytes
        announced = request.content_length or 0
        if announced > limit:
            raise _too_large(announced, limit)
        body = bytearray()
        try:
            while chunk := await asyncio.wait_for(
                request.content.readany(), self._limits.api_read_stall_ms / 1000
            ):
                body += chunk
                if len(body) > limit:
                    raise _too_large(len(body), limit)
        except TimeoutError:
            raise _Refused(400, "the request's body stopped coming") from None
        return bytes(body)

    async def _pass_on(self, request: web.BaseRequest, answer: PodAnswer) -> web.StreamResponse:
        response = web.StreamResponse(status=answer.status)
        for name, value in answer.headers:
            lower = name.lower()
            if lower not in _HOP_BY_HOP and not lower.startswith(NAMES.header_prefix.lower()):
                response.headers.add(name, value)
        if answer.stream is None:
            response.content_length = len(answer.body)
        stall_s = self._limits.stream_write_stall_ms / 1000
        try:
            async with asyncio.timeout(stall_s) as patience:
                loop = asyncio.get_running_loop()
                await response.prepare(request)
                async for chunk in answer.chunks():
                    await response.write(chunk)
                    patience.reschedule(loop.time() + stall_s)
                await response.write_eof()
        except (TransportError, TimeoutError):
            # The answer has begun: cutting it is the only way to say that it is not whole.
            if request.transport is not None:
                request.transport.abort()
        return response


class _Refused(Exception):
    """An answer that the listener gives itself."""

    def __init__(self, status: int, message: str, retry_s: int = 0) -> None:
        super().__init__(message)
        self.status = status
        self.retry_s = retry_s


def _too_large(found: int, limit: int) -> _Refused:
    return _Refused(413, text("answers", "body_too_large", found=found, limit=limit))


def _refusal(status: int, message: str, retry_s: int, *, close: bool = False) -> web.Response:
    response = web.Response(status=status, text=f"{message}\n")
    if retry_s:
        response.headers["Retry-After"] = str(retry_s)
    if close:
        response.force_close()
    return response


def _outgoing(request: web.BaseRequest) -> Mapping[str, str]:
    """The headers that go to the pod: the client's without those of the connection, and where it came from."""
    named = {t.strip().lower() for t in request.headers.get("Connection", "").split(",")}
    kept: dict[str, str] = {}
    for name, value in request.headers.items():
        lower = name.lower()
        if lower in _HOP_BY_HOP or lower in named or lower.startswith(NAMES.header_prefix.lower()):
            continue
        known = next((k for k in kept if k.lower() == lower), name)
        kept[known] = f"{kept[known]}, {value}" if known in kept else value
    kept = {k: v for k, v in kept.items() if k.lower() not in ("x-forwarded-host", "x-forwarded-proto")}
    earlier = next((v for k, v in kept.items() if k.lower() == "x-forwarded-for"), "")
    peer = request.remote or ""
    kept = {k: v for k, v in kept.items() if k.lower() not in ("x-forwarded-for", "host")}
    kept["X-Forwarded-For"] = f"{earlier}, {peer}" if earlier and peer else peer or earlier
    kept["X-Forwarded-Host"] = request.headers.get("Host", "")
    kept["X-Forwarded-Proto"] = "http"
    return kept
