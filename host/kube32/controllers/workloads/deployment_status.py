"""A Deployment's status: counts and conditions in Kubernetes' words. Pure but for the time stamps."""

from dataclasses import dataclass

from kube32.controllers.objects import Obj, condition, is_true, name_of, now_rfc3339, spec_of, status_of
from kube32.controllers.workloads.rollout import Pods, bounds


@dataclass(frozen=True, slots=True)
class Facts:
    """What the status is made of. `available` and `held` are numbers of pods; `failure` is why a create failed."""

    pods: Pods
    available: int
    counted_available: int
    updated_available: int
    late: bool
    failure: str


def make(deployment: Obj, facts: Facts, history: list[Obj]) -> Obj:
    """The whole status."""
    pods, replicas = facts.pods, int(spec_of(deployment).get("replicas") or 0)
    total, updated = len(pods.all), len(pods.new)
    counts = {
        "replicas": total,
        "updatedReplicas": updated,
        "readyReplicas": sum(is_true(p, "Ready") for p in pods.all),
        "availableReplicas": facts.available,
        "unavailableReplicas": max(max(total, replicas) - facts.available, 0),
        "terminatingReplicas": len(pods.going),
    }
    status: Obj = {
        "observedGeneration": deployment["metadata"].get("generation", 1),
        **{k: v for k, v in counts.items() if v},
        "history": history,
    }
    status["conditions"] = _conditions(deployment, facts, replicas, status)
    return status


def is_complete(deployment: Obj, facts: Facts) -> bool:
    """Whether the rollout is over: all pods are of the newest template and available."""
    replicas, pods = int(spec_of(deployment).get("replicas") or 0), facts.pods
    return len(pods.new) == replicas == len(pods.all) == facts.counted_available and not pods.old


def has_progressed(deployment: Obj, facts: Facts) -> bool:
    """Whether more of the rollout is done than the old status says."""
    old, pods = status_of(deployment), facts.pods
    before_old = int(old.get("replicas") or 0) - int(old.get("updatedReplicas") or 0)
    return (
        len(pods.new) > int(old.get("updatedReplicas") or 0)
        or len(pods.old) < before_old
        or sum(is_true(p, "Ready") for p in pods.all) > int(old.get("readyReplicas") or 0)
        or facts.available > int(old.get("availableReplicas") or 0)
    )


def _conditions(deployment: Obj, facts: Facts, replicas: int, status: Obj) -> list[Obj]:
    _, unavailable = bounds(deployment)
    enough = facts.counted_available >= replicas - unavailable
    made = [
        _condition(
            deployment,
            "Available",
            "True" if enough else "False",
            "MinimumReplicasAvailable" if enough else "MinimumReplicasUnavailable",
            f"Deployment {'has' if enough else 'does not have'} minimum availability.",
        )
    ]
    progress = _progress(deployment, facts)
    if progress is not None:
        made.append(progress)
    if facts.failure:
        made.append(_condition(deployment, "ReplicaFailure", "True", "FailedCreate", facts.failure))
    return sorted(made, key=lambda c: str(c["type"]))


def _progress(deployment: Obj, facts: Facts) -> Obj | None:
    spec = spec_of(deployment)
    old = condition(deployment, "Progressing")
    name = f'ReplicaSet "{name_of(deployment)}-{facts.pods.current}"'
    if spec.get("paused"):
        return _condition(deployment, "Progressing", "Unknown", "DeploymentPaused", "Deployment is paused")
    if old is not None and old.get("reason") == "DeploymentPaused":
        return _condition(deployment, "Progressing", "Unknown", "DeploymentResumed", "Deployment is resumed")
    if is_complete(deployment, facts):
        message = f"{name} has successfully progressed."
        return _condition(deployment, "Progressing", "True", "NewReplicaSetAvailable", message)
    if has_progressed(deployment, facts) or old is None:
        made = _condition(deployment, "Progressing", "True", "ReplicaSetUpdated", f"{name} is progressing.")
        return {**made, "lastUpdateTime": now_rfc3339()}
    if facts.late:
        message = f"{name} has timed out progressing."
        return _condition(deployment, "Progressing", "False", "ProgressDeadlineExceeded", message)
    if old.get("reason") == "NewReplicaSetAvailable" and not facts.pods.new:
        return _condition(deployment, "Progressing", "True", "ReplicaSetUpdated", f"{name} is progressing.")
    return old


def _condition(obj: Obj, kind: str, status: str, reason: str, message: str) -> Obj:
    """A condition; what does not change keeps its times."""
    old, now = condition(obj, kind), now_rfc3339()
    wanted = {"type": kind, "status": status, "reason": reason, "message": message}
    if old is not None and all(old.get(k) == v for k, v in wanted.items()):
        return old
    changed = old is None or old.get("status") != status
    transition = now if changed or old is None else old.get("lastTransitionTime", now)
    return {**wanted, "lastUpdateTime": now, "lastTransitionTime": transition}
