"""Cells of tables: what `kubectl get` shows for each kind, worded as kube-apiserver's printers word it.

A printer takes the object and the wall clock (seconds since 1970). Objects come from the store but were
written by clients, so every printer takes any shape: what is not there prints as Kubernetes prints it.
"""

from collections.abc import Callable, Iterator
from datetime import datetime
from typing import Any

from kube32.contract import LIMITS
from kube32.formats import duration
from kube32.formats.quantity import human_bytes

Cell = str | int
Printer = Callable[[dict[str, Any], float], Cell]
_NONE = "<none>"
_UNKNOWN = "<unknown>"
_ROLE_PREFIX = "node-role.kubernetes.io/"
_ROLE_LABEL = "kubernetes.io/role"
_DIGEST_SHOWN = 12


def row_conditions(kind: str, obj: dict[str, Any]) -> list[dict[str, str]]:
    """Conditions of a Table row: a pod that has ended is marked Completed."""
    if kind != "Pod":
        return []
    phase = _map(obj, "status").get("phase")
    if phase == "Succeeded":
        return [_completed("Succeeded", "The pod has completed successfully.")]
    if phase == "Failed":
        return [_completed("Failed", "The pod failed.")]
    return []


def _completed(reason: str, message: str) -> dict[str, str]:
    return {"type": "Completed", "status": "True", "reason": reason, "message": message}


def since(stamp: Any, now: float) -> str:
    """The age of an RFC 3339 stamp, "<unknown>" when either clock was unset (B1: AGE never shows 56y)."""
    seconds = _seconds(stamp)
    if seconds is None or now < LIMITS.wall_clock_min_s:
        return _UNKNOWN
    return duration.human(now - seconds)


def _seconds(stamp: Any) -> float | None:
    if not isinstance(stamp, str):
        return None
    try:
        when = datetime.fromisoformat(stamp)
        seconds = when.timestamp() if when.tzinfo is not None else None
    except (ValueError, OverflowError):
        return None
    if seconds is None or seconds < LIMITS.wall_clock_min_s:
        return None
    return seconds


def age(obj: dict[str, Any], now: float) -> str:
    """AGE of any kind."""
    return since(_map(obj, "metadata").get("creationTimestamp"), now)


def _map(obj: dict[str, Any], *keys: str) -> dict[str, Any]:
    value: Any = obj
    for key in keys:
        value = value.get(key)
        if not isinstance(value, dict):
            return {}
    return value  # type: ignore[no-any-return]


def _maps(obj: dict[str, Any], key: str) -> list[dict[str, Any]]:
    value = obj.get(key)
    return [item for item in value if isinstance(item, dict)] if isinstance(value, list) else []


def _int(value: Any) -> int:
    return value if isinstance(value, int) else 0


def _text(value: Any, missing: str = "") -> str:
    return value if isinstance(value, str) and value else missing


# --- Pod ---


def pod_ready(obj: dict[str, Any], _now: float) -> str:
    """READY: containers that are ready and run, of all."""
    total = len(_maps(_map(obj, "spec"), "containers"))
    return f"{sum(_runs(c) for c in _counted(obj))}/{total}"


def _runs(container: dict[str, Any]) -> bool:
    state = _map(container, "state")
    return (
        not (_waiting(state) or "terminated" in state) and bool(container.get("ready")) and "running" in state
    )


def _waiting(state: dict[str, Any]) -> str:
    return _text(_map(state, "waiting").get("reason"))


def _counted(obj: dict[str, Any]) -> list[dict[str, Any]]:
    """The statuses that count: none while init containers still run."""
    status = _map(obj, "status")
    initializing = _init_reason(obj) is not None and not _has_condition(status, "Initialized")
    return [] if initializing else _maps(status, "containerStatuses")


def _has_condition(status: dict[str, Any], kind: str) -> bool:
    return any(c.get("type") == kind and c.get("status") == "True" for c in _maps(status, "conditions"))


def pod_status(obj: dict[str, Any], _now: float) -> str:
    """STATUS: the phase, or what says more: the reason of a container, Init:..., Terminating, Unknown."""
    status = _map(obj, "status")
    reason = _text(status.get("reason"), _text(status.get("phase")))
    if any(
        c.get("reason") == "SchedulingGated"
        for c in _maps(status, "conditions")
        if c.get("type") == "PodScheduled"
    ):
        reason = "SchedulingGated"
    reason = _init_reason(obj) or reason
    counted = _counted(obj)
    for container in reversed(counted):
        reason = _container_reason(container) or reason
    if reason == "Completed" and any(_runs(c) for c in counted):
        reason = "Running" if _has_condition(status, "Ready") else "NotReady"
    if _map(obj, "metadata").get("deletionTimestamp") is not None:
        if status.get("reason") == "NodeLost":
            return "Unknown"
        if status.get("phase") not in ("Succeeded", "Failed"):
            return "Terminating"
    return reason


