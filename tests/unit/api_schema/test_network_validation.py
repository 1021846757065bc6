"""Validation of Services, Ingresses, IngressClasses, roles, bindings and claims, in Kubernetes' words."""

import copy
from collections.abc import Callable
from typing import Any

import pytest

from kube32.api.admission import default, validate_update
from kube32.api.status import ApiFailure
from kube32.contract import resource_of

Refusals = Callable[[dict[str, Any]], list[str]]
Admit = Callable[[dict[str, Any]], dict[str, Any]]
RBAC = "rbac.authorization.k8s.io"


def named(kind: str, name: str = "x", **parts: Any) -> dict[str, Any]:
    return {"kind": kind, "apiVersion": "v1", "metadata": {"name": name}, **parts}


def service(*ports: dict[str, Any], **spec: Any) -> dict[str, Any]:
    return named("Service", spec={"ports": list(ports) or [{"port": 80}], **spec})


def ingress(path: dict[str, Any] | None = None, **spec: Any) -> dict[str, Any]:
    backend = {"service": {"name": "web", "port": {"number": 80}}}
    found = {"path": "/", "pathType": "Prefix", "backend": backend, **(path or {})}
    return named("Ingress", spec={"rules": [{"host": "a.example", "http": {"paths": [found]}}], **spec})


def claim(**spec: Any) -> dict[str, Any]:
    asked = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}
    return named("PersistentVolumeClaim", spec={**asked, **spec})


def binding(kind: str = "RoleBinding", role: dict[str, Any] | None = None, **subject: Any) -> dict[str, Any]:
    about = {"kind": "ClusterRole", "name": "view", **(role or {})}
    return named(kind, roleRef=about, subjects=[{"kind": "User", "name": "u", **subject}])


GOOD = [
    service(),
    service({"port": 80, "name": "a", "targetPort": "http"}, {"port": 443, "name": "b"}),
    service({"port": 53, "name": "a"}, {"port": 53, "name": "b", "protocol": "UDP"}),
    named("Service", spec={"clusterIP": "None"}),
    named("Service", spec={"type": "ExternalName", "externalName": "example.com."}),
    service(sessionAffinity="ClientIP"),
    ingress(),
    ingress({"path": "", "pathType": "ImplementationSpecific"}),
    named("Ingress", spec={"defaultBackend": {"service": {"name": "web", "port": {"name": "http"}}}}),
    named("IngressClass", spec={"controller": "example.com/ingress"}),
    claim(),
    binding(),
    binding(kind="ClusterRoleBinding"),
    named(
        "RoleBinding",
        roleRef={"kind": "Role", "name": "r"},
        subjects=[
            {"kind": "ServiceAccount", "name": "robot", "namespace": "n"},
            {"kind": "Group", "name": "a:b"},
        ],
    ),
    named("Role", rules=[{"apiGroups": [""], "resources": ["pods"], "verbs": ["get"]}]),
    named("ClusterRole", rules=[{"nonResourceURLs": ["/healthz"], "verbs": ["get"]}]),
    named("ServiceAccount"),
]


@pytest.mark.parametrize("obj", GOOD)
def test_ordinary_objects_are_taken(obj: dict[str, Any], admit: Admit) -> None:
    admit(copy.deepcopy(obj))


