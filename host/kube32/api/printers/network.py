"""Cells of Services, Endpoints, EndpointSlices and Ingresses."""

from kube32.api.printers.base import (
    NONE,
    UNKNOWN,
    Object,
    Printer,
    mapping,
    maps,
    number,
    string,
    strings,
    with_more,
)
from kube32.api.printers.workloads import labels

_MOST = 3
_PENDING = "<pending>"
_UNSET = "<unset>"


def service_cluster_ip(obj: Object, _now: float) -> str:
    """CLUSTER-IP."""
    return next(iter(strings(mapping(obj, "spec"), "clusterIPs")), NONE)


def service_external_ip(obj: Object, _now: float) -> str:
    """EXTERNAL-IP: addresses from outside, <pending> for a load balancer that has none."""
    spec = mapping(obj, "spec")
    kind, own = spec.get("type"), strings(spec, "externalIPs")
    if kind in ("ClusterIP", "NodePort"):
        return ",".join(own) or NONE
    if kind == "LoadBalancer":
        return ",".join(_balancers(obj) + own) or _PENDING
    return string(spec.get("externalName")) if kind == "ExternalName" else UNKNOWN


def _balancers(obj: Object) -> list[str]:
    """Addresses in status.loadBalancer."""
    found = maps(mapping(obj, "status", "loadBalancer"), "ingress")
    return sorted({string(i.get("ip"), string(i.get("hostname"))) for i in found} - {""})


def service_ports(obj: Object, _now: float) -> str:
    """PORT(S): "80/TCP", "80:30080/TCP"."""
    return ",".join(_port(p) for p in maps(mapping(obj, "spec"), "ports")) or NONE


def _port(port: Object) -> str:
    node = number(port.get("nodePort"))
    shown = f"{number(port.get('port'))}:{node}" if node > 0 else str(number(port.get("port")))
    return f"{shown}/{string(port.get('protocol'))}"


def service_selector(obj: Object, _now: float) -> str:
    """SELECTOR."""
    return labels(mapping(obj, "spec").get("selector"))


def endpoints(obj: Object, _now: float) -> str:
    """ENDPOINTS: the first three of "10.0.0.1:80"."""
    subsets = maps(obj, "subsets")
    if not subsets:
        return NONE
    shown: list[str] = []
    for subset in subsets:
        ips = [string(a.get("ip")) for a in maps(subset, "addresses")]
        ports = maps(subset, "ports")
        if ports:
            shown += [_joined(ip, number(port.get("port"))) for port in ports for ip in ips]
        else:
            shown += ips
    return with_more(shown[:_MOST], len(shown), _MOST)


def _joined(ip: str, port: int) -> str:
    return f"[{ip}]:{port}" if ":" in ip else f"{ip}:{port}"


def endpointslice_ports(obj: Object, _now: float) -> str:
    """PORTS: the first three."""
    shown = [_slice_port(p) for p in maps(obj, "ports")]
    return with_more(shown[:_MOST], len(shown), _MOST, _UNSET)


def _slice_port(port: Object) -> str:
    value = port.get("port")
    return str(value) if isinstance(value, int) else string(port.get("name"), "*")


def endpointslice_endpoints(obj: Object, _now: float) -> str:
    """ENDPOINTS: the first three addresses."""
    shown = [address for e in maps(obj, "endpoints") for address in strings(e, "addresses")]
    return with_more(shown[:_MOST], len(shown), _MOST, _UNSET)


def ingress_class(obj: Object, _now: float) -> str:
    """CLASS."""
    return string(mapping(obj, "spec").get("ingressClassName"), NONE)


def ingress_hosts(obj: Object, _now: float) -> str:
    """HOSTS: the first three, * when no rule names one."""
    rules = maps(mapping(obj, "spec"), "rules")
    shown: list[str] = []
    for rule in rules:
        if len(shown) == _MOST:
            # As kube-apiserver counts: rules without a host are among those that are not shown.
            return f"{','.join(shown)} + {len(rules) - _MOST} more..."
        if rule.get("host"):
            shown.append(string(rule.get("host")))
    return ",".join(shown) or "*"


def ingress_address(obj: Object, _now: float) -> str:
    """ADDRESS: where the Ingress is reached."""
    return ",".join(_balancers(obj))


def ingress_ports(obj: Object, _now: float) -> str:
    """PORTS."""
    return "80, 443" if maps(mapping(obj, "spec"), "tls") else "80"


def ingressclass_parameters(obj: Object, _now: float) -> str:
    """PARAMETERS: kind, group and name of an object."""
    found = mapping(obj, "spec", "parameters")
    if not found:
        return NONE
    group = string(found.get("apiGroup"))
    kind = f"{string(found.get('kind'))}.{group}" if group else string(found.get("kind"))
    return f"{kind}/{string(found.get('name'))}"


PRINTERS: dict[str, Printer] = {
    "service_cluster_ip": service_cluster_ip,
    "service_external_ip": service_external_ip,
    "service_ports": service_ports,
    "service_selector": service_selector,
    "endpoints": endpoints,
    "endpointslice_ports": endpointslice_ports,
    "endpointslice_endpoints": endpointslice_endpoints,
    "ingress_class": ingress_class,
    "ingress_hosts": ingress_hosts,
    "ingress_address": ingress_address,
    "ingress_ports": ingress_ports,
    "ingressclass_parameters": ingressclass_parameters,
}
