"""What a Job is to do next, and what it says of itself. Pure but for the time stamps."""

from kube32.contract import LIMITS
from kube32.controllers.objects import Obj, now_rfc3339, seconds_since, spec_of, status_of
from kube32.controllers.workloads.conditions import Conditions
from kube32.controllers.workloads.jobs.index_failures import limit_of, words_of
from kube32.controllers.workloads.jobs.indexes import spans
from kube32.controllers.workloads.jobs.policy import success_rule
from kube32.controllers.workloads.jobs.tally import Tally
from kube32.controllers.workloads.order import restarts

_FINISHED = ("Complete", "Failed")
_UNBOUNDED = 1 << 31
# What is decided first, and what it becomes when all pods have ended.
TARGETS = {"SuccessCriteriaMet": "Complete", "FailureTarget": "Failed"}
Ending = tuple[str, str, dict[str, object]]


def is_finished(job: Obj) -> bool:
    """Whether the Job has succeeded or failed for good."""
    conditions = Conditions(status_of(job))
    return any(conditions.status(kind) == "True" for kind in _FINISHED)


def is_suspended(job: Obj) -> bool:
    """Whether the Job waits."""
    return bool(spec_of(job).get("suspend"))


def parallelism_of(job: Obj) -> int:
    """Pods that may run at one time."""
    found = spec_of(job).get("parallelism")
    return 1 if found is None else int(found)


def wanted(job: Obj, tally: Tally) -> int:
    """How many pods should be active now."""
    if is_suspended(job):
        return 0
    completions = spec_of(job).get("completions")
    if completions is None:
        # A work queue: no more pods once one has succeeded.
        return len(tally.active) if tally.succeeded else parallelism_of(job)
    missing = int(completions) - tally.succeeded - len(tally.failed_indexes)
    return max(min(parallelism_of(job), missing), 0)


def ending(job: Obj, tally: Tally, *, late: bool) -> Ending | None:
    """(condition, words, their fields) when the Job is over, for good or ill; what was decided before holds."""
    spec = spec_of(job)
    limit = _limit_of(job)
    if tally.verdict is not None:
        return "FailureTarget", tally.verdict.words, dict(tally.verdict.fields)
    if tally.failed > limit or _restarted_too_often(job, tally, limit):
        return "FailureTarget", "job_backoff_limit", {}
    if late:
        return "FailureTarget", "job_deadline", {}
    words = words_of(job, len(tally.failed_indexes), tally.succeeded)
    if words:
        return "FailureTarget", words, {}
    rule = success_rule(job, tally.done) if tally.indexed else None
    if rule is not None:
        return "SuccessCriteriaMet", "job_success_policy", {"index": rule}
    completions = spec.get("completions")
    if completions is None:
        complete = tally.succeeded > 0 and not tally.active and not is_suspended(job)
    else:
        complete = tally.succeeded >= int(completions)
    return ("SuccessCriteriaMet", "job_completions", {}) if complete else None


def _limit_of(job: Obj) -> int:
    """How many pods may fail; without a limit as many as their indexes may, when that is what is measured."""
    limit = spec_of(job).get("backoffLimit")
    if limit is None:
        return LIMITS.job_backoff_limit if limit_of(job) is None else _UNBOUNDED
    return int(limit)


def _restarted_too_often(job: Obj, tally: Tally, limit: int) -> bool:
    """With OnFailure the containers' restarts are failures."""
    if ((spec_of(job).get("template") or {}).get("spec") or {}).get("restartPolicy") != "OnFailure":
        return False
    found = sum(restarts(pod) for pod in tally.active)
    return found > 0 if limit == 0 else found >= limit


def make(job: Obj, tally: Tally, conditions: Conditions) -> Obj:
    """The whole status."""
    old = status_of(job)
    status: Obj = {k: old[k] for k in ("startTime", "completionTime") if k in old}
    counts = {
        "active": len(tally.active),
        "succeeded": tally.counted["succeeded"],
        "failed": tally.counted["failed"],
    }
    status |= {k: v for k, v in counts.items() if v}
    status |= {"ready": tally.ready, "terminating": tally.terminating}
    if tally.done:
        status["completedIndexes"] = spans(tally.done)
    if tally.failed_indexes:
        status["failedIndexes"] = spans(tally.failed_indexes)
    uncounted = {outcome: sorted(uids) for outcome, uids in tally.uncounted.items() if uids}
    if uncounted:
        status["uncountedTerminatedPods"] = uncounted
    if conditions.rows():
        status["conditions"] = conditions.rows()
    return status


def say_suspended(job: Obj, conditions: Conditions) -> str:
    """Sets the condition Suspended; the event about a change of it, "" when there is none."""
    if is_suspended(job):
        changed = conditions.put("Suspended", "True", "job_suspended", stamp="lastProbeTime")
        return "JobSuspended" if changed else ""
    if conditions.status("Suspended") == "True":
        conditions.put("Suspended", "False", "job_resumed", stamp="lastProbeTime")
        return "JobResumed"
    return ""


def clock_is_set() -> bool:
    """Whether the wall clock tells a time that may be shown."""
    return seconds_since(now_rfc3339()) is not None
