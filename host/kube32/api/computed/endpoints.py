"""The Endpoints of a Service, from the pods that it selects, as Kubernetes' controller makes them."""

from collections.abc import Iterable
from typing import Any

from kube32.api.computed.facts import PodFacts
from kube32.api.computed.identity import derived_uid, hostname, in_order, reference
from kube32.api.computed.ports import Port, Ports

Obj = dict[str, Any]
_MOST_ADDRESSES = 1000
_OVER_CAPACITY = {"endpoints.kubernetes.io/over-capacity": "truncated"}
_MANAGED_BY = {"endpoints.kubernetes.io/managed-by": "endpoint-controller"}
_NO_PODS = {"endpointslice.kubernetes.io/skip-mirror": "true"}
HEADLESS_LABEL = "service.kubernetes.io/headless"


def endpoints(service: Obj, pods: Iterable[PodFacts]) -> Obj:
    """The Endpoints object; it names 1,000 pods at most, Ready ones first."""
    spec = service.get("spec") or {}
    publish = bool(spec.get("publishNotReadyAddresses"))
    ports = Ports(service)
    taken = [p for p in pods if p.ip and not p.ended and (publish or not p.deleting)]
    taken.sort(key=in_order)
    truncated = len(taken) > _MOST_ADDRESSES
    if truncated:
        taken = sorted(sorted(taken, key=lambda p: not p.ready)[:_MOST_ADDRESSES], key=in_order)
    groups: dict[tuple[Port, ...], tuple[list[Obj], list[Obj]]] = {}
    for pod in taken:
        found = ports.of(pod)
        if ports and not found:
            continue
        ready, other = groups.setdefault(found, ([], []))
        (ready if pod.ready or publish else other).append(_address(service, pod))
    made = _made(service, [_subset(p, *groups[p]) for p in sorted(groups)], _MANAGED_BY)
    if truncated:
        made["metadata"]["annotations"] = dict(_OVER_CAPACITY)
    return made


def fixed_endpoints(service: Obj, host: str, port: int) -> Obj:
    """Endpoints of a Service at one address that is no pod's: the API server."""
    named = (service.get("spec") or {}).get("ports") or [{}]
    subset = _subset(((named[0].get("name", ""), "TCP", port, ""),), [{"ip": host}], [])
    return _made(service, [subset], _NO_PODS)


def _subset(ports: tuple[Port, ...], ready: list[Obj], other: list[Obj]) -> Obj:
    made: Obj = {}
    if ready:
        made["addresses"] = ready
    if other:
        made["notReadyAddresses"] = other
    if ports:
        made["ports"] = [_port(*p) for p in ports]
    return made


def _port(name: str, protocol: str, number: int, app_protocol: str) -> Obj:
    made: Obj = {"name": name} if name else {}
    made |= {"port": number, "protocol": protocol}
    if app_protocol:
        made["appProtocol"] = app_protocol
    return made


def _address(service: Obj, pod: PodFacts) -> Obj:
    made: Obj = {"ip": pod.ip}
    name = hostname(service, pod)
    if name:
        made["hostname"] = name
    if pod.node:
        made["nodeName"] = pod.node
    made["targetRef"] = reference(pod)
    return made


def _made(service: Obj, subsets: list[Obj], more_labels: dict[str, str]) -> Obj:
    metadata = service["metadata"]
    labels = {**(metadata.get("labels") or {}), **more_labels}
    if (service.get("spec") or {}).get("clusterIP") == "None":
        labels[HEADLESS_LABEL] = ""
    own: Obj = {
        "name": metadata["name"],
        "namespace": metadata["namespace"],
        "uid": derived_uid("Endpoints", metadata["uid"]),
        "creationTimestamp": metadata.get("creationTimestamp"),
        "labels": labels,
    }
    made: Obj = {"kind": "Endpoints", "apiVersion": "v1", "metadata": own}
    if subsets:
        made["subsets"] = subsets
    return made
