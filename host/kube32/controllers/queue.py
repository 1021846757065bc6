"""A queue of keys for level-triggered work: each key once, one worker at a time, failed ones again later."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Hashable
from typing import Generic, TypeVar

K = TypeVar("K", bound=Hashable)
_LOG = logging.getLogger(__name__)
_RETRY_FIRST_S = 0.1


class WorkQueue(Generic[K]):
    """Keys in the order in which they came. A key that is added while it is worked on comes again afterwards."""

    def __init__(self, retry_max_s: float = 30.0) -> None:
        self._waiting: dict[K, None] = {}
        self._running: set[K] = set()
        self._again: set[K] = set()
        self._delays: dict[K, float] = {}
        self._timers: dict[K, asyncio.TimerHandle] = {}
        self._wake = asyncio.Event()
        self._retry_max_s = retry_max_s

    def add(self, key: K) -> None:
        """The key is worked on soon."""
        timer = self._timers.pop(key, None)
        if timer is not None:
            timer.cancel()
        if key in self._running:
            self._again.add(key)
        else:
            self._waiting[key] = None
            self._wake.set()

    def drop(self, key: K) -> None:
        """There is nothing to do for the key any more."""
        self._waiting.pop(key, None)
        self._again.discard(key)
        self._delays.pop(key, None)
        timer = self._timers.pop(key, None)
        if timer is not None:
            timer.cancel()

    async def run(self, work: Callable[[K], Awaitable[None]], workers: int = 1) -> None:
        """Calls `work` for each key until cancelled. What it raises is logged and the key comes again."""
        try:
            async with asyncio.TaskGroup() as group:
                for _ in range(workers):
                    group.create_task(self._worker(work))
        finally:
            for timer in self._timers.values():
                timer.cancel()

    async def _worker(self, work: Callable[[K], Awaitable[None]]) -> None:
        while True:
            while not self._waiting:
                self._wake.clear()
                await self._wake.wait()
            key = next(iter(self._waiting))
            del self._waiting[key]
            self._running.add(key)
            try:
                await work(key)
                self._delays.pop(key, None)
            except Exception as error:
                self._later(key, error)
            finally:
                self._running.discard(key)
            if key in self._again:
                self._again.discard(key)
                self.add(key)
            # Calls inside the process may never have waited: others have their turn.
            await asyncio.sleep(0)

    def _later(self, key: K, error: Exception) -> None:
        delay_s = min(self._delays.get(key, _RETRY_FIRST_S / 2) * 2, self._retry_max_s)
        self._delays[key] = delay_s
        _LOG.info("%r: %s; again in %.1f s", key, str(error) or type(error).__name__, delay_s)
        if key not in self._again:
            self._timers[key] = asyncio.get_running_loop().call_later(delay_s, self.add, key)
