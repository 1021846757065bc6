"""Request and Response as the API server sees them, the same for every transport (HTTPS, in-process)."""

from collections.abc import AsyncIterable, AsyncIterator, Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import parse_qs

from multidict import CIMultiDict

from kube32.api.routes import decode_segment
from kube32.api.status import ApiFailure, bad_request, dump, too_large

_MAX_PARAMETERS = 256
_NO_QUERY: dict[str, list[str]] = {}


@dataclass(slots=True)
class UserInfo:
    """Who asks, as authentication found it. `extra` are its credential's further facts."""

    name: str
    groups: tuple[str, ...]
    uid: str = ""
    extra: dict[str, list[str]] = field(default_factory=dict)


class BodyCut(Exception):
    """The peer went away, stalled or broke the framing before the body was complete; str() says which."""


class Request:
    """One request. `path` is percent-encoded and without the query; `body` is bytes or chunks as they arrive.

    `content_length` is None when it is unknown. `user` is set by the server after authentication;
    `impersonator` is who really asks when that is another. `remote` is set for what came over a socket: its
    watches count against the stream cap.
    """

    __slots__ = (
        "_body",
        "_query",
        "content_length",
        "headers",
        "impersonator",
        "method",
        "path",
        "peer_certificate",
        "query_string",
        "remote",
        "user",
    )

    def __init__(
        self,
        method: str,
        path: str,
        *,
        query_string: str = "",
        headers: Mapping[str, str] | None = None,
        body: bytes | AsyncIterable[bytes] | None = None,
        content_length: int | None = None,
        peer_certificate: dict[str, Any] | None = None,
        user: UserInfo | None = None,
        remote: bool = False,
    ) -> None:
        self.method = method
        self.path = path
        self.query_string = query_string
        self.headers: Mapping[str, str] = CIMultiDict() if headers is None else headers
        self.peer_certificate = peer_certificate
        self.user = user
        self.impersonator: UserInfo | None = None
        self.remote = remote
        self._body = b"" if body is None else body
        self.content_length = len(self._body) if isinstance(self._body, bytes) else content_length
        self._query: dict[str, list[str]] | None = None if query_string else _NO_QUERY

    @property
    def query(self) -> dict[str, list[str]]:
        """The query's parameters, decoded. ApiFailure 400 when they are not UTF-8 or too many."""
        if self._query is None:
            try:
                self._query = parse_qs(
                    self.query_string,
                    keep_blank_values=True,
                    errors="strict",
                    max_num_fields=_MAX_PARAMETERS,
                )
            except ValueError as e:
                raise bad_request(f"the query cannot be read: {e}") from None
        return self._query

    def q(self, name: str, default: str = "") -> str:
        """The first value of a query parameter."""
        values = self.query.get(name)
        return values[0] if values else default

    def flag(self, name: str) -> bool:
        """Whether a query parameter is set to true, as Kubernetes reads booleans."""
        return self.q(name).lower() in ("1", "t", "true")

    @property
    def segments(self) -> list[str]:
        """The path's decoded segments. ApiFailure 400 for what no path may hold (routes.decode_segment)."""
        return [decode_segment(s) for s in self.path.split("/")[1:]]

    async def body(self, limit: int) -> bytes:
        """The whole body. ApiFailure 413 when it is larger than `limit` bytes, 400 when it is cut."""
        if self.content_length is not None and self.content_length > limit:
            raise too_large(limit)
        if isinstance(self._body, bytes):
            return self._body
        parts: list[bytes] = []
        size = 0
        try:
            async for chunk in self._body:
                size += len(chunk)
                if size > limit:
                    raise too_large(limit)
                parts.append(chunk)
        except BodyCut as e:
            raise bad_request(f"the request's body is incomplete: {e}") from None
        return parts[0] if len(parts) == 1 else b"".join(parts)

    async def chunks(self) -> AsyncIterator[bytes]:
        """The body as it arrives. Raises BodyCut when it is cut."""
        if isinstance(self._body, bytes):
            if self._body:
                yield self._body
            return
        async for chunk in self._body:
            yield chunk


@dataclass(slots=True)
class Response:
    """One answer. A body that is an iterator is sent as it comes and closed (`aclose`) when the peer goes."""

    status: int
    body: bytes | AsyncIterator[bytes | memoryview]
    headers: dict[str, str] = field(default_factory=dict)
    content_type: str = "application/json"


def failure_response(failure: ApiFailure) -> Response:
    """A failure as its Status."""
    return Response(failure.code, dump(failure.status()), dict(failure.headers))
