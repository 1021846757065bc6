"""Addresses and node ports of Services: given out, kept over updates, refused in kube-apiserver's words when taken.

Nothing is kept beside the Services themselves: what they hold is what is taken.
"""

import ipaddress
import logging
import secrets
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, TypeVar

from kube32.api import admission, metadata
from kube32.api.status import ApiFailure, Cause, internal, invalid
from kube32.contract import LIMITS, NAMES, resource_of, text
from kube32.store import AlreadyExists, Change, Store

_log = logging.getLogger(__name__)
Object = dict[str, Any]
T = TypeVar("T")
_KIND = "Service"
_HEADLESS = "None"
_WITH_PORTS = ("NodePort", "LoadBalancer")
_RANGE = ipaddress.IPv4Network(NAMES.service_cidr)
_FAMILY_FIELDS = ("ipFamilies", "ipFamilyPolicy", "internalTrafficPolicy")
_BALANCER_FIELDS = ("allocateLoadBalancerNodePorts", "loadBalancerClass")
_API = ("default", "kubernetes")
_API_PORT, _API_TARGET = 443, 6443


def _spec(service: Object) -> Object:
    return service.get("spec") or {}


def _has_address(spec: Object) -> bool:
    return spec.get("type") != "ExternalName"


def _has_node_ports(spec: Object) -> bool:
    if spec.get("type") == "LoadBalancer":
        return spec.get("allocateLoadBalancerNodePorts") is not False
    return spec.get("type") == "NodePort"


# --- before validation ---


def prepare_create(service: Object) -> None:
    """The older field of the address fills the newer one."""
    spec = _spec(service)
    if spec.get("clusterIP") and not spec.get("clusterIPs"):
        spec["clusterIPs"] = [spec["clusterIP"]]


def prepare_update(old: Object, new: Object) -> None:
    """What a client left out stays, and what the new type does not have goes if the client did not touch it."""
    before, after = _spec(old), _spec(new)
    _keep_address(before, after)
    if _has_node_ports(before) and _has_node_ports(after):
        _keep_node_ports(before, after)
    _drop(before, after)


def _keep_address(before: Object, after: Object) -> None:
    was = before.get("clusterIP") or ""
    if _has_address(before) and _has_address(after) and not after.get("clusterIP"):
        after["clusterIP"] = was
    now = after.get("clusterIP") or ""
    if not after.get("clusterIPs") or (now != was and after["clusterIPs"] == before.get("clusterIPs")):
        after["clusterIPs"] = before.get("clusterIPs") if now == was else [now]
    for field in ("clusterIP", "clusterIPs"):
        if not after.get(field):
            after.pop(field, None)
    if _has_address(before) and _has_address(after):
        for field in ("ipFamilies", "ipFamilyPolicy"):
            if not after.get(field) and before.get(field):
                after[field] = before[field]


def _keep_node_ports(before: Object, after: Object) -> None:
    """By the ports' names, as kube-apiserver does."""
    known = {p.get("name", ""): p.get("nodePort", 0) for p in before.get("ports") or ()}
    used = set(known.values()) & {p.get("nodePort", 0) for p in after.get("ports") or ()}
    for port in after.get("ports") or ():
        held = known.get(port.get("name", ""), 0)
        if not port.get("nodePort") and held and held not in used:
            port["nodePort"] = held
            used.add(held)


def _drop(before: Object, after: Object) -> None:
    def drop(fields: tuple[str, ...]) -> None:
        for field in fields:
            if after.get(field) == before.get(field):
                after.pop(field, None)

    if _has_address(before) and not _has_address(after):
        drop(("clusterIP", "clusterIPs", *_FAMILY_FIELDS))
    if _has_node_ports(before) and after.get("type") not in _WITH_PORTS:
        held = [[p.get("nodePort", 0) for p in spec.get("ports") or ()] for spec in (before, after)]
        if sorted(held[0]) == sorted(held[1]):
            for port in after.get("ports") or ():
                port.pop("nodePort", None)
    if before.get("type") in _WITH_PORTS and after.get("type") not in _WITH_PORTS:
        drop(("externalTrafficPolicy",))
    if before.get("type") == "LoadBalancer" and after.get("type") != "LoadBalancer":
        drop(_BALANCER_FIELDS)


# --- after validation ---


@dataclass(slots=True)
class _Taken:
    """What the other Services hold."""

    addresses: set[str]
    ports: set[int]


def allocate(store: Store, service: Object, old: Object | None = None) -> None:
    """Gives a valid Service the address and node ports that it lacks. ApiFailure 422 for one that it asks for and
    cannot have, 500 when there is none left.
    """
    spec, before = _spec(service), _spec(old or {})
    if not _needs(spec, before):
        return
    taken = _taken(store, service)
    faults: list[Cause] = []
    if _has_address(spec):
        _allocate_address(spec, before, taken, faults)
    if _has_node_ports(spec):
        _allocate_ports(spec, before, taken, faults)
    if faults:
        raise invalid(resource_of(_KIND), service["metadata"].get("name", ""), faults)


