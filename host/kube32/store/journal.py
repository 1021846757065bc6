"""Journal: which changes of the store reach the log, and when (specification, "Persistence journal").

A durable change goes with the next commit, which its writer waits for; all that wait meanwhile share one. A
controller's change and a heartbeat wait for their time, and only the newest state of a key is written. The
journal also keeps the revision counter's promise: no revision is given out that a restart could give again.
"""

import logging
import time
from collections.abc import Callable
from dataclasses import dataclass
from heapq import nlargest
from threading import Condition, Lock, Thread

from kube32.contract import K32L, Limits, text
from kube32.formats.k32l import stored_bytes
from kube32.store.entry import Change, Entry, parsed_if_as_long, same_content
from kube32.store.errors import JournalFailed, StorageFull
from kube32.store.flash import Flash, FlashError
from kube32.store.flash_log import FlashLog, Write
from kube32.store.persist_policy import Persist

_log = logging.getLogger(__name__)
# A shorter time says nothing about years.
_TELLING_S = 600.0
_YEAR_S = 365.25 * 86400
_BIGGEST = 3
# A flush is begun this much before it is due, so that it is done in time.
_LEAD = 0.8
_NOW = float("-inf")
# Key bytes beside the largest value.
_KEY_BYTES = 1024


@dataclass(slots=True)
class _Pending:
    """The newest state of a key that is not in the log; `base` is the state that is (None: none)."""

    entry: Entry | None
    base: Entry | None
    due: float
    revision: int


def open_log(flash: Flash, limits: Limits) -> FlashLog:
    """The log on `flash`, recovered. LogUnreadable, FlashError."""
    return FlashLog.open(
        flash,
        live_bytes=limits.journal_live_bytes + limits.journal_update_reserve_bytes,
        record_bytes=stored_bytes(_KEY_BYTES, limits.store_value_bytes),
        revision_block=limits.journal_revision_block,
    )


