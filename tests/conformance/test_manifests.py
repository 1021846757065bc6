"""Manifests as Kubernetes' documentation has them, only the image changed: they apply, run, and describe well.

`kubectl describe` shows <none> and <unknown> where the server left something out: here only where Kubernetes does.
"""

import re
from pathlib import Path

import pytest

from tests.conformance.conftest import Namespace

FOLDER = Path(__file__).parent / "manifests" / "documented"
# What each manifest is called in `kubectl describe`, a condition to wait for, and what Kubernetes shows empty too.
MANIFESTS: dict[str, tuple[str, str, set[str]]] = {
    "namespace": ("namespace/{namespace}-documented", "", {"Annotations"}),
    "configmap": ("configmap/game-demo", "", {"Labels", "Annotations"}),
    "secret": ("secret/secret-basic-auth", "", {"Labels", "Annotations"}),
    "serviceaccount": (
        "serviceaccount/build-robot",
        "",
        {"Labels", "Annotations", "Image pull secrets", "Mountable secrets", "Tokens", "Events"},
    ),
    "pod": (
        "pod/static-web",
        "condition=Ready",
        {"Annotations", "Node-Selectors", "Environment", "Mounts", "Volumes"},
    ),
    "service": ("service/my-service", "", {"Labels", "Annotations", "Events"}),
    "ingress": ("ingress/minimal-ingress", "", {"Labels", "Events"}),
    "deployment": (
        "deployment/nginx-deployment",
        "condition=Available",
        {
            "Annotations",
            "Environment",
            "Mounts",
            "Volumes",
            "Node-Selectors",
            "Tolerations",
            "OldReplicaSets",
        },
    ),
    "daemonset": (
        "daemonset/fluentd-elasticsearch",
        "",
        {"Annotations", "Environment", "Mounts", "Volumes", "Node-Selectors", "Node-Selector"},
    ),
    "job": (
        "job/pi",
        "condition=Complete",
        {"Annotations", "Environment", "Mounts", "Volumes", "Node-Selectors", "Tolerations"},
    ),
    "configmap-pod": (
        "pod/configmap-demo-pod",
        "condition=Ready",
        {"Labels", "Annotations", "Port", "Host Port", "Node-Selectors"},
    ),
    "liveness-pod": (
        "pod/liveness-http",
        "condition=Ready",
        {"Annotations", "Port", "Host Port", "Environment", "Mounts", "Volumes", "Node-Selectors"},
    ),
    "init-pod": (
        "pod/init-demo",
        "condition=Ready",
        {"Labels", "Annotations", "Port", "Host Port", "Environment", "Node-Selectors"},
    ),
    "claim": (
        "persistentvolumeclaim/task-pv-claim",
        "",
        {"Labels", "Annotations", "Used By", "Volume", "Capacity", "Access Modes"},
    ),
    "role": ("role/pod-reader", "", {"Labels", "Annotations"}),
    "rolebinding": ("rolebinding/read-pods", "", {"Labels", "Annotations"}),
}
NEEDS = {
    "role": "roles.rbac.authorization.k8s.io",
    "rolebinding": "roles.rbac.authorization.k8s.io",
    "claim": "persistentvolumeclaims",
}
# A container that declares no port, an object about which nothing was told.
ALWAYS = {"Port", "Ports", "Host Port", "Host Ports", "Events"}
EMPTY = re.compile(r"^ *([A-Za-z][A-Za-z0-9 /-]*): +(?:<none>|<unknown>) *$", re.MULTILINE)


def apply(space: Namespace, name: str) -> str:
    """Applies a manifest; its name for kubectl."""
    text = (FOLDER / f"{name}.yaml").read_text().replace("NAMESPACE", space.name)
    space.kubectl("apply", "-f", "-", stdin=text)
    return MANIFESTS[name][0].format(namespace=space.name)


def test_every_manifest_is_listed() -> None:
    assert {p.stem for p in FOLDER.glob("*.yaml")} == set(MANIFESTS)


def test_documented_manifests_apply_run_and_describe_without_gaps(space: Namespace) -> None:
    shown = {}
    for name, (_, condition, _) in MANIFESTS.items():
        if name in NEEDS and not space.offers(NEEDS[name]):
            continue
        named = apply(space, name)
        if condition:
            space.kubectl("wait", f"--for={condition}", named, "--timeout=60s")
        shown[name] = named
    space.kubectl("rollout", "status", "daemonset/fluentd-elasticsearch", "--timeout=60s")
    gaps = []
    for name, named in shown.items():
        text = space.kubectl("describe", named)
        allowed = MANIFESTS[name][2] | ALWAYS
        gaps += [f"{named}: {field}" for field in EMPTY.findall(text) if field.strip() not in allowed]
        assert "unknown>" not in text, text
    assert not gaps, "\n".join(gaps)
    space.kubectl("delete", "namespace", f"{space.name}-documented")


@pytest.mark.parametrize("name", ["deployment", "daemonset"])
def test_applying_again_changes_nothing(space: Namespace, name: str) -> None:
    apply(space, name)
    text = (FOLDER / f"{name}.yaml").read_text()
    assert "unchanged" in space.kubectl("apply", "-f", "-", stdin=text)
