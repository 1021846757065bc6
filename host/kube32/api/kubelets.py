"""The API server's way to kubelets: HTTPS with its client certificate, over connections that stay open.

A kubelet is reached at the address in its Node's status, but believed only by the DNS name in its
certificate, which the CA gives to that node alone: a Node that claims another's address gets no request.
"""

import asyncio
import ipaddress
import os
import ssl
import time
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Any

import aiohttp
from multidict import CIMultiDictProxy
from yarl import URL

from kube32.api.http import BodyCut
from kube32.api.pki import node_server_name
from kube32.api.status import ApiFailure, not_found
from kube32.contract import NAMES, Limits, resource_of, text
from kube32.store import Store

_CHUNK = 65536
# Less than limits.kubelet_answer_ms: a read deadline may outlive its answer on a connection that is kept.
_KEEP_ALIVE_S = 60
_AUTOMATIC_HEADERS = ("Accept", "Accept-Encoding", "Content-Type", "User-Agent")


class KubeletStream:
    """A kubelet's answer whose body is read as it comes. Must be read to its end or closed.

    Iterating raises BodyCut when the kubelet goes away before the end. `on_close` is called once, whatever
    happens.
    """

    def __init__(self, response: aiohttp.ClientResponse, failure: Callable[[Exception], ApiFailure]) -> None:
        self.status = response.status
        self.headers: CIMultiDictProxy[str] = response.headers
        self.on_close: Callable[[], None] = _nothing
        self._response = response
        self._failure = failure

    def __aiter__(self) -> AsyncIterator[bytes]:
        return self

    async def __anext__(self) -> bytes:
        try:
            chunk = await self._response.content.readany()
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            await self.aclose()
            raise BodyCut(self._failure(error).message) from error
        except BaseException:
            await self.aclose()
            raise
        if not chunk:
            await self.aclose()
            raise StopAsyncIteration
        return chunk

    async def read(self, limit: int) -> bytes:
        """The whole body; BodyCut when it is cut or has more than `limit` bytes."""
        parts: list[bytes] = []
        size = 0
        try:
            async for chunk in self:
                size += len(chunk)
                if size > limit:
                    raise BodyCut(f"more than {limit} bytes")
                parts.append(chunk)
        finally:
            await self.aclose()
        return b"".join(parts)

    async def aclose(self) -> None:
        """Gives the connection back when the body was read, drops it otherwise."""
        finish, self.on_close = self.on_close, _nothing
        finish()
        if self._response.content.at_eof():
            self._response.release()
        else:
            self._response.close()