FAULTS = [
    (named("Service", spec={}), "spec.ports: Required value"),
    (named("Service"), "spec.ports: Required value"),
    (
        named("Service", "1a", spec={"ports": [{"port": 80}]}),
        'metadata.name: Invalid value: "1a": a DNS-1035 label must consist of',
    ),
    (service({"port": 0}), "spec.ports[0].port: Invalid value: 0: must be between 1 and 65535, inclusive"),
    (service({"port": 80}, {"port": 81}), "spec.ports[0].name: Required value"),
    (
        service({"port": 80, "name": "a"}, {"port": 81, "name": "a"}),
        'spec.ports[1].name: Duplicate value: "a"',
    ),
    (
        service({"port": 80, "name": "a"}, {"port": 80, "name": "b"}),
        "spec.ports[1]: Duplicate value: ",
    ),
    (
        service({"port": 80, "protocol": "HTTP"}),
        'spec.ports[0].protocol: Unsupported value: "HTTP": supported values: "SCTP", "TCP", "UDP"',
    ),
    (service({"port": 80, "targetPort": "A"}), 'spec.ports[0].targetPort: Invalid value: "A": must contain'),
    (
        service({"port": 80, "nodePort": 30080}),
        "spec.ports[0].nodePort: Forbidden: may not be used when `type` is 'ClusterIP'",
    ),
    (service(type="Cluster"), 'spec.type: Unsupported value: "Cluster": supported values: "ClusterIP"'),
    (
        named("Service", spec={"type": "ExternalName"}),
        "spec.externalName: Required value",
    ),
    (
        named("Service", spec={"type": "ExternalName", "externalName": "a", "clusterIP": "10.96.0.9"}),
        "spec.clusterIP: Forbidden: may not be set for ExternalName services",
    ),
    (service(clusterIP="here"), 'spec.clusterIPs[0]: Invalid value: "here": must be a valid IP address'),
    (
        service(clusterIP="None", type="NodePort"),
        "spec.clusterIPs[0]: Invalid value: \"None\": may not be set to 'None' for NodePort services",
    ),
    (
        service(clusterIPs=["10.96.0.9"]),
        'spec.clusterIPs[0]: Invalid value: ["10.96.0.9"]: first value must match `clusterIP`',
    ),
    (
        service(ipFamilies=["IPv6"]),
        'spec.ipFamilies[0]: Invalid value: "IPv6": not configured on this cluster',
    ),
    (
        service(ipFamilyPolicy="RequireDualStack"),
        'spec.ipFamilyPolicy: Invalid value: "RequireDualStack": this cluster is not configured for dual-stack',
    ),
    (service(selector={"a": "b c"}), 'spec.selector: Invalid value: "b c"'),
    (
        service(sessionAffinity="ClientIP", sessionAffinityConfig={"clientIP": {"timeoutSeconds": 0}}),
        "spec.sessionAffinityConfig.clientIP.timeoutSeconds: Invalid value: 0: must be between 1 and 86400",
    ),
    (
        service(externalTrafficPolicy="Local"),
        'spec.externalTrafficPolicy: Invalid value: "Local": may only be set for externally-accessible services',
    ),
    (
        service(loadBalancerClass="a.example/b"),
        "spec.loadBalancerClass: Forbidden: may only be used when `type` is 'LoadBalancer'",
    ),
    (
        named("Ingress", spec={}),
        "spec: Invalid value: null: either `defaultBackend` or `rules` must be specified",
    ),
    (
        ingress({"path": "a"}),
        'spec.rules[0].http.paths[0].path: Invalid value: "a": must be an absolute path',
    ),
    (
        ingress({"path": "/a//b"}),
        "spec.rules[0].http.paths[0].path: Invalid value: \"/a//b\": must not contain '//'",
    ),
    (
        ingress({"path": "/.."}),
        "spec.rules[0].http.paths[0].path: Invalid value: \"/..\": cannot end with '/..'",
    ),
    (ingress({"pathType": None}), "spec.rules[0].http.paths[0].pathType: Required value"),
    (ingress({"pathType": "Regex"}), 'spec.rules[0].http.paths[0].pathType: Unsupported value: "Regex"'),
    (
        ingress({"backend": {}}),
        'spec.rules[0].http.paths[0].backend: Invalid value: "": resource or service backend is required',
    ),
    (
        ingress({"backend": {"service": {"name": "web"}}}),
        "spec.rules[0].http.paths[0].backend: Required value: port name or number is required",
    ),
    (
        ingress({"backend": {"service": {"name": "web", "port": {"name": "a", "number": 1}}}}),
        'spec.rules[0].http.paths[0].backend: Invalid value: "": cannot set both port name & port number',
    ),
    (
        named("Ingress", spec={"rules": [{"host": "10.0.0.1"}]}),
        'spec.rules[0].host: Invalid value: "10.0.0.1": must be a DNS name, not an IP address',
    ),
    (
        named("Ingress", spec={"rules": [{"host": "*.*.a"}]}),
        'spec.rules[0].host: Invalid value: "*.*.a": a wildcard DNS-1123 subdomain must start with',
    ),
    (
        {
            **ingress(ingressClassName="kube32"),
            "metadata": {"name": "x", "annotations": {"kubernetes.io/ingress.class": "a"}},
        },
        'metadata.annotations[kubernetes.io/ingress.class]: Invalid value: "a": can not be set when the class field',
    ),
    (named("IngressClass", spec={}), "spec.controller: Required value"),
    (
        named("IngressClass", spec={"controller": "mine"}),
        'spec.controller: Invalid value: "mine": must be a domain-prefixed path (such as "acme.io/foo")',
    ),
    (claim(accessModes=[]), "spec.accessModes: Required value: at least 1 access mode is required"),
    (
        claim(accessModes=["Once"]),
        'spec.accessModes: Unsupported value: "Once": supported values: "ReadOnlyMany"',
    ),
    (
        claim(accessModes=["ReadWriteOncePod", "ReadWriteMany"]),
        "spec.accessModes: Forbidden: may not use ReadWriteOncePod with other access modes",
    ),
    (claim(resources={}), "spec.resources[storage]: Required value"),
    (
        claim(resources={"requests": {"storage": "0"}}),
        'spec.resources[storage]: Invalid value: "0": must be greater than zero',
    ),
    (
        claim(volumeMode="Tape"),
        'spec.volumeMode: Unsupported value: "Tape": supported values: "Block", "Filesystem"',
    ),
    (
        binding(role={"kind": "Group"}),
        'roleRef.kind: Unsupported value: "Group": supported values: "ClusterRole", "Role"',
    ),
    (
        binding(kind="ClusterRoleBinding", role={"kind": "Role"}),
        'roleRef.kind: Unsupported value: "Role": supported values: "ClusterRole"',
    ),
    (
        binding(role={"apiGroup": "apps"}),
        f'roleRef.apiGroup: Unsupported value: "apps": supported values: "{RBAC}"',
    ),
    (
        named(
            "RoleBinding",
            roleRef={"kind": "Role", "name": "r"},
            subjects=[{"kind": "ServiceAccount", "name": "a"}],
        ),
        "subjects[0].namespace: Required value",
    ),
    (
        named(
            "RoleBinding", roleRef={"kind": "Role", "name": "r"}, subjects=[{"kind": "Robot", "name": "a"}]
        ),
        'subjects[0].kind: Unsupported value: "Robot": supported values: "Group", "ServiceAccount", "User"',
    ),
    (named("RoleBinding"), "roleRef: Required value"),
    (
        named("Role", rules=[{"nonResourceURLs": ["/x"], "verbs": ["get"]}]),
        'rules[0].nonResourceURLs: Invalid value: ["/x"]: namespaced rules cannot apply to non-resource URLs',
    ),
    (named("Role", rules=[{"apiGroups": [""], "resources": ["pods"]}]), "rules[0].verbs: Required value"),
    (
        named("Role", rules=[{"resources": ["pods"], "verbs": ["get"]}]),
        "rules[0].apiGroups: Required value: resource rules must supply at least one api group",
    ),
    (
        named("ClusterRole", rules=[{"nonResourceURLs": ["/x"], "resources": ["pods"], "verbs": ["get"]}]),
        'rules[0].nonResourceURLs: Invalid value: ["/x"]: rules cannot apply to both',
    ),
    (
        named("ClusterRole", aggregationRule={}),
        "aggregationRule.clusterRoleSelectors: Required value: at least one clusterRoleSelector required",
    ),
]


