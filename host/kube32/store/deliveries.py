"""The way of changes from the tree to subscribers and readers: in order, and not before they are durable.

A change whose commit is still under way is held: readers see the state before it, subscribers hear nothing.
"""

import logging
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from threading import RLock

from kube32.store.entry import Change, Entry

_log = logging.getLogger(__name__)


class Subscriber:
    """One callback for the changes under a prefix."""

    __slots__ = ("active", "callback", "prefix")

    def __init__(self, prefix: str, callback: Callable[[Change], None]) -> None:
        self.prefix = prefix
        self.callback = callback
        self.active = True


@dataclass(slots=True)
class _Queued:
    """A change that is not delivered; `durable`: it waits for its commit. `held`: readers do not see it yet."""

    change: Change
    subscribers: tuple[Subscriber, ...]
    durable: bool
    held: bool


class Deliveries:
    """The queue of changes. `add`, `before`, `withdraw` run under the store's lock, which it shares."""

    def __init__(self, lock: RLock) -> None:
        self._lock = lock
        self._queue: deque[_Queued] = deque()
        self._subscribers: tuple[Subscriber, ...] = ()
        self._delivering = False
        self._held: dict[str, tuple[Entry | None, int]] = {}
        self._durable_upto = 0
        self.held = 0

    def subscribe(self, prefix: str, callback: Callable[[Change], None]) -> Callable[[], None]:
        """See Store.subscribe."""
        subscriber = Subscriber(prefix, callback)
        with self._lock:
            self._subscribers = (*self._subscribers, subscriber)

        def unsubscribe() -> None:
            subscriber.active = False
            with self._lock:
                self._subscribers = tuple(s for s in self._subscribers if s is not subscriber)

        return unsubscribe

    def add(self, change: Change, *, durable: bool) -> None:
        """Queues a change for those who are subscribed now; behind one that is held it is held too."""
        held = durable or self.held > 0
        if held:
            self.held += 1
            old, count = self._held.get(change.key, (change.old, 0))
            self._held[change.key] = old, count + 1
        elif not self._subscribers:
            return
        self._queue.append(_Queued(change, self._subscribers, durable, held))

    @property
    def waiting(self) -> bool:
        """Whether a change is not delivered."""
        return bool(self._queue)

    @property
    def first_durable(self) -> int:
        """The revision of the oldest change that waits for a commit; 0 when none does."""
        with self._lock:
            return next((q.change.revision for q in self._queue if q.durable), 0) if self.held else 0

    @property
    def first_held(self) -> int:
        """The revision of the oldest change that readers do not see; 0 when they see all."""
        return next((q.change.revision for q in self._queue if q.held), 0) if self.held else 0

    def before(self, key: str, newest: Entry | None) -> Entry | None:
        """What readers see at a key that has `newest` in the tree."""
        return self._held[key][0] if key in self._held else newest

    def held_keys(self, prefix: str) -> dict[str, Entry | None]:
        """What readers see at the keys under `prefix` that have held changes."""
        return {key: old for key, (old, _) in self._held.items() if key.startswith(prefix)}

    def deliver(self, durable_upto: int) -> None:
        """Hands out what is durable up to a revision or need not be; one thread at a time does it for all."""
        with self._lock:
            self._durable_upto = max(self._durable_upto, durable_upto)
            if self._delivering:
                return
            self._delivering = True
        try:
            while (queued := self._next()) is not None:
                _tell(queued)
        except BaseException:
            self._delivering = False
            raise

    def _next(self) -> _Queued | None:
        """Takes the oldest change out if it may be delivered; None, and the turn is over, else."""
        with self._lock:
            first = self._queue[0] if self._queue else None
            if first is None or (first.durable and first.change.revision > self._durable_upto):
                self._delivering = False
                return None
            queued = self._queue.popleft()
            if queued.held:
                self._release(queued.change)
            return queued

    def _release(self, change: Change) -> None:
        """Readers see the change from now on."""
        self.held -= 1
        _, count = self._held[change.key]
        if count == 1:
            del self._held[change.key]
        else:
            self._held[change.key] = None if change.type == "DELETED" else change.entry, count - 1

    def withdraw(self, durable_upto: int) -> list[Change]:
        """Takes the held changes that are not durable out, newest first, for the tree to be set back."""
        lost = [q.change for q in self._queue if q.held and q.change.revision > durable_upto]
        self._queue = deque(q for q in self._queue if not q.held or q.change.revision <= durable_upto)
        self.held -= len(lost)
        for change in reversed(lost):
            old, count = self._held.pop(change.key)
            if count > 1:
                self._held[change.key] = old, count - 1
        return lost[::-1]


def _tell(queued: _Queued) -> None:
    change = queued.change
    for subscriber in queued.subscribers:
        if subscriber.active and change.key.startswith(subscriber.prefix):
            try:
                subscriber.callback(change)
            except Exception:
                _log.exception("subscriber of %s failed at revision %d", subscriber.prefix, change.revision)
