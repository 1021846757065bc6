"""What Services and Ingresses may leave out; addresses and node ports are given out by services.py."""

from typing import Any

from kube32.api.admission.defaults.values import fill

Object = dict[str, Any]
_AFFINITY_S = 10800
_EXTERNAL = ("NodePort", "LoadBalancer")


def service(obj: Object) -> None:
    """A Service."""
    spec: Object = obj.setdefault("spec", {})
    fill(spec, type="ClusterIP", sessionAffinity="None")
    if spec["sessionAffinity"] == "ClientIP":
        affinity = spec.setdefault("sessionAffinityConfig", {}).setdefault("clientIP", {})
        affinity.setdefault("timeoutSeconds", _AFFINITY_S)
    elif spec["sessionAffinity"] == "None":
        spec.pop("sessionAffinityConfig", None)
    for port in spec.get("ports") or ():
        fill(port, protocol="TCP")
        if port.get("targetPort") in (None, "", 0) and "port" in port:
            port["targetPort"] = port["port"]
    if spec["type"] in _EXTERNAL:
        fill(spec, externalTrafficPolicy="Cluster")
    if spec["type"] != "ExternalName":
        fill(spec, internalTrafficPolicy="Cluster")
    if spec["type"] == "LoadBalancer":
        spec.setdefault("allocateLoadBalancerNodePorts", True)
    obj.setdefault("status", {}).setdefault("loadBalancer", {})


def ingress(obj: Object) -> None:
    """An Ingress."""
    obj.setdefault("spec", {})
    obj.setdefault("status", {}).setdefault("loadBalancer", {})
