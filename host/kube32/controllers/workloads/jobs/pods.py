"""The pods of Jobs: what they have beside the template, and which indexes they are for. Pure."""

from collections.abc import Iterator

from kube32.contract import NAMES
from kube32.controllers.objects import Obj, name_of, spec_of, uid_of
from kube32.controllers.workloads.jobs.index_failures import limit_of
from kube32.controllers.workloads.jobs.indexes import index_of
from kube32.controllers.workloads.jobs.tally import Tally, is_indexed
from kube32.controllers.workloads.order import created_at

_OLD_LABELS = ("job-name", "controller-uid")


def job_pod(job: Obj, pod: Obj, index: int | None, failures: int = 0) -> Obj:
    """A pod of the template with what Jobs add, changed in place. `failures` are those of its index so far."""
    meta, name = pod["metadata"], name_of(job)
    own = {NAMES.job_name: name, NAMES.job_uid: uid_of(job)}
    own |= dict(zip(_OLD_LABELS, (name, uid_of(job)), strict=True))
    # With a selector of its own a Job's template says which labels its pods have.
    meta["labels"] |= {NAMES.job_name: name} if spec_of(job).get("manualSelector") else own
    meta["finalizers"] = [*meta.get("finalizers", []), NAMES.finalizer_job]
    if index is not None:
        meta["generateName"] = f"{name}-{index}-"
        meta["labels"][NAMES.job_index] = str(index)
        meta.setdefault("annotations", {})[NAMES.job_index] = str(index)
        if limit_of(job) is not None:
            meta["annotations"][NAMES.job_index_failures] = str(failures)
        pod["spec"].setdefault("hostname", f"{name}-{index}")
        for part in ("initContainers", "containers"):
            for container in pod["spec"].get(part) or []:
                _tell_index(container)
    return pod


def _tell_index(container: Obj) -> None:
    environment = container.setdefault("env", [])
    if all(row.get("name") != NAMES.job_index_variable for row in environment):
        path = f"metadata.labels['{NAMES.job_index}']"
        reference = {"fieldRef": {"apiVersion": "v1", "fieldPath": path}}
        environment.append({"name": NAMES.job_index_variable, "valueFrom": reference})


def indexes_to_create(job: Obj, found: Tally, taken: set[int | None], count: int) -> Iterator[int]:
    """The lowest indexes that have neither ended nor a pod."""
    for index in range(int(spec_of(job).get("completions") or 0)):
        if count <= 0:
            return
        if index not in found.done and index not in found.failed_indexes and index not in taken:
            count -= 1
            yield index


def out_of_place(job: Obj, found: Tally) -> list[Obj]:
    """Active pods of an Indexed Job that are for no index, for one that is done, or for one that another has."""
    if not is_indexed(job):
        return []
    completions, seen, wrong = (
        int(spec_of(job).get("completions") or 0),
        found.done | found.failed_indexes,
        [],
    )
    for pod in sorted(found.active, key=created_at):
        index = index_of(pod)
        if index is None or index >= completions or index in seen:
            wrong.append(pod)
        else:
            seen.add(index)
    return wrong
