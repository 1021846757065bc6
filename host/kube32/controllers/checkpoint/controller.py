"""Carries out Checkpoints: one task for each, one snapshot at a time, one Checkpoint at a time for a pod.

It keeps its step in the status, so a controller that starts anew goes on or undoes what another began.
"""

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from kube32.client.api import ApiClient, ApiError
from kube32.client.events import EventRecorder
from kube32.client.informer import Informer, Key, key_of
from kube32.contract import NAMES, Limits, text
from kube32.controllers.bookings import Bookings
from kube32.controllers.checkpoint.failure import CheckpointGone, StepFailed, failed
from kube32.controllers.checkpoint.move import Journey, Moves
from kube32.controllers.checkpoint.outcome import is_running
from kube32.controllers.checkpoint.preparation import Plan, Preparation
from kube32.controllers.checkpoint.record import FINAL, CheckpointRecord, phase_of
from kube32.controllers.checkpoint.replacement import Replacements
from kube32.controllers.checkpoint.restores import Restores
from kube32.controllers.checkpoint.retention import Retention
from kube32.controllers.checkpoint.snapshot import PodPlace, Snapshots
from kube32.controllers.objects import (
    Obj,
    annotation,
    containers,
    is_deleting,
    name_of,
    node_of,
    now_rfc3339,
    uid_of,
)

_LOG = logging.getLogger(__name__)
_RETRY_FIRST_S = 1.0
_RETRY_MAX_S = 60.0
_STOP_THAW_S = 2.0
# At a start moves that are half done come before saves, and these before what has not begun.
_ORDER = {"Moving": 0, "Saving": 1}


