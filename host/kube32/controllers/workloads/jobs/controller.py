"""The Job controller: pods until enough of them have succeeded, each counted exactly once (see tally.py)."""

import asyncio
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import partial

from kube32.client.api import ApiClient, ApiError
from kube32.client.events import EventRecorder
from kube32.client.informer import Informer, Key, key_of
from kube32.contract import Limits
from kube32.controllers.objects import (
    Obj,
    is_deleting,
    name_of,
    now_rfc3339,
    seconds_since,
    spec_of,
    status_of,
    uid_of,
)
from kube32.controllers.queue import WorkQueue
from kube32.controllers.workloads.conditions import Conditions
from kube32.controllers.workloads.delays import Delays
from kube32.controllers.workloads.held import Held
from kube32.controllers.workloads.jobs import status as job_status
from kube32.controllers.workloads.jobs.finalizers import Finalizers
from kube32.controllers.workloads.jobs.index_failures import limit_of
from kube32.controllers.workloads.jobs.indexes import index_of
from kube32.controllers.workloads.jobs.pods import indexes_to_create, job_pod, out_of_place
from kube32.controllers.workloads.jobs.tally import (
    Tally,
    has_finalizer,
    is_indexed,
    replaces_failed_only,
    tally,
)
from kube32.controllers.workloads.jobs.ttl import JobTtl
from kube32.controllers.workloads.later import Later
from kube32.controllers.workloads.order import in_deletion_order
from kube32.controllers.workloads.owned import OwnedPods
from kube32.controllers.workloads.pods import PodControl, in_batches, is_closing
from kube32.controllers.workloads.selectors import selects
from kube32.controllers.workloads.written import Written

_KIND = "Job"
_MANAGER = "kubernetes.io/job-controller"
_ALL = -1


@dataclass(slots=True)
class _Step:
    """One look at a Job: the object as last stored, its pods and what is said of it."""

    job: Obj
    found: Tally
    conditions: Conditions
    stored: Obj = field(init=False)
    succeeded: int = field(init=False)

    def __post_init__(self) -> None:
        self.stored = status_of(self.job)
        self.succeeded = int(self.stored.get("succeeded") or 0)

    @property
    def over(self) -> str:
        """The condition by which the Job is over, "" while it is not."""
        return next((kind for kind in job_status.TARGETS if self.conditions.status(kind) == "True"), "")

    def stamp(self, name: str) -> None:
        """Sets a time of the status to now."""
        self.job = {**self.job, "status": {**status_of(self.job), name: now_rfc3339()}}


