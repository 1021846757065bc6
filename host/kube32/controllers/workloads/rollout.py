"""How a Deployment gets from the pods it has to those it wants: pure, one step at a time (Kubernetes' rules)."""

from collections.abc import Callable
from dataclasses import dataclass, field

from kube32.controllers.objects import Obj, spec_of
from kube32.controllers.workloads.pods import in_deletion_order, is_held

_DEFAULT = "25%"


@dataclass(frozen=True, slots=True)
class Step:
    """What to do now: how many pods to create, of which template (its hash), and which to delete."""

    create: int = 0
    create_hash: str = ""
    delete: tuple[Obj, ...] = ()


@dataclass(slots=True)
class Pods:
    """A Deployment's pods that count, by template hash. `going` are being deleted."""

    current: str
    by_hash: dict[str, list[Obj]] = field(default_factory=dict)
    going: list[Obj] = field(default_factory=list)

    @property
    def new(self) -> list[Obj]:
        """Pods of the newest template."""
        return self.by_hash.get(self.current, [])

    @property
    def old(self) -> list[Obj]:
        """Pods of earlier templates."""
        return [p for h, pods in self.by_hash.items() if h != self.current for p in pods]

    @property
    def all(self) -> list[Obj]:
        """All that count."""
        return [p for pods in self.by_hash.values() for p in pods]


def bounds(deployment: Obj) -> tuple[int, int]:
    """(maxSurge, maxUnavailable) as numbers: surge rounds up, unavailable down; both 0 makes one unavailable."""
    spec = spec_of(deployment)
    replicas, strategy = int(spec.get("replicas") or 0), spec.get("strategy") or {}
    if strategy.get("type") == "Recreate":
        return 0, 0
    rolling = strategy.get("rollingUpdate") or {}
    surge = resolve(rolling.get("maxSurge", _DEFAULT), replicas, up=True)
    unavailable = resolve(rolling.get("maxUnavailable", _DEFAULT), replicas, up=False)
    if surge == 0 and unavailable == 0:
        unavailable = 1
    return surge, min(unavailable, replicas)


def resolve(value: int | str, total: int, *, up: bool) -> int:
    """A number, or a percentage of `total`."""
    if isinstance(value, int):
        return value
    percent = int(value.removesuffix("%"))
    return -(-total * percent // 100) if up else total * percent // 100


def next_step(
    deployment: Obj, pods: Pods, available: Callable[[Obj], bool], newest_known: Callable[[], str]
) -> Step:
    """What to do now. `available` judges a pod; `newest_known` is the newest template that has pods."""
    spec = spec_of(deployment)
    replicas = int(spec.get("replicas") or 0)
    if spec.get("paused"):
        return _scale_only(replicas, pods, newest_known)
    if not pods.old:
        return _towards(replicas, pods.new, pods.current)
    if (spec.get("strategy") or {}).get("type") == "Recreate":
        return Step(delete=tuple(p for p in pods.old if not is_held(p)))
    return _rolling(deployment, replicas, pods, available)


def _towards(replicas: int, pods: list[Obj], wanted_hash: str) -> Step:
    if len(pods) < replicas:
        return Step(create=replicas - len(pods), create_hash=wanted_hash)
    return Step(delete=tuple(in_deletion_order(pods)[: len(pods) - replicas]))


def _scale_only(replicas: int, pods: Pods, newest_known: Callable[[], str]) -> Step:
    """A paused Deployment changes its size and nothing else."""
    found = pods.all
    if len(found) < replicas:
        return Step(create=replicas - len(found), create_hash=newest_known() or pods.current)
    first_old = [*in_deletion_order(pods.old), *in_deletion_order(pods.new)]
    return Step(delete=tuple(first_old[: len(found) - replicas]))


def _rolling(deployment: Obj, replicas: int, pods: Pods, available: Callable[[Obj], bool]) -> Step:
    surge, unavailable = bounds(deployment)
    total, new = len(pods.all), pods.new
    create = max(min(replicas + surge - total, replicas - len(new)), 0)
    extra = in_deletion_order(new)[: max(len(new) - replicas, 0)]
    least = replicas - unavailable
    new_unavailable = sum(not available(p) for p in new)
    may_go = max(total - least - new_unavailable, 0)
    # Old pods that serve nobody go first; then as many that do as the rest can spare.
    broken = [p for p in in_deletion_order(pods.old) if not available(p)][:may_go]
    serving = [p for p in in_deletion_order(pods.old) if available(p)]
    spare = sum(available(p) for p in pods.all) - least
    rest = serving[: max(min(spare, may_go - len(broken)), 0)]
    return Step(create, pods.current, (*extra, *broken, *rest))
