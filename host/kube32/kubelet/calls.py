"""What a container's thread is told and what it gives back: settings of a run, its exit, refusals of
requests.
"""

import time
from dataclasses import dataclass

from kube32.contract import Limits, text
from kube32.formats.k32s import HeldEvent
from kube32.wasm import Trap

STATUS_NOT_FOUND = 404
STATUS_BAD_GATEWAY = 502
STATUS_UNAVAILABLE = 503
STATUS_GATEWAY_TIMEOUT = 504


@dataclass(frozen=True, slots=True)
class RunSettings:
    """How one run of a container goes. Times in ms; `tick_ms` None: no ticks; `held`: events of the
    snapshot.
    """

    name: str
    entry_point: str | None
    restored: bool
    takes_requests: bool
    takes_events: bool
    tick_ms: int | None
    call_timeout_ms: int
    held: tuple[HeldEvent, ...] = ()


@dataclass(frozen=True, slots=True)
class Exit:
    """How a run ended, as `state.terminated` shows it. `restore_failed` ends the pod for good."""

    reason: str
    code: int
    message: str = ""
    restore_failed: bool = False
    at: float = 0.0


class NotDelivered(Exception):
    """A request that the pod did not answer. `kind` is a key of the contract's `answers`; `cause` fills
    call_failed.
    """

    def __init__(self, kind: str, status: int = STATUS_UNAVAILABLE, cause: str = "") -> None:
        super().__init__(kind)
        self.kind = kind
        self.status = status
        self.cause = cause


class Exits:
    """Words and codes of a run's end, from the contract."""

    def __init__(self, limits: Limits, call_timeout_ms: int = 0) -> None:
        self._limits = limits
        self._call_timeout_ms = call_timeout_ms

    def stopped(self) -> Exit:
        """The kubelet stopped the container between two calls."""
        return Exit(text("reasons", "completed"), 0, at=time.time())

    def exited(self, code: int) -> Exit:
        """k32_exit, or the return of an entry point."""
        reason = text("reasons", "completed" if code == 0 else "error")
        message = "" if code == 0 else text("statuses", "exit", code=code)
        return Exit(reason, code, message, at=time.time())

    def interrupted(self, export: str) -> Exit:
        """The kubelet ended a call that outlasted its grace."""
        message = text("statuses", "interrupted", export=export)
        return Exit(text("reasons", "error"), self._limits.pod_exit_killed, message, at=time.time())

    def ended(self, verdict: str) -> Exit:
        """The kubelet ended a container for its health: `verdict` is a key of the contract's statuses."""
        message = text("statuses", verdict)
        return Exit(text("reasons", "error"), self._limits.pod_exit_killed, message, at=time.time())

    def trapped(self, trap: Trap) -> Exit:
        """A call trapped or ran past its deadline."""
        return Exit(text("reasons", "trap"), self._limits.pod_exit_trap, self.words(trap), at=time.time())

    def lost(self) -> Exit:
        """The container ran in an earlier life of the node."""
        return Exit(
            text("reasons", "error"), self._limits.pod_exit_killed, text("statuses", "lost"), at=time.time()
        )

    def restore(self, cause: str) -> Exit:
        """The restore failed; `cause` is one of the contract's refusals or k32_restored's fault."""
        message = text("refusals", "prefix", cause=cause)
        return Exit(
            text("reasons", "restore_error"), self._limits.pod_exit_restore, message, True, time.time()
        )

    def fault(self, export: str, fault: Exception) -> Exit:
        """The node failed while it made a call."""
        message = text("statuses", "host_fault", export=export, cause=f"{type(fault).__name__}: {fault}")
        return Exit(text("reasons", "error"), self._limits.pod_exit_trap, message, at=time.time())

    def words(self, trap: Trap) -> str:
        """What happened, in a sentence."""
        if trap.kind == "deadline":
            return text("statuses", "deadline", export=trap.export, ms=self._call_timeout_ms)
        return text("statuses", "trap", export=trap.export, cause=trap.message)

    def answer(self, trap: Trap) -> tuple[int, str]:
        """Status and cause for the request whose call failed."""
        return STATUS_GATEWAY_TIMEOUT if trap.kind == "deadline" else STATUS_BAD_GATEWAY, self.words(trap)
