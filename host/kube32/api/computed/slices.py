"""The EndpointSlices of a Service, as Kubernetes' controller makes them.

A pod stays in its slice, so that the change of one pod is the change of one slice.
"""

import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from itertools import count
from typing import Any

from kube32.api.computed.endpoints import HEADLESS_LABEL
from kube32.api.computed.facts import PodFacts
from kube32.api.computed.identity import derived_uid, hostname, in_order, owned_by, reference
from kube32.api.computed.ports import Port, Ports
from kube32.contract import resource_of

Obj = dict[str, Any]
_MOST_ENDPOINTS = 100
_MANAGED_BY = "endpointslice.kubernetes.io/managed-by"
_CONTROLLER = "endpointslice-controller.k8s.io"
_SERVICE_LABEL = "kubernetes.io/service-name"


@dataclass(frozen=True, slots=True, order=True)
class Group:
    """What the endpoints of one slice have in common."""

    family: str
    ports: tuple[Port, ...] = ()


@dataclass(slots=True)
class Slice:
    """One slice: its number within the family, and the keys of its pods."""

    group: Group
    number: int
    pods: set[str] = field(default_factory=set)


class Placement:
    """Which slice each of a Service's pods is in."""

    def __init__(self) -> None:
        self._slices: list[Slice] = []

    def settle(self, wanted: Mapping[str, Group], empty: Group) -> list[Slice]:
        """The slices for these pods: one at least, `empty` when there is no pod."""
        placed: set[str] = set()
        for each in self._slices:
            each.pods = {k for k in each.pods if wanted.get(k) == each.group}
            placed |= each.pods
        slices = [s for s in self._slices if s.pods]
        for key in sorted(wanted.keys() - placed):
            group = wanted[key]
            room = next((s for s in slices if s.group == group and len(s.pods) < _MOST_ENDPOINTS), None)
            if room is None:
                room = Slice(group, _free_number(slices, group.family))
                slices.append(room)
            room.pods.add(key)
        self._slices = slices or [Slice(empty, 0)]
        return self._slices


def _free_number(slices: list[Slice], family: str) -> int:
    used = {s.number for s in slices if s.group.family == family}
    return next(n for n in count() if n not in used)


def slices(service: Obj, pods: Mapping[str, PodFacts], placement: Placement) -> list[Obj]:
    """The EndpointSlices, at most 100 endpoints each."""
    ports = Ports(service)
    taken = {k: p for k, p in pods.items() if p.ip and not p.ended}
    groups: dict[str, Group] = {}
    known: dict[tuple[str, tuple[Port, ...]], Group] = {}
    for key, pod in taken.items():
        group = (pod.family, ports.of(pod))
        groups[key] = known.setdefault(group, Group(*group))
    made = []
    for each in placement.settle(groups, Group(_family(service))):
        rows = [_endpoint(service, p) for p in sorted((taken[k] for k in each.pods), key=in_order)]
        made.append(_slice(service, each, rows))
    return made


def fixed_slices(service: Obj, host: str, port: int) -> list[Obj]:
    """The slice of a Service at one address that is no pod's."""
    named = (service.get("spec") or {}).get("ports") or [{}]
    group = Group("IPv6" if ":" in host else "IPv4", ((named[0].get("name", ""), "TCP", port, ""),))
    row = {"addresses": [host], "conditions": {"ready": True, "serving": True, "terminating": False}}
    return [_slice(service, Slice(group, 0), [row])]


def _family(service: Obj) -> str:
    families = (service.get("spec") or {}).get("ipFamilies") or ["IPv4"]
    return str(families[0])


def _slice(service: Obj, place: Slice, rows: Iterable[Obj]) -> Obj:
    metadata, family = service["metadata"], place.group.family
    identity = f"{metadata['uid']}/{family}/{place.number}"
    labels = {**(metadata.get("labels") or {}), _SERVICE_LABEL: metadata["name"], _MANAGED_BY: _CONTROLLER}
    if (service.get("spec") or {}).get("clusterIP") == "None":
        labels[HEADLESS_LABEL] = ""
    resource = resource_of("EndpointSlice")
    return {
        "kind": resource.kind,
        "apiVersion": resource.api_version,
        "metadata": {
            "name": f"{metadata['name']}-{hashlib.sha256(identity.encode()).hexdigest()[:5]}",
            "generateName": f"{metadata['name']}-",
            "namespace": metadata["namespace"],
            "uid": derived_uid("EndpointSlice", identity),
            "creationTimestamp": metadata.get("creationTimestamp"),
            "generation": 1,
            "labels": labels,
            "ownerReferences": owned_by("Service", service),
        },
        "addressType": family,
        "endpoints": list(rows),
        "ports": [_port(*p) for p in place.group.ports],
    }


def _port(name: str, protocol: str, number: int, app_protocol: str) -> Obj:
    # A name is always there, also an empty one: kubectl describe relies on it.
    made: Obj = {"name": name, "port": number, "protocol": protocol}
    if app_protocol:
        made["appProtocol"] = app_protocol
    return made


def _endpoint(service: Obj, pod: PodFacts) -> Obj:
    publish = bool((service.get("spec") or {}).get("publishNotReadyAddresses"))
    made: Obj = {
        "addresses": [pod.ip],
        "conditions": {
            "ready": publish or (pod.ready and not pod.deleting),
            "serving": pod.ready,
            "terminating": pod.deleting,
        },
    }
    name = hostname(service, pod)
    if name:
        made["hostname"] = name
    if pod.node:
        made["nodeName"] = pod.node
    made["targetRef"] = reference(pod)
    return made
