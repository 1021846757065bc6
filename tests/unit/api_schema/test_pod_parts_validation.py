"""Validation of a pod's containers, probes and volumes."""

from collections.abc import Callable
from typing import Any

import pytest

from kube32.contract import text

Refusals = Callable[[dict[str, Any]], list[str]]
Admit = Callable[[dict[str, Any]], dict[str, Any]]
HTTP = {"httpGet": {"path": "/healthz", "port": 80}}


def test_several_containers_and_init_containers_are_taken(pod: dict[str, Any], admit: Admit) -> None:
    pod["spec"]["containers"].append({"name": "two", "image": "wasm://two"})
    pod["spec"]["initContainers"] = [{"name": "prepare", "image": "wasm://i"}]
    spec = admit(pod)["spec"]
    for container in (*spec["containers"], *spec["initContainers"]):
        assert container["terminationMessagePolicy"] == "File" and "resources" in container


def test_names_are_unique_among_all_containers(pod: dict[str, Any], refusals: Refusals) -> None:
    pod["spec"]["initContainers"] = [{"name": "echo", "image": "wasm://i"}]
    pod["spec"]["containers"] += [{"name": "two", "image": "wasm://i"}] * 2
    assert refusals(pod) == [
        'spec.containers[0].name: Duplicate value: "echo"',
        'spec.containers[2].name: Duplicate value: "two"',
    ]


def test_init_containers_end_and_so_have_no_probes(pod: dict[str, Any], refusals: Refusals) -> None:
    pod["spec"]["initContainers"] = [
        {"name": "i", "image": "wasm://i", "livenessProbe": HTTP, "lifecycle": {"preStop": HTTP}},
        {"name": "s", "image": "wasm://i", "restartPolicy": "Always"},
        {"name": "n"},
    ]
    only = "may not be set for init containers without restartPolicy=Always"
    assert refusals(pod) == [
        f"spec.initContainers[0].lifecycle: Forbidden: {only}",
        f"spec.initContainers[0].livenessProbe: Forbidden: {only}",
        f"spec.initContainers[1].restartPolicy: Forbidden: {text('validation', 'sidecar')}",
        "spec.initContainers[2].image: Required value",
    ]


PROBES = [
    ({}, "livenessProbe: Required value: must specify a handler type"),
    (
        {**HTTP, "tcpSocket": {"port": 80}},
        "livenessProbe.tcpSocket: Forbidden: may not specify more than 1 handler type",
    ),
    ({"exec": {"command": ["ls"]}}, f"livenessProbe.exec: Forbidden: {text('validation', 'handler_exec')}"),
    ({"grpc": {"port": 80}}, f"livenessProbe.grpc: Forbidden: {text('validation', 'handler_grpc')}"),
    ({"httpGet": {"port": 0}}, "livenessProbe.httpGet.port: Invalid value: 0: must be between 1 and 65535"),
    (
        {"httpGet": {"port": "no port"}},
        'livenessProbe.httpGet.port: Invalid value: "no port": must contain only alpha-numeric characters',
    ),
    (
        {"httpGet": {"port": 80, "scheme": "HTTPS"}},
        "livenessProbe.httpGet.scheme: Forbidden: pods answer plain HTTP",
    ),
    (
        {"httpGet": {"port": 80, "scheme": "FTP"}},
        'livenessProbe.httpGet.scheme: Unsupported value: "FTP": supported values: "HTTP", "HTTPS"',
    ),
    (
        {"httpGet": {"port": 80, "httpHeaders": [{"name": "a b", "value": "x"}]}},
        'livenessProbe.httpGet.httpHeaders[0].name: Invalid value: "a b": a valid HTTP header',
    ),
    ({**HTTP, "periodSeconds": -1}, "livenessProbe.periodSeconds: Invalid value: -1: must be greater"),
    ({**HTTP, "successThreshold": 2}, "livenessProbe.successThreshold: Invalid value: 2: must be 1"),
    (
        {**HTTP, "terminationGracePeriodSeconds": 0},
        "livenessProbe.terminationGracePeriodSeconds: Invalid value: 0: must be greater than 0",
    ),
]


@pytest.mark.parametrize(("probe", "said"), PROBES)
def test_probes(probe: dict[str, Any], said: str, pod: dict[str, Any], refusals: Refusals) -> None:
    pod["spec"]["containers"][0]["livenessProbe"] = probe
    found = refusals(pod)
    assert any(fault.startswith(f"spec.containers[0].{said}") for fault in found), found


def test_a_good_probe_gets_its_defaults(pod: dict[str, Any], admit: Admit) -> None:
    pod["spec"]["containers"][0]["readinessProbe"] = {"httpGet": {"port": "http"}, "successThreshold": 3}
    assert admit(pod)["spec"]["containers"][0]["readinessProbe"] == {
        "httpGet": {"port": "http", "path": "/", "scheme": "HTTP"},
        "timeoutSeconds": 1,
        "periodSeconds": 10,
        "successThreshold": 3,
        "failureThreshold": 3,
    }


