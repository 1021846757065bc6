"""Which pods go first when there are too many: as Kubernetes' ReplicaSet controller chooses."""

from collections import Counter
from collections.abc import Callable, Iterable
from datetime import datetime
from typing import Any

from kube32.controllers.objects import Obj, annotation, condition, name_of, node_of, status_of

_DELETION_COST = "controller.kubernetes.io/pod-deletion-cost"
_PHASES = {"Pending": 0, "Unknown": 1}
_INT32 = 1 << 31


def in_deletion_order(
    pods: Iterable[Obj], holds: Callable[[Obj], bool], related: Iterable[Obj] = ()
) -> list[Obj]:
    """The pods, those that go first in front. `related` pods on one node make each of them go earlier.

    One that is frozen or moves goes last: it carries state.
    """
    on_node = Counter(node_of(p) for p in related if node_of(p))
    return sorted(pods, key=lambda p: _rank(p, holds(p), on_node[node_of(p)]))


def _rank(pod: Obj, held: bool, neighbours: int) -> tuple[Any, ...]:
    status = status_of(pod)
    ready = condition(pod, "Ready") or {}
    return (
        held,
        bool(node_of(pod)),
        _PHASES.get(str(status.get("phase") or "Pending"), 2),
        ready.get("status") == "True",
        deletion_cost(pod),
        -neighbours,
        -_stamp(ready.get("lastTransitionTime")) if ready.get("status") == "True" else 0.0,
        -restarts(pod),
        -_stamp(pod["metadata"].get("creationTimestamp")),
        name_of(pod),
    )


def deletion_cost(pod: Obj) -> int:
    """The annotation's number; what is none counts as 0."""
    value = annotation(pod, _DELETION_COST) or "0"
    try:
        cost = int(value)
    except ValueError:
        return 0
    return cost if -_INT32 <= cost < _INT32 else 0


def restarts(pod: Obj) -> int:
    """Restarts of all its containers together."""
    status = status_of(pod)
    rows = [*(status.get("initContainerStatuses") or []), *(status.get("containerStatuses") or [])]
    return sum(int(row.get("restartCount") or 0) for row in rows)


def _stamp(value: Any) -> float:
    try:
        return datetime.fromisoformat(str(value)).timestamp()
    except ValueError:
        return 0.0


def created_at(pod: Obj) -> tuple[float, str]:
    """Sorts pods by age, the oldest first."""
    return _stamp(pod["metadata"].get("creationTimestamp")), name_of(pod)
