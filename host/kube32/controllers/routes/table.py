"""Makes the route table that nodes get: JSON, in an order that depends on its content alone. Pure."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import orjson

from kube32.contract import NAMES, text
from kube32.controllers.objects import Obj, annotation, condition, is_deleting, name_of, spec_of

_SERVICE_LABEL = "kubernetes.io/service-name"
_CLASS_ANNOTATION = "kubernetes.io/ingress.class"


@dataclass(frozen=True, slots=True)
class Cluster:
    """What the table is made of."""

    services: Iterable[Obj]
    slices: Iterable[Obj]
    ingresses: Iterable[Obj]
    classes: Iterable[Obj]
    pods: dict[tuple[str, str], Obj]


def make(cluster: Cluster) -> bytes:
    """The table as JSON."""
    slices: dict[tuple[str, str], list[Obj]] = {}
    for row in cluster.slices:
        service = (row["metadata"].get("labels") or {}).get(_SERVICE_LABEL, "")
        slices.setdefault((_space(row), service), []).append(row)
    services = sorted(cluster.services, key=_key)
    known = {_key(s): s for s in services}
    found = {
        "services": [_service(s, slices.get(_key(s), []), cluster.pods) for s in services if _has_ports(s)],
        "ingresses": [
            {"namespace": _space(i), "name": name_of(i), "rules": list(_rules(i, known))}
            for i in served(cluster.ingresses, cluster.classes)
        ],
    }
    return orjson.dumps(found, option=orjson.OPT_SORT_KEYS)


def served(ingresses: Iterable[Obj], classes: Iterable[Obj]) -> list[Obj]:
    """The Ingresses that are ours: of a class of our controller, or of none."""
    ours = {name_of(c) for c in classes if spec_of(c).get("controller") == NAMES.ingress_controller}
    found = []
    for ingress in ingresses:
        named = spec_of(ingress).get("ingressClassName") or annotation(ingress, _CLASS_ANNOTATION)
        if not is_deleting(ingress) and (not named or named in ours):
            found.append(ingress)
    return sorted(found, key=_key)


def _space(obj: Obj) -> str:
    return str(obj["metadata"].get("namespace", ""))


def _key(obj: Obj) -> tuple[str, str]:
    return _space(obj), name_of(obj)


def _has_ports(service: Obj) -> bool:
    return spec_of(service).get("type") != "ExternalName" and any(_tcp(service))


def _tcp(service: Obj) -> Iterator[Obj]:
    for port in spec_of(service).get("ports") or []:
        if port.get("protocol", "TCP") == "TCP":
            yield port


def _service(service: Obj, slices: list[Obj], pods: dict[tuple[str, str], Obj]) -> Obj:
    ports = []
    for port in _tcp(service):
        name = str(port.get("name") or "")
        rows = [
            e
            for s in slices
            if any((p.get("name") or "") == name for p in s.get("ports") or [])
            for e in s.get("endpoints") or []
        ]
        ready = [
            e for e in rows if (e.get("conditions") or {}).get("ready") and _pod(e) and e.get("nodeName")
        ]
        made: Obj = {
            "name": name,
            "port": port["port"],
            "endpoints": sorted(
                ({"pod": _pod(e), "node": str(e["nodeName"])} for e in ready),
                key=lambda e: (e["pod"], e["node"]),
            ),
        }
        if port.get("nodePort"):
            made["nodePort"] = port["nodePort"]
        if any(_on_its_way(pods.get((_space(service), _pod(e)))) for e in rows if e not in ready):
            made["waits"] = True
        ports.append(made)
    return {"namespace": _space(service), "name": name_of(service), "ports": ports}


def _pod(endpoint: Obj) -> str:
    reference = endpoint.get("targetRef") or {}
    return str(reference.get("name") or "") if reference.get("kind", "Pod") == "Pod" else ""


def _on_its_way(pod: Obj | None) -> bool:
    """Whether the pod is frozen or restores: it takes requests again soon, with its state."""
    if pod is None or is_deleting(pod):
        return False
    ready = condition(pod, "Ready") or {}
    return (
        ready.get("reason") == text("reasons", "frozen")
        or annotation(pod, NAMES.ann_restore_from) is not None
    )


def _rules(ingress: Obj, services: dict[tuple[str, str], Obj]) -> Iterator[Obj]:
    spec, space = spec_of(ingress), _space(ingress)
    default = spec.get("defaultBackend")
    if default:
        yield {"host": "", "path": "", "pathType": "Prefix", **_backend(default, space, services)}
    for rule in spec.get("rules") or []:
        paths = (rule.get("http") or {}).get("paths") or []
        if not paths and default:
            yield {
                "host": str(rule.get("host") or ""),
                "path": "",
                "pathType": "Prefix",
                **_backend(default, space, services),
            }
        for path in paths:
            yield {
                "host": str(rule.get("host") or ""),
                "path": str(path.get("path") or "/"),
                "pathType": str(path.get("pathType") or "ImplementationSpecific"),
                **_backend(path.get("backend") or {}, space, services),
            }


def _backend(backend: Obj, namespace: str, services: dict[tuple[str, str], Obj]) -> Obj:
    """The backend's Service and the number of its port, 0 when there is no such port."""
    wanted = backend.get("service") or {}
    name, port = str(wanted.get("name") or ""), wanted.get("port") or {}
    number = port.get("number") or 0
    if not number:
        service = services.get((namespace, name))
        ports = [] if service is None else list(_tcp(service))
        number = next((p["port"] for p in ports if p.get("name") == port.get("name")), 0)
    return {"service": name, "port": number}
