"""The API client: Kubernetes verbs on plain JSON objects, over any Transport.

A kind is a name of the contract ("Pod"), or a Resource (of discovery: custom kinds too).
"""

from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing
from dataclasses import dataclass
from typing import Any, cast
from urllib.parse import quote

import orjson

from kube32.client.stream import json_lines
from kube32.client.transport import Body, ClientResponse, Query, Transport
from kube32.contract import LIMITS, Limits, Resource, resource_of

Obj = dict[str, Any]
JsonPatch = list[Obj]
WatchItem = tuple[str, Obj]

_PATCH_TYPES = {
    "merge": "application/merge-patch+json",
    "json": "application/json-patch+json",
    "strategic": "application/strategic-merge-patch+json",
}
_JSON = {"Accept": "application/json"}
_LIST_PAGE = 500
# A watch that brought nothing for a bookmark's time and this much more has lost its server.
_BOOKMARK_SLACK_MS = 10_000


class ApiError(Exception):
    """The API server refused: HTTP code, and reason and message of its Status. `body` is the whole Status."""

    def __init__(
        self, code: int, reason: str, message: str, body: Obj | None = None, retry_after_s: float = 0
    ) -> None:
        super().__init__(message or f"HTTP {code} {reason}".strip())
        self.code = code
        self.reason = reason
        self.message = message
        self.body: Obj = body if body is not None else {}
        self.retry_after_s = retry_after_s

    @classmethod
    def from_status(
        cls, code: int, body: bytes | Obj, headers: Mapping[str, str] | None = None
    ) -> "ApiError":
        """The error of an answer; a body that is no Status serves as the message."""
        status: Any = body
        if isinstance(body, bytes):
            try:
                status = orjson.loads(body)
            except orjson.JSONDecodeError:
                status = None
        if not isinstance(status, dict):
            words = body.decode("utf-8", "replace").strip() if isinstance(body, bytes) else ""
            status = {"message": words[:1000]}
        after = (headers or {}).get("Retry-After", "")
        return cls(
            int(status.get("code") or code),
            str(status.get("reason") or ""),
            str(status.get("message") or ""),
            status,
            float(after) if after.isdigit() else 0,
        )


@dataclass(frozen=True, slots=True)
class ObjectList:
    """A LIST: its objects, each with kind and apiVersion, and the resourceVersion to watch from."""

    items: list[Obj]
    resource_version: str


def _resource(kind: str | Resource) -> Resource:
    return resource_of(kind) if isinstance(kind, str) else kind


def _path(resource: Resource, namespace: str, name: str = "", subresource: str = "") -> str:
    space = quote(namespace, safe="")
    if not name:
        return resource.collection_path(space)
    return resource.object_path(space, quote(name, safe=""), subresource)


def _typed(resource: Resource, item: Obj, metadata_only: bool) -> Obj:
    """Items of a list may come without their kind; those of metadata come as PartialObjectMetadata."""
    if metadata_only:
        item["kind"], item["apiVersion"] = resource.kind, resource.api_version
    else:
        item.setdefault("kind", resource.kind)
        item.setdefault("apiVersion", resource.api_version)
    return item


def _accept(suffix: str, metadata_only: bool) -> str:
    """What is asked for; a server that knows no PartialObjectMetadata sends whole objects."""
    plain = _JSON["Accept"]
    if not metadata_only:
        return plain
    return f"{plain};as=PartialObjectMetadata{suffix};g=meta.k8s.io;v=v1,{plain}"


def _selectors(label_selector: str, field_selector: str) -> dict[str, str]:
    query = {"labelSelector": label_selector, "fieldSelector": field_selector}
    return {k: v for k, v in query.items() if v}


