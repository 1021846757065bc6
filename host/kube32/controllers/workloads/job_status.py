"""What a Job is to do next and what it says of itself. Pure but for the time stamps."""

from collections.abc import Iterable
from dataclasses import dataclass, field

from kube32.controllers.objects import Obj, annotation, condition, now_rfc3339, spec_of, status_of

INDEX = "batch.kubernetes.io/job-completion-index"
FINALIZER = "batch.kubernetes.io/job-tracking"
_FINISHED = ("Complete", "Failed")


@dataclass(slots=True)
class Count:
    """A Job's pods: `active` have not ended, `ready` of these are Ready, `going` are being deleted."""

    active: list[Obj] = field(default_factory=list)
    going: int = 0
    ready: int = 0
    succeeded: int = 0
    failed: int = 0
    done_indexes: set[int] = field(default_factory=set)


def is_finished(job: Obj) -> bool:
    """Whether the Job has succeeded or failed for good."""
    return any((condition(job, kind) or {}).get("status") == "True" for kind in _FINISHED)


def is_indexed(job: Obj) -> bool:
    """Whether each completion has a number."""
    return spec_of(job).get("completionMode") == "Indexed"


def index_of(pod: Obj) -> int | None:
    """The number of the completion that the pod is for."""
    value = annotation(pod, INDEX)
    return int(value) if value is not None and value.isdigit() else None


def wanted(job: Obj, count: Count) -> int:
    """How many pods should be active now."""
    spec = spec_of(job)
    if spec.get("suspend"):
        return 0
    parallelism = int(spec.get("parallelism", 1))
    completions = spec.get("completions")
    if completions is None:
        # A work queue: no more pods once one has succeeded.
        return len(count.active) if count.succeeded else parallelism
    done = len(count.done_indexes) if is_indexed(job) else count.succeeded
    return max(min(parallelism, int(completions) - done), 0)


def is_complete(job: Obj, count: Count) -> bool:
    """Whether enough pods have succeeded."""
    completions = spec_of(job).get("completions")
    if completions is None:
        return count.succeeded > 0 and not count.active
    done = len(count.done_indexes) if is_indexed(job) else count.succeeded
    return done >= int(completions)


def missing_indexes(job: Obj, count: Count) -> Iterable[int]:
    """Numbers of completions that neither succeeded nor have an active pod, the lowest first."""
    taken = {index_of(p) for p in count.active}
    for index in range(int(spec_of(job).get("completions") or 0)):
        if index not in count.done_indexes and index not in taken:
            yield index


def spans(indexes: set[int]) -> str:
    """Numbers as Kubernetes writes them: 1,3-5."""
    found: list[list[int]] = []
    for index in sorted(indexes):
        if found and index == found[-1][1] + 1:
            found[-1][1] = index
        else:
            found.append([index, index])
    return ",".join(str(a) if a == b else f"{a}-{b}" for a, b in found)


def parse_spans(text: str) -> set[int]:
    """The opposite of `spans`."""
    found: set[int] = set()
    for part in text.split(","):
        first, _, last = part.partition("-")
        if first.isdigit():
            found |= set(range(int(first), int(last or first) + 1))
    return found


def with_conditions(job: Obj, status: Obj, *rows: tuple[str, str, str, str]) -> Obj:
    """The status with conditions (type, status, reason, message) set; those that say the same keep their times."""
    conditions = [dict(c) for c in status_of(job).get("conditions") or []]
    for kind, value, reason, message in rows:
        old = next((c for c in conditions if c.get("type") == kind), None)
        if old is not None and (old.get("status"), old.get("reason")) == (value, reason):
            continue
        now = now_rfc3339()
        made = {"type": kind, "status": value, "lastProbeTime": now, "lastTransitionTime": now}
        made |= {k: v for k, v in (("reason", reason), ("message", message)) if v}
        conditions = [c for c in conditions if c.get("type") != kind] + [made]
    return {**status, "conditions": conditions} if conditions else status