def _container_reason(container: dict[str, Any]) -> str:
    state = _map(container, "state")
    if _waiting(state):
        return _waiting(state)
    return _ended(_map(state, "terminated")) if "terminated" in state else ""


def _ended(terminated: dict[str, Any]) -> str:
    if _text(terminated.get("reason")):
        return _text(terminated.get("reason"))
    if _int(terminated.get("signal")):
        return f"Signal:{terminated['signal']}"
    return f"ExitCode:{_int(terminated.get('exitCode'))}"


def _init_reason(obj: dict[str, Any]) -> str | None:
    """The reason of the first init container that is not done; None when all are."""
    total = len(_maps(_map(obj, "spec"), "initContainers"))
    for index, container in enumerate(_maps(_map(obj, "status"), "initContainerStatuses")):
        state = _map(container, "state")
        terminated = state.get("terminated")
        if isinstance(terminated, dict):
            if _int(terminated.get("exitCode")) == 0:
                continue
            return f"Init:{_ended(terminated)}"
        if _waiting(state) not in ("", "PodInitializing"):
            return f"Init:{_waiting(state)}"
        return f"Init:{index}/{total}"
    return None


def pod_restarts(obj: dict[str, Any], now: float) -> str:
    """RESTARTS: "2 (5m ago)". The column's type is integer, the cell a string, as a kube-apiserver has it."""
    status = _map(obj, "status")
    statuses = _counted(obj) or _maps(status, "initContainerStatuses")
    restarts = sum(_int(c.get("restartCount")) for c in statuses)
    ended = [_map(c, "lastState", "terminated").get("finishedAt") for c in statuses]
    last = max((s for s in map(_seconds, ended) if s is not None), default=None)
    if not restarts or last is None or now < LIMITS.wall_clock_min_s:
        return str(restarts)
    return f"{restarts} ({duration.human(now - last)} ago)"


def pod_ip(obj: dict[str, Any], _now: float) -> str:
    """IP of the pod, the first of podIPs as in Kubernetes."""
    status = _map(obj, "status")
    ips = _maps(status, "podIPs")
    return _text(ips[0].get("ip") if ips else status.get("podIP"), _NONE)


def pod_node(obj: dict[str, Any], _now: float) -> str:
    """NODE that the pod is bound to."""
    return _text(_map(obj, "spec").get("nodeName"), _NONE)


def pod_nominated_node(obj: dict[str, Any], _now: float) -> str:
    """NOMINATED NODE."""
    return _text(_map(obj, "status").get("nominatedNodeName"), _NONE)


def pod_readiness_gates(obj: dict[str, Any], _now: float) -> str:
    """READINESS GATES: those that are True, of all."""
    gates = _maps(_map(obj, "spec"), "readinessGates")
    if not gates:
        return _NONE
    status = _map(obj, "status")
    return f"{sum(_has_condition(status, str(g.get('conditionType'))) for g in gates)}/{len(gates)}"


# --- Node ---


def node_status(obj: dict[str, Any], _now: float) -> str:
    """STATUS: Ready, NotReady or Unknown, and SchedulingDisabled when cordoned."""
    ready = next((c for c in _maps(_map(obj, "status"), "conditions") if c.get("type") == "Ready"), None)
    shown = "Unknown" if ready is None else "Ready" if ready.get("status") == "True" else "NotReady"
    return f"{shown},SchedulingDisabled" if _map(obj, "spec").get("unschedulable") is True else shown


def node_roles(obj: dict[str, Any], _now: float) -> str:
    """ROLES, from labels."""
    return ",".join(sorted(set(_roles(_map(obj, "metadata", "labels"))))) or _NONE


def _roles(labels: dict[str, Any]) -> Iterator[str]:
    for key, value in labels.items():
        if key.startswith(_ROLE_PREFIX) and len(key) > len(_ROLE_PREFIX):
            yield key[len(_ROLE_PREFIX) :]
        elif key == _ROLE_LABEL and value:
            yield str(value)


