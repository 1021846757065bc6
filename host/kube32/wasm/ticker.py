"""The engine's epoch: one thread ticks every millisecond, and only while a call runs that lasts (idle nodes
cost nothing).
"""

import threading
import time
from collections.abc import Callable

TICK_S = 0.001


class Ticker:
    """Calls `tick` every ms while somebody is entered. `enter` and `leave` cost less than a microsecond.

    A call that is over within the first millisecond meets no tick. The thread starts with the first `enter`.
    """

    def __init__(self, tick: Callable[[], None]) -> None:
        self._tick = tick
        self._entered: set[object] = set()
        self._wake = threading.Event()
        self._parked = True
        self._closed = False
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None

    def enter(self, who: object) -> None:
        """`who` runs a call."""
        self._entered.add(who)
        if self._parked:
            self._wake.set()
            if self._thread is None:
                self._start()

    def leave(self, who: object) -> None:
        """The call of `who` is over, or sleeps."""
        self._entered.discard(who)

    def close(self) -> None:
        """Ends the thread. Calls in progress meet no deadline after this."""
        self._closed = True
        self._wake.set()
        if self._thread is not None:
            self._thread.join()

    def _start(self) -> None:
        with self._lock:
            if self._thread is None and not self._closed:
                thread = threading.Thread(target=self._run, name="wasm-ticker", daemon=True)
                thread.start()
                self._thread = thread

    def _run(self) -> None:
        while not self._closed:
            time.sleep(TICK_S)
            if self._entered:
                self._tick()
                continue
            # Parked is set before the last look, and `enter` looks at it after it entered: one of them sees
            # the other.
            self._parked = True
            if self._entered:
                self._parked = False
                continue
            self._wake.wait()
            self._wake.clear()
            self._parked = False
