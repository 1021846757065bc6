"""Pods as the listeners reach them: those of this node directly, the others through the API server."""

from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass, field
from typing import Protocol
from urllib.parse import quote

from kube32.client.transport import ClientResponse, ConnectFailed, Transport
from kube32.contract import NAMES, resource_of


@dataclass(frozen=True, slots=True)
class PodRequest:
    """A request for a pod. `target` is the path with its query, percent-encoded, with a leading "/"."""

    method: str
    target: str
    headers: Mapping[str, str]
    body: bytes = b""


@dataclass(slots=True)
class PodAnswer:
    """A pod's answer. `chunks` is the body as it comes; `close` ends it."""

    status: int
    headers: list[tuple[str, str]]
    body: bytes = b""
    stream: ClientResponse | None = field(default=None)

    async def chunks(self) -> AsyncIterator[bytes]:
        """The body as it arrives; TransportError when it is cut."""
        if self.stream is None:
            if self.body:
                yield self.body
            return
        async for chunk in self.stream.chunks():
            yield chunk

    async def close(self) -> None:
        """Frees the connection."""
        if self.stream is not None:
            await self.stream.close()


class NotDelivered(Exception):
    """The pod saw nothing of the request: another one may be asked. str() says why.

    `soon` is set when the pod is frozen or on its way, so that waiting helps.
    """

    def __init__(self, why: str, *, soon: bool = False) -> None:
        super().__init__(why)
        self.soon = soon


class Pods(Protocol):
    """A way to pods."""

    async def call(self, namespace: str, pod: str, request: PodRequest) -> PodAnswer:
        """Has a pod answer. NotDelivered, or TransportError and TimeoutError when it is unknown what it saw."""
        ...


class RemotePods:
    """Pods of other nodes, through pods/proxy of the API server, with this node's credential."""

    def __init__(self, transport: Transport, answer_s: float) -> None:
        self._transport = transport
        self._answer_s = answer_s

    async def call(self, namespace: str, pod: str, request: PodRequest) -> PodAnswer:
        """As Pods.call."""
        base = resource_of("Pod").object_path(quote(namespace, safe=""), quote(pod, safe=""), "proxy")
        headers = (
            {**request.headers, "Content-Length": str(len(request.body))} if request.body else request.headers
        )
        try:
            answer = await self._transport.send(
                request.method,
                base + request.target,
                headers=headers,
                body=request.body or None,
                timeout_s=self._answer_s,
            )
        except ConnectFailed as error:
            raise NotDelivered(str(error)) from None
        soon = NAMES.header_frozen in answer.headers
        if soon or NAMES.header_not_delivered in answer.headers:
            await answer.close()
            raise NotDelivered(f"pod {pod} did not get the request", soon=soon or answer.status == 503)
        return PodAnswer(answer.status, list(answer.headers.items()), stream=answer)
