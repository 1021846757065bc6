"""WATCH: a stream of frames, one JSON object a line, as JSON, Table or PartialObjectMetadata.

Source: specification, "Versions and watches"; decisions, "Store, watches, journal". The end of a stream is a
clean end of the body: a client goes on from its last resourceVersion.
"""

import asyncio
from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from typing import Any

from kube32.api import crud, rules, selectors, tables
from kube32.api import list as listing
from kube32.api.custom.resource import CustomResource
from kube32.api.http import Response
from kube32.api.status import ApiFailure, bad_request, dump, expired, internal, too_many_requests
from kube32.contract import Resource
from kube32.store import SlowWatcher, TooManyStreams, WatchEvent, WatchExpired, WatchStream

_FRAME_BYTES = 65536
_INITIAL_END = "k8s.io/initial-events-end"
Encode = Callable[[WatchEvent], bytes]


def handle(call: crud.Call) -> Response:
    """200 with the frames; an expired version is one ERROR frame. ApiFailure 400, 406, 422, 429, 504."""
    request = call.request
    match = selectors.match_of(call.resource, request.q("labelSelector"), request.q("fieldSelector"))
    bookmarks = request.flag("allowWatchBookmarks")
    view = tables.negotiate(request.headers.get("Accept") or "")
    include = tables.include_of(request.q("includeObject")) if view.is_table else ""
    initial = _initial_events(call)
    since = _since(call, initial)
    try:
        stream = call.hub.open(
            call.prefix,
            resource_prefix=call.resource.prefix,
            since=since,
            match=match,
            bookmarks=bookmarks,
            initial_events_end=initial is True,
            counted=request.remote,
        )
    except TooManyStreams as error:
        raise too_many_requests(str(error)) from None
    except WatchExpired as error:
        return Response(200, _only(_error_frame(expired(str(error)))))
    encode = _encoder(call.resource, view, include)
    if isinstance(call.resource, CustomResource):
        encode = _shown(call.resource, encode)
    frames = Frames(stream, encode, _timeout_s(call))
    return Response(200, frames, crud.warning_headers(call.notes))


def _initial_events(call: crud.Call) -> bool | None:
    """sendInitialEvents, None when it is not given; ApiFailure 422 for options that do not fit together."""
    request = call.request
    match, sent = request.q("resourceVersionMatch"), request.q("sendInitialEvents")
    if not sent:
        if match:
            raise listing.forbidden_option(
                "resourceVersionMatch is forbidden for watch unless sendInitialEvents is provided"
            )
        return None
    if match != "NotOlderThan":
        if match:
            raise listing.unsupported_match(match, ("NotOlderThan",))
        raise listing.forbidden_option(
            "sendInitialEvents requires setting resourceVersionMatch to NotOlderThan"
        )
    if not request.flag("sendInitialEvents"):
        return False
    if not request.flag("allowWatchBookmarks"):
        raise listing.forbidden_option("sendInitialEvents requires allowWatchBookmarks", "sendInitialEvents")
    return True


def _since(call: crud.Call, initial: bool | None) -> int | None:
    """The revision to go on from, None to begin with the objects that are there."""
    value = call.request.q("resourceVersion")
    if initial:
        listing.check_version(call.reads, value)
        return None
    if value in ("", "0"):
        return call.reads.revision if initial is False else None
    return listing.version_number(value)


def _timeout_s(call: crud.Call) -> float:
    longest = call.limits.watch_timeout_ms / 1000
    value = call.request.q("timeoutSeconds")
    if not value:
        return longest
    if not value.isascii() or not value.isdigit() or len(value) > 10:
        raise bad_request(f'invalid timeoutSeconds "{value}": it is not a number of seconds')
    return min(int(value) or longest, longest)


class Frames:
    """The body of a watch: frames that are there together go out together."""

    def __init__(self, stream: WatchStream, encode: Encode, timeout_s: float) -> None:
        self._stream = stream
        self._encode = encode
        self._ended = False
        self._timer = asyncio.get_running_loop().call_later(timeout_s, stream.close)

    def __aiter__(self) -> "Frames":
        return self

    async def __anext__(self) -> bytes:
        if self._ended:
            raise StopAsyncIteration
        try:
            event = await anext(self._stream)
        except SlowWatcher:
            await self.aclose()
            raise StopAsyncIteration from None
        except StopAsyncIteration:
            await self.aclose()
            raise
        frame = self._encoded(event)
        parts, size = [frame], len(frame)
        while size < _FRAME_BYTES and not self._ended:
            try:
                more = self._stream.poll()
            except SlowWatcher:
                await self.aclose()
                break
            if more is None:
                break
            frame = self._encoded(more)
            parts.append(frame)
            size += len(frame)
        return parts[0] if len(parts) == 1 else b"".join(parts)

    def _encoded(self, event: WatchEvent) -> bytes:
        try:
            return self._encode(event)
        except Exception as error:  # a printer's: this watch's end, with a word about it
            self._ended = True
            self._stream.close()
            return _error_frame(internal(f"the object cannot be shown: {error}"))

    async def aclose(self) -> None:
        """Ends the stream and frees its place."""
        self._ended = True
        self._timer.cancel()
        self._stream.close()


async def _only(frame: bytes) -> AsyncIterator[bytes]:
    yield frame


def _error_frame(failure: ApiFailure) -> bytes:
    return dump({"type": "ERROR", "object": failure.status()}) + b"\n"


def _encoder(resource: Resource, view: tables.View, include: str) -> Encode:
    """Makes frames. Of Tables the first has the columns."""
    if view is tables.View.JSON:
        return lambda event: _frame(event.type, _json(resource, event))
    first = True

    def encode(event: WatchEvent) -> bytes:
        nonlocal first
        obj = _bookmark(resource, event) if event.entry is None else event.entry.obj
        if view.is_partial:
            return _frame(event.type, dump(tables.partial(obj, view)))
        headers, first = first, False
        return _frame(event.type, dump(tables.row(resource, obj, include, view=view, headers=headers)))

    return encode


def _shown(resource: Resource, encode: Encode) -> Encode:
    """Objects of custom kinds are shown in the version that was asked for."""

    def shown(event: WatchEvent) -> bytes:
        if event.entry is not None:
            event = replace(event, entry=rules.shown(resource, event.entry))
        return encode(event)

    return shown


def _frame(kind: str, obj: bytes) -> bytes:
    return b"".join((b'{"type":"', kind.encode(), b'","object":', obj, b"}\n"))


def _json(resource: Resource, event: WatchEvent) -> bytes:
    return dump(_bookmark(resource, event)) if event.entry is None else event.entry.value


def _bookmark(resource: Resource, event: WatchEvent) -> dict[str, Any]:
    """An object of the kind that has nothing but the revision to go on from."""
    meta: dict[str, Any] = {"resourceVersion": str(event.revision), "creationTimestamp": None}
    if event.initial_end:
        meta["annotations"] = {_INITIAL_END: "true"}
    return {"kind": resource.kind, "apiVersion": resource.api_version, "metadata": meta}
