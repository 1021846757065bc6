"""A Job's pods, counted: each ended pod exactly once, by its finalizer and status.uncountedTerminatedPods. Pure.

A pod ends: its uid is written to `uncounted`, then its finalizer goes, then it moves to the counts. Wherever a
controller stops in between, the next one finds in these what is still to be done.
"""

from collections.abc import Callable
from dataclasses import dataclass, field

from kube32.contract import NAMES
from kube32.controllers.objects import Obj, is_deleting, is_finished, is_true, spec_of, status_of, uid_of
from kube32.controllers.workloads.held import Held
from kube32.controllers.workloads.jobs.index_failures import IndexFailures, look_at
from kube32.controllers.workloads.jobs.indexes import index_of, parse_spans
from kube32.controllers.workloads.jobs.policy import Verdict, judge

_UNBOUNDED = 1 << 31


def has_finalizer(pod: Obj) -> bool:
    """Whether the pod waits for being counted."""
    return NAMES.finalizer_job in (pod["metadata"].get("finalizers") or [])


def is_indexed(job: Obj) -> bool:
    """Whether each completion has a number."""
    return spec_of(job).get("completionMode") == "Indexed"


def replaces_failed_only(job: Obj) -> bool:
    """Whether a pod that is being deleted is replaced, and counts, only when it has ended."""
    spec = spec_of(job)
    default = "Failed" if spec.get("podFailurePolicy") else "TerminatingOrFailed"
    return bool(spec.get("podReplacementPolicy", default) == "Failed")


@dataclass(slots=True)
class Tally:
    """`ended` are pods whose finalizer is to go; `fresh` of them failed just now. `done` are indexes."""

    active: list[Obj] = field(default_factory=list)
    ended: list[Obj] = field(default_factory=list)
    fresh: list[Obj] = field(default_factory=list)
    terminating: int = 0
    ready: int = 0
    uncounted: dict[str, set[str]] = field(default_factory=lambda: {"succeeded": set(), "failed": set()})
    counted: dict[str, int] = field(default_factory=lambda: {"succeeded": 0, "failed": 0})
    done: set[int] = field(default_factory=set)
    failed_indexes: set[int] = field(default_factory=set)
    failures: IndexFailures = field(default_factory=IndexFailures)
    indexed: bool = False
    verdict: Verdict | None = None

    @property
    def succeeded(self) -> int:
        """Pods, or indexes, that have succeeded."""
        if self.indexed:
            return len(self.done)
        return self.counted["succeeded"] + len(self.uncounted["succeeded"])

    @property
    def failed(self) -> int:
        """Pods that have failed."""
        return self.counted["failed"] + len(self.uncounted["failed"])

    def settle(self, uids: set[str]) -> None:
        """These are in the counts now: their finalizers are gone."""
        for outcome, waiting in self.uncounted.items():
            self.counted[outcome] += len(waiting & uids)
            waiting -= uids
        if self.indexed:
            self.counted["succeeded"] = len(self.done)


def tally(
    job: Obj, pods: list[Obj], held: Held, is_going: Callable[[Obj], bool], *, over: bool = False
) -> Tally:
    """Counts the Job's pods; all of them when the Job is `over`."""
    status, indexed = status_of(job), is_indexed(job)
    made = Tally(indexed=indexed)
    completions = int(spec_of(job).get("completions") or _UNBOUNDED)
    if indexed:
        made.done = parse_spans(str(status.get("completedIndexes") or ""), completions)
        made.failed_indexes = parse_spans(str(status.get("failedIndexes") or ""), completions)
    for outcome in made.counted:
        made.counted[outcome] = int(status.get(outcome) or 0)
        waiting = (status.get("uncountedTerminatedPods") or {}).get(outcome)
        made.uncounted[outcome] = {str(uid) for uid in waiting or []}
    if indexed:
        _look_at_indexes(job, pods, made, held)
        if over:
            made.failures.kept.clear()
    for pod in pods:
        _look_at(job, pod, made, held, is_going)
    known = {uid_of(p) for p in pods if has_finalizer(p)}
    made.settle({uid for waiting in made.uncounted.values() for uid in waiting if uid not in known})
    return made


def _look_at_indexes(job: Obj, pods: list[Obj], made: Tally, held: Held) -> None:
    outcomes = [(pod, _outcome(job, pod, _has_finished(pod, held))) for pod in pods]
    taken: set[int | None] = {*made.done, *made.failed_indexes}
    taken |= {index_of(pod) for pod, outcome in outcomes if outcome != "failed"}
    failed = [pod for pod, outcome in outcomes if outcome == "failed" and has_finalizer(pod)]
    made.failures = look_at(job, failed, taken)
    made.failed_indexes |= made.failures.over


def _has_finished(pod: Obj, held: Held) -> bool:
    """Whether the pod has ended; one that was deleted without grace waits for nothing but its finalizers."""
    if is_deleting(pod) and pod["metadata"].get("deletionGracePeriodSeconds") == 0:
        return True
    return is_finished(pod) and not held.is_active(pod)


def _look_at(job: Obj, pod: Obj, made: Tally, held: Held, is_going: Callable[[Obj], bool]) -> None:
    finished = _has_finished(pod, held)
    if is_going(pod):
        made.terminating += not finished
    elif not finished:
        made.active.append(pod)
        made.ready += is_true(pod, "Ready")
    outcome = _outcome(job, pod, finished)
    if not outcome or not has_finalizer(pod) or uid_of(pod) in made.failures.kept:
        return
    made.ended.append(pod)
    if any(uid_of(pod) in waiting for waiting in made.uncounted.values()):
        return
    if outcome == "succeeded":
        index = index_of(pod)
        if made.indexed and index is not None:
            if index in made.done:
                return  # another pod of this index was quicker
            made.done.add(index)
        made.uncounted[outcome].add(uid_of(pod))
        return
    verdict = judge(job, pod)
    if verdict.action == "Ignore":
        return
    if verdict.action == "FailJob" and made.verdict is None:
        made.verdict = verdict
    made.uncounted[outcome].add(uid_of(pod))
    made.fresh.append(pod)


def _outcome(job: Obj, pod: Obj, finished: bool) -> str:
    """succeeded or failed, "" while it may still be either."""
    if finished:
        return "succeeded" if status_of(pod).get("phase") == "Succeeded" else "failed"
    return "failed" if is_deleting(pod) and not replaces_failed_only(job) else ""
