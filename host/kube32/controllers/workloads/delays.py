"""Growing delays after failures, on the loop's monotonic clock: first short, then twice as long each time."""

import asyncio
from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

K = TypeVar("K", bound=Hashable)


class Delays(Generic[K]):
    """For each key how long to wait from its last failure. A key that waits for long without one begins anew."""

    def __init__(self, first_s: float, most_s: float) -> None:
        self._first_s = first_s
        self._most_s = most_s
        # Delay, and when it began.
        self._known: dict[K, tuple[float, float]] = {}

    def more(self, key: K) -> None:
        """There was a failure now."""
        now = asyncio.get_running_loop().time()
        delay, since = self._known.get(key, (0.0, now))
        if now - since > 2 * self._most_s:
            delay = 0.0
        self._known[key] = min(max(delay * 2, self._first_s), self._most_s), now

    def at(self, key: K, failures: int) -> None:
        """There have been so many failures; when that is news, the last was now."""
        delay = min(self._first_s * 2.0 ** min(failures - 1, 30), self._most_s) if failures > 0 else 0.0
        if self._known.get(key, (None, 0.0))[0] != delay:
            self._known[key] = delay, asyncio.get_running_loop().time()

    def wait(self, key: K) -> float:
        """Seconds until the next try."""
        delay, since = self._known.get(key, (0.0, 0.0))
        return max(since + delay - asyncio.get_running_loop().time(), 0.0) if delay else 0.0

    def forget(self, which: Callable[[K], bool]) -> None:
        """Drops keys."""
        for key in [k for k in self._known if which(k)]:
            del self._known[key]