def _address(obj: dict[str, Any], kind: str) -> str:
    for address in _maps(_map(obj, "status"), "addresses"):
        if address.get("type") == kind:
            return _text(address.get("address"))
    return _NONE


def node_internal_ip(obj: dict[str, Any], _now: float) -> str:
    """INTERNAL-IP."""
    return _address(obj, "InternalIP")


def node_external_ip(obj: dict[str, Any], _now: float) -> str:
    """EXTERNAL-IP."""
    return _address(obj, "ExternalIP")


def _node_info(key: str) -> Printer:
    def cell(obj: dict[str, Any], _now: float) -> Cell:
        return _text(_map(obj, "status", "nodeInfo").get(key), _UNKNOWN)

    return cell


# --- Event ---


def event_last_seen(obj: dict[str, Any], now: float) -> str:
    """LAST SEEN."""
    series = obj.get("series")
    if isinstance(series, dict):
        return since(series.get("lastObservedTime"), now)
    last = obj.get("lastTimestamp")
    return event_first_seen(obj, now) if last is None else since(last, now)


def event_first_seen(obj: dict[str, Any], now: float) -> str:
    """FIRST SEEN."""
    first = obj.get("firstTimestamp")
    return since(obj.get("eventTime") if first is None else first, now)


def event_object(obj: dict[str, Any], _now: float) -> str:
    """OBJECT: kind/name."""
    about = _map(obj, "involvedObject")
    kind, name = _text(about.get("kind")).lower(), _text(about.get("name"))
    return f"{kind}/{name}" if name else kind


def event_source(obj: dict[str, Any], _now: float) -> str:
    """SOURCE: component and host."""
    source = _map(obj, "source")
    component = _text(source.get("component"), _text(obj.get("reportingComponent")))
    host = _text(source.get("host"), _text(obj.get("reportingInstance")))
    return f"{component}, {host}" if host else component


def event_message(obj: dict[str, Any], _now: float) -> str:
    """MESSAGE."""
    return _text(obj.get("message")).strip()


def event_count(obj: dict[str, Any], _now: float) -> int:
    """COUNT."""
    series = obj.get("series")
    if isinstance(series, dict):
        return _int(series.get("count"))
    return _int(obj.get("count")) or 1


# --- ConfigMap, Secret, Module, Checkpoint ---


def configmap_data(obj: dict[str, Any], _now: float) -> int:
    """DATA: keys of data and of binaryData."""
    return len(_map(obj, "data")) + len(_map(obj, "binaryData"))


def secret_data(obj: dict[str, Any], _now: float) -> int:
    """DATA: keys."""
    return len(_map(obj, "data"))


def status_size(obj: dict[str, Any], _now: float) -> str:
    """SIZE of a Module's or Checkpoint's data, empty while it has none."""
    size = _map(obj, "status").get("sizeBytes")
    return human_bytes(size) if isinstance(size, int) else ""


def module_digest(obj: dict[str, Any], _now: float) -> str:
    """The first digits of a Module's digest."""
    return _text(_map(obj, "status").get("sha256"))[:_DIGEST_SHOWN]


def module_exports(obj: dict[str, Any], _now: float) -> str:
    """Exports of the pod ABI."""
    exports = _map(obj, "status").get("exports")
    return ",".join(str(e) for e in exports) if isinstance(exports, list) else ""


PRINTERS: dict[str, Printer] = {
    "age": age,
    "pod_ready": pod_ready,
    "pod_status": pod_status,
    "pod_restarts": pod_restarts,
    "pod_ip": pod_ip,
    "pod_node": pod_node,
    "pod_nominated_node": pod_nominated_node,
    "pod_readiness_gates": pod_readiness_gates,
    "node_status": node_status,
    "node_roles": node_roles,
    "node_internal_ip": node_internal_ip,
    "node_external_ip": node_external_ip,
    "node_os_image": _node_info("osImage"),
    "node_kernel_version": _node_info("kernelVersion"),
    "node_container_runtime": _node_info("containerRuntimeVersion"),
    "event_last_seen": event_last_seen,
    "event_object": event_object,
    "event_source": event_source,
    "event_message": event_message,
    "event_first_seen": event_first_seen,
    "event_count": event_count,
    "configmap_data": configmap_data,
    "secret_data": secret_data,
    "status_size": status_size,
    "module_digest": module_digest,
    "module_exports": module_exports,
}
