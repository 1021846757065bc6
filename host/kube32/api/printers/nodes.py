"""Cells of Nodes and Events."""

from collections.abc import Iterator

from kube32.api.printers.base import (
    NONE,
    UNKNOWN,
    Cell,
    Object,
    Printer,
    mapping,
    maps,
    number,
    since,
    string,
)

_ROLE_PREFIX = "node-role.kubernetes.io/"
_ROLE_LABEL = "kubernetes.io/role"


def status(obj: Object, _now: float) -> str:
    """STATUS: Ready, NotReady or Unknown, and SchedulingDisabled when cordoned."""
    ready = next((c for c in maps(mapping(obj, "status"), "conditions") if c.get("type") == "Ready"), None)
    shown = "Unknown" if ready is None else "Ready" if ready.get("status") == "True" else "NotReady"
    return f"{shown},SchedulingDisabled" if mapping(obj, "spec").get("unschedulable") is True else shown


def roles(obj: Object, _now: float) -> str:
    """ROLES, from labels."""
    return ",".join(sorted(set(_roles(mapping(obj, "metadata", "labels"))))) or NONE


def _roles(labels: Object) -> Iterator[str]:
    for key, value in labels.items():
        if key.startswith(_ROLE_PREFIX) and len(key) > len(_ROLE_PREFIX):
            yield key[len(_ROLE_PREFIX) :]
        elif key == _ROLE_LABEL and value:
            yield str(value)


def _address(kind: str) -> Printer:
    def cell(obj: Object, _now: float) -> Cell:
        addresses = maps(mapping(obj, "status"), "addresses")
        return next((string(a.get("address")) for a in addresses if a.get("type") == kind), NONE)

    return cell


def _info(key: str) -> Printer:
    def cell(obj: Object, _now: float) -> Cell:
        return string(mapping(obj, "status", "nodeInfo").get(key), UNKNOWN)

    return cell


def last_seen(obj: Object, now: float) -> str:
    """LAST SEEN."""
    series = obj.get("series")
    if isinstance(series, dict):
        return since(series.get("lastObservedTime"), now)
    last = obj.get("lastTimestamp")
    return first_seen(obj, now) if last is None else since(last, now)


def first_seen(obj: Object, now: float) -> str:
    """FIRST SEEN."""
    first = obj.get("firstTimestamp")
    return since(obj.get("eventTime") if first is None else first, now)


def about(obj: Object, _now: float) -> str:
    """OBJECT: kind/name."""
    found = mapping(obj, "involvedObject")
    kind, name = string(found.get("kind")).lower(), string(found.get("name"))
    return f"{kind}/{name}" if name else kind


def source(obj: Object, _now: float) -> str:
    """SOURCE: component and host."""
    found = mapping(obj, "source")
    component = string(found.get("component"), string(obj.get("reportingComponent")))
    host = string(found.get("host"), string(obj.get("reportingInstance")))
    return f"{component}, {host}" if host else component


def message(obj: Object, _now: float) -> str:
    """MESSAGE."""
    return string(obj.get("message")).strip()


def count(obj: Object, _now: float) -> int:
    """COUNT."""
    series = obj.get("series")
    if isinstance(series, dict):
        return number(series.get("count"))
    return number(obj.get("count")) or 1


PRINTERS: dict[str, Printer] = {
    "node_status": status,
    "node_roles": roles,
    "node_internal_ip": _address("InternalIP"),
    "node_external_ip": _address("ExternalIP"),
    "node_os_image": _info("osImage"),
    "node_kernel_version": _info("kernelVersion"),
    "node_container_runtime": _info("containerRuntimeVersion"),
    "event_last_seen": last_seen,
    "event_object": about,
    "event_source": source,
    "event_message": message,
    "event_first_seen": first_seen,
    "event_count": count,
}
