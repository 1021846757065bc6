"""What pods ask of a node and what it has: cpu in thousandths, memory in bytes, pods, named resources."""

from collections.abc import Mapping
from decimal import ROUND_CEILING, Decimal

from kube32.controllers.objects import Obj, containers, spec_of, status_of
from kube32.formats.quantity import parse

Amounts = dict[str, int]


def _whole(name: str, value: object) -> int:
    """A quantity as a whole number; cpu in thousandths. One that cannot be read counts as nothing."""
    try:
        number = parse(str(value)) * (1000 if name == "cpu" else 1)
    except ValueError:
        return 0
    return int(Decimal(number).to_integral_value(ROUND_CEILING))


def amounts(quantities: Mapping[str, object] | None) -> Amounts:
    """A resource list as whole numbers."""
    return {name: _whole(name, value) for name, value in (quantities or {}).items()}


def _container_requests(container: Obj) -> Amounts:
    resources = container.get("resources") or {}
    # A limit without a request is a request, as in Kubernetes' defaults.
    return {**amounts(resources.get("limits")), **amounts(resources.get("requests"))}


def requests(pod: Obj) -> Amounts:
    """What the pod takes: the sum of its containers, or more where an init container needs more.

    An init container that keeps running (restartPolicy Always) counts with the containers, and beside the init
    containers after it.
    """
    total: Amounts = {}
    for container in containers(pod):
        _add(total, _container_requests(container))
    beside: Amounts = {}
    peak: Amounts = {}
    for container in spec_of(pod).get("initContainers") or []:
        needed = _container_requests(container)
        if container.get("restartPolicy") == "Always":
            _add(beside, needed)
            _add(total, needed)
            needed = {}
        for name in {*needed, *beside}:
            peak[name] = max(peak.get(name, 0), needed.get(name, 0) + beside.get(name, 0))
    for name, value in peak.items():
        total[name] = max(total.get(name, 0), value)
    _add(total, amounts(spec_of(pod).get("overhead")))
    total["pods"] = 1
    return {name: value for name, value in total.items() if value}


def allocatable(node: Obj) -> Amounts:
    """What the node offers to pods."""
    status = status_of(node)
    return amounts(status.get("allocatable") or status.get("capacity"))


def _add(total: Amounts, more: Amounts) -> None:
    for name, value in more.items():
        total[name] = total.get(name, 0) + value
