"""One connection of the HTTPS listener: slow and silent peers are cut, faults are answered as Status."""

import asyncio
import logging
import socket
from collections.abc import Callable
from typing import Any

from aiohttp import web
from aiohttp.http_exceptions import LineTooLong

from kube32.api.status import ApiFailure, bad_request, dump
from kube32.contract import Limits

_log = logging.getLogger(__name__)
_TOO_LONG = 431


class Connection(web.RequestHandler):
    """aiohttp's connection with this server's limits.

    A peer that takes nothing for `stream_write_stall_ms`, that sends more than `api_header_bytes` and
    `api_url_bytes` before a request is complete, or that is silent past TCP keep-alive loses its connection.
    """

    __slots__ = ("_head_bytes", "_head_limit", "_limits", "_stall_timer", "_unsent", "raw")

    def __init__(self, manager: web.Server, limits: Limits, **options: Any) -> None:
        super().__init__(manager, **options)
        self._limits = limits
        self._head_limit = limits.api_header_bytes + limits.api_url_bytes
        self._head_bytes = 0
        self._stall_timer: asyncio.TimerHandle | None = None
        self._unsent = 0
        # Takes what comes, b"" at the end, once the connection speaks another protocol than HTTP.
        self.raw: Callable[[bytes], None] | None = None

    @property
    def is_idle(self) -> bool:
        """Whether the connection waits for a request."""
        waiter = self._waiter
        return waiter is not None and not waiter.done()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Sets the socket's options."""
        super().connection_made(transport)
        sock = transport.get_extra_info("socket")
        if sock is not None:
            set_keepalive(sock, self._limits)

    def data_received(self, data: bytes) -> None:
        """Counts what comes before a request's headers are complete."""
        if self.raw is not None:
            self.raw(data)
            return
        if not self.is_idle:
            super().data_received(data)
            return
        self._head_bytes += len(data)
        super().data_received(data)
        if self._messages:
            self._head_bytes = 0
        elif self._head_bytes > self._head_limit:
            self.abort("more header bytes than are taken")

    def pause_writing(self) -> None:
        """The peer reads more slowly than it is sent to: watches that it reads at all."""
        super().pause_writing()
        self._watch_stall()

    def resume_writing(self) -> None:
        """The peer reads again."""
        super().resume_writing()
        if self._stall_timer is not None:
            self._stall_timer.cancel()
            self._stall_timer = None

    def connection_lost(self, exc: BaseException | None) -> None:
        """The end."""
        if self._stall_timer is not None:
            self._stall_timer.cancel()
            self._stall_timer = None
        if self.raw is not None:
            self.raw(b"")
        super().connection_lost(exc)

    def _watch_stall(self) -> None:
        if self.transport is not None:
            self._unsent = self.transport.get_write_buffer_size()
            stall_s = self._limits.stream_write_stall_ms / 1000
            self._stall_timer = self._loop.call_later(stall_s, self._stalled)

    def _stalled(self) -> None:
        self._stall_timer = None
        if self.transport is None:
            return
        if self.transport.get_write_buffer_size() < self._unsent:
            self._watch_stall()
        else:
            self.abort("the peer takes nothing")

    def abort(self, why: str) -> None:
        """Ends the connection at once."""
        transport = self.transport
        if transport is not None:
            _log.info("a connection from %s is cut: %s", self.peername, why)
            transport.abort()

    def handle_error(
        self,
        request: web.BaseRequest,
        status: int = 500,
        exc: BaseException | None = None,
        message: str | None = None,
    ) -> web.StreamResponse:
        """What aiohttp itself refuses, as a Status; the connection is closed afterwards."""
        if request.writer.output_size > 0:
            raise ConnectionError("the answer has begun")
        failure = _failure(status, exc, message)
        if failure.code >= 500:
            _log.error("a request from %s failed", self.peername, exc_info=exc)
        body = dump(failure.status())
        response = web.Response(status=failure.code, body=body, headers={"Content-Type": "application/json"})
        response.force_close()
        return response


def _failure(status: int, exc: BaseException | None, message: str | None) -> ApiFailure:
    if isinstance(exc, LineTooLong):
        return ApiFailure(_TOO_LONG, "the request's target or headers are too long", reason="BadRequest")
    if status == 400:
        said = (message or "").splitlines()
        return bad_request(
            f"the request cannot be read: {said[0].strip().rstrip(':') if said else 'not HTTP'}"
        )
    return ApiFailure(status, message or "the request failed")


def set_keepalive(sock: socket.socket, limits: Limits) -> None:
    """Has the system find out that a peer is gone, also while data to it is on its way."""
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    idle = getattr(socket, "TCP_KEEPIDLE", None) or getattr(socket, "TCP_KEEPALIVE", None)
    options = (
        (idle, limits.api_keepalive_idle_s),
        (getattr(socket, "TCP_KEEPINTVL", None), limits.api_keepalive_interval_s),
        (getattr(socket, "TCP_KEEPCNT", None), limits.api_keepalive_probes),
        (getattr(socket, "TCP_USER_TIMEOUT", None), limits.stream_write_stall_ms),
    )
    for option, value in options:
        if option is not None:
            try:
                sock.setsockopt(socket.IPPROTO_TCP, option, value)
            except OSError:  # not a TCP socket, or a system without the option
                pass
