"""backoffLimitPerIndex: the failures of each index, carried from one pod of the index to the next. Pure.

A pod has the number of its index's earlier failures in an annotation. The last pod that failed keeps its finalizer,
and is not counted, until there is another that carries the number on.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field

from kube32.contract import NAMES
from kube32.controllers.objects import Obj, annotation, spec_of, uid_of
from kube32.controllers.workloads.jobs.indexes import index_of
from kube32.controllers.workloads.jobs.policy import judge


def limit_of(job: Obj) -> int | None:
    """How often an index may fail; None: that is not what the Job's failures are measured by."""
    found = spec_of(job).get("backoffLimitPerIndex")
    return None if found is None else int(found)


@dataclass(slots=True)
class IndexFailures:
    """`over` are indexes that have failed for good, `counts` failures of those to be tried again.

    `kept` are the uids of pods that are not counted yet.
    """

    over: set[int] = field(default_factory=set)
    counts: dict[int, int] = field(default_factory=dict)
    kept: set[str] = field(default_factory=set)


def look_at(job: Obj, failed: Iterable[Obj], taken: set[int | None]) -> IndexFailures:
    """What the failed, uncounted pods mean for their indexes. `taken` are done or have an active pod."""
    limit, made = limit_of(job), IndexFailures()
    if limit is None:
        return made
    last: dict[int, tuple[int, Obj]] = {}
    for pod in failed:
        index = index_of(pod)
        if index is None or index in taken:
            continue
        action, count = judge(job, pod).action, _before(pod)
        if action != "Ignore":
            count += 1
        if action == "FailIndex" or count > limit:
            made.over.add(index)
        elif index not in last or count >= last[index][0]:
            last[index] = count, pod
    for index, (count, pod) in last.items():
        if index not in made.over:
            made.counts[index] = count
            made.kept.add(uid_of(pod))
    return made


def _before(pod: Obj) -> int:
    value = annotation(pod, NAMES.job_index_failures) or "0"
    return int(value) if value.isdigit() else 0


def words_of(job: Obj, failed: int, succeeded: int) -> str:
    """Why the Job has failed by its failed indexes, "" when it has not."""
    most, completions = spec_of(job).get("maxFailedIndexes"), int(spec_of(job).get("completions") or 0)
    if not failed:
        return ""
    if most is not None and failed > int(most):
        return "job_max_failed_indexes"
    return "job_failed_indexes" if failed + succeeded >= completions else ""
