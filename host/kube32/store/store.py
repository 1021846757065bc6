"""The object store: revisions, compare-and-swap, scans, subscribers (specification, "Object store").

The way of a write: under the lock the expected version, room in the journal, the new revision, the tree; then,
with the lock released, the commit; then subscribers and the answer. In a thread the write itself waits for its
commit. In an event loop it must not: there a commit is begun behind it, `settle` waits for that, and until
then `settled` shows what was before.
"""

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from threading import RLock, get_ident
from typing import Any

import orjson

from kube32.contract import Limits
from kube32.store.deliveries import Deliveries
from kube32.store.entry import Change, Entry, encode, parsed_if_as_long, restamp, same_content
from kube32.store.errors import AlreadyExists, Conflict, JournalFailed, NotEncodable, NotFound, TooLarge
from kube32.store.journal import Journal
from kube32.store.persist_policy import Persist, PersistPolicy
from kube32.store.radix_tree import RadixTree
from kube32.store.recovery import Write
from kube32.store.settled import SettledStore

# So many may be given out between a look at what is reserved and the last use of it.
_REVISIONS_LEFT = 500

# A commit waits no longer for the store's lock, whose holder may wait for the commit.
_RESCUE_S = 1.0

# A revision, and a future of a loop that waits for it to be settled.
_Waiter = tuple[int, asyncio.AbstractEventLoop, "asyncio.Future[None]"]