class CheckpointController:
    """The Checkpoint controller on the control plane. `events` are told about pods."""

    def __init__(
        self,
        client: ApiClient,
        pods: Informer,
        nodes: Informer,
        checkpoints: Informer,
        bookings: Bookings,
        limits: Limits,
        events: EventRecorder,
    ) -> None:
        self._pods = pods
        self._checkpoints = checkpoints
        self._nodes = nodes
        self._bookings = bookings
        self._events = events
        self._client = client
        self._snapshots = Snapshots(client, pods, limits)
        self._preparation = Preparation(client, bookings)
        replacements = Replacements(client, pods)
        self._moves = Moves(replacements, pods, nodes, limits, events)
        self._restores = Restores(replacements, pods, nodes, checkpoints, events, self._is_moving)
        self._retention = Retention(client, checkpoints, pods, limits)
        self._jobs: dict[str, tuple[CheckpointRecord, asyncio.Task[None]]] = {}
        self._pod_turns: dict[Key, tuple[asyncio.Lock, list[str]]] = {}
        self._arriving: set[Key] = set()
        self._ended: set[str] = set()

    def _is_moving(self, key: Key) -> bool:
        return key in self._arriving

    async def run(self) -> None:
        """Carries out Checkpoints until cancelled; what is under way then can be taken up later."""
        await asyncio.gather(*(i.synced.wait() for i in (self._pods, self._nodes, self._checkpoints)))
        for checkpoint in sorted(self._checkpoints.items.values(), key=_urgency):
            self._on_checkpoint("ADDED", checkpoint, None)
        self._checkpoints.subscribe(self._on_checkpoint, replay=False)
        self._restores.start()
        try:
            await self._retention.run()
        finally:
            await self._stop()

    async def _stop(self) -> None:
        self._restores.stop()
        tasks = [task for _, task in self._jobs.values()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        self._snapshots.stop()

    # --- one task for each Checkpoint ---

    def _on_checkpoint(self, kind: str, checkpoint: Obj, old: Obj | None) -> None:
        uid = uid_of(checkpoint)
        gone = kind == "DELETED"
        if uid in self._jobs:
            record, task = self._jobs[uid]
            if gone or is_deleting(checkpoint):
                record.deleted.set()
            if gone and not record.held:
                task.cancel()
        elif uid in self._ended:
            if gone:
                self._ended.discard(uid)
        elif not gone and (
            _is_held(checkpoint) or not (phase_of(checkpoint) in FINAL or is_deleting(checkpoint))
        ):
            self._begin(CheckpointRecord(self._client, checkpoint))

    def _begin(self, record: CheckpointRecord) -> None:
        def end(_: object) -> None:
            # Older states of it may still be on their way to us.
            self._jobs.pop(record.uid, None)
            if self._checkpoints.get(*record.key) is not None:
                self._ended.add(record.uid)

        task = asyncio.get_running_loop().create_task(self._job(record), name=f"checkpoint {record.name}")
        self._jobs[record.uid] = (record, task)
        task.add_done_callback(end)

    async def _job(self, record: CheckpointRecord) -> None:
        """Carries a Checkpoint to its end. After a fault it goes on from what the status says."""
        delay_s = _RETRY_FIRST_S
        while True:
            try:
                if phase_of(record.obj) not in FINAL:
                    async with self._pod_turn(record):
                        await self._carry_out(record)
                await record.release()
                return
            except CheckpointGone:
                return
            except Exception as error:
                expected = isinstance(error, (ApiError, OSError))
                cause = str(error) or type(error).__name__
                _LOG.warning("checkpoint %s/%s: %s", *record.key, cause, exc_info=None if expected else error)
            await asyncio.sleep(delay_s)
            delay_s = min(delay_s * 2, _RETRY_MAX_S)
            with contextlib.suppress(ApiError, OSError, CheckpointGone):
                await record.refresh()

    @asynccontextmanager
    async def _pod_turn(self, record: CheckpointRecord) -> AsyncIterator[None]:
        """Checkpoints of one pod come one after the other."""
        key = record.namespace, record.pod_name
        lock, users = self._pod_turns.setdefault(key, (asyncio.Lock(), []))
        users.append(record.uid)
        try:
            async with lock:
                yield
        finally:
            users.remove(record.uid)
            if not users:
                self._pod_turns.pop(key, None)

    async def _carry_out(self, record: CheckpointRecord) -> None:
        """One attempt. What an earlier one froze is frozen again (the same snapshot) or thawed."""
        begun = phase_of(record.obj)
        if begun == "Moving" and await self._resume_move(record):
            return
        try:
            await self._take(record)
        except StepFailed as error:
            await self._fail(record, error, may_be_frozen=begun in _ORDER)
        except ApiError as error:
            if phase_of(record.obj) == "Moving" or error.code >= 500:
                raise
            refusal = failed("api", cause=error.message)
            await self._fail(record, refusal, may_be_frozen=begun in _ORDER)

    # --- the snapshot ---

    async def _take(self, record: CheckpointRecord) -> None:
        """The whole way of a Checkpoint, from the checks on."""
        ticket = ""
        try:
            async with self._snapshots.turn:
                plan = await self._preparation.plan(record)
                if plan.target is not None:
                    ticket = self._bookings.book(plan.pod, plan.target)
                await record.hold()
                await record.write(phase="Saving", nodeName=plan.place.node, targetNode=plan.target)
                frozen_at = asyncio.get_running_loop().time()
                await self._store(record, plan)
            if plan.target is None:
                await self._report_saved(record, plan)
            else:
                await self._move(record, plan, plan.target, frozen_at)
        finally:
            self._bookings.release(ticket)

    async def _store(self, record: CheckpointRecord, plan: Plan) -> None:
        leave = "running" if plan.target is None else "frozen"
        async with self._thawed_unless_done(plan):
            record.obj = await self._snapshots.store(plan.place, record.name, leave=leave)

    async def _report_saved(self, record: CheckpointRecord, plan: Plan) -> None:
        await record.write(phase="Saved", takenAt=now_rfc3339(), message=None, blockers=None)
        size = record.status.get("sizeBytes")
        self._events.event(plan.pod, "Checkpointed", checkpoint=record.name, bytes=size)

    @asynccontextmanager
    async def _thawed_unless_done(self, plan: Plan) -> AsyncIterator[None]:
        """Whatever goes wrong inside, the pod of a move does not stay frozen."""
        try:
            yield
        except BaseException as error:
            if plan.target is not None and (not isinstance(error, StepFailed) or error.maybe_frozen):
                await self._thaw(plan.place)
            raise

    async def _thaw(self, place: PodPlace) -> None:
        thaw = asyncio.ensure_future(self._snapshots.thaw(place))
        try:
            await asyncio.wait([thaw], timeout=None if not _is_cancelled() else _STOP_THAW_S)
        finally:
            if not thaw.done():
                thaw.cancel()

    # --- the move ---

    async def _move(self, record: CheckpointRecord, plan: Plan, target: str, frozen_at: float) -> None:
        source = plan.place.node
        key = record.namespace, record.pod_name
        self._arriving.add(key)
        try:
            async with self._thawed_unless_done(plan):
                if record.deleted.is_set():
                    raise failed("checkpoint_deleted", checkpoint=record.name, maybe_frozen=True)
                await record.write(phase="Moving", takenAt=now_rfc3339(), message=None, blockers=None)
                replacement = await self._moves.depart(record, plan.pod, source, target)
            await self._arrive(Journey(record, source, target, replacement, frozen_at))
        finally:
            self._arriving.discard(key)

    async def _resume_move(self, record: CheckpointRecord) -> bool:
        """Goes on with a move that another attempt began; False when it is to start over."""
        status = record.status
        source, target = str(status.get("nodeName") or ""), str(status.get("targetNode") or "")
        pod = await self._preparation.pod(record)
        if pod is None:
            await self._moves.fail(record, record.obj, text("failures", "pod_deleted", pod=record.pod_name))
        elif annotation(pod, NAMES.ann_restore_from) != record.name:
            if node_of(pod) == source:
                return False  # the replacement was never written: the pod may still stand frozen
            await self._finish_unmarked(record, pod, target)
        elif node_of(pod) == target:
            await self._arrive(Journey(record, source, target, pod, None))
        else:
            cause = str(status.get("message") or text("failures", "resumed_rollback"))
            await self._moves.report_return(record, pod, cause, source, node_of(pod))
            self._restores.look(key_of(pod))
        return True

    async def _finish_unmarked(self, record: CheckpointRecord, pod: Obj, target: str) -> None:
        """The pod left its source but does not name this Checkpoint any more."""
        if node_of(pod) == target and is_running(pod):
            await record.write(phase="Completed", newPodName=name_of(pod))
        else:
            await self._moves.fail(record, pod, text("failures", "pod_replaced", pod=name_of(pod)))

    async def _arrive(self, journey: Journey) -> None:
        key = key_of(journey.replacement)
        self._arriving.add(key)
        try:
            await self._moves.arrive(journey)
        finally:
            self._arriving.discard(key)
            self._restores.look(key)

    # --- failure ---

    async def _fail(self, record: CheckpointRecord, error: StepFailed, *, may_be_frozen: bool) -> None:
        """The Checkpoint turns Failed; a pod that an earlier attempt may have left frozen is thawed first."""
        pod = await self._preparation.pod(record)
        if may_be_frozen and record.is_move and pod is not None:
            await self._thaw_leftover(record, pod)
        subject = pod if pod is not None else record.obj
        if record.is_move:
            await self._moves.fail(record, subject, error.message, error.blockers)
            return
        self._events.event(subject, "CheckpointFailed", checkpoint=record.name, cause=error.message)
        await record.write(phase="Failed", message=error.message, blockers=error.blockers or None)

    async def _thaw_leftover(self, record: CheckpointRecord, pod: Obj) -> None:
        names = [str(c.get("name")) for c in containers(pod)]
        if len(names) == 1 and node_of(pod) == record.status.get("nodeName"):
            place = PodPlace(record.namespace, name_of(pod), uid_of(pod), names[0], node_of(pod))
            await self._snapshots.thaw(place)


def _is_held(checkpoint: Obj) -> bool:
    return NAMES.finalizer_checkpoint in (checkpoint["metadata"].get("finalizers") or [])


def _urgency(checkpoint: Obj) -> tuple[int, str, str]:
    meta = checkpoint["metadata"]
    return _ORDER.get(phase_of(checkpoint), 2), str(meta.get("creationTimestamp", "")), name_of(checkpoint)


def _is_cancelled() -> bool:
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0
