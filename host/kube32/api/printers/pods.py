"""Cells of Pods."""

from dataclasses import dataclass

from kube32.api.printers.base import (
    NONE,
    Object,
    Printer,
    has_condition,
    mapping,
    maps,
    number,
    seconds,
    string,
)
from kube32.contract import LIMITS
from kube32.formats import duration

_INITIALIZING = ("", "PodInitializing")


def row_conditions(pod: Object) -> list[dict[str, str]]:
    """Conditions of a Table row: a pod that has ended is marked Completed."""
    phase = mapping(pod, "status").get("phase")
    if phase == "Succeeded":
        return [_completed("Succeeded", "The pod has completed successfully.")]
    if phase == "Failed":
        return [_completed("Failed", "The pod failed.")]
    return []


def _completed(reason: str, message: str) -> dict[str, str]:
    return {"type": "Completed", "status": "True", "reason": reason, "message": message}


@dataclass(slots=True)
class _Init:
    """What the init containers say. `reason` is "" when all are done; `ready` counts sidecars that are ready."""

    reason: str
    ready: int
    sidecars: list[Object]


def _init(pod: Object) -> _Init:
    """The first init container that is not done says why; those that stay (restartPolicy Always) count as running."""
    specs = maps(mapping(pod, "spec"), "initContainers")
    stays = {c.get("name") for c in specs if c.get("restartPolicy") == "Always"}
    found = _Init("", 0, [])
    for index, container in enumerate(maps(mapping(pod, "status"), "initContainerStatuses")):
        state = mapping(container, "state")
        ended = state.get("terminated")
        is_sidecar = container.get("name") in stays
        if is_sidecar:
            found.sidecars.append(container)
        if isinstance(ended, dict) and number(ended.get("exitCode")) == 0:
            continue
        if is_sidecar and container.get("started") is True:
            found.ready += container.get("ready") is True
            continue
        if isinstance(ended, dict):
            found.reason = f"Init:{_ended(ended)}"
        elif _waiting(state) not in _INITIALIZING:
            found.reason = f"Init:{_waiting(state)}"
        else:
            found.reason = f"Init:{index}/{len(specs)}"
        break
    return found


def _counted(pod: Object, init: _Init) -> list[Object]:
    """The statuses that count: none while init containers still run."""
    status = mapping(pod, "status")
    initializing = init.reason and not has_condition(status, "Initialized")
    return [] if initializing else maps(status, "containerStatuses")


def _waiting(state: Object) -> str:
    return string(mapping(state, "waiting").get("reason"))


def _runs(container: Object) -> bool:
    state = mapping(container, "state")
    return (
        not (_waiting(state) or "terminated" in state) and bool(container.get("ready")) and "running" in state
    )


def _container_reason(container: Object) -> str:
    state = mapping(container, "state")
    if _waiting(state):
        return _waiting(state)
    return _ended(mapping(state, "terminated")) if "terminated" in state else ""


def _ended(terminated: Object) -> str:
    if string(terminated.get("reason")):
        return string(terminated.get("reason"))
    if number(terminated.get("signal")):
        return f"Signal:{terminated['signal']}"
    return f"ExitCode:{number(terminated.get('exitCode'))}"


def ready(obj: Object, _now: float) -> str:
    """READY: containers that are ready and run, of all; init containers that stay count too."""
    spec, init = mapping(obj, "spec"), _init(obj)
    stay = sum(c.get("restartPolicy") == "Always" for c in maps(spec, "initContainers"))
    return f"{init.ready + sum(map(_runs, _counted(obj, init)))}/{len(maps(spec, 'containers')) + stay}"


def status(obj: Object, _now: float) -> str:
    """STATUS: the phase, or what says more: the reason of a container, Init:..., Terminating, Unknown."""
    found, init = mapping(obj, "status"), _init(obj)
    reason = string(found.get("reason"), string(found.get("phase")))
    scheduled = (c for c in maps(found, "conditions") if c.get("type") == "PodScheduled")
    if any(c.get("reason") == "SchedulingGated" for c in scheduled):
        reason = "SchedulingGated"
    reason = init.reason or reason
    counted = _counted(obj, init)
    for container in reversed(counted):
        reason = _container_reason(container) or reason
    if reason == "Completed" and any(map(_runs, counted)):
        reason = "Running" if has_condition(found, "Ready") else "NotReady"
    if mapping(obj, "metadata").get("deletionTimestamp") is not None:
        if found.get("reason") == "NodeLost":
            return "Unknown"
        if found.get("phase") not in ("Succeeded", "Failed"):
            return "Terminating"
    return reason


def restarts(obj: Object, now: float) -> str:
    """RESTARTS: "2 (5m ago)". The column's type is integer, the cell a string, as a kube-apiserver has it."""
    found, init = mapping(obj, "status"), _init(obj)
    initializing = init.reason and not has_condition(found, "Initialized")
    counted = maps(found, "initContainerStatuses")
    if not initializing:
        counted = init.sidecars + maps(found, "containerStatuses")
    total = sum(number(c.get("restartCount")) for c in counted)
    ended = [mapping(c, "lastState", "terminated").get("finishedAt") for c in counted]
    last = max((s for s in map(seconds, ended) if s is not None), default=None)
    if not total or last is None or now < LIMITS.wall_clock_min_s:
        return str(total)
    return f"{total} ({duration.human(now - last)} ago)"


def ip(obj: Object, _now: float) -> str:
    """IP of the pod, the first of podIPs as in Kubernetes."""
    found = mapping(obj, "status")
    ips = maps(found, "podIPs")
    return string(ips[0].get("ip") if ips else found.get("podIP"), NONE)


def node(obj: Object, _now: float) -> str:
    """NODE that the pod is bound to."""
    return string(mapping(obj, "spec").get("nodeName"), NONE)


def nominated_node(obj: Object, _now: float) -> str:
    """NOMINATED NODE."""
    return string(mapping(obj, "status").get("nominatedNodeName"), NONE)


def readiness_gates(obj: Object, _now: float) -> str:
    """READINESS GATES: those that are True, of all."""
    gates = maps(mapping(obj, "spec"), "readinessGates")
    if not gates:
        return NONE
    found = mapping(obj, "status")
    return f"{sum(has_condition(found, str(g.get('conditionType'))) for g in gates)}/{len(gates)}"


PRINTERS: dict[str, Printer] = {
    "pod_ready": ready,
    "pod_status": status,
    "pod_restarts": restarts,
    "pod_ip": ip,
    "pod_node": node,
    "pod_nominated_node": nominated_node,
    "pod_readiness_gates": readiness_gates,
}
