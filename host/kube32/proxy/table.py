"""The route table of a node: which Services, NodePorts and Ingress rules there are, and who answers for them.

The control plane makes it and sends it to every node (PUT /routes of the kubelet), as JSON; the node keeps the
last one on disk, so that its listeners work after a restart and without a control plane.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import orjson

Json = dict[str, Any]
_PORTS = range(1, 65536)


class TableError(ValueError):
    """A route table that cannot be read; str() says where."""


@dataclass(frozen=True, slots=True)
class Endpoint:
    """A Ready pod of a Service and its node."""

    pod: str
    node: str


@dataclass(frozen=True, slots=True)
class ServicePort:
    """One port of a Service. `node_port` is 0 when there is none; `waits`: a pod of it moves or is frozen."""

    namespace: str
    service: str
    name: str
    port: int
    node_port: int
    endpoints: tuple[Endpoint, ...]
    waits: bool = False

    @property
    def key(self) -> tuple[str, str, int]:
        """(namespace, service, port)."""
        return self.namespace, self.service, self.port


@dataclass(frozen=True, slots=True)
class PathRule:
    """One rule of an Ingress. `host` "" is any; `kind` is Exact, Prefix or ImplementationSpecific."""

    host: str
    path: str
    kind: str
    namespace: str
    service: str
    port: int


@dataclass(frozen=True, slots=True)
class RouteTable:
    """All routes of the cluster. Rules without a path ("" and host "") are default backends."""

    ports: tuple[ServicePort, ...] = ()
    rules: tuple[PathRule, ...] = ()

    def find(self, namespace: str, service: str, port: int) -> ServicePort | None:
        """A Service's port; None when there is none."""
        return next((p for p in self.ports if p.key == (namespace, service, port)), None)

    def node_ports(self) -> dict[int, ServicePort]:
        """Every NodePort."""
        return {p.node_port: p for p in self.ports if p.node_port}


def parse(data: bytes) -> RouteTable:
    """The table in `data`; TableError for anything else."""
    try:
        found = orjson.loads(data)
        services, ingresses = found["services"], found["ingresses"]
        return RouteTable(
            tuple(p for s in services for p in _ports(s)), tuple(r for i in ingresses for r in _rules(i))
        )
    except orjson.JSONDecodeError as error:
        raise TableError(f"the route table is not JSON: {error}") from None
    except KeyError as error:
        raise TableError(f"the route table lacks {error}") from None
    except (TypeError, AttributeError) as error:
        raise TableError(f"the route table has a value of a wrong type: {error}") from None


def _ports(service: Json) -> Iterator[ServicePort]:
    for row in service["ports"]:
        yield ServicePort(
            _text(service["namespace"]),
            _text(service["name"]),
            _text(row.get("name", "")),
            _port(row["port"]),
            _port(row["nodePort"]) if row.get("nodePort") else 0,
            tuple(Endpoint(_text(e["pod"]), _text(e["node"])) for e in row["endpoints"]),
            bool(row.get("waits")),
        )


def _rules(ingress: Json) -> Iterator[PathRule]:
    namespace = _text(ingress["namespace"])
    for row in ingress["rules"]:
        port = row["port"]
        yield PathRule(
            _text(row["host"]).lower(),
            _text(row["path"]),
            _text(row["pathType"]),
            namespace,
            _text(row["service"]),
            _port(port) if port else 0,
        )


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise TableError(f"the route table has {value!r} where a text belongs")
    return value


def _port(value: Any) -> int:
    if not isinstance(value, int) or value not in _PORTS:
        raise TableError(f"the route table has {value!r} where a port belongs")
    return value