class Store:
    """All objects of a control plane by key. Any thread may call.

    A write that equals what is stored, `metadata.resourceVersion` apart, makes no revision and no event.
    `first_revision` is taken by the start itself: an empty store already has a resourceVersion to watch from.
    With a journal the store begins with the objects that it has, above every revision given out before.
    """

    def __init__(self, limits: Limits, first_revision: int = 1, journal: Journal | None = None) -> None:
        self._limit = limits.store_value_bytes
        self._lock = RLock()
        self._tree: RadixTree[Entry] = RadixTree()
        self._revision = first_revision
        self._deliveries = Deliveries(self._lock)
        self._updating_thread = 0
        self._journal = journal
        self._policy = PersistPolicy()
        self._pool: ThreadPoolExecutor | None = None
        self._committer: asyncio.Task[None] | None = None
        self._waiters: list[_Waiter] = []
        self.settled = SettledStore(self, self._tree, self._deliveries, self._lock)
        if journal is not None:
            journal.rescue_with(self._newest)
            self._load(journal)

    @property
    def journal(self) -> Journal | None:
        """What makes writes durable; None where objects live in memory only."""
        return self._journal

    @property
    def revision(self) -> int:
        """The last revision used."""
        return self._revision

    def get(self, key: str) -> Entry | None:
        """The object at `key`, or None."""
        with self._lock:
            return self._tree.get(key)

    def scan(self, prefix: str, *, after: str = "", limit: int = 0) -> tuple[list[Entry], int]:
        """Objects under `prefix` with keys after `after`, by key, `limit` at most (0: all); the revision."""
        with self._lock:
            return self._tree.scan(prefix, after, limit), self._revision

    def stats(self) -> dict[str, int | float | str]:
        """How many objects, their bytes, and the revision."""
        with self._lock:
            entries = self._tree.scan("")
            size = sum(len(entry.value) for entry in entries)
            return {"liveKeys": len(entries), "liveBytes": size, "revision": self._revision}

    def count(self, prefix: str) -> int:
        """How many objects are under `prefix`."""
        with self._lock:
            return self._tree.count(prefix)

    def put(self, key: str, obj: dict[str, Any]) -> Entry:
        """Writes whatever is there: the last writer wins. Raises as `put_extended`."""
        return self.put_extended(key, obj)

    def put_extended(
        self, key: str, obj: dict[str, Any], *, expected_version: int | None = None, agent: bool = False
    ) -> Entry:
        """Writes if `expected_version` is stored; 0 means that nothing must be there, None that all is well.

        `agent`: a node or a controller writes. Raises AlreadyExists, NotFound, Conflict, TooLarge,
        NotEncodable, StorageFull, JournalFailed.
        """
        self._ensure_revisions()
        with self._lock:
            current = self._tree.get(key)
            if expected_version is not None:
                _check(key, expected_version, current)
            entry = self._replace(key, current, obj, agent)
        self._settle(entry.revision)
        return entry

    def update(self, key: str, fn: Callable[[dict[str, Any]], dict[str, Any] | None]) -> Entry:
        """Writes what `fn` makes of its own copy of the object; None leaves the object.

        `fn` runs under the lock and must be quick. Raises NotFound, what `put_extended` raises and what `fn`
        raises.
        """
        self._ensure_revisions()
        try:
            with self._lock:
                outer, self._updating_thread = self._updating_thread, get_ident()
                try:
                    changed = fn(orjson.loads(self._existing(key).value))
                    current = self._existing(key)
                finally:
                    self._updating_thread = outer
                entry = current if changed is None else self._replace(key, current, changed, False)
        finally:
            self._settle(self._revision)
        return entry

    def delete(self, key: str, *, expected_version: int | None = None, agent: bool = False) -> Entry:
        """Removes the object; gives its last state, with the deletion's revision.

        Raises NotFound, Conflict, JournalFailed.
        """
        self._ensure_revisions()
        with self._lock:
            current = self._existing(key)
            if expected_version is not None:
                _check(key, expected_version, current)
            if self._journal is not None:
                self._journal.check_open(key)
            entry = restamp(current, self._revision + 1)
            persist = self._policy.classify(key, current, None, agent)
            self._tree.pop(key)
            self._changed(Change("DELETED", key, entry, current, entry.revision), persist)
        self._settle(entry.revision)
        return entry

    def claim(self) -> int:
        """Takes a revision for a change of something that is not stored, so that it has its place in the
        one order of all changes.
        """
        self._ensure_revisions()
        with self._lock:
            self._revision += 1
            if self._journal is not None:
                self._journal.note_revision(self._revision)
            return self._revision

    def subscribe(self, prefix: str, callback: Callable[[Change], None]) -> Callable[[], None]:
        """Calls `callback` for every later change under `prefix`, in the order of revisions, one at a time.

        It runs in a writer's thread (not always that of its own write) with the lock released, so it may
        use the store; it must not wait. What it raises is logged. Gives what ends the subscription.
        """
        return self._deliveries.subscribe(prefix, callback)

    def _existing(self, key: str) -> Entry:
        entry = self._tree.get(key)
        if entry is None:
            raise NotFound(key)
        return entry

    def _replace(self, key: str, current: Entry | None, obj: dict[str, Any], agent: bool) -> Entry:
        """Under the lock: puts `obj` in the place of `current` unless it says the same."""
        revision = self._revision + 1
        try:
            value = encode(obj, revision)
        except TypeError as error:
            raise NotEncodable(key, str(error)) from error
        parsed = parsed_if_as_long(current, value, revision) if current else None
        if current and parsed and same_content(current, parsed):
            return current
        if len(value) > self._limit:
            raise TooLarge(key, len(value), self._limit)
        entry = Entry(key, value, revision, parsed)
        persist = Persist.NEVER
        if self._journal is not None:
            self._journal.check_open(key)
            persist = self._policy.classify(key, current, entry, agent)
            if persist != Persist.NEVER:
                self._journal.check(key, len(value), current, agent=agent, leaving=_is_leaving(obj))
        self._tree.set(key, entry)
        self._changed(Change("MODIFIED" if current else "ADDED", key, entry, current, revision), persist)
        return entry

    def _changed(self, change: Change, persist: Persist) -> None:
        """Under the lock: takes the change's revision, and queues it for the journal and for subscribers."""
        self._revision = change.revision
        if self._journal is None:
            self._deliveries.add(change, durable=False)
        else:
            self._journal.note(change, persist)
            self._deliveries.add(change, durable=persist == Persist.DURABLE)

    # --- the journal ---

    def _load(self, journal: Journal) -> None:
        """Takes over what the journal had at boot; an object that is no JSON is left out, with a line."""
        for write in journal.take_recovered():
            value = write.value or b""
            try:
                key = write.key.decode()
                parsed = orjson.loads(value)
                if not isinstance(parsed["metadata"], dict):
                    raise TypeError
            except (ValueError, TypeError, KeyError):
                journal.faults.append(f"the record of {write.key!r} holds no object")
                continue
            self._tree.set(key, Entry(key, value, write.revision))
        self._revision = journal.first_revision

    def _newest(self, key: bytes) -> Write | None:
        """What memory has of a key whose record the flash no longer has; None where nothing, or at a bad time."""
        if not self._lock.acquire(timeout=_RESCUE_S):
            return None
        try:
            entry = self._tree.get(key.decode())
        finally:
            self._lock.release()
        return None if entry is None else Write(key, entry.value, entry.revision)

    def _ensure_revisions(self) -> None:
        """Waits for a block of revisions where the journal did not get to reserve one in time."""
        journal = self._journal
        if journal is not None and self._revision + _REVISIONS_LEFT >= journal.reserved:
            journal.check_open("")
            journal.reserve_now()

    def _settle(self, revision: int) -> None:
        """After a write has released the lock: its commit, then the subscribers. JournalFailed."""
        if self._updating_thread == get_ident():
            return
        if not self._deliveries.held:
            if self._deliveries.waiting:
                self._deliveries.deliver(0)
            return
        try:
            loop = asyncio.get_running_loop()
        except RuntimeError:
            self._commit_here(revision)
        else:
            self._begin_commit(loop)

    def _commit_here(self, revision: int) -> None:
        """Waits in this thread until a revision is durable, by a commit of its own if nobody else's has it."""
        assert self._journal is not None
        try:
            if self._journal.durable_upto < revision:
                self._journal.commit(unless=revision)
        except JournalFailed:
            self._withdraw()
            raise
        self._deliveries.deliver(self._journal.durable_upto)

    def _begin_commit(self, loop: asyncio.AbstractEventLoop) -> None:
        """Has commits made behind this event loop until nothing is held any more."""
        if self._committer is None or self._committer.done():
            self._committer = loop.create_task(self._commit_behind(loop))

    async def _commit_behind(self, loop: asyncio.AbstractEventLoop) -> None:
        assert self._journal is not None
        if self._pool is None:
            self._pool = ThreadPoolExecutor(1, "commit")
        try:
            while self._deliveries.held:
                if self._deliveries.first_durable > self._journal.durable_upto:
                    await loop.run_in_executor(self._pool, self._journal.commit)
                self._deliveries.deliver(self._journal.durable_upto)
                self._wake(None)
        except JournalFailed as error:
            self._deliveries.deliver(self._journal.durable_upto)
            self._wake(None)
            self._withdraw()
            self._wake(error)

    def _withdraw(self) -> None:
        """The journal has failed: what is not durable, which nobody has seen, is as it was before."""
        assert self._journal is not None
        with self._lock:
            for change in self._deliveries.withdraw(self._journal.durable_upto):
                if change.old is None:
                    self._tree.pop(change.key)
                else:
                    self._tree.set(change.key, change.old)

    async def settle(self) -> None:
        """Waits until readers see all that was written until now. JournalFailed: they never will."""
        if not self._deliveries.held:
            return
        loop = asyncio.get_running_loop()
        waiter = loop.create_future()
        with self._lock:
            self._waiters.append((self._revision, loop, waiter))
        self._begin_commit(loop)
        await waiter

    def _wake(self, failure: JournalFailed | None) -> None:
        """Ends the waiting of those whose writes are settled, or of all with `failure`."""
        with self._lock:
            first = self._deliveries.first_held
            done: list[_Waiter] = []
            waiting: list[_Waiter] = []
            for waiter in self._waiters:
                (done if failure or not first or waiter[0] < first else waiting).append(waiter)
            self._waiters = waiting
        here = asyncio.get_running_loop()
        for _, loop, future in done:
            if loop is here:
                _resolve(future, failure)
                continue
            try:
                loop.call_soon_threadsafe(_resolve, future, failure)
            except RuntimeError:  # the waiter's loop has ended
                continue

    async def close(self) -> None:
        """Commits what is held, flushes the journal and closes it. The store takes no write afterwards."""
        try:
            await self.settle()
        except JournalFailed:
            pass
        if self._pool is not None:
            self._pool.shutdown()
        if self._journal is not None:
            await asyncio.to_thread(self._journal.close)


def _resolve(waiter: "asyncio.Future[None]", failure: JournalFailed | None) -> None:
    if waiter.done():
        return
    if failure is None:
        waiter.set_result(None)
    else:
        waiter.set_exception(JournalFailed(failure.key, failure.message))


def _is_leaving(obj: dict[str, Any]) -> bool:
    return bool((obj.get("metadata") or {}).get("deletionTimestamp"))


def _check(key: str, expected: int, current: Entry | None) -> None:
    """Compares the stored revision with the expected one."""
    if expected == 0:
        if current is not None:
            raise AlreadyExists(key, current)
    elif current is None:
        raise NotFound(key)
    elif current.revision != expected:
        raise Conflict(key, expected, current)
