"""One thread per running container: it makes the container's calls one at a time and sleeps when there are
none.

A freeze takes effect between two calls ("What moves"): at once when no call runs, else when the current
call returns. Everything here is guarded by one condition; the thread holds it only between calls.
"""

import asyncio
import contextlib
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from kube32.contract import Limits, text
from kube32.formats.k32s import HeldEvent, Snapshot
from kube32.kubelet.calls import STATUS_NOT_FOUND, Exit, Exits, NotDelivered, RunSettings
from kube32.kubelet.queues import Backlog, Waiting
from kube32.wasm import HttpCall, Instance, PodClock, PodExit, Trap

FENCE = "fence"
"""Holder of the freeze of a node that may have been declared lost."""


class NotRunning(Exception):
    """The container ended, or has not begun, when a freeze was asked for."""


@dataclass(frozen=True, slots=True)
class _Frozen:
    """What a freeze fixed: header fields are taken then ("decisions", K32S)."""

    unix_ms: int


class PodThread:
    """Runs the calls of one instance. `on_begun` and `on_exit` are called on `loop`.

    `may_call` is asked before every call of a pod that has to stop when its node may be lost; None for
    others. Methods are for the event loop's thread unless they say otherwise.
    """

    def __init__(
        self,
        instance: Instance,
        settings: RunSettings,
        limits: Limits,
        *,
        loop: asyncio.AbstractEventLoop,
        clock: PodClock,
        unix_ms: Callable[[], int],
        on_begun: Callable[[], None],
        on_exit: Callable[[Exit], None],
        may_call: Callable[[], bool] | None = None,
    ) -> None:
        self.instance = instance
        self.settings = settings
        self.may_call = may_call
        self._limits = limits
        self._loop = loop
        self._clock = clock
        self._unix_ms = unix_ms
        self._on_begun = on_begun
        self._on_exit = on_exit
        self._exits = Exits(limits, settings.call_timeout_ms)
        self._cond = threading.Condition()
        self._backlog = Backlog(settings.held, settings.tick_ms, limits)
        self._holders: set[str] = set()
        self._frozen: _Frozen | None = None
        self._freeze_waiters: list[asyncio.Future[bool]] = []
        self._running: str | None = None
        self._begun = False
        self._ended = False
        self._stopping = False
        self._cpu_clock: int | None = None
        self._cpu_ns = 0
        self._runs = {
            "k32_handle": self._run_request,
            "k32_event": self._run_event,
            "k32_tick": self._run_tick,
        }
        self._thread = threading.Thread(target=self._main, name=settings.name, daemon=True)

    # --- what the kubelet sees ---

    @property
    def frozen(self) -> bool:
        """Whether the container gets no calls now."""
        return self._frozen is not None

    @property
    def begun(self) -> bool:
        """Whether k32_init or k32_restored has returned (an entry point: has been called)."""
        return self._begun

    @property
    def ended(self) -> bool:
        """Whether the last call has returned; there is none after it."""
        return self._ended

    @property
    def running_call(self) -> str | None:
        """The export that is being called. Any thread."""
        return self._running

    @property
    def dropped_events(self) -> int:
        """Events that found no room."""
        return self._backlog.events.dropped

    @property
    def fenced(self) -> bool:
        """Whether the fence holds the container. Any thread."""
        return FENCE in self._holders

    def start(self) -> None:
        """Starts the thread, which calls k32_init, k32_restored or the entry point first."""
        self._thread.start()

    def check(self) -> None:
        """Raises NotDelivered when a request would be refused now."""
        with self._cond:
            self._refuse_request()

    def submit(self, call: HttpCall) -> "asyncio.Future[HttpCall]":
        """Queues a request; the future gives the call with its response, or NotDelivered."""
        done: asyncio.Future[HttpCall] = self._loop.create_future()
        with self._cond:
            self._refuse_request()
            self._backlog.add_request(Waiting(call, done))
            self._cond.notify()
        return done

    def _refuse_request(self) -> None:
        if self._frozen is not None and not self._ended:
            raise NotDelivered("frozen")
        if not self._begun or self._ended or self._stopping:
            raise NotDelivered("not_running")
        if not self.settings.takes_requests:
            raise NotDelivered("no_handler", STATUS_NOT_FOUND)
        if self._backlog.full:
            raise NotDelivered("busy")

    def deliver(self, event: HeldEvent) -> bool:
        """Queues an event; False when the container does not take it. At most 8 are held while frozen,
        more are counted.
        """
        with self._cond:
            if self._ended or self._stopping or not self.settings.takes_events:
                return False
            if not self._backlog.events.add(event, held=self._frozen is not None or bool(self._holders)):
                return False
            self._cond.notify()
            return True

    # --- freezing ---

    def freeze(self, holder: str) -> "asyncio.Future[bool]":
        """Asks for a freeze in the name of `holder`. The future is True when it holds, False when the
        container ended.
        """
        waiter: asyncio.Future[bool] = self._loop.create_future()
        with self._cond:
            if self._ended or self._stopping or not self._begun:
                raise NotRunning
            self._holders.add(holder)
            if self._running is None and self._frozen is None:
                self._enter_freeze()
            if self._frozen is not None:
                waiter.set_result(True)
            else:
                self._freeze_waiters.append(waiter)
        return waiter

    def fence(self) -> None:
        """Freezes without waiting: the node may be declared lost soon. Any thread."""
        with self._cond:
            if self._ended:
                return
            self._holders.add(FENCE)
            if self._running is None and self._frozen is None and self._begun:
                self._enter_freeze()

    def thaw(self, holder: str) -> bool:
        """Ends `holder`'s freeze; True when it had one. Calls go on when nobody else holds the container."""
        with self._cond:
            if holder not in self._holders:
                return False
            self._holders.discard(holder)
            if not self._holders:
                self._leave_freeze()
                self._cond.notify()
            return True

    def holds(self, holder: str) -> bool:
        """Whether `holder` froze the container, or waits for it to be."""
        return holder in self._holders

    def capture(self) -> Snapshot:
        """The frozen container's state, with the list of held events sealed.

        Its memory is live: it must be read before the container goes on, and stays readable when it ends.
        """
        with self._cond:
            if self._frozen is None or self._ended or self._stopping:
                raise NotRunning
            return self.instance.capture(self._frozen.unix_ms, self._backlog.events.seal())

    def late_events(self) -> list[HeldEvent]:
        """Events that the snapshot does not carry; after a move they are the replacement's."""
        with self._cond:
            return self._backlog.events.late() if self._frozen is not None or self._ended else []

    def _enter_freeze(self) -> None:
        self._clock.freeze()
        self._frozen = _Frozen(self._unix_ms())
        self._backlog.events.unseal()
        self._reject_waiting("frozen")
        waiters, self._freeze_waiters = self._freeze_waiters, []
        for waiter in waiters:
            self._settle(waiter, True)

    def _leave_freeze(self) -> None:
        if self._frozen is None:
            return
        self._frozen = None
        self._clock.thaw()
        self._backlog.events.thaw()
        self._backlog.ticks.start(time.monotonic())

    # --- stopping ---

    def stop(self) -> None:
        """No further call begins; waiting requests are answered. The thread ends when the current call
        returns.
        """
        with self._cond:
            self._stopping = True
            self._reject_waiting("not_delivered")
            self._cond.notify()

    def interrupt(self) -> None:
        """Ends the call that runs now. Any thread."""
        if self._running is not None:
            self.instance.interrupt()

    def join(self, timeout_s: float) -> bool:
        """Waits for the thread; True when it has ended. Not on the event loop."""
        self._thread.join(timeout_s)
        return not self._thread.is_alive()

    # --- the thread ---

    @property
    def cpu_ns(self) -> int:
        """CPU time that the thread has used, in ns; where the system does not tell, up to its last call."""
        clock = self._cpu_clock
        if clock is not None and not self._ended:
            with contextlib.suppress(OSError):
                return time.clock_gettime_ns(clock)
        return self._cpu_ns

    def _main(self) -> None:
        # Asked for by the thread itself: of another one, which may end meanwhile, it must not be asked.
        if hasattr(time, "pthread_getcpuclockid"):
            self._cpu_clock = time.pthread_getcpuclockid(threading.get_ident())
        exit_ = self._work()
        self._cpu_ns = time.thread_time_ns()
        with self._cond:
            self._ended = True
            self._running = None
            self._reject_waiting("not_delivered")
            waiters, self._freeze_waiters = self._freeze_waiters, []
        for waiter in waiters:
            self._settle(waiter, False)
        self.instance.close()
        self._post(self._on_exit, exit_)

    def _work(self) -> Exit:
        try:
            if self.settings.entry_point is not None:
                return self._work_entry_point(self.settings.entry_point)
            if not self._begin():
                return self._exits.stopped()
            while (job := self._next()) is not None:
                job()
            return self._exits.stopped()
        except PodExit as end:
            return self._exits.exited(end.code)
        except Trap as trap:
            if trap.kind == "interrupted":
                return self._exits.interrupted(trap.export)
            if self.settings.restored and not self._begun:
                return self._exits.restore(text("refusals", "restored_trap", cause=trap.message))
            return self._exits.trapped(trap)
        except (
            Exception
        ) as fault:  # the node's own fault must end the container visibly, not its thread silently
            return self._exits.fault(self._running or self.settings.name, fault)

    def _begin(self) -> bool:
        first = "k32_restored" if self.settings.restored else "k32_init"
        if not self._wait_for_turn():
            return False
        self._clock_starts()
        if self.instance.has(first):
            self._call(first)
        else:
            self._calls_end()
        with self._cond:
            self._backlog.ticks.start(time.monotonic())
            self._begun = True
            if self._holders:
                self._enter_freeze()
        self._post(self._on_begun)
        return True

    def _work_entry_point(self, export: str) -> Exit:
        if not self._wait_for_turn():
            return self._exits.stopped()
        self._clock_starts()
        if self.instance.has("k32_init"):
            self._call("k32_init")
        with self._cond:
            if self._stopping:
                return self._exits.stopped()
            self._begun = True
            self._running = export
        self._post(self._on_begun)
        result = self.instance.call(export, timeout_ms=None)
        return self._exits.exited(result if export == "main" and result is not None else 0)

    def _clock_starts(self) -> None:
        # 0 just before k32_init; after a restore the clock goes on from the snapshot's time.
        if not self.settings.restored:
            self._clock.set(0)
        self._clock.thaw()

    def _wait_for_turn(self) -> bool:
        """Waits while a fence holds the container that has not begun; False when it is to stop."""
        with self._cond:
            while True:
                if self._stopping:
                    return False
                if self._allowed():
                    self._running = "k32_restored" if self.settings.restored else "k32_init"
                    return True
                self._cond.wait()

    def _allowed(self) -> bool:
        if self.may_call is not None and not self.may_call():
            self._holders.add(FENCE)
        return not self._holders

    def _next(self) -> Callable[[], None] | None:
        """The next call to make, with `_running` set for it; None when the thread is to end."""
        with self._cond:
            while True:
                if self._stopping:
                    return None
                if self._frozen is None and self._holders:
                    self._enter_freeze()
                if self._frozen is not None:
                    self._cond.wait()
                    continue
                now = time.monotonic()
                export = self._backlog.pick(now)
                if export is None:
                    self._cond.wait(self._backlog.ticks.wait_s(now))
                elif self._allowed():
                    self._running = export
                    return self._runs[export]

    def _run_event(self) -> None:
        with self._cond:
            event = self._backlog.pop_event()
        self._call("k32_event", event=event)

    def _run_tick(self) -> None:
        self._call("k32_tick")
        with self._cond:
            self._backlog.ticks.ticked(time.monotonic())

    def _run_request(self) -> None:
        with self._cond:
            waiting = self._backlog.pop_request()
        if waiting is None:
            self._calls_end()
            return
        try:
            self._call("k32_handle", request=waiting.call)
        except Trap as trap:
            status, why = self._exits.answer(trap)
            self._settle(waiting.done, NotDelivered("call_failed", status, why))
            raise
        except PodExit:
            self._settle(waiting.done, NotDelivered("not_delivered"))
            raise
        self._settle(waiting.done, waiting.call)

    def _call(self, export: str, *, request: HttpCall | None = None, event: HeldEvent | None = None) -> None:
        try:
            self.instance.call(export, timeout_ms=self.settings.call_timeout_ms, request=request, event=event)
        finally:
            self._cpu_ns = time.thread_time_ns()
        self._calls_end()

    def _calls_end(self) -> None:
        with self._cond:
            self._running = None
            if self._holders and self._begun and self._frozen is None and not self._stopping:
                self._enter_freeze()

    def _reject_waiting(self, why: str) -> None:
        for request in self._backlog.pop_requests():
            self._settle(request.done, NotDelivered(why))

    def _settle(self, future: "asyncio.Future[Any]", outcome: object) -> None:
        self._post(_settle_on_loop, future, outcome)

    def _post(self, function: Callable[..., None], *arguments: Any) -> None:
        with contextlib.suppress(RuntimeError):  # the loop is closed: nobody waits any more
            self._loop.call_soon_threadsafe(function, *arguments)


def _settle_on_loop(future: "asyncio.Future[Any]", outcome: object) -> None:
    if future.done():
        return
    if isinstance(outcome, Exception):
        future.set_exception(outcome)
    else:
        future.set_result(outcome)
