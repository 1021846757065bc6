"""Things that fall due on the monotonic clock, with one sleeper for all of them."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Hashable
from typing import Generic, TypeVar

K = TypeVar("K", bound=Hashable)
_LOG = logging.getLogger(__name__)
_RETRY_S = 5.0
# Later than this, the whole process stood still: that time does not count against anybody.
_PAUSED_S = 2.0


class Deadlines(Generic[K]):
    """Keys with the time (seconds of the loop's clock) at which each falls due."""

    def __init__(self) -> None:
        self._due: dict[K, float] = {}
        self._next = float("inf")
        self._changed = asyncio.Event()

    def __contains__(self, key: K) -> bool:
        return key in self._due

    def set(self, key: K, after_s: float) -> None:
        """`key` falls due in `after_s` seconds, whatever was set before."""
        due = asyncio.get_running_loop().time() + after_s
        self._due[key] = due
        if due < self._next:
            self._changed.set()

    def drop(self, key: K) -> None:
        """`key` does not fall due any more."""
        self._due.pop(key, None)

    async def run(self, on_due: Callable[[K], Awaitable[None]]) -> None:
        """Calls `on_due` for each key as it falls due, until cancelled; a failed one again later."""
        loop = asyncio.get_running_loop()
        while True:
            self._changed.clear()
            slept = loop.time()
            self._next = min(self._due.values(), default=float("inf"))
            try:
                async with asyncio.timeout_at(self._next if self._next < float("inf") else None):
                    await self._changed.wait()
            except TimeoutError:
                now = loop.time()
                if now - self._next > _PAUSED_S:
                    self._due = {key: due + now - slept for key, due in self._due.items()}
                for key in [k for k, due in self._due.items() if due <= now]:
                    await self._call(on_due, key)

    async def _call(self, on_due: Callable[[K], Awaitable[None]], key: K) -> None:
        self._due.pop(key, None)
        try:
            await on_due(key)
        except Exception as error:
            _LOG.info("%r: %s", key, str(error) or type(error).__name__)
            if key not in self._due:
                self.set(key, _RETRY_S)
