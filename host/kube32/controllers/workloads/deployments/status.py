"""A Deployment's status: counts and conditions in Kubernetes' words. Pure but for the time stamps."""

from collections import Counter
from dataclasses import dataclass, field

from kube32.contract import Limits
from kube32.contract.messages import WORKLOAD_CONDITIONS
from kube32.controllers.objects import Obj, is_true, name_of, spec_of, status_of
from kube32.controllers.workloads.conditions import Conditions
from kube32.controllers.workloads.deployments.history import History
from kube32.controllers.workloads.deployments.rollout import bounds, replicas_of

HASH_LABEL = "pod-template-hash"
_NO_DEADLINE = (1 << 31) - 1


@dataclass(slots=True)
class Pods:
    """A Deployment's pods: those that count by their template's hash, and those on their way out.

    `serving` are available, or are not for a move alone, by hash; `waits` are seconds until others will be.
    """

    by_hash: dict[str, list[Obj]] = field(default_factory=dict)
    going: list[Obj] = field(default_factory=list)
    serving: Counter[str] = field(default_factory=Counter)
    available: int = 0
    waits: list[float | None] = field(default_factory=list)

    @property
    def all(self) -> list[Obj]:
        """All that count."""
        return [p for pods in self.by_hash.values() for p in pods]


@dataclass(frozen=True, slots=True)
class Facts:
    """What the status is made of, besides the Deployment. `current` is the hash of its template."""

    current: str
    pods: Pods
    late: bool = False
    begun: bool = False
    failure: tuple[str, str] | None = None


def deadline_of(deployment: Obj) -> int | None:
    """progressDeadlineSeconds; None: a rollout may take for ever."""
    seconds = int(spec_of(deployment).get("progressDeadlineSeconds") or _NO_DEADLINE)
    return None if seconds == _NO_DEADLINE else seconds


def make(deployment: Obj, facts: Facts, history: History, limits: Limits, *, rolls: bool) -> Obj:
    """The whole status. `rolls`: it is not paused."""
    pods, old = facts.pods, status_of(deployment)
    wanted = sum(r.replicas for r in history.revisions)
    counts = {
        "replicas": len(pods.all),
        "updatedReplicas": len(pods.by_hash.get(facts.current, [])),
        "readyReplicas": sum(is_true(p, "Ready") for p in pods.all),
        "availableReplicas": pods.available,
        "unavailableReplicas": max(wanted - pods.available, 0),
        "terminatingReplicas": len(pods.going),
    }
    status: Obj = {
        "observedGeneration": deployment["metadata"].get("generation", 1),
        **{k: v for k, v in counts.items() if v},
    }
    conditions = Conditions(old)
    _say_paused(deployment, conditions)
    enough = pods.serving.total() >= replicas_of(deployment) - bounds(deployment)[1]
    conditions.put("Available", "True" if enough else "False", "available" if enough else "not_available")
    if rolls:
        _say_progress(deployment, facts, status, conditions)
        conditions.drop("ReplicaFailure")
        if facts.failure is not None:
            words, cause = facts.failure
            conditions.put("ReplicaFailure", "True", words, {"cause": cause})
    return status | {"conditions": conditions.rows(), "history": history.rows(limits)}


def is_complete(deployment: Obj, facts: Facts) -> bool:
    """Whether the rollout is over: all pods are of the present template and serve."""
    new = len(facts.pods.by_hash.get(facts.current, []))
    serve = facts.pods.serving.total()
    return new == len(facts.pods.all) == serve == replicas_of(deployment)


def has_progressed(old: Obj, status: Obj) -> bool:
    """Whether more of the rollout is done than the old status says."""

    def count(of: Obj, name: str) -> int:
        return int(of.get(name) or 0)

    left, left_before = (count(s, "replicas") - count(s, "updatedReplicas") for s in (status, old))
    more = ("updatedReplicas", "readyReplicas", "availableReplicas")
    return left < left_before or any(count(status, name) > count(old, name) for name in more)


def _say_paused(deployment: Obj, conditions: Conditions) -> None:
    if deadline_of(deployment) is None:
        return
    reason = conditions.reason("Progressing")
    if reason == WORKLOAD_CONDITIONS["late"][0]:
        return
    if spec_of(deployment).get("paused"):
        conditions.put("Progressing", "Unknown", "paused")
    elif reason == WORKLOAD_CONDITIONS["paused"][0]:
        conditions.put("Progressing", "Unknown", "resumed")


def _say_progress(deployment: Obj, facts: Facts, status: Obj, conditions: Conditions) -> None:
    if deadline_of(deployment) is None:
        conditions.drop("Progressing")
        return
    about = {"name": f"{name_of(deployment)}-{facts.current}"}
    if facts.begun:
        conditions.put("Progressing", "True", "created", about)
    reason = conditions.reason("Progressing")
    done = reason == WORKLOAD_CONDITIONS["complete"][0]
    if done and status.get("replicas") == status.get("updatedReplicas"):
        return
    if is_complete(deployment, facts):
        conditions.put("Progressing", "True", "complete", about)
    elif has_progressed(status_of(deployment), status):
        conditions.put("Progressing", "True", "progressing", about, always=True)
    elif facts.late and not done:
        conditions.put("Progressing", "False", "late", about)
    elif not reason:
        conditions.put("Progressing", "True", "found", about)
