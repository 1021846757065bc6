"""Endpoints and EndpointSlices of a Service, from the pods that it selects, as Kubernetes' controllers make them."""

import hashlib
import ipaddress
import uuid
from collections.abc import Iterable
from typing import Any

from kube32.api.computed.facts import PodFacts
from kube32.contract import resource_of

Obj = dict[str, Any]
# (name, protocol, number)
Port = tuple[str, str, int]
_SLICE_ENDPOINTS = 1000
_MANAGED_BY = "endpointslice.kubernetes.io/managed-by"
_SERVICE_LABEL = "kubernetes.io/service-name"
_CONTROLLER = "endpointslice-controller.k8s.io"
_HEADLESS = "service.kubernetes.io/headless"


def ports_of(service: Obj, pod: PodFacts) -> tuple[Port, ...]:
    """The Service's ports as this pod has them; a name that the pod does not know is left out."""
    found = []
    for port in (service.get("spec") or {}).get("ports") or []:
        protocol = port.get("protocol", "TCP")
        target = port.get("targetPort", port.get("port"))
        number = target if isinstance(target, int) else _named(pod, str(target), protocol)
        if number:
            found.append((port.get("name", ""), protocol, number))
    return tuple(found)


def _named(pod: PodFacts, name: str, protocol: str) -> int:
    return next((n for named, p, n in pod.ports if named == name and p == protocol), 0)


def endpoints(service: Obj, pods: Iterable[PodFacts]) -> Obj:
    """The Endpoints object."""
    publish = bool((service.get("spec") or {}).get("publishNotReadyAddresses"))
    groups: dict[tuple[Port, ...], tuple[list[Obj], list[Obj]]] = {}
    for pod in _in_order(pods):
        if pod.ended or not pod.ip or (pod.deleting and not publish):
            continue
        ports = ports_of(service, pod)
        if not ports and (service.get("spec") or {}).get("ports"):
            continue
        ready, other = groups.setdefault(ports, ([], []))
        (ready if pod.ready or publish else other).append(_address(pod))
    subsets = [
        _without_empty({"addresses": ready, "notReadyAddresses": other, "ports": _ports(ports)})
        for ports, (ready, other) in sorted(groups.items())
    ]
    return _endpoints(service, subsets)


def fixed_endpoints(service: Obj, host: str, port: int) -> Obj:
    """Endpoints of a Service at one address that is no pod's: the API server."""
    named = (service.get("spec") or {}).get("ports") or [{}]
    ports = [_without_empty({"name": named[0].get("name", ""), "port": port, "protocol": "TCP"})]
    return _endpoints(service, [{"addresses": [{"ip": host}], "ports": ports}])


def _endpoints(service: Obj, subsets: list[Obj]) -> Obj:
    metadata = service["metadata"]
    labels = {**(metadata.get("labels") or {})}
    if (service.get("spec") or {}).get("clusterIP") == "None":
        labels[_HEADLESS] = ""
    made: Obj = {
        "kind": "Endpoints",
        "apiVersion": "v1",
        "metadata": _without_empty(
            {
                "name": metadata["name"],
                "namespace": metadata["namespace"],
                "uid": derived_uid("Endpoints", metadata["uid"]),
                "creationTimestamp": metadata.get("creationTimestamp"),
                "labels": labels,
            }
        ),
    }
    if subsets:
        made["subsets"] = subsets
    return made


def slices(service: Obj, pods: Iterable[PodFacts]) -> list[Obj]:
    """The EndpointSlices, at most 1,000 endpoints each."""
    publish = bool((service.get("spec") or {}).get("publishNotReadyAddresses"))
    groups: dict[tuple[Port, ...], list[Obj]] = {}
    for pod in _in_order(pods):
        if not pod.ended and pod.ip:
            groups.setdefault(ports_of(service, pod), []).append(_endpoint(pod, publish))
    if not groups:
        groups[()] = []
    made: list[Obj] = []
    for ports, found in sorted(groups.items()):
        for start in range(0, max(len(found), 1), _SLICE_ENDPOINTS):
            rows = found[start : start + _SLICE_ENDPOINTS]
            made.append(_slice(service, len(made), rows, _slice_ports(ports)))
    return made


