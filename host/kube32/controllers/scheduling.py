"""Which node takes a pod: filters and scores as the kube-scheduler's, and its words when none does.

The scheduler and the Checkpoint controller choose by the same rules. Pure: it sees only what it is given.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from kube32.contract import NAMES, text
from kube32.controllers.load import Load
from kube32.controllers.node_match import (
    lacks_storage,
    matches_required_affinity,
    matches_selector,
    missing_capability,
    preferred_weight,
    soft_taints,
    tolerated,
    untolerated_taint,
)
from kube32.controllers.objects import Obj, is_true, name_of, spec_of
from kube32.controllers.resources import Amounts, allocatable, requests

# (name in the contract's section "scheduling", its fields)
Refusal = tuple[str, tuple[tuple[str, str], ...]]
_SCORED = ("cpu", "memory", "pods")
# Nodes account for these only where they report them.
_OPTIONAL_RESOURCES = ("ephemeral-storage",)


@dataclass(frozen=True, slots=True)
class Placement:
    """The node that takes the pod, or None and the reason in the kube-scheduler's words."""

    node: str | None
    reason: str = ""


def choose(
    pod: Obj,
    nodes: Sequence[Obj],
    pods: Load | Iterable[Obj],
    *,
    extra_selector: Mapping[str, str] | None = None,
    exclude: Collection[str] = (),
    allow_cordoned: bool = True,
    volumes_on: Collection[str] = (),
) -> Placement:
    """The best node for `pod`, given every node and every pod of the cluster.

    A pod that tolerates the taint of cordoned nodes may go to one, unless `allow_cordoned` is off (moves).
    `volumes_on`: the nodes that hold its claims; with one it goes there, with several nowhere.
    """
    if not nodes:
        return Placement(None, text("scheduling", "no_nodes"))
    load = pods if isinstance(pods, Load) else Load(pods)
    wanted = requests(pod)
    limits = _Limits(extra_selector, exclude, allow_cordoned, volumes_on)
    fitting, refusals = [], Counter[Refusal]()
    for node in nodes:
        found = list(_refusals(node, pod, wanted, load.used(name_of(node), pod), limits))
        if found:
            refusals.update(found)
        else:
            fitting.append(node)
    if not fitting:
        return Placement(None, _reason(len(nodes), refusals))
    return Placement(name_of(_best(pod, fitting, load, wanted)))


def nowhere(total: int, reason: str) -> Placement:
    """What is said of a pod that no node can take, for a reason that lies with the pod."""
    return Placement(None, text("scheduling", "none", total=total, reasons=reason))


@dataclass(frozen=True, slots=True)
class _Limits:
    """What else a choice is bound by, besides the pod's own spec."""

    extra_selector: Mapping[str, str] | None
    exclude: Collection[str]
    allow_cordoned: bool
    volumes_on: Collection[str]


def _reason(total: int, refusals: Counter[Refusal]) -> str:
    words = [
        text("scheduling", name, count=count, **dict(fields)) for (name, fields), count in refusals.items()
    ]
    return text("scheduling", "none", total=total, reasons=", ".join(sorted(words)))


def _refusals(
    node: Obj,
    pod: Obj,
    wanted: Amounts,
    used: Amounts,
    limits: _Limits,
) -> Iterator[Refusal]:
    """Why the node does not take the pod: the first reason, and of resources each one that is short."""
    first = _first_refusal(node, pod, limits)
    if first is not None:
        yield first
        return
    offered = allocatable(node)
    for name, amount in wanted.items():
        if name in _OPTIONAL_RESOURCES and name not in offered:
            continue
        if amount > offered.get(name, 0) - used.get(name, 0):
            yield ("too_many_pods", ()) if name == "pods" else ("insufficient", (("resource", name),))


def _first_refusal(node: Obj, pod: Obj, limits: _Limits) -> Refusal | None:
    if name_of(node) in limits.exclude:
        return "excluded", ()
    if not is_true(node, "Ready"):
        return "not_ready", ()
    if is_cordoned(node) and not (limits.allow_cordoned and tolerated(pod, CORDON_TAINT)):
        return "unschedulable", ()
    taint = untolerated_taint(node, pod)
    if taint is not None:
        return "taint", (("key", taint.get("key", "")), ("value", taint.get("value", "")))
    selectors = (spec_of(pod).get("nodeSelector"), limits.extra_selector)
    if not all(matches_selector(node, s) for s in selectors) or not matches_required_affinity(node, pod):
        return "selector", ()
    capability = missing_capability(node, pod)
    if capability is not None:
        return "capability", (("name", capability),)
    if any(name != name_of(node) for name in limits.volumes_on):
        return "volume_node", ()
    return ("storage", ()) if lacks_storage(node, pod) else None


CORDON_TAINT: Obj = {"key": NAMES.taint_unschedulable, "effect": "NoSchedule"}


def is_cordoned(node: Obj) -> bool:
    """Whether the node takes no new pods."""
    return bool(spec_of(node).get("unschedulable"))


def _best(pod: Obj, fitting: list[Obj], load: Load, wanted: Amounts) -> Obj:
    """The node with the most room and the fewest siblings; of equals the first by name."""
    siblings = load.siblings(pod)
    most = max(siblings.values(), default=0)
    heaviest = max((preferred_weight(n, pod) for n in fitting), default=0)

    def score(node: Obj) -> tuple[float, str]:
        name = name_of(node)
        room = _room(allocatable(node), load.used(name, pod), wanted)
        spread = 1 - siblings[name] / most if most else 1.0
        liked = preferred_weight(node, pod) / heaviest if heaviest else 0.0
        return -(room + spread + 2 * liked - 3 * soft_taints(node, pod)), name

    return min(fitting, key=score)


def _room(offered: Amounts, used: Amounts, wanted: Amounts) -> float:
    """The share that is left once the pod runs, 0 to 1, of cpu, memory and pods alike."""
    shares = [
        (offered[name] - used.get(name, 0) - wanted.get(name, 0)) / offered[name]
        for name in _SCORED
        if offered.get(name)
    ]
    return sum(shares) / len(shares) if shares else 0.0
