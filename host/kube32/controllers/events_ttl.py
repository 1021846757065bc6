"""Events do not stay: each goes event_ttl_ms after its last change, the oldest when there are too many."""

import asyncio
import logging

from kube32.client.api import ApiClient, ApiError
from kube32.client.informer import Informer, Key, key_of
from kube32.contract import Limits
from kube32.controllers.deadlines import Deadlines
from kube32.controllers.objects import Obj, uid_of

_LOG = logging.getLogger(__name__)


class EventsTtl:
    """Counts on the monotonic clock from when it saw an Event ("Clocks" of the decisions)."""

    def __init__(self, client: ApiClient, events: Informer, limits: Limits) -> None:
        self._client = client
        self._events = events
        self._ttl_s = limits.event_ttl_ms / 1000
        self._most = limits.event_objects
        self._due: Deadlines[Key] = Deadlines()
        # By age: what changed last stands last.
        self._order: dict[Key, None] = {}
        self._crowded = asyncio.Event()
        events.subscribe(self._on_event)

    def _on_event(self, kind: str, event: Obj, old: Obj | None) -> None:
        key = key_of(event)
        self._order.pop(key, None)
        if kind == "DELETED":
            self._due.drop(key)
            return
        self._order[key] = None
        self._due.set(key, self._ttl_s)
        if len(self._order) > self._most:
            self._crowded.set()

    async def run(self) -> None:
        """Deletes Events as they fall due, until cancelled."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._due.run(self._delete))
            group.create_task(self._thin_out())

    async def _thin_out(self) -> None:
        while True:
            await self._crowded.wait()
            self._crowded.clear()
            while len(self._order) > self._most:
                key = next(iter(self._order))
                del self._order[key]
                try:
                    await self._delete(key)
                except (ApiError, OSError) as error:
                    _LOG.info("event %s/%s: %s", *key, str(error) or type(error).__name__)

    async def _delete(self, key: Key) -> None:
        event = self._events.get(*key)
        if event is None:
            return
        try:
            await self._client.delete("Event", key[1], key[0], uid=uid_of(event))
        except ApiError as error:
            if error.code not in (404, 409):
                raise
