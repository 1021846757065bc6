"""Cells of Deployments, DaemonSets, ReplicaSets and Jobs."""

from typing import Any

from kube32.api.printers.base import (
    NONE,
    UNKNOWN,
    Cell,
    Object,
    Printer,
    has_condition,
    mapping,
    maps,
    number,
    seconds,
    string,
    strings,
)
from kube32.contract import LIMITS
from kube32.formats import duration

_JOB_STATES = (("Complete", "Complete"), ("Failed", "Failed"))
_JOB_WAITS = ("Suspended", "FailureTarget", "SuccessCriteriaMet")


def _count(part: str, key: str) -> Printer:
    def cell(obj: Object, _now: float) -> Cell:
        return number(mapping(obj, part).get(key))

    return cell


def deployment_ready(obj: Object, _now: float) -> str:
    """READY: ready pods, of those wanted."""
    wanted = number(mapping(obj, "spec").get("replicas"))
    return f"{number(mapping(obj, 'status').get('readyReplicas'))}/{wanted}"


def _of_containers(key: str) -> Printer:
    def cell(obj: Object, _now: float) -> Cell:
        containers = maps(mapping(obj, "spec", "template", "spec"), "containers")
        return ",".join(string(c.get(key)) for c in containers)

    return cell


def node_selector(obj: Object, _now: float) -> str:
    """NODE SELECTOR of a template."""
    return labels(mapping(obj, "spec", "template", "spec").get("nodeSelector"))


def labels(value: Any) -> str:
    """ "a=b,c=d" of a map of labels."""
    pairs = sorted(value.items()) if isinstance(value, dict) else []
    return ",".join(f"{k}={v}" for k, v in pairs) or NONE


def label_selector(obj: Object, _now: float) -> str:
    """SELECTOR: a label selector as it is written on a command line."""
    return selector_text(mapping(obj, "spec").get("selector")) or NONE


def selector_text(selector: Any) -> str:
    """ "app=web,tier in (a,b),!x" of a label selector, "" of one that selects everything or is not there."""
    if not isinstance(selector, dict):
        return ""
    parts = [(str(k), f"{k}={v}") for k, v in mapping(selector, "matchLabels").items()]
    for rule in maps(selector, "matchExpressions"):
        key = string(rule.get("key"))
        parts.append((key, _requirement(key, rule.get("operator"), strings(rule, "values"))))
    return ",".join(text for _, text in sorted(parts, key=lambda part: part[0]))


def _requirement(key: str, operator: Any, values: list[str]) -> str:
    if operator in ("In", "NotIn"):
        return f"{key} {operator.lower()} ({','.join(sorted(values))})"
    return f"!{key}" if operator == "DoesNotExist" else key


def job_status(obj: Object, _now: float) -> str:
    """STATUS of a Job."""
    status = mapping(obj, "status")
    for kind, shown in _JOB_STATES:
        if has_condition(status, kind):
            return shown
    if mapping(obj, "metadata").get("deletionTimestamp") is not None:
        return "Terminating"
    return next((kind for kind in _JOB_WAITS if has_condition(status, kind)), "Running")


def job_completions(obj: Object, _now: float) -> str:
    """COMPLETIONS: "1/3", or "0/1 of 4" of a work queue."""
    spec, done = mapping(obj, "spec"), number(mapping(obj, "status").get("succeeded"))
    if isinstance(spec.get("completions"), int):
        return f"{done}/{spec['completions']}"
    width = number(spec.get("parallelism"))
    return f"{done}/1 of {width}" if width > 1 else f"{done}/1"


def job_duration(obj: Object, now: float) -> str:
    """DURATION: from the start to the completion, or to now."""
    status = mapping(obj, "status")
    if status.get("startTime") is None:
        return ""
    started, ended = seconds(status["startTime"]), seconds(status.get("completionTime"))
    if ended is None:
        ended = now
    if started is None or ended < LIMITS.wall_clock_min_s:
        return UNKNOWN
    return duration.human(ended - started)


PRINTERS: dict[str, Printer] = {
    "deployment_ready": deployment_ready,
    "deployment_updated": _count("status", "updatedReplicas"),
    "deployment_available": _count("status", "availableReplicas"),
    "daemonset_desired": _count("status", "desiredNumberScheduled"),
    "daemonset_current": _count("status", "currentNumberScheduled"),
    "daemonset_ready": _count("status", "numberReady"),
    "daemonset_updated": _count("status", "updatedNumberScheduled"),
    "daemonset_available": _count("status", "numberAvailable"),
    "replicaset_desired": _count("spec", "replicas"),
    "replicaset_current": _count("status", "replicas"),
    "replicaset_ready": _count("status", "readyReplicas"),
    "template_containers": _of_containers("name"),
    "template_images": _of_containers("image"),
    "template_node_selector": node_selector,
    "label_selector": label_selector,
    "job_status": job_status,
    "job_completions": job_completions,
    "job_duration": job_duration,
}