def test_a_readiness_probe_has_no_grace(pod: dict[str, Any], refusals: Refusals) -> None:
    pod["spec"]["containers"][0]["readinessProbe"] = {**HTTP, "terminationGracePeriodSeconds": 5}
    path = "spec.containers[0].readinessProbe.terminationGracePeriodSeconds"
    assert refusals(pod) == [f"{path}: Invalid value: 5: must not be set for readinessProbes"]


def test_port_names(pod: dict[str, Any], refusals: Refusals) -> None:
    pod["spec"]["containers"][0]["ports"] = [
        {"containerPort": 1, "name": name}
        for name in ("http", "http", "12", "a--b", "-a", "sixteencharacter")
    ]
    path = "spec.containers[0].ports"
    assert refusals(pod) == [
        f'{path}[1].name: Duplicate value: "http"',
        f'{path}[2].name: Invalid value: "12": must contain at least one letter (a-z)',
        f'{path}[3].name: Invalid value: "a--b": must not contain consecutive hyphens',
        f'{path}[4].name: Invalid value: "-a": must not begin or end with a hyphen',
        f'{path}[5].name: Invalid value: "sixteencharacter": must be no more than 15 bytes',
    ]


VOLUMES: list[tuple[dict[str, Any], str]] = [
    ({"projected": {"sources": [{}]}}, "projected.sources[0]: Required value: must specify one of"),
    (
        {"projected": {"sources": [{"secret": {}}]}},
        "projected.sources[0].secret.name: Required value",
    ),
    (
        {"projected": {"sources": [{"secret": {"name": "s"}, "configMap": {"name": "c"}}]}},
        "projected.sources[0].configMap: Forbidden: may not specify more than 1 volume type",
    ),
    (
        {"projected": {"sources": [{"downwardAPI": {"items": [{"path": "a"}]}}]}},
        "projected.sources[0].downwardAPI.items[0]: Required value: one of fieldRef and resourceFieldRef is required",
    ),
    (
        {"projected": {"sources": [{"serviceAccountToken": {"path": "t", "expirationSeconds": 5}}]}},
        "projected.sources[0].serviceAccountToken.expirationSeconds: Invalid value: 5: may not specify a duration",
    ),
    (
        {
            "projected": {
                "sources": [
                    {"secret": {"name": "s", "items": [{"key": "k", "path": "a"}]}},
                    {"configMap": {"name": "c", "items": [{"key": "k", "path": "a"}]}},
                ]
            }
        },
        'projected.sources[1].configMap.items[0].path: Invalid value: "a": conflicting duplicate paths',
    ),
    (
        {"downwardAPI": {"items": [{"path": "a", "fieldRef": {"fieldPath": "spec.nodeName"}}]}},
        'downwardAPI.items[0].fieldRef.fieldPath: Unsupported value: "spec.nodeName"',
    ),
    (
        {"downwardAPI": {"items": [{"path": "a", "resourceFieldRef": {"resource": "limits.cpus"}}]}},
        'downwardAPI.items[0].resourceFieldRef.resource: Unsupported value: "limits.cpus"',
    ),
    (
        {"configMap": {"name": "c", "defaultMode": 512}},
        "configMap.defaultMode: Invalid value: 512: must be a number",
    ),
    (
        {"secret": {"secretName": "s", "items": [{"key": "k", "path": "../x"}]}},
        "secret.items[0].path: Invalid value: \"../x\": must not contain '..'",
    ),
    ({"emptyDir": {"sizeLimit": "-1"}}, 'emptyDir.sizeLimit: Invalid value: "-1"'),
    ({"persistentVolumeClaim": {}}, "persistentVolumeClaim.claimName: Required value"),
    (
        {"persistentVolumeClaim": {"claimName": "A"}},
        'persistentVolumeClaim.claimName: Invalid value: "A": a lowercase',
    ),
]


@pytest.mark.parametrize(("source", "said"), VOLUMES)
def test_volumes(source: dict[str, Any], said: str, pod: dict[str, Any], refusals: Refusals) -> None:
    pod["spec"]["volumes"].append({"name": "v", **source})
    found = refusals(pod)
    assert any(fault.startswith(f"spec.volumes[1].{said}") for fault in found), found


def test_projected_and_downward_volumes_are_taken_with_defaults(pod: dict[str, Any], admit: Admit) -> None:
    field = {"path": "labels", "fieldRef": {"fieldPath": "metadata.labels"}}
    cpu = {"path": "cpu", "resourceFieldRef": {"containerName": "echo", "resource": "limits.cpu"}}
    token = {"serviceAccountToken": {"path": "token"}}
    pod["spec"]["volumes"] += [
        {"name": "d", "downwardAPI": {"items": [field, cpu]}},
        {
            "name": "p",
            "projected": {"sources": [token, {"secret": {"name": "s"}}, {"configMap": {"name": "c"}}]},
        },
    ]
    _, downward, projected = admit(pod)["spec"]["volumes"]
    assert downward["downwardAPI"]["defaultMode"] == 0o644
    assert downward["downwardAPI"]["items"][0]["fieldRef"]["apiVersion"] == "v1"
    assert projected["projected"]["sources"][0]["serviceAccountToken"]["expirationSeconds"] == 3600
