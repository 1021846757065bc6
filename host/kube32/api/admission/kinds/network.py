"""Validation of Services, Ingresses and IngressClasses, in kube-apiserver's words."""

import ipaddress
from typing import Any

from kube32.api.admission import names
from kube32.api.admission.meta import check_labels
from kube32.api.admission.problems import Problems
from kube32.contract import text

Object = dict[str, Any]
_PORT_HIGHEST = 65535
_AFFINITY_HIGHEST_S = 86400
_NO_ADDRESS = "None"
_EXTERNAL = ("NodePort", "LoadBalancer")
_CLASS_ANNOTATION = "kubernetes.io/ingress.class"
_CLASS_BYTES = 250
_PATH_PARTS = ("//", "/./", "/../", "%2f", "%2F")
_PATH_ENDS = ("/..", "/.")


def said(name: str, **fields: object) -> str:
    """A text of the contract's section on validation."""
    return text("validation", name, **fields)


# --- Service ---


def check_service(obj: Object, problems: Problems) -> None:
    """A Service."""
    spec: Object = obj.get("spec") or {}
    kind, ports = spec.get("type", ""), spec.get("ports") or []
    headless = spec.get("clusterIP") == _NO_ADDRESS
    if not ports and not headless and kind != "ExternalName":
        problems.required("spec.ports")
    _check_ports(ports, kind, problems)
    check_labels(spec.get("selector") or {}, "spec.selector", problems)
    _check_addresses(spec, kind, problems)
    _check_affinity(spec, problems)
    if kind == "ExternalName":
        name = (spec.get("externalName") or "").removesuffix(".")
        if name:
            problems.invalids("spec.externalName", name, names.subdomain(name))
        else:
            problems.required("spec.externalName")
    for index, address in enumerate(spec.get("externalIPs") or ()):
        _check_address(address, f"spec.externalIPs[{index}]", problems)
    _check_foreign_fields(spec, kind, problems)


def _check_ports(ports: list[Object], kind: str, problems: Problems) -> None:
    known_names, known_ports, known_nodes = set[str](), set[tuple[int, str]](), set[tuple[int, str]]()
    for index, port in enumerate(ports):
        path = f"spec.ports[{index}]"
        _check_port(port, path, len(ports) > 1, known_names, problems)
        number, protocol, node = port.get("port", 0), port.get("protocol", ""), port.get("nodePort", 0)
        if (number, protocol) in known_ports:
            problems.duplicate(path, {"port": number, "protocol": protocol})
        known_ports.add((number, protocol))
        if not node:
            continue
        if kind not in _EXTERNAL:
            problems.forbidden(f"{path}.nodePort", said("node_port_type"))
        if (node, protocol) in known_nodes:
            problems.duplicate(f"{path}.nodePort", node)
        known_nodes.add((node, protocol))


def _check_port(port: Object, path: str, named: bool, known: set[str], problems: Problems) -> None:
    name = port.get("name", "")
    if name:
        problems.invalids(f"{path}.name", name, names.label(name))
        if name in known:
            problems.duplicate(f"{path}.name", name)
        known.add(name)
    elif named:
        problems.required(f"{path}.name")
    problems.between(f"{path}.port", port.get("port", 0), 1, _PORT_HIGHEST)
    target = port.get("targetPort", 0)
    if isinstance(target, str):
        problems.invalids(f"{path}.targetPort", target, names.port_name(target))
    elif target:
        problems.between(f"{path}.targetPort", target, 1, _PORT_HIGHEST)


def _check_addresses(spec: Object, kind: str, problems: Problems) -> None:
    """clusterIP, clusterIPs and the families, of a cluster that has IPv4 alone."""
    address, addresses = spec.get("clusterIP") or "", spec.get("clusterIPs") or []
    if kind == "ExternalName":
        for field in ("clusterIP", "clusterIPs"):
            if spec.get(field):
                problems.forbidden(f"spec.{field}", said("cluster_ip_external"))
        return
    if addresses and address != addresses[0]:
        problems.invalid("spec.clusterIPs[0]", addresses, said("cluster_ip_first"))
    if address == _NO_ADDRESS and kind in _EXTERNAL:
        problems.invalid("spec.clusterIPs[0]", _NO_ADDRESS, said("cluster_ip_none", type=kind))
    for index, found in enumerate(addresses or [address]):
        if index and found:
            problems.invalid("spec.clusterIPs", addresses, said("cluster_ips_dual"))
            break
        if found and found != _NO_ADDRESS:
            _check_address(found, f"spec.clusterIPs[{index}]", problems)
    if spec.get("ipFamilyPolicy") == "RequireDualStack":
        problems.invalid("spec.ipFamilyPolicy", "RequireDualStack", said("ip_families_dual"))
    for index, family in enumerate(spec.get("ipFamilies") or ()):
        if family not in ("IPv4", "IPv6"):
            problems.unsupported(f"spec.ipFamilies[{index}]", family, ("IPv4", "IPv6"))
        elif family != "IPv4":
            problems.invalid(f"spec.ipFamilies[{index}]", family, said("ip_family"))


def _check_address(address: str, path: str, problems: Problems) -> None:
    try:
        ipaddress.ip_address(address)
    except ValueError:
        problems.invalid(path, address, said("ip_address"))


def _check_affinity(spec: Object, problems: Problems) -> None:
    config = (spec.get("sessionAffinityConfig") or {}).get("clientIP") or {}
    seconds = config.get("timeoutSeconds")
    if spec.get("sessionAffinity") == "ClientIP" and seconds is not None:
        path = "spec.sessionAffinityConfig.clientIP.timeoutSeconds"
        problems.between(path, seconds, 1, _AFFINITY_HIGHEST_S)


