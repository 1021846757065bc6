"""Validation of Deployments, DaemonSets and Jobs, in kube-apiserver's words."""

import re
from typing import Any

from kube32.api.admission.modules import check_template_modules
from kube32.api.admission.pod import check_template
from kube32.api.admission.problems import Problems
from kube32.api.admission.selectors import check_selector, is_empty, selects
from kube32.contract import text

Object = dict[str, Any]
_PERCENT = re.compile(r"[0-9]{1,9}%")
_POLICIES = ("Always",)
_JOB_POLICIES = ("OnFailure", "Never")
_JOB_PARALLEL = 100_000
_JOB_FIXED = (
    "selector",
    "completionMode",
    "podFailurePolicy",
    "backoffLimitPerIndex",
    "managedBy",
    "successPolicy",
)


def check_deployment(obj: Object, problems: Problems) -> None:
    """A Deployment."""
    spec = _spec(obj)
    _check_selector(spec, "deployment", problems)
    _check_template(spec, "ReplicaSet", problems)
    _check_counts(
        spec, ("replicas", "minReadySeconds", "revisionHistoryLimit", "progressDeadlineSeconds"), problems
    )
    deadline = spec.get("progressDeadlineSeconds")
    if deadline is not None and 0 <= deadline <= spec.get("minReadySeconds", 0):
        message = text("validation", "progress_deadline")
        problems.invalid("spec.progressDeadlineSeconds", deadline, message)
    strategy: Object = spec.get("strategy") or {}
    rolling, path = strategy.get("rollingUpdate"), "spec.strategy.rollingUpdate"
    if strategy.get("type") == "Recreate" and rolling is not None:
        problems.forbidden(path, text("validation", "recreate_rolling"))
    elif rolling is not None:
        _check_shares(rolling, path, problems)
        if _is_zero(rolling.get("maxUnavailable")) and _is_zero(rolling.get("maxSurge")):
            message = text("validation", "surge_both_zero")
            problems.invalid(f"{path}.maxUnavailable", rolling["maxUnavailable"], message)


def check_daemon_set(obj: Object, problems: Problems) -> None:
    """A DaemonSet."""
    spec = _spec(obj)
    _check_selector(spec, "daemonset", problems)
    _check_template(spec, "DaemonSet", problems)
    _check_counts(spec, ("minReadySeconds", "revisionHistoryLimit"), problems)
    strategy: Object = spec.get("updateStrategy") or {}
    rolling, path = strategy.get("rollingUpdate"), "spec.updateStrategy.rollingUpdate"
    if strategy.get("type") != "RollingUpdate" or rolling is None:
        return
    _check_shares(rolling, path, problems)
    unavailable, surge = (not _is_zero(rolling.get(k)) for k in ("maxUnavailable", "maxSurge"))
    if unavailable and surge:
        problems.invalid(f"{path}.maxSurge", rolling["maxSurge"], text("validation", "daemon_surge_both"))
    elif not unavailable and not surge:
        problems.required(f"{path}.maxUnavailable", text("validation", "daemon_surge_none"))


def check_job(obj: Object, problems: Problems) -> None:
    """A Job."""
    spec = _spec(obj)
    if spec.get("selector") is None:
        problems.required("spec.selector")
    else:
        _check_matches(spec, problems)
        if not spec.get("manualSelector"):
            _check_generated(obj, problems)
    counts = (
        "parallelism",
        "completions",
        "activeDeadlineSeconds",
        "backoffLimit",
        "ttlSecondsAfterFinished",
    )
    _check_counts(spec, (*counts, "backoffLimitPerIndex", "maxFailedIndexes"), problems)
    template: Object | None = spec.get("template")
    if template is None:
        return
    check_template(template, problems.within("spec.template"))
    policy, path = (template.get("spec") or {}).get("restartPolicy"), "spec.template.spec.restartPolicy"
    if policy == "Always":
        problems.required(path, text("validation", "job_policy"))
    elif spec.get("podFailurePolicy") is not None and policy != "Never":
        problems.invalid(path, policy, text("validation", "job_failures_never"))
    _check_indexed(spec, problems)


def _check_indexed(spec: Object, problems: Problems) -> None:
    """What a Job with numbered completions must have, and what only such a Job may have."""
    if spec.get("completionMode") == "Indexed":
        if spec.get("completions") is None:
            problems.required("spec.completions", text("validation", "job_indexed"))
        if (spec.get("parallelism") or 0) > _JOB_PARALLEL:
            message = text("validation", "range", low=0, high=_JOB_PARALLEL)
            problems.invalid("spec.parallelism", spec["parallelism"], message)
    else:
        for field in ("backoffLimitPerIndex", "maxFailedIndexes", "successPolicy"):
            if spec.get(field) is not None:
                problems.invalid(f"spec.{field}", spec[field], text("validation", "job_indexed_only"))
    if spec.get("maxFailedIndexes") is not None and spec.get("backoffLimitPerIndex") is None:
        problems.required("spec.backoffLimitPerIndex", text("validation", "job_failed_indexes"))


def _check_generated(obj: Object, problems: Problems) -> None:
    """A generated selector selects the Job's own uid."""
    meta: Object = obj.get("metadata") or {}
    labels = _labels(_spec(obj))
    for label, value in ((CONTROLLER_UID, meta.get("uid", "")), (JOB_NAME, meta.get("name", ""))):
        if labels.get(label) != value:
            path = f"spec.template.metadata.labels[{label}]"
            problems.invalid(path, labels.get(label, ""), text("validation", "job_label", value=value))


