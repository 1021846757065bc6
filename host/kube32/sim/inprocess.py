"""The Transport of clients that live in the control plane's own process: no socket, the same dispatch."""

import asyncio
from collections.abc import AsyncIterable, AsyncIterator, Mapping, Sequence
from typing import Any
from urllib.parse import urlencode

from multidict import CIMultiDict

from kube32.api.http import BodyCut, Request, Response
from kube32.api.server import ApiServer
from kube32.client.transport import ClientResponse, Transport, TransportError
from kube32.contract import NAMES

Query = Mapping[str, str] | Sequence[tuple[str, str]]


class InProcessResponse(ClientResponse):
    """An answer of dispatch; a streamed body passes through chunk by chunk."""

    def __init__(self, response: Response) -> None:
        self.status = response.status
        self.headers = CIMultiDict(response.headers)
        self.headers.setdefault("Content-Type", response.content_type)
        self._body = response.body

    async def read(self) -> bytes:
        """The whole body."""
        if isinstance(self._body, bytes):
            return self._body
        return b"".join([chunk async for chunk in self.chunks()])

    async def chunks(self) -> AsyncIterator[bytes]:
        """The body as it comes."""
        if isinstance(self._body, bytes):
            yield self._body
            return
        try:
            async for chunk in self._body:
                yield bytes(chunk) if isinstance(chunk, memoryview) else chunk
        except BodyCut as error:
            raise TransportError(str(error)) from None

    async def close(self) -> None:
        """Ends a streamed body, so that its stream slot is free again."""
        if not isinstance(self._body, bytes):
            closer = getattr(self._body, "aclose", None)
            if closer is not None:
                await closer()


class InProcessTransport(Transport):
    """Calls `server.dispatch` on the server's loop, with a bearer token as any other client has."""

    def __init__(
        self,
        server: ApiServer,
        token: str,
        loop: asyncio.AbstractEventLoop,
        user_agent: str = NAMES.agent_controllers,
    ) -> None:
        self._server = server
        self._headers = {"Authorization": f"Bearer {token}", "User-Agent": user_agent}
        self._loop = loop

    async def send(
        self,
        method: str,
        path: str,
        *,
        query: Query | None = None,
        headers: Mapping[str, str] | None = None,
        body: bytes | AsyncIterable[bytes] | None = None,
        timeout_s: float | None = 30,
    ) -> ClientResponse:
        """As Transport.send. From another thread's loop the answer is read whole before it is handed over."""
        if asyncio.get_running_loop() is not self._loop:
            call = self._send_whole(method, path, query, headers, body, timeout_s)
            return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(call, self._loop))
        async with asyncio.timeout(timeout_s):
            return InProcessResponse(
                await self._server.dispatch(self._request(method, path, query, headers, body))
            )

    async def _send_whole(self, method: str, path: str, *rest: Any) -> ClientResponse:
        query, headers, body, timeout_s = rest
        async with asyncio.timeout(timeout_s):
            response = await self._server.dispatch(self._request(method, path, query, headers, body))
            answer = InProcessResponse(response)
            whole = await answer.read()
        return InProcessResponse(Response(response.status, whole, response.headers, response.content_type))

    def _request(
        self,
        method: str,
        path: str,
        query: Query | None,
        headers: Mapping[str, str] | None,
        body: bytes | AsyncIterable[bytes] | None,
    ) -> Request:
        all_headers = CIMultiDict(self._headers)
        all_headers.update(headers or {})
        length = all_headers.get("Content-Length")
        path, _, inline = path.partition("?")
        return Request(
            method,
            path,
            query_string=urlencode(query) if query else inline,
            headers=all_headers,
            body=body,
            content_length=int(length) if length is not None else None,
        )

    async def close(self) -> None:
        """Nothing to close: the server belongs to the control plane."""
