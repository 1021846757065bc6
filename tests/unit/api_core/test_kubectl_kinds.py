"""The real kubectl creates, scales, exposes and explains every kind; typed creates come as protobuf."""

import json
from typing import Any

import pytest
from tests.unit.api_core.test_kubectl import Kubectl, kubectl, pytestmark  # noqa: F401

from kube32.api import schemas
from kube32.contract import RESOURCES

SECRET = "eyJhdXRocyI6eyJyIjp7InVzZXJuYW1lIjoidSIsInBhc3N3b3JkIjoicCIsImF1dGgiOiJkVHB3In19fQ=="
CREATES: list[tuple[str, str, dict[str, Any]]] = [
    (
        "deployment web --image=wasm://echo --replicas=2 --port=80",
        "deployment.apps/web",
        {
            "spec.replicas": 2,
            "spec.selector.matchLabels": {"app": "web"},
            "spec.template.spec.containers.0.name": "echo",
            "spec.template.spec.containers.0.ports": [{"containerPort": 80, "protocol": "TCP"}],
        },
    ),
    (
        "service nodeport np --tcp=80:8080 --node-port=30080",
        "service/np",
        {
            "spec.type": "NodePort",
            "spec.ports.0.targetPort": 8080,
            "spec.ports.0.nodePort": 30080,
            "spec.ports.0.name": "80-8080",
            "spec.selector": {"app": "np"},
        },
    ),
    ("service clusterip h --clusterip=None", "service/h", {"spec.clusterIP": "None"}),
    (
        "service externalname e --external-name=example.com",
        "service/e",
        {"spec.type": "ExternalName", "spec.externalName": "example.com"},
    ),
    ("service loadbalancer lb --tcp=80:http", "service/lb", {"spec.ports.0.targetPort": "http"}),
    (
        "job once --image=wasm://hello -- ignored",
        "job.batch/once",
        {
            "spec.template.spec.restartPolicy": "Never",
            "spec.template.spec.containers.0.command": ["ignored"],
            "spec.completions": 1,
        },
    ),
    (
        "ingress web --rule=web.example/a*=web:80,tls=s --default-backend=web:http --annotation=a=b",
        "ingress.networking.k8s.io/web",
        {
            "metadata.annotations": {"a": "b"},
            "spec.ingressClassName": "kube32",
            "spec.defaultBackend.service.port": {"name": "http"},
            "spec.rules.0.host": "web.example",
            "spec.rules.0.http.paths.0.pathType": "Prefix",
            "spec.rules.0.http.paths.0.path": "/a",
            "spec.tls": [{"hosts": ["web.example"], "secretName": "s"}],
        },
    ),
    (
        "role reader --verb=get,list --resource=pods,deployments.apps --resource-name=a",
        "role.rbac.authorization.k8s.io/reader",
        {"rules.0.verbs": ["get", "list"], "rules.0.resourceNames": ["a"], "rules.1.apiGroups": ["apps"]},
    ),
    (
        "clusterrole paths --verb=get --non-resource-url=/x",
        "clusterrole.rbac.authorization.k8s.io/paths",
        {"rules": [{"nonResourceURLs": ["/x"], "verbs": ["get"]}]},
    ),
    (
        "clusterrole all --aggregation-rule=a=b",
        "clusterrole.rbac.authorization.k8s.io/all",
        {"aggregationRule.clusterRoleSelectors": [{"matchLabels": {"a": "b"}}]},
    ),
    (
        "rolebinding rb --clusterrole=view --user=u --group=g --serviceaccount=default:robot",
        "rolebinding.rbac.authorization.k8s.io/rb",
        {
            "roleRef.name": "view",
            "subjects.0.kind": "User",
            "subjects.1.name": "g",
            "subjects.2.namespace": "default",
        },
    ),
    (
        "clusterrolebinding crb --clusterrole=view --user=u",
        "clusterrolebinding.rbac.authorization.k8s.io/crb",
        {"roleRef.kind": "ClusterRole", "subjects.0.name": "u"},
    ),
    ("serviceaccount robot", "serviceaccount/robot", {"metadata.name": "robot"}),
    ("configmap c --from-literal=a=b", "configmap/c", {"data": {"a": "b"}}),
    ("secret generic s --from-literal=a=b --type=x/y", "secret/s", {"data": {"a": "Yg=="}, "type": "x/y"}),
    (
        "secret docker-registry d --docker-server=r --docker-username=u --docker-password=p",
        "secret/d",
        {"type": "kubernetes.io/dockerconfigjson", "data.": {".dockerconfigjson": SECRET}},
    ),
]


