"""What Deployments, DaemonSets and Jobs may leave out."""

from typing import Any

from kube32.api.admission.defaults import pods
from kube32.api.admission.defaults.values import fill

Object = dict[str, Any]
_SHARE = "25%"
_HISTORY = 10
_PROGRESS_S = 600
_BACKOFFS = 6
_UNLIMITED = 2**31 - 1
_DAEMON_COUNTS = ("currentNumberScheduled", "desiredNumberScheduled", "numberMisscheduled", "numberReady")


def deployment(obj: Object) -> None:
    """A Deployment."""
    spec = _spec(obj)
    spec.setdefault("replicas", 1)
    strategy: Object = spec.setdefault("strategy", {})
    fill(strategy, type="RollingUpdate")
    if strategy["type"] == "RollingUpdate":
        rolling: Object = strategy.setdefault("rollingUpdate", {})
        rolling.setdefault("maxUnavailable", _SHARE)
        rolling.setdefault("maxSurge", _SHARE)
    spec.setdefault("revisionHistoryLimit", _HISTORY)
    spec.setdefault("progressDeadlineSeconds", _PROGRESS_S)
    obj.setdefault("status", {})


def daemon_set(obj: Object) -> None:
    """A DaemonSet."""
    spec = _spec(obj)
    strategy: Object = spec.setdefault("updateStrategy", {})
    fill(strategy, type="RollingUpdate")
    if strategy["type"] == "RollingUpdate":
        rolling: Object = strategy.setdefault("rollingUpdate", {})
        rolling.setdefault("maxUnavailable", 1)
        rolling.setdefault("maxSurge", 0)
    spec.setdefault("revisionHistoryLimit", _HISTORY)
    status: Object = obj.setdefault("status", {})
    for count in _DAEMON_COUNTS:
        status.setdefault(count, 0)


def job(obj: Object) -> None:
    """A Job."""
    spec = _spec(obj)
    if "completions" not in spec and "parallelism" not in spec:
        spec["completions"] = 1
    spec.setdefault("parallelism", 1)
    spec.setdefault("backoffLimit", _UNLIMITED if "backoffLimitPerIndex" in spec else _BACKOFFS)
    spec.setdefault("suspend", False)
    spec.setdefault("manualSelector", False)
    failures = spec.get("podFailurePolicy")
    fill(
        spec,
        completionMode="NonIndexed",
        podReplacementPolicy="Failed" if failures is not None else "TerminatingOrFailed",
    )
    for rule in (failures or {}).get("rules") or ():
        for pattern in rule.get("onPodConditions") or ():
            fill(pattern, status="True")
    labels = ((spec.get("template") or {}).get("metadata") or {}).get("labels")
    if labels and not obj.setdefault("metadata", {}).get("labels"):
        obj["metadata"]["labels"] = dict(labels)
    obj.setdefault("status", {})


def _spec(obj: Object) -> Object:
    """The spec, its template filled in when there is one."""
    spec: Object = obj.setdefault("spec", {})
    if "template" in spec:
        pods.template(spec["template"])
    return spec
