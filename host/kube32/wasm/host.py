"""What an instance gets from its node and gives back: services, the pod's clock, an HTTP call, how a call
ends.
"""

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from kube32.wasm.channels import ChannelTable
from kube32.wasm.files import FileTable

_NS_PER_MS = 1_000_000


class Trap(Exception):
    """A call that did not return.

    `export` was called; `kind` is "trap" (the module's own fault), "deadline" (ran past its time),
    "interrupted" (the node ended it) or "fault" (the node failed in a host function); `message` says it in
    words (contract, `traps`).
    """

    def __init__(self, export: str, kind: str, message: str) -> None:
        super().__init__(f"{export}: {message}")
        self.export = export
        self.kind = kind
        self.message = message


class PodExit(Exception):
    """An entry-point pod ended itself with k32_exit."""

    def __init__(self, code: int) -> None:
        super().__init__(f"exit code {code}")
        self.code = code


class PodClock:
    """The pod's clock in ms: never backward, still while frozen, counts from 0 from the moment it is made.

    It follows CLOCK_MONOTONIC, so a wall clock that jumps does not move it (decisions, "Freezing and
    moving").
    """

    __slots__ = ("_base_ns", "_lock", "_started_ns")

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._base_ns = 0
        self._started_ns: int | None = time.monotonic_ns()

    def now_ms(self) -> int:
        """Whole ms on the pod's clock."""
        with self._lock:
            return self._now_ns() // _NS_PER_MS

    def freeze(self) -> None:
        """Stops the clock; nothing when it stands still."""
        with self._lock:
            self._base_ns = self._now_ns()
            self._started_ns = None

    def thaw(self) -> None:
        """Lets the clock go on; nothing when it runs."""
        with self._lock:
            if self._started_ns is None:
                self._started_ns = time.monotonic_ns()

    def set(self, ms: int) -> None:
        """Sets the clock, at a start (0) or a restore (the pod time); running or still as before."""
        with self._lock:
            self._base_ns = ms * _NS_PER_MS
            if self._started_ns is not None:
                self._started_ns = time.monotonic_ns()

    def _now_ns(self) -> int:
        if self._started_ns is None:
            return self._base_ns
        return self._base_ns + time.monotonic_ns() - self._started_ns


@dataclass(slots=True)
class HttpCall:
    """A request for k32_handle and the response that the pod makes of it.

    `path` begins with "/" and has no query; `query` has no "?". The response's headers are as the pod set
    them: none that frame a body or a connection.
    """

    method: str
    path: str
    query: str = ""
    headers: list[tuple[str, str]] = field(default_factory=list)
    body: bytes = b""
    response_status: int = 200
    response_headers: list[tuple[str, str]] = field(default_factory=list)
    response_body: bytearray = field(default_factory=bytearray)


@dataclass(slots=True)
class HostServices:
    """What the host functions of one instance reach. The callables are called on the instance's thread; they
    do not block.

    `log` takes one k32_log call's text, cut to the contract's length, without its last line end. `unix_ms` is
    0 when the wall clock is unset. `publish` takes topic and payload and gives the number of local receivers;
    what it gets is within the contract's sizes and rate.
    """

    log: Callable[[str], None]
    clock: PodClock
    unix_ms: Callable[[], int]
    env: dict[str, str]
    channels: ChannelTable
    files: FileTable
    publish: Callable[[str, bytes], int]