@pytest.mark.parametrize(("obj", "said"), FAULTS)
def test_faults_are_named_in_kubernetes_words(obj: dict[str, Any], said: str, refusals: Refusals) -> None:
    found = refusals(copy.deepcopy(obj))
    assert any(fault.startswith(said) for fault in found), found


def updated(obj: dict[str, Any], path: str, value: Any, status: dict[str, Any] | None = None) -> str:
    """What an update says; "" when it is taken."""
    resource, old = resource_of(obj["kind"]), copy.deepcopy(obj)
    default(resource, old)
    old.update({"status": status} if status else {})
    new = copy.deepcopy(old)
    target = new
    *parents, last = path.split(".")
    for key in parents:
        target = target.setdefault(key, {})
    target[last] = value
    try:
        validate_update(resource, old, new)
    except ApiFailure as failure:
        return failure.message
    return ""


BOUND = {"phase": "Bound", "capacity": {"storage": "1Gi"}}
UPDATES = [
    (service(clusterIP="10.96.0.9"), "spec.clusterIP", "10.96.0.8", "may not change once set"),
    (named("IngressClass", spec={"controller": "a.b/c"}), "spec.controller", "a.b/d", "field is immutable"),
    (binding(), "roleRef.name", "edit", "cannot change roleRef"),
    (binding(), "subjects", [], ""),
    (
        claim(),
        "spec.accessModes",
        ["ReadOnlyMany"],
        "spec is immutable after creation except resources.requests",
    ),
    (claim(), "spec.resources", {"requests": {"storage": "2Gi"}}, "spec is immutable after creation"),
    (claim(), "spec.volumeName", "v", ""),
    (claim(volumeName="v"), "spec.volumeName", "w", "spec is immutable after creation"),
]


@pytest.mark.parametrize(("obj", "path", "value", "said"), UPDATES)
def test_what_stays_stays(obj: dict[str, Any], path: str, value: Any, said: str) -> None:
    found = updated(obj, path, value)
    assert said in found and bool(said) == bool(found)


def test_a_bound_claim_may_ask_for_more_and_not_for_less_than_it_has() -> None:
    assert updated(claim(), "spec.resources", {"requests": {"storage": "2Gi"}}, BOUND) == ""
    less = updated(claim(), "spec.resources", {"requests": {"storage": "1Mi"}}, BOUND)
    assert "spec.resources.requests.storage: Forbidden: field can not be less than status.capacity" in less
