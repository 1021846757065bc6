"""The node's clocks: wall time for pods, and a clock that counts suspended time for fencing ("decisions",
Clocks).
"""

import time

from kube32.contract import Limits

_BOOT_CLOCK = getattr(time, "CLOCK_BOOTTIME", None)


def boot_seconds() -> float:
    """Seconds on a clock that goes on while the machine sleeps."""
    # Where CLOCK_BOOTTIME is missing (macOS), CLOCK_MONOTONIC counts sleep as well.
    return time.clock_gettime(time.CLOCK_MONOTONIC if _BOOT_CLOCK is None else _BOOT_CLOCK)


class WallClock:
    """Unix time in ms, 0 while the clock is unset."""

    def __init__(self, limits: Limits) -> None:
        self._least_ms = limits.wall_clock_min_s * 1000

    def __call__(self) -> int:
        now_ms = time.time_ns() // 1_000_000
        return now_ms if now_ms >= self._least_ms else 0
