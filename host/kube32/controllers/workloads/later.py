"""Keys that are due again after a time, each with one timer on the loop's monotonic clock."""

import asyncio
from collections.abc import Callable, Iterable

from kube32.client.informer import Key


class Later:
    """Calls `due` with a key when its time has come. A key has one time: the newest that was set."""

    def __init__(self, due: Callable[[Key], None]) -> None:
        self._due = due
        self._timers: dict[Key, asyncio.TimerHandle] = {}

    def set(self, key: Key, times_s: Iterable[float | None]) -> None:
        """The key is due at the soonest of the times, seconds from now; None is no time, and 0 neither."""
        self.drop(key)
        soonest = min((t for t in times_s if t), default=None)
        if soonest is not None:
            self._timers[key] = asyncio.get_running_loop().call_later(soonest, self._call, key)

    def drop(self, key: Key) -> None:
        """The key is not due any more."""
        timer = self._timers.pop(key, None)
        if timer is not None:
            timer.cancel()

    def _call(self, key: Key) -> None:
        self._timers.pop(key, None)
        self._due(key)

    def close(self) -> None:
        """Drops all."""
        for key in list(self._timers):
            self.drop(key)
