"""Host functions of entry-point pods: k32_sleep_ms and k32_exit.

A request pod that calls them goes on at once: it has a deadline and other calls waiting, and both give
nothing that could carry an error, while a trap would end a pod for a harmless call.
"""

from collections.abc import Callable

from kube32.contract import Limits
from kube32.wasm.abi.state import CallState, Interrupted, signed


class EntryFunctions:
    """`sleep` gets seconds and gives whether the pod was interrupted; None for request pods."""

    def __init__(self, state: CallState, limits: Limits, sleep: Callable[[float], bool] | None) -> None:
        self._state = state
        self._longest_ms = limits.pod_sleep_max_ms
        self._sleep = sleep

    def functions(self) -> dict[str, Callable[..., int | None]]:
        """By ABI name."""
        return {"k32_sleep_ms": self._sleep_ms, "k32_exit": self._exit}

    def _sleep_ms(self, milliseconds: int) -> None:
        """A time below zero is none, a time above the contract's longest is that."""
        if self._sleep is None:
            return
        if self._sleep(max(0, min(signed(milliseconds), self._longest_ms)) / 1000):
            raise Interrupted

    def _exit(self, code: int) -> None:
        if self._sleep is not None:
            self._state.exit_code = signed(code)
            raise Interrupted