class KubeletConnector:
    """Sends requests to the kubelets of a cluster, its own node's included."""

    def __init__(self, store: Store, limits: Limits, context: ssl.SSLContext) -> None:
        self._store = store
        self._limits = limits
        self._context = context
        # One session for each node: connections are never shared by nodes that claim one address.
        self._sessions: dict[str, aiohttp.ClientSession] = {}
        self._lanes: dict[tuple[str, str], _Lane] = {}
        self._resting: dict[str, float] = {}

    async def close(self) -> None:
        """Ends all connections."""
        sessions, self._sessions = list(self._sessions.values()), {}
        for session in sessions:
            await session.close()

    async def request(
        self,
        node: str,
        method: str,
        path: str,
        *,
        query: str = "",
        headers: Mapping[str, str] | None = None,
        body: bytes | AsyncIterator[bytes] | None = None,
        answer_ms: int | None = None,
        endless: bool = False,
    ) -> KubeletStream:
        """Sends a request; `path` and `query` are percent-encoded and go as they are.

        `answer_ms` is how long the kubelet may send nothing (default: limits.kubelet_answer_ms); an
        `endless` answer may pause as long as it likes once its headers are there. ApiFailure 404 for an
        unknown node, 502 for a peer that is not this node's kubelet, 503 when it cannot be reached, 504 when
        it does not answer in time.
        """
        address = await self._address(node)
        url = URL(f"https://{address}{path}{f'?{query}' if query else ''}", encoded=True)
        silence_s = (answer_ms or self._limits.kubelet_answer_ms) / 1000
        timeout = aiohttp.ClientTimeout(
            total=None,
            sock_connect=self._limits.kubelet_connect_ms / 1000,
            sock_read=None if endless else silence_s,
        )

        def failure(error: Exception) -> ApiFailure:
            return _failure(node, address, error)

        try:
            async with asyncio.timeout(silence_s if endless else None):
                response = await self._session(node).request(
                    method,
                    url,
                    headers=headers,
                    data=body,
                    timeout=timeout,
                    allow_redirects=False,
                    server_hostname=node_server_name(node),
                )
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            raise failure(error) from error
        return KubeletStream(response, failure)

    def rest(self, node: str) -> None:
        """Notes that a node let an event time out: `is_resting` for as long as that took."""
        now = time.monotonic()
        self._resting = {name: until for name, until in self._resting.items() if until > now}
        self._resting[node] = now + self._limits.topic_delivery_ms / 1000

    def is_resting(self, node: str) -> bool:
        """Whether a node let an event time out a moment ago."""
        return self._resting.get(node, 0.0) > time.monotonic()

    @asynccontextmanager
    async def lane(self, sender: str, node: str) -> AsyncIterator[None]:
        """Lets one request at a time through from a sender to a node, in the order in which they came."""
        lane = self._lanes.setdefault((sender, node), _Lane())
        lane.users += 1
        try:
            async with lane.lock:
                yield
        finally:
            lane.users -= 1
            if not lane.users:
                del self._lanes[sender, node]

    def _session(self, node: str) -> aiohttp.ClientSession:
        session = self._sessions.get(node)
        if session is None:
            keep_s = min(_KEEP_ALIVE_S, self._limits.kubelet_answer_ms / 2000)
            session = self._sessions[node] = aiohttp.ClientSession(
                connector=aiohttp.TCPConnector(ssl=self._context, limit=0, keepalive_timeout=keep_s),
                cookie_jar=aiohttp.DummyCookieJar(),
                auto_decompress=False,
                skip_auto_headers=_AUTOMATIC_HEADERS,
                read_bufsize=_CHUNK,
            )
            # By itself aiohttp sends a GET, PUT or DELETE twice when its connection breaks: a pod may have seen
            # the first one.
            session._retry_connection = False
        return session

    async def _address(self, node: str) -> str:
        """host:port of a node's kubelet."""
        resource = resource_of("Node")
        entry = self._store.get(resource.object_key("", node))
        if entry is None:
            if session := self._sessions.pop(node, None):
                await session.close()
            raise not_found(resource, node)
        status: dict[str, Any] = entry.obj.get("status") or {}
        rows = [a for a in status.get("addresses") or [] if a.get("type") == "InternalIP"]
        endpoint = (status.get("daemonEndpoints") or {}).get("kubeletEndpoint") or {}
        # Kubernetes writes Port, and so do Go clients.
        port = endpoint.get("Port") or endpoint.get("port")
        try:
            host = ipaddress.ip_address(str(rows[0].get("address")))
        except (IndexError, ValueError):
            host = None
        if host is None or not isinstance(port, int) or not 0 < port < 65536:
            raise ApiFailure(503, text("answers", "node_unknown_address", node=node))
        return f"[{host}]:{port}" if host.version == 6 else f"{host}:{port}"


class _Lane:
    """A queue of one sender's requests to one node."""

    __slots__ = ("lock", "users")

    def __init__(self) -> None:
        self.lock = asyncio.Lock()
        self.users = 0


def _nothing() -> None:
    return None


def _failure(node: str, address: str, error: Exception) -> ApiFailure:
    """The Status of a kubelet that could not be spoken to."""
    code = 503
    cause = str(error) or type(error).__name__
    if isinstance(error, TimeoutError):
        connecting = isinstance(error, aiohttp.ConnectionTimeoutError)
        code, cause = (503, "connection timed out") if connecting else (504, "it does not answer")
    elif isinstance(error, aiohttp.ClientConnectorCertificateError):
        code, cause = 502, str(error.certificate_error)
    elif isinstance(error, (aiohttp.ClientSSLError, aiohttp.ClientResponseError)):
        code = 502
    elif isinstance(error, aiohttp.ClientConnectorError):
        number = error.os_error.errno
        cause = os.strerror(number) if number else str(error.os_error) or cause
    elif isinstance(error, aiohttp.ServerDisconnectedError):
        cause = "it closed the connection"
    message = text("answers", "node_unreachable", node=node, address=address, cause=cause)
    reason = "ServiceUnavailable" if code != 504 else None
    failed = ApiFailure(code, message, reason=reason)
    if isinstance(error, (aiohttp.ClientConnectorError, aiohttp.ConnectionTimeoutError)):
        failed.headers[NAMES.header_not_delivered] = "true"
    return failed
