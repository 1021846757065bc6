"""Checkpoints on the node: freezes a container between two calls, finds what keeps it from moving, gives
its snapshot.

The specification's "Kubelet endpoints" and "What keeps a pod from moving"; `leave=running` never ends a
freeze that it did not make.
"""

import asyncio
import itertools
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from kube32.contract import K32S, Limits, text
from kube32.formats.k32s import Encoder
from kube32.kubelet.pod_thread import NotRunning, PodThread

MOVE = "move"
"""Holder of the freeze that `leave=frozen` makes and /thaw ends."""

# Hashing less than this is quicker than handing it to another thread.
_HASH_INLINE_BYTES = 256 * 1024


class NotMovable(Exception):
    """The container cannot be frozen; `blockers` names every reason."""

    def __init__(self, blockers: list[str]) -> None:
        super().__init__("; ".join(blockers))
        self.blockers = blockers


class FreezeTimeout(Exception):
    """A call outlasted the freeze timeout; `blockers` names it."""

    def __init__(self, blockers: list[str]) -> None:
        super().__init__("; ".join(blockers))
        self.blockers = blockers


@dataclass(slots=True)
class FrozenState:
    """A snapshot that can be sent now. `release` must be called once, after the last chunk or a failure."""

    encoder: Encoder
    headers: dict[str, str]
    _done: Callable[[], None]

    @property
    def length(self) -> int:
        """Bytes of the snapshot."""
        return self.encoder.length

    def chunks(self) -> "Iterator[bytes | memoryview]":
        """The snapshot, its memory straight from the linear memory."""
        return self.encoder.chunks()

    def release(self) -> None:
        """Ends the use of the memory; with `leave=running` the container goes on."""
        self._done()


class Freezer:
    """Takes snapshots of containers. One for the node."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._numbers = itertools.count(1)

    async def take(
        self,
        thread: PodThread | None,
        container: str,
        *,
        leave: str,
        timeout_ms: int,
        blockers: list[str],
        on_change: Callable[[], None],
    ) -> FrozenState:
        """Freezes and captures. `blockers` are known beforehand; `on_change` is called when readiness may
        differ.

        NotMovable or FreezeTimeout: the container goes on as before.
        """
        if thread is None or thread.ended or not thread.begun:
            raise NotMovable([text("blockers", "not_running", container=container), *blockers])
        if thread.settings.entry_point is not None:
            reason = text("blockers", "entry_point", export=thread.settings.entry_point)
            raise NotMovable([reason, *blockers])
        holder = MOVE if leave == "frozen" else f"save {next(self._numbers)}"
        held_before = thread.holds(holder)

        def undo() -> None:
            if not held_before:
                thread.thaw(holder)

        try:
            await self._freeze(thread, container, holder, timeout_ms)
            found = [*blockers, *thread.instance.blockers()]
            if found:
                raise NotMovable(found)
            return await self._capture(thread, container, holder, on_change)
        except BaseException:
            undo()
            on_change()
            raise

    async def _freeze(self, thread: PodThread, container: str, holder: str, timeout_ms: int) -> None:
        try:
            frozen = thread.freeze(holder)
        except NotRunning:
            raise NotMovable([text("blockers", "not_running", container=container)]) from None
        try:
            took_effect = (
                frozen.result() if frozen.done() else await asyncio.wait_for(frozen, timeout_ms / 1000)
            )
        except TimeoutError:
            if thread.frozen:
                return
            export = thread.running_call or "k32_handle"
            raise FreezeTimeout([text("blockers", "call_running", export=export, ms=timeout_ms)]) from None
        if not took_effect:
            raise NotMovable([text("blockers", "restarted")])

    async def _capture(
        self, thread: PodThread, container: str, holder: str, on_change: Callable[[], None]
    ) -> FrozenState:
        try:
            snapshot = thread.capture()
        except NotRunning:
            raise NotMovable([text("blockers", "restarted")]) from None
        timer: asyncio.TimerHandle | None = None

        def done() -> None:
            if timer is not None:
                timer.cancel()
                thread.thaw(holder)
                on_change()

        encoder = Encoder(snapshot)
        if encoder.length < _HASH_INLINE_BYTES:
            trailer = encoder.trailer
        else:
            trailer = await asyncio.to_thread(lambda: encoder.trailer)
        if holder == MOVE:
            on_change()
        else:
            timer = asyncio.get_running_loop().call_later(self._limits.pod_frozen_ready_ms / 1000, on_change)
        names = K32S.headers
        headers = {
            names["image_sha256"]: snapshot.image_sha256.hex(),
            names["snapshot_sha256"]: trailer.hex(),
            names["pod_time_ms"]: str(snapshot.pod_time_ms),
        }
        return FrozenState(encoder, headers, done)