def _check_foreign_fields(spec: Object, kind: str, problems: Problems) -> None:
    """Fields that only other types of Services have."""
    if kind != "LoadBalancer":
        for field in ("loadBalancerClass", "allocateLoadBalancerNodePorts", "loadBalancerSourceRanges"):
            if spec.get(field):
                problems.forbidden(f"spec.{field}", said("only_balancer"))
    policy = spec.get("externalTrafficPolicy")
    if policy and kind not in _EXTERNAL and not spec.get("externalIPs"):
        problems.invalid("spec.externalTrafficPolicy", policy, said("only_external"))


def check_service_update(old: Object, new: Object, problems: Problems) -> None:
    """A Service keeps its address while it is of a type that has one."""
    before, after = old.get("spec") or {}, new.get("spec") or {}
    if "ExternalName" in (before.get("type"), after.get("type")):
        return
    was, now = before.get("clusterIP") or "", after.get("clusterIP") or ""
    if was and not now:
        problems.invalid("spec.clusterIPs[0]", after.get("clusterIPs") or [], said("cluster_ip_unset"))
    elif was and now != was:
        problems.invalid("spec.clusterIPs[0]", after.get("clusterIPs") or [now], said("cluster_ip_fixed"))


# --- Ingress ---


def check_ingress(obj: Object, problems: Problems) -> None:
    """An Ingress."""
    spec: Object = obj.get("spec") or {}
    backend, rules = spec.get("defaultBackend"), spec.get("rules") or []
    if not rules and backend is None:
        problems.invalid("spec", None, said("ingress_empty"))
    if backend is not None:
        _check_backend(backend, "spec.defaultBackend", problems)
    for index, rule in enumerate(rules):
        _check_rule(rule, f"spec.rules[{index}]", problems)
    for index, tls in enumerate(spec.get("tls") or ()):
        for place, host in enumerate(tls.get("hosts") or ()):
            _check_host(host, f"spec.tls[{index}].hosts[{place}]", problems)
        if tls.get("secretName"):
            path = f"spec.tls[{index}].secretName"
            problems.invalids(path, tls["secretName"], names.subdomain(tls["secretName"]))
    if spec.get("ingressClassName"):
        problems.invalids(
            "spec.ingressClassName", spec["ingressClassName"], names.subdomain(spec["ingressClassName"])
        )


def check_new_ingress(obj: Object, problems: Problems) -> None:
    """The older annotation and the field do not go together."""
    named = ((obj.get("metadata") or {}).get("annotations") or {}).get(_CLASS_ANNOTATION)
    if named and (obj.get("spec") or {}).get("ingressClassName"):
        problems.invalid(f"metadata.annotations[{_CLASS_ANNOTATION}]", named, said("ingress_class_both"))


def _check_rule(rule: Object, path: str, problems: Problems) -> None:
    if rule.get("host"):
        _check_host(rule["host"], f"{path}.host", problems)
    for index, found in enumerate((rule.get("http") or {}).get("paths") or ()):
        at = f"{path}.http.paths[{index}]"
        _check_path(found.get("path") or "", found.get("pathType") or "", f"{at}.path", problems)
        _check_backend(found.get("backend") or {}, f"{at}.backend", problems)


def _check_host(host: str, path: str, problems: Problems) -> None:
    try:
        ipaddress.ip_address(host)
    except ValueError:
        rule = names.wildcard if "*" in host else names.subdomain
        problems.invalids(path, host, rule(host))
    else:
        problems.invalid(path, host, said("host_ip"))


def _check_path(value: str, kind: str, path: str, problems: Problems) -> None:
    if kind == "ImplementationSpecific":
        if value and not value.startswith("/"):
            problems.invalid(path, value, said("ingress_path"))
        return
    if not value.startswith("/"):
        problems.invalid(path, value, said("ingress_path"))
    for part in _PATH_PARTS:
        if part in value:
            problems.invalid(path, value, said("ingress_contains", part=part))
    for end in _PATH_ENDS:
        if value.endswith(end):
            problems.invalid(path, value, said("ingress_ends", part=end))


def _check_backend(backend: Object, path: str, problems: Problems) -> None:
    service, resource = backend.get("service"), backend.get("resource")
    if service is not None and resource is not None:
        problems.invalid(path, "", said("ingress_backends"))
    elif service is not None:
        _check_service_backend(service, path, problems)
    elif resource is None:
        problems.invalid(path, "", said("ingress_backend"))


def _check_service_backend(service: Object, path: str, problems: Problems) -> None:
    name, port = service.get("name") or "", service.get("port") or {}
    if name:
        problems.invalids(f"{path}.service.name", name, names.service(name))
    named, number = port.get("name") or "", port.get("number") or 0
    if named and number:
        problems.invalid(path, "", said("ingress_ports"))
    elif named:
        problems.invalids(f"{path}.service.port.name", named, names.port_name(named))
    elif number:
        problems.between(f"{path}.service.port.number", number, 1, _PORT_HIGHEST)
    else:
        problems.required(path, said("ingress_port_none"))


# --- IngressClass ---


def check_ingress_class(obj: Object, problems: Problems) -> None:
    """An IngressClass."""
    controller = (obj.get("spec") or {}).get("controller") or ""
    if not controller:
        problems.required("spec.controller")
    elif len(controller) > _CLASS_BYTES:
        problems.too_long("spec.controller", _CLASS_BYTES)
    else:
        problems.invalids("spec.controller", controller, names.prefixed_path(controller))


def check_ingress_class_update(old: Object, new: Object, problems: Problems) -> None:
    """The controller stays."""
    before, after = ((o.get("spec") or {}).get("controller") for o in (old, new))
    if before != after:
        problems.invalid("spec.controller", after, said("immutable"))