def _needs(spec: Object, before: Object) -> bool:
    """Whether anything is to be given out: most updates change other things."""
    if not _has_address(spec):
        return False
    if (
        spec.get("clusterIP") != before.get("clusterIP")
        or not spec.get("clusterIP")
        or not spec.get("ipFamilies")
    ):
        return True
    return _has_node_ports(spec) and (0 in _ports(spec) or bool(_ports(spec) - _ports(before)))


def _ports(spec: Object) -> set[int]:
    return {p.get("nodePort", 0) for p in spec.get("ports") or ()}


def _taken(store: Store, service: Object) -> _Taken:
    resource, meta = resource_of(_KIND), service["metadata"]
    own = resource.object_key(meta.get("namespace", ""), meta.get("name", ""))
    found = _Taken(set(), set())
    for entry in store.scan(resource.prefix)[0]:
        if entry.key != own:
            spec = _spec(entry.obj)
            found.addresses.update(spec.get("clusterIPs") or [spec.get("clusterIP", "")])
            found.ports |= _ports(spec)
    return found


def _allocate_address(spec: Object, before: Object, taken: _Taken, faults: list[Cause]) -> None:
    spec.setdefault("ipFamilyPolicy", "SingleStack")
    if not spec.get("ipFamilies"):
        spec["ipFamilies"] = ["IPv4"]
    asked = spec.get("clusterIP") or ""
    if asked in (_HEADLESS, before.get("clusterIP") or _HEADLESS):
        spec["clusterIPs"] = spec.get("clusterIPs") or [asked]
        return
    if asked:
        refusal = _refusal(asked, taken)
        if refusal:
            said = f'Invalid value: ["{asked}"]: {refusal}'
            faults.append(Cause("spec.clusterIPs", "FieldValueInvalid", said))
    else:
        size = _RANGE.num_addresses - 2
        asked = _free(size, lambda i: str(_RANGE[i + 1]), taken.addresses, "ip_full")
    spec["clusterIP"], spec["clusterIPs"] = asked, [asked]


def _refusal(asked: str, taken: _Taken) -> str:
    address = ipaddress.ip_address(asked)
    if address not in _RANGE or address in (_RANGE.network_address, _RANGE.broadcast_address):
        return text("validation", "ip_outside", ip=asked, cidr=_RANGE)
    return text("validation", "ip_taken", ip=asked) if asked in taken.addresses else ""


def _free(size: int, at: Callable[[int], T], taken: set[T], full: str) -> T:
    """One of `size` things that nobody holds, any of them: one that was just given back is not taken at once."""
    start = secrets.randbelow(size)
    for step in range(size):
        found = at((start + step) % size)
        if found not in taken:
            return found
    raise internal(text("validation", full))


def _allocate_ports(spec: Object, before: Object, taken: _Taken, faults: list[Cause]) -> None:
    low, high = LIMITS.node_port_min, LIMITS.node_port_max
    given: dict[int, int] = {}
    own = _ports(before)
    for index, port in enumerate(spec.get("ports") or ()):
        asked = port.get("nodePort", 0)
        if asked in own and asked:
            continue
        said = ""
        if asked and not low <= asked <= high:
            said = text("validation", "node_port_outside", low=low, high=high)
        elif asked and asked in taken.ports:
            said = text("validation", "node_port_taken")
        if said:
            path = f"spec.ports[{index}].nodePort"
            faults.append(Cause(path, "FieldValueInvalid", f"Invalid value: {asked}: {said}"))
    used = taken.ports | _ports(spec)
    for port in _unset(spec):
        # The same port by another protocol has the same node port.
        number = given.get(port.get("port", 0))
        if number is None:
            number = _free(high - low + 1, lambda i: low + i, used, "node_port_full")
            given[port.get("port", 0)] = number
            used.add(number)
        port["nodePort"] = number


def _unset(spec: Object) -> Iterator[Object]:
    return (p for p in spec.get("ports") or () if not p.get("nodePort"))


# --- the Service that every cluster has ---


def bootstrap(store: Store) -> Callable[[], None]:
    """Makes Service default/kubernetes at the first address, now and whenever it was deleted, until what is given is
    called.
    """
    key = resource_of(_KIND).object_key(*_API)

    def changed(change: Change) -> None:
        if change.type == "DELETED" and change.key == key:
            _make_own(store, key)

    _make_own(store, key)
    return store.subscribe(key, changed)


def _make_own(store: Store, key: str) -> None:
    resource = resource_of(_KIND)
    if store.get(key) is not None:
        return
    namespace, name = _API
    service: Object = {
        "kind": resource.kind,
        "apiVersion": resource.api_version,
        "metadata": {
            "name": name,
            "namespace": namespace,
            "labels": {"component": "apiserver", "provider": "kubernetes"},
        },
        "spec": {
            "clusterIP": str(_RANGE[1]),
            "ports": [{"name": "https", "port": _API_PORT, "targetPort": _API_TARGET}],
        },
    }
    metadata.prepare_create(resource, service, namespace)
    admission.default(resource, service)
    prepare_create(service)
    try:
        allocate(store, service)
        store.put_extended(key, service, expected_version=0)
    except (ApiFailure, AlreadyExists) as error:
        _log.warning("Service %s/%s cannot be made: %s", namespace, name, error)