def fixed_slices(service: Obj, host: str, port: int) -> list[Obj]:
    """The slice of a Service at one address that is no pod's."""
    named = (service.get("spec") or {}).get("ports") or [{}]
    row = {"addresses": [host], "conditions": {"ready": True, "serving": True, "terminating": False}}
    ports = [{"name": named[0].get("name", ""), "port": port, "protocol": "TCP"}]
    return [_slice(service, 0, [row], ports)]


def _slice(service: Obj, number: int, rows: list[Obj], ports: list[Obj]) -> Obj:
    metadata = service["metadata"]
    suffix = hashlib.sha256(f"{metadata['uid']}/{number}".encode()).hexdigest()[:5]
    labels = {
        **(metadata.get("labels") or {}),
        _SERVICE_LABEL: metadata["name"],
        _MANAGED_BY: _CONTROLLER,
    }
    if (service.get("spec") or {}).get("clusterIP") == "None":
        labels[_HEADLESS] = ""
    resource = resource_of("EndpointSlice")
    return {
        "kind": resource.kind,
        "apiVersion": resource.api_version,
        "metadata": _without_empty(
            {
                "name": f"{metadata['name']}-{suffix}",
                "generateName": f"{metadata['name']}-",
                "namespace": metadata["namespace"],
                "uid": derived_uid(f"EndpointSlice/{number}", metadata["uid"]),
                "creationTimestamp": metadata.get("creationTimestamp"),
                "generation": 1,
                "labels": labels,
                "ownerReferences": [
                    {
                        "apiVersion": "v1",
                        "kind": "Service",
                        "name": metadata["name"],
                        "uid": metadata["uid"],
                        "controller": True,
                        "blockOwnerDeletion": True,
                    }
                ],
            }
        ),
        "addressType": _family(rows, service),
        "endpoints": rows,
        "ports": ports,
    }


def _family(rows: list[Obj], service: Obj) -> str:
    if rows:
        return f"IPv{ipaddress.ip_address(rows[0]['addresses'][0]).version}"
    families = (service.get("spec") or {}).get("ipFamilies") or ["IPv4"]
    return str(families[0])


def _endpoint(pod: PodFacts, publish: bool) -> Obj:
    return _without_empty(
        {
            "addresses": [pod.ip],
            "conditions": {
                "ready": publish or (pod.ready and not pod.deleting),
                "serving": publish or pod.ready,
                "terminating": pod.deleting,
            },
            "nodeName": pod.node,
            "targetRef": _reference(pod),
        }
    )


def _address(pod: PodFacts) -> Obj:
    return _without_empty({"ip": pod.ip, "nodeName": pod.node, "targetRef": _reference(pod)})


def _reference(pod: PodFacts) -> Obj:
    return {"kind": "Pod", "namespace": pod.namespace, "name": pod.name, "uid": pod.uid}


def _ports(ports: tuple[Port, ...]) -> list[Obj]:
    return [_without_empty({"name": n, "port": number, "protocol": p}) for n, p, number in sorted(ports)]


def _slice_ports(ports: tuple[Port, ...]) -> list[Obj]:
    # A name is always there, also an empty one: kubectl describe relies on it.
    return [{"name": n, "port": number, "protocol": p} for n, p, number in sorted(ports)]


def _in_order(pods: Iterable[PodFacts]) -> list[PodFacts]:
    return sorted(pods, key=lambda p: (p.ip, p.name))


def _without_empty(obj: Obj) -> Obj:
    return {k: v for k, v in obj.items() if v not in ("", None, [], {})}


def derived_uid(kind: str, uid: str) -> str:
    """A uid that is always the same for what is computed from one object."""
    return str(uuid.uuid5(uuid.NAMESPACE_OID, f"kube32.io/{kind}/{uid}"))