class JobController:
    """Keeps Jobs: when one of them or one of their pods changes, and when a time of theirs is over."""

    def __init__(
        self,
        client: ApiClient,
        jobs: Informer,
        pods: Informer,
        held: Held,
        limits: Limits,
        events: EventRecorder,
    ) -> None:
        self._jobs = jobs
        self._held = held
        self._events = events
        self._queue: WorkQueue[Key] = WorkQueue()
        self._owned = OwnedPods(pods, _KIND, changed=self._look_at, strayed=self._on_stray)
        self._control = PodControl(client, self._owned, events, _KIND, tells=True)
        self._finalizers = Finalizers(client, jobs, pods, self._owned)
        self._ttl = JobTtl(client, jobs)
        self._written = Written(client, _KIND)
        self._later = Later(self._queue.add)
        # By uid: when a Job began on our own clock, so that a wall clock that jumps ends none.
        self._began: dict[str, float] = {}
        # After failures: of a Job (_ALL), or of an index.
        self._delays: Delays[tuple[str, int]] = Delays(
            limits.job_backoff_initial_ms / 1000, limits.job_backoff_max_ms / 1000
        )

    async def run(self) -> None:
        """Until cancelled."""
        ends = [
            self._owned.follow(),
            self._finalizers.follow(),
            self._ttl.follow(),
            self._jobs.subscribe(self._on_job),
        ]
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(self._queue.run(self._sync))
                group.create_task(self._finalizers.run())
                group.create_task(self._ttl.run())
        finally:
            for end in ends:
                end()
            self._later.close()

    # --- what makes us look ---

    def _on_job(self, kind: str, job: Obj, old: Obj | None) -> None:
        key = key_of(job)
        if old is not None and (kind == "DELETED" or uid_of(old) != uid_of(job)):
            self._began.pop(uid_of(old), None)
            self._delays.forget(lambda known: known[0] == uid_of(old))
            self._written.forget(uid_of(old))
            self._control.forget(old)
        if kind == "DELETED":
            self._queue.drop(key)
            self._later.drop(key)
        else:
            self._queue.add(key)

    def _look_at(self, key: Key) -> None:
        if self._jobs.get(*key) is not None:
            self._queue.add(key)

    def _on_stray(self, pod: Obj) -> None:
        for key, job in self._jobs.items.items():
            if selects(job, pod):
                self._queue.add(key)

    # --- one step ---

    async def _sync(self, key: Key) -> None:
        seen = self._jobs.get(*key)
        if seen is None or spec_of(seen).get("managedBy", _MANAGER) != _MANAGER:
            return
        job = self._written.newest(seen)
        if is_deleting(job) or job_status.is_finished(job):
            # Nothing is counted any more: nobody waits for it.
            await self._finalizers.remove(p for p in self._owned.of(job) if has_finalizer(p))
            return
        await self._control.settle(job)
        pods = await self._control.claim(job, lambda _: True)
        step = _Step(job, Tally(), Conditions(status_of(job)))
        step.found = tally(job, pods, self._held, self._owned.is_going, over=bool(step.over))
        left = self._start(step)
        if not step.over:
            self._decide(step, late=left == 0)
            if step.over:
                step.found = tally(job, pods, self._held, self._owned.is_going, over=True)
        told = "" if step.over else job_status.say_suspended(job, step.conditions)
        if told == "JobResumed":
            self._start(step, again=True)
        await self._write(step)
        if told:
            self._events.event(step.job, told)
        self._later.set(key, [left, *self._delay(step)])
        await self._count(step)
        await self._adjust(step)

    def _start(self, step: _Step, *, again: bool = False) -> float | None:
        """Notes when the Job began, again when it is resumed. Seconds until its deadline, None without one."""
        job, now = step.job, asyncio.get_running_loop().time()
        uid, stamp = uid_of(job), status_of(job).get("startTime")
        if job_status.is_suspended(job):
            self._began.pop(uid, None)
            return None
        if again or uid not in self._began:
            past = 0.0 if again else seconds_since(str(stamp or "")) or 0.0
            self._began[uid] = now - max(past, 0.0)
        # A time in 1970 would make decades of its duration.
        if (again or not stamp) and job_status.clock_is_set():
            step.stamp("startTime")
        deadline = spec_of(job).get("activeDeadlineSeconds")
        return None if deadline is None else max(self._began[uid] + int(deadline) - now, 0.0)

    @staticmethod
    def _decide(step: _Step, *, late: bool) -> None:
        """Says that the Job is over when it is."""
        ending = job_status.ending(step.job, step.found, late=late)
        if ending is not None:
            kind, words, fields = ending
            step.conditions.put(kind, "True", words, fields, stamp="lastProbeTime")

    def _delay(self, step: _Step) -> list[float]:
        """After failures new pods wait, a success ends that; how long they do."""
        uid = uid_of(step.job)
        if limit_of(step.job) is not None:
            for index, count in step.found.failures.counts.items():
                self._delays.at((uid, index), count)
            return [self._delays.wait((uid, index)) for index in step.found.failures.counts]
        if step.found.succeeded > step.succeeded:
            self._delays.forget(lambda known: known[0] == uid)
        for _ in step.found.fresh:
            self._delays.more((uid, _ALL))
        return [self._delays.wait((uid, _ALL))]

    async def _count(self, step: _Step) -> None:
        """Pods whose end is written down lose their finalizer and move into the counts."""
        found = step.found
        if found.ended:
            await self._finalizers.remove(found.ended)
            found.settle({uid_of(pod) for pod in found.ended})
            await self._write(step)
        if step.over and not found.active and not found.terminating:
            await self._finish(step, step.over)

    async def _finish(self, step: _Step, kind: str) -> None:
        """All pods have ended: the Job is Complete, or Failed."""
        conditions = step.conditions
        conditions.copy(kind, job_status.TARGETS[kind])
        if kind == "SuccessCriteriaMet" and job_status.clock_is_set():
            step.stamp("completionTime")
        await self._write(step)
        if kind == "SuccessCriteriaMet":
            self._events.event(step.job, "JobCompleted")
        else:
            # The reasons of failures are events of the same names.
            self._events.event(step.job, conditions.reason(kind), cause=conditions.message(kind))

    async def _write(self, step: _Step) -> None:
        status = job_status.make(step.job, step.found, step.conditions)
        if status != step.stored:
            step.job = await self._written.status({**step.job, "status": status})
            step.stored = status_of(step.job)

    # --- pods ---

    async def _adjust(self, step: _Step) -> None:
        """Creates the pods that are missing and deletes those that are too many."""
        job, found = step.job, step.found
        if step.over:
            await self._end_pods(job, found.active, counted=step.over == "FailureTarget")
            return
        wanted = job_status.wanted(job, found)
        wrong = out_of_place(job, found)
        rest = [p for p in found.active if p not in wrong]
        extra = in_deletion_order(rest, self._held.holds)[: max(len(rest) - wanted, 0)]
        await self._end_pods(job, [*wrong, *extra], counted=False)
        missing = wanted - len(rest)
        if replaces_failed_only(job):
            missing -= found.terminating
        if missing <= 0 or self._delays.wait((uid_of(job), _ALL)) > 0:
            return
        try:
            counts = found.failures.counts
            indexes = self._indexes(job, found, missing)
            await in_batches([partial(self._create, job, i, counts.get(i or 0, 0)) for i in indexes])
        except ApiError as error:
            if not is_closing(error):
                raise

    def _indexes(self, job: Obj, found: Tally, missing: int) -> Iterator[int | None]:
        """What the new pods are for: indexes, or nothing in particular."""
        if not is_indexed(job):
            yield from [None] * missing
            return
        taken = {index_of(pod) for pod in found.active}
        taken |= {i for i in found.failures.counts if self._delays.wait((uid_of(job), i)) > 0}
        yield from indexes_to_create(job, found, taken, missing)

    async def _create(self, job: Obj, index: int | None, failures: int) -> None:
        pod = self._control.pod_of(job, spec_of(job)["template"], f"{name_of(job)}-", {})
        await self._control.create(job, job_pod(job, pod, index, failures))

    async def _end_pods(self, job: Obj, pods: list[Obj], *, counted: bool) -> None:
        """Deletes pods; those that are not to be counted as failed lose their finalizer first."""
        if not counted:
            await self._finalizers.remove(p for p in pods if has_finalizer(p))
        for pod in pods:
            await self._control.delete(job, pod)