def at(obj: Any, path: str) -> Any:
    for key in filter(None, path.split(".")):
        obj = obj[int(key)] if isinstance(obj, list) else obj[key]
    return obj


@pytest.mark.parametrize(("what", "name", "held"), CREATES)
async def test_create_makes_what_it_says(
    kubectl: Kubectl,  # noqa: F811
    what: str,
    name: str,
    held: dict[str, Any],
) -> None:
    assert await kubectl("create", *what.split()) == f"{name} created\n"
    kind, _, short = name.partition("/")
    found = json.loads(await kubectl("get", kind, short, "-o", "json"))
    for path, value in held.items():
        assert at(found, path) == value, path


async def test_scale_and_expose(kubectl: Kubectl) -> None:  # noqa: F811
    await kubectl("create", "deployment", "web", "--image=wasm://echo", "--port=80")
    assert "scaled" in await kubectl("scale", "deployment/web", "--replicas=3")
    said = await kubectl("scale", "deployment/web", "--replicas=1", "--current-replicas=9", code=1)
    assert "Expected replicas to be 9, was 3" in said
    assert "scaled" in await kubectl("scale", "deployment/web", "--replicas=1", "--current-replicas=3")
    assert "exposed" in await kubectl("expose", "deployment", "web", "--target-port=8080")
    wide = (await kubectl("get", "services", "web", "-o", "wide")).splitlines()[1].split()
    assert wide[1] == "ClusterIP" and wide[3:5] == ["<none>", "80/TCP"] and wide[6] == "app=web"
    wide = (await kubectl("get", "deployments", "-o", "wide")).splitlines()[1].split()
    assert wide[:4] == ["web", "0/1", "0", "0"] and wide[5:] == ["echo", "wasm://echo", "app=web"]


async def test_a_faulty_manifest_is_refused_with_the_path(kubectl: Kubectl) -> None:  # noqa: F811
    manifest = """
apiVersion: apps/v1
kind: Deployment
metadata: {name: web}
spec:
  selector: {matchLabels: {app: a}}
  template:
    metadata: {labels: {app: b}}
    spec: {containers: [{name: main}]}
"""
    said = await kubectl("apply", "-f", "-", stdin=manifest, code=1)
    assert "spec.template.spec.containers[0].image: Required value" in said
    assert "`selector` does not match template `labels`" in said


async def test_explain_knows_every_kind_and_field(kubectl: Kubectl) -> None:  # noqa: F811
    for resource in RESOURCES:
        if resource.storage == "review" or resource.kind == "Lease":
            continue
        version = f"--api-version={resource.api_version}"
        said = await kubectl("explain", resource.plural, "--recursive", version)
        assert f"KIND:       {resource.kind}" in said, resource.kind
        missing = [field for field in schemas.shapes()[resource.kind].fields if f"  {field}\t" not in said]
        assert not missing, (resource.kind, missing)


@pytest.mark.parametrize(
    ("path", "says"),
    [
        ("deployment.spec.strategy.rollingUpdate.maxSurge", "25% by default"),
        ("deployment.spec.template.spec.containers.livenessProbe.httpGet.port", "IntOrString"),
        ("job.spec.backoffLimit", "6 by default"),
        ("service.spec.ports.nodePort", "30000 to 32767"),
        ("ingress.spec.rules.http.paths.pathType", "Exact"),
        ("pvc.spec.resources.requests", "Quantity"),
        ("crd.spec.versions.schema.openAPIV3Schema", "JSONSchemaProps"),
        ("clusterrolebinding.subjects.namespace", "ServiceAccount"),
    ],
)
async def test_explain_of_a_field_says_what_it_is(kubectl: Kubectl, path: str, says: str) -> None:  # noqa: F811
    assert says in await kubectl("explain", path)
