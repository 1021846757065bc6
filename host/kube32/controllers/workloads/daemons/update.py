"""A step of a DaemonSet's rolling update: which old pods go, and which nodes get a second pod. Pure."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

from kube32.controllers.objects import Obj, spec_of
from kube32.controllers.workloads.order import created_at
from kube32.controllers.workloads.owned import labels_of
from kube32.controllers.workloads.shares import resolve

HASH_LABEL = "controller-revision-hash"


@dataclass(slots=True)
class Plan:
    """Nodes that get a pod, and pods that go."""

    create: list[str] = field(default_factory=list)
    delete: list[Obj] = field(default_factory=list)


def hash_of(pod: Obj) -> str:
    """The hash of the template that the pod was made from."""
    return labels_of(pod).get(HASH_LABEL, "")


def rolling(daemon_set: Obj) -> Obj | None:
    """The pace of a RollingUpdate; None for OnDelete."""
    strategy = spec_of(daemon_set).get("updateStrategy") or {}
    if strategy.get("type", "RollingUpdate") != "RollingUpdate":
        return None
    return strategy.get("rollingUpdate") or {}


def bounds(daemon_set: Obj, nodes: int) -> tuple[int, int]:
    """(maxSurge, maxUnavailable) as numbers, percentages rounded up; both 0 makes one unavailable."""
    pace = rolling(daemon_set) or {}
    surge = resolve(pace.get("maxSurge", 0), nodes, up=True)
    unavailable = resolve(pace.get("maxUnavailable", 1), nodes, up=True)
    return (0, 1) if surge == 0 and unavailable == 0 else (surge, unavailable)


def next_step(
    daemon_set: Obj,
    current: str,
    running: Mapping[str, list[Obj]],
    wanted: Iterable[str],
    available: Callable[[Obj], bool],
) -> Plan:
    """What to do now. `running` are the pods on each node that have not ended, those that go included."""
    nodes = sorted(wanted)
    surge, unavailable = bounds(daemon_set, len(nodes))
    on_node = {node: _split(running.get(node, []), current) for node in nodes}
    if surge:
        return _surge(on_node, surge, available)
    return _replace(on_node, unavailable, available)


def _split(pods: list[Obj], current: str) -> tuple[list[Obj], list[Obj]]:
    """(new, old) pods of a node, the oldest first."""
    ordered = sorted(pods, key=created_at)
    return [p for p in ordered if hash_of(p) == current], [p for p in ordered if hash_of(p) != current]


def _replace(
    on_node: Mapping[str, tuple[list[Obj], list[Obj]]], most: int, available: Callable[[Obj], bool]
) -> Plan:
    missing, broken, serving = 0, [], []
    for new, old in on_node.values():
        if bool(new) == bool(old):
            missing += 1  # none, or both: one is coming or going
        elif new:
            missing += not available(new[0])
        elif available(old[0]):
            serving.append(old[0])
        else:
            missing += 1
            broken.append(old[0])
    return Plan(delete=[*broken, *serving[: max(most - missing, 0)]])


def _surge(
    on_node: Mapping[str, tuple[list[Obj], list[Obj]]], most: int, available: Callable[[Obj], bool]
) -> Plan:
    plan, two, serving = Plan(), 0, []
    for node, (new, old) in on_node.items():
        if not old:
            continue
        if new:
            two += 1
            if available(new[0]):
                plan.delete += old
        elif available(old[0]):
            serving.append(node)
        else:
            plan.create.append(node)
    plan.create += serving[: max(most - two, 0)]
    return plan
