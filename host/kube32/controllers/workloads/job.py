"""The Job controller: pods until enough of them have succeeded, each counted exactly once.

A pod carries a finalizer until its end is in the counts: status.uncountedTerminatedPods holds the uids of those
whose finalizer goes now, so a controller that restarts in the middle counts none twice and forgets none.
"""

import asyncio
import logging

from kube32.client.api import ApiClient, ApiError
from kube32.client.events import EventRecorder
from kube32.client.informer import Informer, Key, key_of
from kube32.contract import Limits, resource_of
from kube32.controllers.objects import (
    Obj,
    condition,
    is_deleting,
    is_true,
    name_of,
    now_rfc3339,
    seconds_since,
    spec_of,
    status_of,
    uid_of,
)
from kube32.controllers.objects import is_finished as pod_is_finished
from kube32.controllers.queue import WorkQueue
from kube32.controllers.workloads import job_status
from kube32.controllers.workloads.job_status import FINALIZER, INDEX, Count
from kube32.controllers.workloads.owned import OwnedPods
from kube32.controllers.workloads.pods import PodControl, in_deletion_order, is_held

_LOG = logging.getLogger(__name__)
_KIND = "Job"


class JobController:
    """Keeps Jobs: when one of them or one of their pods changes, and when a time of theirs is over."""

    def __init__(
        self, client: ApiClient, jobs: Informer, pods: Informer, limits: Limits, events: EventRecorder
    ) -> None:
        self._client = client
        self._jobs = jobs
        self._limits = limits
        self._events = events
        self._queue: WorkQueue[Key] = WorkQueue()
        self._owned = OwnedPods(pods, _KIND, self._look_at)
        self._control = PodControl(client, self._owned, events, _KIND, resource_of(_KIND).api_version)
        self._timers: dict[Key, asyncio.TimerHandle] = {}
        # On our own clock, so that a wall clock that jumps ends no Job: uid to the time of its start or end.
        self._started: dict[str, float] = {}
        self._finished: dict[str, float] = {}
        self._failures: dict[str, tuple[int, float]] = {}
        self._counted_pods: set[str] = set()

    async def run(self) -> None:
        """Until cancelled."""
        ends = [self._owned.follow(), self._jobs.subscribe(self._on_job)]
        try:
            await self._queue.run(self._sync)
        finally:
            for end in ends:
                end()
            for timer in self._timers.values():
                timer.cancel()

    def _on_job(self, kind: str, job: Obj, old: Obj | None) -> None:
        key = key_of(job)
        if kind == "DELETED":
            for known in (self._started, self._finished, self._failures):
                known.pop(uid_of(job), None)
            # Its pods, which go with it, must not wait for a count that nobody makes any more.
            self._queue.add(key)
        else:
            self._queue.add(key)

    def _look_at(self, key: Key) -> None:
        namespace, name = key
        if name:
            self._queue.add(key)
            return
        for found in self._jobs.items:
            if found[0] == namespace:
                self._queue.add(found)

    async def _sync(self, key: Key) -> None:
        job = self._jobs.get(*key)
        if job is None or is_deleting(job):
            await self._let_go(key, job)
            return
        if job_status.is_finished(job):
            await self._clean(job)
            return
        pods = await self._control.claim(job, None, "")
        status, ended = self._uncounted(job, pods)
        if status != status_of(job):
            # First that these are about to be counted, then, when the watch shows that, the rest.
            await self._write(job, status)
            return
        await self._remove_finalizers(ended)
        status = self._counted(job, status)
        count = self._count(job, status, pods)
        await self._go_on(job, status, count)

    # --- counting ---

    def _uncounted(self, job: Obj, pods: list[Obj]) -> tuple[Obj, list[Obj]]:
        """The status with the uids of pods that have ended and are not counted, and those pods."""
        status = dict(status_of(job))
        waiting = status.get("uncountedTerminatedPods") or {}
        uids = {name: set(waiting.get(name) or []) for name in ("succeeded", "failed")}
        indexes = job_status.parse_spans(str(status.get("completedIndexes") or ""))
        ended = []
        for pod in pods:
            if FINALIZER not in (pod["metadata"].get("finalizers") or []):
                self._counted_pods.discard(uid_of(pod))
                continue
            outcome = _outcome(pod)
            if not outcome or uid_of(pod) in self._counted_pods:
                continue
            ended.append(pod)
            uids[outcome].add(uid_of(pod))
            index = job_status.index_of(pod)
            if outcome == "succeeded" and index is not None:
                indexes.add(index)
        if any(uids.values()):
            status["uncountedTerminatedPods"] = {k: sorted(v) for k, v in uids.items() if v}
        if indexes:
            status["completedIndexes"] = job_status.spans(indexes)
        return status, ended

    def _counted(self, job: Obj, status: Obj) -> Obj:
        """The status with what waited now in the counts."""
        waiting = status.get("uncountedTerminatedPods") or {}
        made = {k: v for k, v in status.items() if k != "uncountedTerminatedPods"}
        for name in ("succeeded", "failed"):
            more = len(waiting.get(name) or [])
            if more:
                made[name] = int(made.get(name) or 0) + more
        if job_status.is_indexed(job) and made.get("completedIndexes"):
            made["succeeded"] = len(job_status.parse_spans(str(made["completedIndexes"])))
        return made

    async def _remove_finalizers(self, pods: list[Obj]) -> None:
        for pod in pods:
            meta = pod["metadata"]
            left = [f for f in meta.get("finalizers") or [] if f != FINALIZER]
            patch: Obj = {"metadata": {"uid": meta["uid"], "finalizers": left or None}}
            try:
                await self._client.patch("Pod", meta["name"], patch, meta["namespace"])
            except ApiError as error:
                if error.code not in (404, 409):
                    raise
            # Until the watch shows it, the pod still looks as if it were to be counted.
            self._counted_pods.add(meta["uid"])

    async def _let_go(self, key: Key, job: Obj | None) -> None:
        """The Job is gone or goes: its pods wait for nothing."""
        for pod in self._owned.of_name(key):
            if FINALIZER in (pod["metadata"].get("finalizers") or []):
                await self._remove_finalizers([pod])

    def _count(self, job: Obj, status: Obj, pods: list[Obj]) -> Count:
        count = Count(succeeded=int(status.get("succeeded") or 0), failed=int(status.get("failed") or 0))
        count.done_indexes = job_status.parse_spans(str(status.get("completedIndexes") or ""))
        if job_status.is_indexed(job):
            count.succeeded = len(count.done_indexes)
        for pod in pods:
            if self._owned.is_going(pod):
                count.going += not pod_is_finished(pod)
            elif not pod_is_finished(pod) or is_held(pod):
                count.active.append(pod)
                count.ready += is_true(pod, "Ready")
        return count

    # --- deciding ---

    async def _go_on(self, job: Obj, status: Obj, count: Count) -> None:
        spec, uid, now = spec_of(job), uid_of(job), asyncio.get_running_loop().time()
        suspended = bool(spec.get("suspend"))
        if not suspended and not status.get("startTime"):
            status["startTime"] = now_rfc3339()
        if not suspended and uid not in self._started:
            self._started[uid] = now - max(seconds_since(str(status.get("startTime"))) or 0.0, 0.0)
        if job_status.is_complete(job, count):
            await self._finish(
                job,
                status,
                count,
                "Complete",
                "CompletionsReached",
                "Reached expected number of succeeded pods",
            )
            return
        reason = self._failure(job, count, now)
        if reason:
            await self._finish(job, status, count, "Failed", *reason)
            return
        failed: ApiError | None = None
        try:
            await self._adjust(job, count, now)
        except ApiError as error:
            failed = error
        await self._write(job, self._told(job, status, suspended, count))
        if failed is not None:
            raise failed

    def _failure(self, job: Obj, count: Count, now: float) -> tuple[str, str] | None:
        spec = spec_of(job)
        deadline = spec.get("activeDeadlineSeconds")
        if deadline is not None and uid_of(job) in self._started and not spec.get("suspend"):
            left = self._started[uid_of(job)] + int(deadline) - now
            if left <= 0:
                return "DeadlineExceeded", "Job was active longer than specified deadline"
            self._again(key_of(job), left)
        restarts = 0
        if ((spec.get("template") or {}).get("spec") or {}).get("restartPolicy") == "OnFailure":
            restarts = sum(
                int(s.get("restartCount") or 0)
                for p in count.active
                for s in status_of(p).get("containerStatuses") or []
            )
        if count.failed + restarts > int(spec.get("backoffLimit", 6)):
            return "BackoffLimitExceeded", "Job has reached the specified backoff limit"
        return None

    async def _adjust(self, job: Obj, count: Count, now: float) -> None:
        """Creates pods that are missing, after the back-off of the last failure, and deletes what is too much."""
        target = job_status.wanted(job, count)
        for pod in in_deletion_order(count.active)[: max(len(count.active) - target, 0)]:
            await self._control.delete(job, pod)
            count.active.remove(pod)
            count.going += 1
        missing = target - len(count.active)
        if missing <= 0:
            return
        wait_s = self._back_off(job, count, now)
        if wait_s > 0:
            self._again(key_of(job), wait_s)
            return
        indexes = iter(job_status.missing_indexes(job, count))
        for _ in range(missing):
            index = next(indexes, None) if job_status.is_indexed(job) else None
            count.active.append(await self._create(job, index))

    def _back_off(self, job: Obj, count: Count, now: float) -> float:
        """Seconds until the next pod may be created: 10 s after the first failure, then twice as long each time."""
        uid = uid_of(job)
        known, since = self._failures.get(uid, (0, 0.0))
        if count.failed > known:
            since = now
            self._failures[uid] = (count.failed, now)
        if not count.failed or not since:
            return 0.0
        delay = min(
            self._limits.job_backoff_initial_ms * 2 ** min(count.failed - 1, 16),
            self._limits.job_backoff_max_ms,
        )
        return float(since + delay / 1000 - now)

    async def _create(self, job: Obj, index: int | None) -> Obj:
        name, template = name_of(job), spec_of(job)["template"]
        own = {"batch.kubernetes.io/job-name": name, "job-name": name}
        own |= {"batch.kubernetes.io/controller-uid": uid_of(job), "controller-uid": uid_of(job)}
        change: Obj = {
            "metadata": {
                "finalizers": [*((template.get("metadata") or {}).get("finalizers") or []), FINALIZER]
            }
        }
        prefix = f"{name}-"
        if index is not None:
            own[INDEX] = str(index)
            prefix = f"{name}-{index}-"
            change["metadata"]["annotations"] = {INDEX: str(index)}
            change["spec"] = {
                part: [_indexed(c) for c in template["spec"].get(part) or []]
                for part in ("containers", "initContainers")
                if template["spec"].get(part)
            }
            change["spec"]["hostname"] = f"{name}-{index}"
        return await self._control.create(job, template, prefix=prefix, labels=own, change=change)

    # --- ends ---

    async def _finish(
        self, job: Obj, status: Obj, count: Count, kind: str, reason: str, message: str
    ) -> None:
        """Ends the Job: its active pods go, then it says so."""
        going = count.going + len(count.active)
        for pod in count.active:
            await self._control.delete(job, pod)
        if kind == "Failed":
            status["failed"] = int(status.get("failed") or 0) + len(count.active)
        for name in ("active", "ready", "terminating"):
            status.pop(name, None)
        if going - len(count.active):
            status["terminating"] = going - len(count.active)
        status["ready"] = 0
        first = "SuccessCriteriaMet" if kind == "Complete" else "FailureTarget"
        if kind == "Complete":
            status["completionTime"] = now_rfc3339()
        rows = ((first, "True", reason, message), (kind, "True", reason, message))
        if await self._write(job, job_status.with_conditions(job, status, *rows)):
            self._events.event(job, "JobCompleted" if kind == "Complete" else reason)
            self._finished[uid_of(job)] = asyncio.get_running_loop().time()

    async def _clean(self, job: Obj) -> None:
        """A finished Job: pods that end late lose their finalizer, and the Job goes when its time is over."""
        for pod in self._owned.of(job):
            if FINALIZER in (pod["metadata"].get("finalizers") or []):
                await self._remove_finalizers([pod])
        ttl = spec_of(job).get("ttlSecondsAfterFinished")
        if ttl is None:
            return
        now, uid = asyncio.get_running_loop().time(), uid_of(job)
        if uid not in self._finished:
            # We did not see its end: the stamp says when, unless a clock was unset.
            done = condition(job, "Complete") or condition(job, "Failed") or {}
            self._finished[uid] = now - max(seconds_since(str(done.get("lastTransitionTime"))) or 0.0, 0.0)
        left = self._finished[uid] + int(ttl) - now
        if left > 0:
            self._again(key_of(job), left)
            return
        meta = job["metadata"]
        try:
            await self._client.delete(_KIND, meta["name"], meta["namespace"], uid=meta["uid"])
        except ApiError as error:
            if error.code not in (404, 409):
                raise

    # --- status ---

    def _told(self, job: Obj, status: Obj, suspended: bool, count: Count) -> Obj:
        made = {k: v for k, v in status.items() if k not in ("active", "ready", "terminating")}
        if count.active:
            made["active"] = len(count.active)
        made["ready"] = count.ready
        if count.going:
            made["terminating"] = count.going
        old = condition(job, "Suspended")
        if suspended:
            made.pop("startTime", None)
            self._started.pop(uid_of(job), None)
            if (old or {}).get("status") != "True":
                self._events.event(job, "JobSuspended")
            return job_status.with_conditions(
                job, made, ("Suspended", "True", "JobSuspended", "Job suspended")
            )
        if (old or {}).get("status") == "True":
            self._events.event(job, "JobResumed")
            return job_status.with_conditions(job, made, ("Suspended", "False", "JobResumed", "Job resumed"))
        return made

    async def _write(self, job: Obj, status: Obj) -> bool:
        """Whether the status is stored now; a Job that has changed comes again by its watch."""
        if status == status_of(job):
            return True
        try:
            await self._client.update(_KIND, {**job, "status": status}, subresource="status")
        except ApiError as error:
            if error.code in (404, 409):
                return False
            raise
        return True

    def _again(self, key: Key, after_s: float) -> None:
        timer = self._timers.pop(key, None)
        if timer is not None:
            timer.cancel()
        self._timers[key] = asyncio.get_running_loop().call_later(after_s, self._queue.add, key)


def _outcome(pod: Obj) -> str:
    """succeeded or failed, "" while the pod may still be either."""
    phase = status_of(pod).get("phase")
    if phase == "Succeeded":
        return "succeeded"
    if is_held(pod):
        return ""
    return "failed" if phase == "Failed" or is_deleting(pod) else ""


def _indexed(container: Obj) -> Obj:
    """The container with its completion's number in its environment."""
    name = "JOB_COMPLETION_INDEX"
    if any(e.get("name") == name for e in container.get("env") or []):
        return container
    path = {"fieldRef": {"apiVersion": "v1", "fieldPath": f"metadata.annotations['{INDEX}']"}}
    return {**container, "env": [*(container.get("env") or []), {"name": name, "valueFrom": path}]}