class Journal:
    """What stands between a store and its log. Any thread may call.

    `start` begins a thread that flushes what is due; without it, whoever has the clock calls `flush_due`.
    """

    def __init__(self, log: FlashLog, limits: Limits, clock: Callable[[], float] = time.monotonic) -> None:
        self._log = log
        self._clock = clock
        self._began = clock()
        self._capacity = limits.journal_live_bytes
        self._reserve_bytes = limits.journal_update_reserve_bytes
        self._growth_bytes = limits.journal_update_growth_bytes
        self._block = limits.journal_revision_block
        self._controller_s = limits.journal_controller_flush_ms / 1000
        self._heartbeat_s = limits.journal_heartbeat_flush_ms / 1000
        self._lock = Lock()
        self._committing = Lock()
        self._changed = Condition(self._lock)
        self._pending: dict[str, _Pending] = {}
        self._sizes = {key.decode(): size for key, size in log.sizes()}
        self._live = sum(self._sizes.values())
        self._noted = 0
        self._heartbeats_from = self._began
        self._wanted_mark = 0
        self._thread: Thread | None = None
        self._stopping = False
        self.durable_upto = 0
        self.failure = ""

    # --- what the store asks ---

    def check(self, key: str, size: int, old: Entry | None, *, agent: bool, leaving: bool) -> None:
        """Whether a key may have a value of `size` bytes. StorageFull.

        What shrinks may always; what is new must find room in the live capacity. Updates by nodes and
        controllers, small ones by users and those of an object that is `leaving` have a reserve beyond it.
        """
        known = self._sizes.get(key, 0)
        growth = stored_bytes(len(key.encode()), size) - known
        if growth <= 0:
            return
        small = growth <= self._growth_bytes or agent or leaving
        room = self._capacity + (self._reserve_bytes if old is not None and small else 0)
        if self._live + growth > room:
            raise StorageFull(key, self._full(growth))

    def check_open(self, key: str) -> None:
        """JournalFailed once a write of the journal has failed."""
        if self.failure:
            raise JournalFailed(key, self.failure)

    def note(self, change: Change, persist: Persist) -> None:
        """Takes a change in, in the order of revisions; under the store's lock."""
        entry = None if change.type == "DELETED" else change.entry
        self.note_revision(change.revision)
        with self._lock:
            if persist == Persist.NEVER:
                return
            self._resize(change.key, entry)
            due = self._due(persist)
            waiting = self._pending.get(change.key)
            if waiting is None:
                waiting = self._pending[change.key] = _Pending(entry, change.old, due, change.revision)
            else:
                waiting.entry, waiting.revision = entry, change.revision
                waiting.due = min(waiting.due, due)
            if persist == Persist.DURABLE:
                # Written whatever the log says: the answer names this revision.
                waiting.base = None
            else:
                self._changed.notify()

    def note_revision(self, revision: int) -> None:
        """A revision has been given out: in good time a further block is reserved."""
        with self._lock:
            self._noted = revision
            if revision > self._log.reserved - self._block // 2:
                self._wanted_mark = max(self._wanted_mark, revision + self._block)
                self._changed.notify()

    def _due(self, persist: Persist) -> float:
        now = self._clock()
        if persist == Persist.DURABLE:
            return _NOW
        if persist == Persist.CONTROLLER:
            return now + self._controller_s * _LEAD
        return max(now, self._heartbeats_from + self._heartbeat_s)

    def _resize(self, key: str, entry: Entry | None) -> None:
        size = 0 if entry is None else stored_bytes(len(key.encode()), len(entry.value))
        self._live += size - self._sizes.pop(key, 0)
        if size:
            self._sizes[key] = size

    @property
    def first_revision(self) -> int:
        """Where the store's counter starts after this boot."""
        return self._log.next_revision

    @property
    def reserved(self) -> int:
        """The first revision that must not be given out yet."""
        return self._log.reserved

    def rescue_with(self, newest: Callable[[bytes], Write | None]) -> None:
        """Where the state of a key is found whose record the flash no longer has when it is to be moved."""
        self._log.rescue = newest

    def take_recovered(self) -> list[Write]:
        """The objects that the log had at boot; the second time, nothing."""
        return self._log.take_recovered()

    @property
    def faults(self) -> list[str]:
        """What recovery and reclaiming found damaged, a line each."""
        return self._log.report.faults

    @property
    def torn(self) -> list[str]:
        """What a cut left behind the last commit, a line each: nobody was told that it was stored."""
        return self._log.report.torn

    # --- commits ---

    def commit(self, unless: int = 0) -> None:
        """Makes everything durable that is due now, unless revision `unless` has become so. JournalFailed."""
        with self._committing:
            if 0 < unless <= self.durable_upto:
                return
            self.check_open("")
            now = self._clock()
            with self._lock:
                writes, upto, mark = self._take(now)
            try:
                self._log.commit(writes, mark or None)
            except Exception as error:  # also a fault of ours must not leave writers waiting
                self._fail(error)
                raise JournalFailed("", self.failure) from None
            self.durable_upto = upto

    def flush_due(self) -> None:
        """As `commit`, if anything is due."""
        with self._lock:
            now = self._clock()
            due = self._wanted_mark > self._log.reserved or any(p.due <= now for p in self._pending.values())
        if due:
            self.commit()

    def reserve_now(self) -> None:
        """Reserves a further block of revisions before it returns. JournalFailed."""
        with self._lock:
            self._wanted_mark = max(self._wanted_mark, self._noted + 2 * self._block)
        self.commit()

    def _take(self, now: float) -> tuple[list[Write], int, int]:
        """The writes that are due, the revision up to which that is all, and the mark to be set (0: none)."""
        mark = self._wanted_mark if self._wanted_mark > self._log.reserved else 0
        due = [key for key, waiting in self._pending.items() if waiting.due <= now]
        if due and self._log.live_bytes + sum(map(self._growth, due)) > self._log.capacity:
            # What makes room for them has not been written yet.
            due = list(self._pending)
        writes = []
        for key in due:
            waiting = self._pending.pop(key)
            write = self._write_of(key, waiting)
            if write is not None:
                writes.append(write)
            if waiting.due > _NOW and now >= self._heartbeats_from + self._heartbeat_s:
                self._heartbeats_from = now
        return writes, self._noted, mark

    def _growth(self, key: str) -> int:
        return self._sizes.get(key, 0) - self._log.live_size(key.encode())

    def _write_of(self, key: str, waiting: _Pending) -> Write | None:
        """What the log has to be told; None where it says so already."""
        entry, name = waiting.entry, key.encode()
        if entry is None:
            return Write(name, None, waiting.revision) if self._log.live_size(name) else None
        base = waiting.base
        if base is not None and self._log.live_size(name) and _same(base, entry):
            return None
        return Write(name, entry.value, entry.revision)

    def _fail(self, error: Exception) -> None:
        self.failure = text("journal", "failed", cause=str(error))
        _log.error("%s", self.failure, exc_info=None if isinstance(error, FlashError) else error)

    # --- the flushing thread ---

    def start(self) -> None:
        """Begins to flush what is due, on a thread of its own."""
        self._thread = Thread(target=self._run, name="journal", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Ends the thread, flushes all that waits, and closes the flash. From a failed journal, quietly."""
        with self._lock:
            self._stopping = True
            self._changed.notify()
        if self._thread is not None:
            self._thread.join()
        with self._lock:
            for waiting in self._pending.values():
                waiting.due = _NOW
        try:
            if not self.failure:
                self.commit()
        except JournalFailed:
            pass
        self._log.flash.close()

    def _run(self) -> None:
        while True:
            with self._lock:
                if self._stopping or self.failure:
                    return
                wait = self._wait_s()
                if wait is None or wait > 0:
                    self._changed.wait(wait)
                    continue
            try:
                self.commit()
            except JournalFailed:
                return

    def _wait_s(self) -> float | None:
        """Seconds until something is due that no writer waits for; None: nothing is."""
        if self._wanted_mark > self._log.reserved:
            return 0
        due = min((p.due for p in self._pending.values() if p.due > _NOW), default=None)
        return None if due is None else max(0.0, due - self._clock())

    # --- facts ---

    def _full(self, growth: int) -> str:
        biggest = nlargest(_BIGGEST, self._sizes.items(), key=lambda item: item[1])
        return text(
            "journal",
            "full",
            live=self._live,
            capacity=self._capacity,
            growth=growth,
            biggest=", ".join(f"{key} ({size})" for key, size in biggest),
        )

    def stats(self) -> dict[str, int | float | str]:
        """Counters for people, of this boot where the name says no other."""
        log = self._log
        with self._lock:
            uptime = max(0.0, self._clock() - self._began)
            pending = len(self._pending)
        accepted = log.accepted_bytes
        return {
            "liveKeys": len(self._sizes),
            "liveBytes": self._live,
            "capacityBytes": self._capacity,
            "sectors": log.sectors,
            "sectorsUsed": log.sectors_used,
            "sectorsFree": log.sectors - log.sectors_used,
            "sectorsOpened": log.opened,
            "revision": self._noted or log.next_revision,
            "reservedRevision": log.reserved,
            "pendingKeys": pending,
            "programmedBytes": log.programmed_bytes,
            "acceptedBytes": accepted,
            "writeAmplification": round(log.programmed_bytes / accepted, 2) if accepted else 0.0,
            "uptimeSeconds": round(uptime, 1),
            "projectedLifeYears": projected_life(log.sectors, log.opened, uptime)
            if uptime >= _TELLING_S
            else "unknown yet",
            "recoveryFaults": len(log.report.faults),
            "failure": self.failure,
        }


def projected_life(sectors: int, opened: int, seconds: float) -> float:
    """Years until sectors have been erased as often as they bear, at the pace of `opened` in `seconds`."""
    if not opened or seconds <= 0:
        return float("inf")
    return round(sectors * K32L.erase_cycles / opened * seconds / _YEAR_S, 1)


def _same(base: Entry, entry: Entry) -> bool:
    """Whether two states differ in their resourceVersion only."""
    parsed = parsed_if_as_long(base, entry.value, entry.revision)
    return parsed is not None and same_content(base, parsed)
