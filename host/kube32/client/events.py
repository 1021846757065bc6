"""Events about objects in the contract's words, written in the background, counted when they repeat."""

import asyncio
import logging
import random
import time
from collections import OrderedDict
from dataclasses import dataclass
from datetime import UTC, datetime

from kube32.client.api import ApiClient, ApiError, Obj
from kube32.contract import EVENTS, LIMITS, text

_LOG = logging.getLogger(__name__)
_QUEUE = 256
_REMEMBERED = 512
_TRIES = 3
# As client-go: more messages than these about one thing and reason within this time become one Event.
_SIMILAR = 10
_SIMILAR_S = 600.0
Key = tuple[str, ...]


@dataclass(slots=True)
class _Written:
    name: str
    count: int


@dataclass(slots=True)
class _Similar:
    """Messages that differ, about the same object and for the same reason."""

    since: float
    messages: set[str]


def _now() -> str | None:
    """None while the wall clock is unset: kubectl makes an age of decades of a time in 1970."""
    now = datetime.now(UTC)
    return None if now.timestamp() < LIMITS.wall_clock_min_s else now.strftime("%Y-%m-%dT%H:%M:%SZ")


class EventRecorder:
    """Writes core v1 Events as `component` (on `host`). Best effort: what cannot be written soon is dropped.

    The same reason and message about the same object is one Event whose count grows; many messages that differ
    become one too, which shows the last. For the client's loop.
    """

    def __init__(self, client: ApiClient, component: str, host: str = "") -> None:
        self._client = client
        self._source = {"component": component, **({"host": host} if host else {})}
        self._queue: asyncio.Queue[tuple[Key, Obj]] = asyncio.Queue(_QUEUE)
        self._written: OrderedDict[Key, _Written] = OrderedDict()
        self._similar: OrderedDict[Key, _Similar] = OrderedDict()
        self._worker: asyncio.Task[None] | None = None
        self._serial = time.time_ns()

    def event(self, obj: Obj, name_in_EVENTS: str, **fields: object) -> None:
        """Tells that `name_in_EVENTS` of the contract happened to `obj`; never waits and never fails.

        A part of the object, such as a container, is named by a `fieldPath` beside its metadata.
        """
        words = EVENTS[name_in_EVENTS]
        meta = obj["metadata"]
        involved = {
            "kind": obj.get("kind", ""),
            "apiVersion": obj.get("apiVersion", ""),
            "namespace": meta.get("namespace", ""),
            "name": meta["name"],
            "uid": meta.get("uid", ""),
            "resourceVersion": meta.get("resourceVersion", ""),
            "fieldPath": obj.get("fieldPath", ""),
        }
        namespace = involved["namespace"] or "default"
        kind, name = involved["kind"], meta["name"]
        part = involved["fieldPath"]
        subject: Key = (kind, namespace, name, involved["uid"], part, words.reason, words.type)
        message, key = self._combine(subject, words.message.format(**fields))
        self._serial += 1
        event: Obj = {
            "apiVersion": "v1",
            "kind": "Event",
            "metadata": {"name": f"{meta['name'][:230]}.{self._serial:x}", "namespace": namespace},
            "involvedObject": {k: v for k, v in involved.items() if v},
            "reason": words.reason,
            "message": message,
            "type": words.type,
            "source": self._source,
            "reportingComponent": self._source["component"],
            "reportingInstance": self._source.get("host", ""),
            "count": 1,
        }
        now = _now()
        if now is not None:
            event |= {"firstTimestamp": now, "lastTimestamp": now}
        try:
            self._queue.put_nowait((key, event))
        except asyncio.QueueFull:
            _LOG.warning("event dropped, too many are waiting: %s %s", words.reason, message)
            return
        if self._worker is None or self._worker.done():
            self._worker = asyncio.get_running_loop().create_task(self._work(), name="events")

    def _combine(self, subject: Key, message: str) -> tuple[str, Key]:
        """The message to show, and the key under which it counts."""
        now = time.monotonic()
        known = self._similar.get(subject)
        if known is None or now - known.since > _SIMILAR_S:
            known = self._similar[subject] = _Similar(now, set())
            if len(self._similar) > _REMEMBERED:
                self._similar.popitem(last=False)
        self._similar.move_to_end(subject)
        if message in known.messages or len(known.messages) < _SIMILAR:
            known.messages.add(message)
            return message, (*subject, message)
        return text("events_combined", "message", message=message), (*subject, "")

    async def _work(self) -> None:
        while not self._queue.empty():
            key, event = self._queue.get_nowait()
            try:
                await self._write(key, event)
            except Exception as error:
                _LOG.warning("event not written: %s %s: %s", event["reason"], event["message"], error)

    async def _write(self, key: Key, event: Obj) -> None:
        for attempt in range(1, _TRIES + 1):
            try:
                await self._write_once(key, event)
                return
            except ApiError as error:
                if error.code < 500 and error.code != 429:
                    raise
                if attempt == _TRIES:
                    raise
            except OSError:
                if attempt == _TRIES:
                    raise
            await asyncio.sleep(attempt * random.uniform(0.25, 0.5))

    async def _write_once(self, key: Key, event: Obj) -> None:
        space = event["metadata"]["namespace"]
        known = self._written.get(key)
        if known is not None:
            again: Obj = {"count": known.count + 1}
            if not key[-1]:
                again["message"] = event["message"]
            if "lastTimestamp" in event:
                again["lastTimestamp"] = event["lastTimestamp"]
            try:
                await self._client.patch("Event", known.name, again, space)
            except ApiError as error:
                if error.code != 404:
                    raise
                del self._written[key]
            else:
                known.count += 1
                self._written.move_to_end(key)
                return
        await self._client.create("Event", event, space)
        self._written[key] = _Written(event["metadata"]["name"], 1)
        if len(self._written) > _REMEMBERED:
            self._written.popitem(last=False)

    async def close(self) -> None:
        """Writes what is waiting, for two seconds at most."""
        worker, self._worker = self._worker, None
        if worker is None:
            return
        await asyncio.wait([worker], timeout=2)
        worker.cancel()
