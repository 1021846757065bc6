"""A Transport that answers from a script, for clients under test."""

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import orjson
from multidict import CIMultiDict

from kube32.client.transport import Body, ClientResponse, Query, Transport, TransportError

Obj = dict[str, Any]
Chunk = bytes | Exception | Callable[[], Awaitable[None]]


class Answer(ClientResponse):
    """One answer. A chunk that is an exception is raised, one that is a function is awaited."""

    def __init__(self, status: int, chunks: list[Chunk], headers: Mapping[str, str] | None = None) -> None:
        self.status = status
        self.headers = CIMultiDict(headers or {})
        self._chunks = chunks
        self.closed = False

    async def read(self) -> bytes:
        """The whole body."""
        return b"".join([chunk async for chunk in self.chunks()])

    async def chunks(self) -> AsyncIterator[bytes]:
        """The script."""
        for chunk in self._chunks:
            if isinstance(chunk, Exception):
                raise chunk
            if callable(chunk):
                await chunk()
            else:
                yield chunk

    async def close(self) -> None:
        """Remembers it."""
        self.closed = True


@dataclass
class Sent:
    """A request as it went out."""

    method: str
    path: str
    query: dict[str, str]
    headers: dict[str, str]
    body: Any


@dataclass
class Scripted(Transport):
    """Answers in order; when none is left, `afterwards` (a broken connection, unless said otherwise)."""

    answers: list[Answer | Exception]
    afterwards: Callable[[], Answer] | None = None
    sent: list[Sent] = field(default_factory=list)

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
        """The next answer."""
        content = orjson.loads(body) if isinstance(body, bytes) and body else body
        self.sent.append(Sent(method, path, dict(query or {}), dict(headers or {}), content))
        if self.answers:
            answer = self.answers.pop(0)
            if isinstance(answer, Exception):
                raise answer
            return answer
        if self.afterwards is not None:
            return self.afterwards()
        raise TransportError("nobody is there")

    async def close(self) -> None:
        """Nothing to close."""


def obj(name: str, version: int, uid: str = "", **more: Any) -> Obj:
    """A ConfigMap."""
    meta = {"name": name, "namespace": "default", "resourceVersion": str(version), "uid": uid or name}
    return {"kind": "ConfigMap", "apiVersion": "v1", "metadata": meta, **more}


def listed(version: int, *items: Obj, more: str = "") -> Answer:
    """A LIST."""
    meta = {"resourceVersion": str(version), **({"continue": more} if more else {})}
    return Answer(200, [orjson.dumps({"kind": "List", "metadata": meta, "items": list(items)})])


def frame(kind: str, body: Obj) -> bytes:
    """One watch event."""
    return orjson.dumps({"type": kind, "object": body}) + b"\n"


def bookmark(version: int) -> bytes:
    """A bookmark."""
    return frame("BOOKMARK", {"kind": "ConfigMap", "metadata": {"resourceVersion": str(version)}})


def status(code: int, reason: str, message: str = "no", **headers: str) -> Answer:
    """A refusal."""
    body = {"kind": "Status", "code": code, "reason": reason, "message": message}
    return Answer(code, [orjson.dumps(body)], headers)