CONTROLLER_UID = "batch.kubernetes.io/controller-uid"
JOB_NAME = "batch.kubernetes.io/job-name"
_LEGACY_UID, _LEGACY_NAME = "controller-uid", "job-name"


def generate_selector(job: Object) -> None:
    """Gives a new Job the selector of its own pods, and its template their labels, as kube-apiserver does."""
    spec = _spec(job)
    template = spec.get("template")
    if spec.get("manualSelector") or template is None:
        return
    meta, before = job["metadata"], _labels(spec)
    labels = dict(before)
    for own, legacy, value in (
        (CONTROLLER_UID, _LEGACY_UID, meta["uid"]),
        (JOB_NAME, _LEGACY_NAME, meta["name"]),
    ):
        labels.setdefault(own, value)
        labels.setdefault(legacy, value)
    template.setdefault("metadata", {})["labels"] = labels
    if (meta.get("labels") or {}) == before:
        meta["labels"] = dict(labels)
    selector = spec.setdefault("selector", {})
    selector.setdefault("matchLabels", {}).setdefault(CONTROLLER_UID, meta["uid"])


def check_deployment_update(old: Object, new: Object, problems: Problems) -> None:
    """The selector stays."""
    check_template_modules(old, new, problems)
    _check_fixed(old, new, ("selector",), problems)


def check_job_update(old: Object, new: Object, problems: Problems) -> None:
    """The selector, the completions and the template stay; a suspended Job that never ran may still be placed."""
    _check_fixed(old, new, _JOB_FIXED, problems)
    before, after = _spec(old), _spec(new)
    if before.get("completions") != after.get("completions"):
        _check_completions(before, after, problems)
    was, now = before.get("template") or {}, after.get("template") or {}
    if before.get("suspend") and not (old.get("status") or {}).get("startTime"):
        was, now = _unplaced(was), _unplaced(now)
    if was != now:
        problems.invalid("spec.template", after.get("template"), text("validation", "immutable"))


def _check_completions(before: Object, after: Object, problems: Problems) -> None:
    """Those of an Indexed Job change together with its parallelism."""
    if before.get("completionMode") != "Indexed" or None in (
        before.get("completions"),
        after.get("completions"),
    ):
        problems.invalid("spec.completions", after.get("completions"), text("validation", "immutable"))
    elif after.get("completions") != after.get("parallelism"):
        problems.invalid("spec.completions", after.get("completions"), text("validation", "job_completions"))


def _unplaced(template: Object) -> Object:
    """A template without what says where its pods run."""
    spec = {
        k: v
        for k, v in (template.get("spec") or {}).items()
        if k not in ("nodeSelector", "tolerations", "affinity", "schedulingGates")
    }
    return {**template, "metadata": {}, "spec": spec}


def _spec(obj: Object) -> Object:
    return obj.get("spec") or {}


def _labels(spec: Object) -> dict[str, str]:
    return ((spec.get("template") or {}).get("metadata") or {}).get("labels") or {}


def _check_selector(spec: Object, kind: str, problems: Problems) -> None:
    selector = spec.get("selector")
    if selector is None:
        return
    if is_empty(selector):
        problems.invalid("spec.selector", selector, text("validation", "selector_empty", kind=kind))
    _check_matches(spec, problems)


def _check_matches(spec: Object, problems: Problems) -> None:
    selector: Object = spec["selector"]
    count = len(problems.causes)
    check_selector(selector, "spec.selector", problems)
    broken = len(problems.causes) > count
    if not broken and "template" in spec and not is_empty(selector) and not selects(selector, _labels(spec)):
        message = text("validation", "selector_template")
        problems.invalid("spec.template.metadata.labels", _labels(spec), message)


def _check_template(spec: Object, kind: str, problems: Problems) -> None:
    template = spec.get("template")
    if template is None:
        return
    check_template(template, problems.within("spec.template"))
    pod: Object = template.get("spec") or {}
    if pod.get("restartPolicy", "Always") != "Always":
        problems.unsupported("spec.template.spec.restartPolicy", pod["restartPolicy"], _POLICIES)
    if pod.get("activeDeadlineSeconds") is not None:
        message = text("validation", "deadline_owner", kind=kind)
        problems.forbidden("spec.template.spec.activeDeadlineSeconds", message)


def _check_counts(spec: Object, fields: tuple[str, ...], problems: Problems) -> None:
    for field in fields:
        value = spec.get(field)
        if value is not None and value < 0:
            problems.invalid(f"spec.{field}", value, text("validation", "not_negative"))


def _check_shares(rolling: Object, path: str, problems: Problems) -> None:
    """Numbers or percentages."""
    for field in ("maxUnavailable", "maxSurge"):
        value = rolling.get(field)
        if isinstance(value, str) and not _PERCENT.fullmatch(value):
            problems.invalid(f"{path}.{field}", value, text("validation", "percent"))
        elif isinstance(value, int) and value < 0:
            problems.invalid(f"{path}.{field}", value, text("validation", "not_negative"))
        elif field == "maxUnavailable" and isinstance(value, str) and int(value.removesuffix("%")) > 100:
            problems.invalid(f"{path}.{field}", value, text("validation", "percent_most"))


def _is_zero(share: int | str | None) -> bool:
    if isinstance(share, str):
        return share.removesuffix("%").strip("0") == ""
    return not share


def _check_fixed(old: Object, new: Object, fields: tuple[str, ...], problems: Problems) -> None:
    for field in fields:
        before, after = _spec(old).get(field), _spec(new).get(field)
        if before != after:
            problems.invalid(f"spec.{field}", after, text("validation", "immutable"))
