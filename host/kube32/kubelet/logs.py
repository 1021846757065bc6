"""The log of one container run: a ring with a limit in bytes, filled by the pod's thread and read by the
log endpoint.

A token bucket bounds what a pod can write; what it drops is counted and said in the log itself.
"""

import asyncio
import contextlib
import threading
import time
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass
from itertools import islice

from kube32.contract import Limits, text
from kube32.kubelet.buckets import TokenBucket
from kube32.kubelet.values import rfc3339_nano

LINE_OVERHEAD = 32
"""Bytes that a stored line counts beside its text, so that empty lines fill the ring too."""


@dataclass(frozen=True, slots=True)
class Line:
    """One line: its number in the run, the wall clock in ns, the text without its end of line."""

    number: int
    unix_ns: int
    data: bytes

    def render(self, timestamps: bool) -> bytes:
        """The line as `kubectl logs` prints it."""
        stamp = f"{rfc3339_nano(self.unix_ns)} ".encode() if timestamps else b""
        return stamp + self.data + b"\n"


@dataclass(frozen=True, slots=True)
class LogQuery:
    """What a reader asked for; times in ns, None where not asked."""

    follow: bool = False
    timestamps: bool = False
    tail_lines: int | None = None
    since_unix_ns: int | None = None
    limit_bytes: int | None = None


class ContainerLog:
    """The lines of one container run. `write` comes from the pod's thread, everything else from the event
    loop.
    """

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._lines: deque[Line] = deque()
        self._bytes = 0
        self._next = 0
        self._dropped = 0
        self._bucket = TokenBucket(limits.pod_log_lines_per_s, limits.pod_log_burst_lines)
        self._lock = threading.Lock()
        self._wakers: set[Callable[[], None]] = set()
        self.closed = False

    def write(self, message: str) -> None:
        """Takes what one k32_log call wrote; several lines when it holds line ends."""
        for line in message.rstrip("\n").split("\n"):
            self._write_line(line)

    def _write_line(self, line: str) -> None:
        if not self._bucket.take():
            with self._lock:
                self._dropped += 1
            return
        data = line.encode("utf-8", "replace")[: self._limits.pod_log_line_bytes]
        with self._lock:
            if self._dropped:
                self._append_dropped()
            self._append(data)
            wakers = list(self._wakers)
        for wake in wakers:
            wake()

    def close(self) -> None:
        """The run has ended: followers get the rest and stop."""
        with self._lock:
            if self._dropped:
                self._append_dropped()
            self.closed = True
            wakers = list(self._wakers)
        for wake in wakers:
            wake()

    def _append_dropped(self) -> None:
        limit = self._limits.pod_log_lines_per_s
        self._append(text("statuses", "log_dropped", count=self._dropped, limit=limit).encode())
        self._dropped = 0

    def _append(self, data: bytes) -> None:
        self._lines.append(Line(self._next, time.time_ns(), data))
        self._next += 1
        self._bytes += len(data) + LINE_OVERHEAD
        while self._bytes > self._limits.pod_log_ring_bytes and self._lines:
            self._bytes -= len(self._lines.popleft().data) + LINE_OVERHEAD

    def lines(self, first: int = 0) -> list[Line]:
        """The kept lines from number `first` on."""
        with self._lock:
            count = min(len(self._lines), max(0, self._next - first))
            newest = list(islice(reversed(self._lines), count))
        newest.reverse()
        return newest

    def tail(self, lines: int, limit: int) -> str:
        """The newest lines, `limit` bytes of them at most."""
        newest = b"\n".join(line.data for line in self.lines(self._next - lines))
        return newest[-limit:].decode("utf-8", "replace")

    async def read(self, query: LogQuery) -> AsyncIterator[bytes]:
        """The log as bytes, piece by piece; with `follow`, until the run ends."""
        left = query.limit_bytes
        first = 0
        initial = True
        async with self._woken() as wait:
            while True:
                ended = self.closed
                lines = self.lines(first)
                if lines:
                    first = lines[-1].number + 1
                if initial:
                    lines, initial = _selected(lines, query), False
                data = b"".join(line.render(query.timestamps) for line in lines)
                if left is not None:
                    data, left = data[:left], left - len(data)
                if data:
                    yield data
                if not query.follow or ended or (left is not None and left <= 0):
                    return
                await wait()

    @contextlib.asynccontextmanager
    async def _woken(self) -> AsyncIterator[Callable[[], Awaitable[None]]]:
        loop = asyncio.get_running_loop()
        event = asyncio.Event()

        def wake() -> None:
            if not event.is_set():
                with contextlib.suppress(RuntimeError):
                    loop.call_soon_threadsafe(event.set)

        async def wait() -> None:
            await event.wait()
            event.clear()

        with self._lock:
            self._wakers.add(wake)
        try:
            yield wait
        finally:
            with self._lock:
                self._wakers.discard(wake)


def _selected(lines: list[Line], query: LogQuery) -> list[Line]:
    if query.since_unix_ns is not None:
        lines = [line for line in lines if line.unix_ns >= query.since_unix_ns]
    if query.tail_lines is not None:
        lines = lines[-query.tail_lines :] if query.tail_lines else []
    return lines
