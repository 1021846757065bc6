"""What waits for a container's thread: requests, events, with those held while frozen, and ticks. Guarded by
its user.
"""

import asyncio
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass

from kube32.contract import Limits
from kube32.formats.k32s import HeldEvent
from kube32.wasm import HttpCall


@dataclass(slots=True, eq=False)
class Waiting:
    """A request in the queue and the future that its server waits for."""

    call: HttpCall
    done: "asyncio.Future[HttpCall]"


class EventQueue:
    """Events in the order of their arrival.

    While the container is frozen at most 8 are held, later ones are dropped and counted. The snapshot's
    list is sealed when it is first taken; what comes after it is late (decisions, "K32S", Events).
    """

    def __init__(self, held: Iterable[HeldEvent], limits: Limits) -> None:
        self.dropped = 0
        self._limits = limits
        self._events: deque[HeldEvent] = deque(held)
        self._first = len(self._events)
        self._sealed: int | None = None

    def __len__(self) -> int:
        return len(self._events)

    @property
    def come_first(self) -> bool:
        """Whether an event waits that was held, which goes before any other call."""
        return self._first > 0 and bool(self._events)

    def add(self, event: HeldEvent, held: bool) -> bool:
        """Takes an event; False, and counted, when there is no room."""
        limit = self._limits.pod_held_events if held else self._limits.pod_event_queue
        if len(self._events) >= limit:
            self.dropped += 1
            return False
        self._events.append(event)
        return True

    def pop(self) -> HeldEvent:
        """The next event."""
        self._first = max(0, self._first - 1)
        return self._events.popleft()

    def unseal(self) -> None:
        """A freeze begins: its list is open until the first snapshot."""
        self._sealed = None

    def seal(self) -> list[HeldEvent]:
        """The snapshot's list; the same for every snapshot of one freeze."""
        if self._sealed is None:
            self._sealed = min(len(self._events), self._limits.pod_held_events)
        return list(self._events)[: self._sealed]

    def late(self) -> list[HeldEvent]:
        """What the snapshot does not carry."""
        return list(self._events)[self._sealed or 0 :]

    def thaw(self) -> None:
        """The freeze ends: what was held goes first."""
        self._sealed = None
        self._first = len(self._events)


class Ticks:
    """When k32_tick is due, on the clock of the times given, in seconds. Without an interval it never is."""

    def __init__(self, interval_ms: int | None) -> None:
        self._interval_s = (interval_ms or 0) / 1000
        self._next: float | None = None

    def start(self, now: float) -> None:
        """The first tick comes one interval after a start, a thaw or a restore."""
        if self._interval_s:
            self._next = now + self._interval_s

    def due(self, now: float) -> bool:
        """Whether to tick now."""
        return self._next is not None and now >= self._next

    def wait_s(self, now: float) -> float | None:
        """Seconds until the next tick, None when there is none."""
        return None if self._next is None else max(0.0, self._next - now)

    def ticked(self, now: float) -> None:
        """A tick is done. Missed ticks become one: the next is the first that is still to come."""
        if self._next is not None:
            behind = max(0.0, now - self._next)
            self._next += self._interval_s * (1 + int(behind / self._interval_s))


class Backlog:
    """All that waits, and which call is next: held events first, then ticks, then requests and events in turn."""

    def __init__(self, held: Iterable[HeldEvent], tick_ms: int | None, limits: Limits) -> None:
        self.events = EventQueue(held, limits)
        self.ticks = Ticks(tick_ms)
        self._limits = limits
        self._requests: deque[Waiting] = deque()
        self._events_turn = False

    @property
    def full(self) -> bool:
        """Whether as many requests wait as may."""
        return len(self._requests) >= self._limits.pod_request_queue

    def add_request(self, request: Waiting) -> None:
        """A request, behind the others."""
        self._requests.append(request)

    def pick(self, now: float) -> str | None:
        """The export to call next, None when nothing is to be done."""
        while self._requests and self._requests[0].done.cancelled():
            self._requests.popleft()
        if self.events.come_first:
            return "k32_event"
        if self.ticks.due(now):
            return "k32_tick"
        if self._requests and not (self.events and self._events_turn):
            return "k32_handle"
        return "k32_event" if self.events else None

    def pop_event(self) -> HeldEvent:
        """The event of a call that was picked; a request goes before the next one."""
        self._events_turn = False
        return self.events.pop()

    def pop_request(self) -> Waiting | None:
        """The request of a call that was picked; an event goes before the next one."""
        self._events_turn = True
        return self._requests.popleft() if self._requests else None

    def pop_requests(self) -> "deque[Waiting]":
        """All requests, which are not to be answered by the pod."""
        waiting, self._requests = self._requests, deque()
        return waiting
