"""A token bucket: what keeps a pod that loops in host calls from starving the node ("decisions", Code)."""

import threading
import time


class TokenBucket:
    """Gives `rate` tokens a second, `burst` at once; full at first. Thread-safe."""

    __slots__ = ("_burst", "_lock", "_rate", "_seen", "_tokens")

    def __init__(self, rate: int, burst: int) -> None:
        self._rate = rate
        self._burst = float(burst)
        self._tokens = float(burst)
        self._seen = time.monotonic()
        self._lock = threading.Lock()

    def take(self) -> bool:
        """Takes one token; False when there is none."""
        with self._lock:
            now = time.monotonic()
            self._tokens = min(self._burst, self._tokens + (now - self._seen) * self._rate)
            self._seen = now
            if self._tokens < 1.0:
                return False
            self._tokens -= 1.0
            return True