class ApiClient:
    """Verbs of one API server. Refused: ApiError. Without an answer: TransportError or TimeoutError."""

    def __init__(self, transport: Transport, limits: Limits = LIMITS) -> None:
        self.transport = transport
        self._idle_s = (limits.watch_bookmark_ms + _BOOKMARK_SLACK_MS) / 1000

    async def get(self, kind: str | Resource, name: str, namespace: str = "") -> Obj:
        """The object."""
        return await self._call("GET", _path(_resource(kind), namespace, name))

    async def list(
        self,
        kind: str | Resource,
        namespace: str = "",
        *,
        label_selector: str = "",
        field_selector: str = "",
        metadata_only: bool = False,
    ) -> ObjectList:
        """Every object, of one namespace or of all; long lists come in pages.

        With `metadata_only` each has apiVersion, kind and metadata, nothing else.
        """
        resource = _resource(kind)
        query = {**_selectors(label_selector, field_selector), "limit": str(_LIST_PAGE)}
        items: list[Obj] = []
        while True:
            page = await self._call(
                "GET", _path(resource, namespace), query=query, accept=_accept("List", metadata_only)
            )
            for item in page.get("items") or []:
                items.append(_typed(resource, item, metadata_only))
            metadata = page.get("metadata") or {}
            if not metadata.get("continue"):
                return ObjectList(items, str(metadata.get("resourceVersion", "")))
            query["continue"] = metadata["continue"]

    async def create(
        self, kind: str | Resource, obj: Obj, namespace: str = "", subresource: str = "", name: str = ""
    ) -> Obj:
        """POST of an object, or of a subresource's body when `name` and `subresource` are given."""
        space = namespace or obj.get("metadata", {}).get("namespace", "")
        return await self._call("POST", _path(_resource(kind), space, name, subresource), obj)

    async def update(self, kind: str | Resource, obj: Obj, subresource: str = "") -> Obj:
        """PUT of an object, or of one of its subresources; the server checks a resourceVersion in it."""
        meta = obj["metadata"]
        path = _path(_resource(kind), meta.get("namespace", ""), meta["name"], subresource)
        return await self._call("PUT", path, obj)

    async def patch(
        self,
        kind: str | Resource,
        name: str,
        patch: Obj | JsonPatch,
        namespace: str = "",
        *,
        subresource: str = "",
        type: str = "merge",
    ) -> Obj:
        """PATCH; `type` is merge, json or strategic."""
        path = _path(_resource(kind), namespace, name, subresource)
        return await self._call("PATCH", path, patch, content_type=_PATCH_TYPES[type])

    async def delete(
        self,
        kind: str | Resource,
        name: str,
        namespace: str = "",
        *,
        uid: str = "",
        resource_version: str = "",
        grace_s: int | None = None,
        propagation: str = "",
    ) -> Obj:
        """DELETE, with preconditions where given. `grace_s` 0 removes a pod at once.

        `propagation` is Background, Foreground or Orphan; "" leaves it to the server.
        """
        options: Obj = {"kind": "DeleteOptions", "apiVersion": "v1"}
        conditions = {k: v for k, v in (("uid", uid), ("resourceVersion", resource_version)) if v}
        if conditions:
            options["preconditions"] = conditions
        if grace_s is not None:
            options["gracePeriodSeconds"] = grace_s
        if propagation:
            options["propagationPolicy"] = propagation
        return await self._call("DELETE", _path(_resource(kind), namespace, name), options)

    async def delete_collection(
        self, kind: str | Resource, namespace: str = "", *, label_selector: str = "", propagation: str = ""
    ) -> None:
        """DELETE of every object of a namespace (or of a cluster-scoped kind)."""
        options: Obj = {"kind": "DeleteOptions", "apiVersion": "v1"}
        if propagation:
            options["propagationPolicy"] = propagation
        path = _path(_resource(kind), namespace)
        await self._call("DELETE", path, options, query=_selectors(label_selector, ""))

    async def watch(
        self,
        kind: str | Resource,
        namespace: str = "",
        *,
        resource_version: str = "",
        label_selector: str = "",
        field_selector: str = "",
        timeout_s: float | None = None,
        bookmarks: bool = True,
        metadata_only: bool = False,
    ) -> AsyncGenerator[WatchItem, None]:
        """(type, object) pairs until the server ends the stream; an ERROR event is raised as ApiError.

        With bookmarks a stream that stays silent for longer than they take is dead: TimeoutError.
        """
        query = {"watch": "1", **_selectors(label_selector, field_selector)}
        if resource_version:
            query["resourceVersion"] = resource_version
        if bookmarks:
            query["allowWatchBookmarks"] = "true"
        if timeout_s is not None:
            query["timeoutSeconds"] = str(max(1, round(timeout_s)))
        idle_s = self._idle_s if bookmarks else None
        resource = _resource(kind)
        headers = {"Accept": _accept("", metadata_only)}
        response = await self.raw(
            "GET", _path(resource, namespace), query=query, headers=headers, timeout_s=None
        )
        async with response:
            await self.check(response)
            async with aclosing(json_lines(response, idle_s)) as frames:
                async for frame in frames:
                    if frame["type"] == "ERROR":
                        raise ApiError.from_status(500, frame["object"])
                    obj = frame["object"]
                    yield frame["type"], _typed(resource, obj, True) if metadata_only else obj

    async def raw(
        self,
        method: str,
        path: str,
        *,
        query: Query | None = None,
        headers: Mapping[str, str] | None = None,
        body: Body | None = None,
        timeout_s: float | None = 30,
    ) -> ClientResponse:
        """Any request; the caller looks at the status (or calls `check`) and closes the answer."""
        return await self.transport.send(
            method, path, query=query, headers=headers, body=body, timeout_s=timeout_s
        )

    async def check(self, response: ClientResponse) -> None:
        """Raises ApiError, with the body's Status, for an answer that is no success."""
        if not 200 <= response.status < 300:
            raise ApiError.from_status(response.status, await response.read(), response.headers)

    async def _call(
        self,
        method: str,
        path: str,
        body: Obj | JsonPatch | None = None,
        *,
        query: Query | None = None,
        content_type: str = "application/json",
        accept: str = _JSON["Accept"],
    ) -> Obj:
        headers = {"Accept": accept}
        if body is not None:
            headers["Content-Type"] = content_type
        response = await self.raw(
            method, path, query=query, headers=headers, body=None if body is None else orjson.dumps(body)
        )
        async with response:
            await self.check(response)
            return cast(Obj, orjson.loads(await response.read()))
