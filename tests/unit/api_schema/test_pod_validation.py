"""Validation of Pods: each rule refuses, naming the field, in Kubernetes' words where Kubernetes has the
rule.
"""

import copy
from collections.abc import Callable
from typing import Any

import pytest

from kube32.api.admission import default, validate_update
from kube32.api.status import ApiFailure
from kube32.contract import resource_of

POD = resource_of("Pod")
Refusals = Callable[[dict[str, Any]], list[str]]
LABEL_RULE = "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-'"
SUBDOMAIN_RULE = (
    "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.'"
)


def put(obj: dict[str, Any], path: str, value: Any) -> None:
    """Sets "spec.containers.0.image"."""
    target: Any = obj
    *parents, last = path.split(".")
    for key in parents:
        target = target[int(key)] if isinstance(target, list) else target.setdefault(key, {})
    target[int(last) if isinstance(target, list) else last] = value


def test_an_ordinary_pod_is_taken(pod: dict[str, Any], admit: Callable) -> None:
    admit(pod)


SPEC_FAULTS = [
    ("metadata.name", "Echo_1", f'metadata.name: Invalid value: "Echo_1": {SUBDOMAIN_RULE}'),
    ("metadata.name", "", "metadata.name: Required value: name or generateName is required"),
    ("metadata.name", "x" * 254, "must be no more than 253 bytes"),
    ("metadata.labels", {"a b": "c"}, 'metadata.labels: Invalid value: "a b": name part must consist of'),
    ("metadata.labels", {"a/b/c": ""}, "a qualified name must consist of alphanumeric characters"),
    ("metadata.labels", {"/b": ""}, 'metadata.labels: Invalid value: "/b": prefix part must be non-empty'),
    (
        "metadata.labels",
        {"A.io/b": ""},
        'metadata.labels: Invalid value: "A.io/b": prefix part a lowercase RFC 1123',
    ),
    (
        "metadata.labels",
        {"a": "b c"},
        'metadata.labels: Invalid value: "b c": a valid label must be an empty string',
    ),
    ("metadata.labels", {"a": "b" * 64}, "must be no more than 63 bytes"),
    (
        "metadata.annotations",
        {"a b": ""},
        'metadata.annotations: Invalid value: "a b": name part must consist of',
    ),
    (
        "metadata.annotations",
        {"a": "x" * 262144},
        "metadata.annotations: Too long: may not be more than 262144 bytes",
    ),
    ("metadata.finalizers", ["x"], "name is neither a standard finalizer name nor is it fully qualified"),
    (
        "metadata.ownerReferences",
        [{"kind": "Node"}],
        "metadata.ownerReferences[0].apiVersion: Required value",
    ),
    ("spec.containers", [], "spec.containers: Required value"),
    ("spec.containers.0.name", "", "spec.containers[0].name: Required value"),
    ("spec.containers.0.name", "A", f'spec.containers[0].name: Invalid value: "A": {LABEL_RULE}'),
    ("spec.containers.0.image", "", "spec.containers[0].image: Required value"),
    (
        "spec.containers.0.imagePullPolicy",
        "Sometimes",
        'spec.containers[0].imagePullPolicy: Unsupported value: "Sometimes": supported values: "Always", '
        '"IfNotPresent", "Never"',
    ),
    ("spec.restartPolicy", "No", 'supported values: "Always", "Never", "OnFailure"'),
    ("spec.nodeName", "a_b", "spec.nodeName: Invalid value"),
    ("spec.terminationGracePeriodSeconds", -1, "-1: must be greater than or equal to 0"),
    ("spec.activeDeadlineSeconds", 0, "0: must be between 1 and 2147483647, inclusive"),
    ("spec.nodeSelector", {"a": "b c"}, 'spec.nodeSelector: Invalid value: "b c"'),
    ("spec.tolerations", [{"value": "x"}], "operator must be Exists when `key` is empty"),
    (
        "spec.tolerations",
        [{"key": "a", "operator": "Exists", "value": "x"}],
        "value must be empty when `operator` is 'Exists'",
    ),
    (
        "spec.tolerations",
        [{"key": "a", "tolerationSeconds": 1, "effect": "NoSchedule"}],
        "effect must be 'NoExecute' when `tolerationSeconds` is set",
    ),
    (
        "spec.tolerations",
        [{"key": "a", "effect": "No"}],
        'spec.tolerations[0].effect: Unsupported value: "No"',
    ),
    (
        "spec.containers.0.env",
        [{"name": "a=b"}],
        'spec.containers[0].env[0].name: Invalid value: "a=b": a valid environment variable name',
    ),
    ("spec.containers.0.env", [{"name": "a", "valueFrom": {}}], "must specify one of: `fieldRef`"),
    (
        "spec.containers.0.env",
        [{"name": "a", "value": "x", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}}],
        "may not be specified when `value` is not empty",
    ),
    (
        "spec.containers.0.env",
        [{"name": "a", "valueFrom": {"fieldRef": {"fieldPath": "metadata.nom"}}}],
        'valueFrom.fieldRef.fieldPath: Unsupported value: "metadata.nom"',
    ),
    (
        "spec.containers.0.env",
        [{"name": "a", "valueFrom": {"secretKeyRef": {"name": "s"}}}],
        "env[0].valueFrom.secretKeyRef.key: Required value",
    ),
    ("spec.containers.0.envFrom", [{"prefix": "a"}], "must specify one of: `configMapRef` or `secretRef`"),
    ("spec.containers.0.envFrom", [{"configMapRef": {}}], "envFrom[0].configMapRef.name: Required value"),
    ("spec.containers.0.ports", [{"containerPort": 0}], "0: must be between 1 and 65535, inclusive"),
    (
        "spec.containers.0.volumeMounts",
        [{"name": "nope", "mountPath": "/a"}],
        'spec.containers[0].volumeMounts[0].name: Not found: "nope"',
    ),
    (
        "spec.containers.0.volumeMounts",
        [{"name": "tmp", "mountPath": "/a"}, {"name": "tmp", "mountPath": "/a"}],
        'spec.containers[0].volumeMounts[1].mountPath: Invalid value: "/a": must be unique',
    ),
    ("spec.containers.0.volumeMounts", [{"name": "tmp"}], "volumeMounts[0].mountPath: Required value"),
    (
        "spec.containers.0.volumeMounts",
        [{"name": "tmp", "mountPath": "/a", "subPath": "../x"}],
        "volumeMounts[0].subPath: Invalid value: \"../x\": must not contain '..'",
    ),
    ("spec.volumes", [{"name": "tmp", "emptyDir": {}}] * 2, 'spec.volumes[1].name: Duplicate value: "tmp"'),
    (
        "spec.volumes",
        [{"name": "tmp", "emptyDir": {}, "secret": {"secretName": "s"}}],
        "spec.volumes[0].secret: Forbidden: may not specify more than 1 volume type",
    ),
    ("spec.volumes", [{"name": "tmp", "configMap": {}}], "spec.volumes[0].configMap.name: Required value"),
    (
        "spec.volumes",
        [{"name": "tmp", "configMap": {"name": "c", "items": [{"key": "k", "path": "/x"}]}}],
        'spec.volumes[0].configMap.items[0].path: Invalid value: "/x": must be a relative path',
    ),
    (
        "spec.volumes",
        [{"name": "tmp", "persistentVolumeClaim": {}}],
        "spec.volumes[0].persistentVolumeClaim.claimName: Required value",
    ),
    (
        "spec.containers.0.resources",
        {"limits": {"cpu": "1"}, "requests": {"cpu": "2"}},
        'resources.requests: Invalid value: "2": must be less than or equal to cpu limit of 1',
    ),
    (
        "spec.containers.0.resources",
        {"requests": {"hardware.kube32.io/led": "1"}},
        "Limit must be set for non overcommitable resources",
    ),
    ("spec.containers.0.resources", {"limits": {"esp32.io/x": "500m"}}, '"500m": must be an integer'),
    ("spec.containers.0.resources", {"limits": {"memory": "-1"}}, '"-1": must be greater than or equal to 0'),
    (
        "spec.containers.0.resources",
        {"limits": {"ram": "1"}},
        "must be a standard resource type or fully qualified",
    ),
    (
        "spec.affinity.nodeAffinity.requiredDuringSchedulingIgnoredDuringExecution",
        {"nodeSelectorTerms": [{"matchExpressions": [{"key": "a", "operator": "In"}]}]},
        "matchExpressions[0].values: Required value: must be specified when `operator` is 'In' or 'NotIn'",
    ),
    (
        "spec.affinity.nodeAffinity.requiredDuringSchedulingIgnoredDuringExecution",
        {"nodeSelectorTerms": []},
        "nodeSelectorTerms: Required value",
    ),
]


@pytest.mark.parametrize(("path", "value", "said"), SPEC_FAULTS)
def test_a_fault_is_refused_with_its_path(
    pod: dict[str, Any], refusals: Refusals, path: str, value: Any, said: str
) -> None:
    put(pod, path, value)
    found = refusals(pod)
    assert any(said in fault for fault in found), found


def test_all_faults_are_named_at_once(pod: dict[str, Any], refusals: Refusals) -> None:
    put(pod, "metadata.name", "Echo")
    put(pod, "spec.containers.0.image", "")
    assert len(refusals(pod)) == 2


def test_ephemeral_containers_are_refused_with_a_sentence(pod: dict[str, Any], refusals: Refusals) -> None:
    pod["spec"]["ephemeralContainers"] = [{"name": "e", "image": "wasm://e"}]
    assert refusals(pod) == [
        "spec.ephemeralContainers: Forbidden: Kube32 pods take no ephemeral containers",
    ]


@pytest.mark.parametrize(
    ("annotation", "value", "said"),
    [
        ("tick-interval", "often", '"often" is not a duration such as 500ms, 10s or 1m30s'),
        ("tick-interval", "1ms", "must be 10ms or more"),
        ("checkpoint-interval", "9s", "must be 10s or more"),
        ("call-timeout", "0", "must be 1ms or more"),
        ("call-timeout", "-5s", "is not a duration"),
        (
            "migration",
            "Sometimes",
            'Unsupported value: "Sometimes": supported values: "Auto", "Never", "OnDrain"',
        ),
        ("placement", "slowest", 'Unsupported value: "slowest": supported values: "fastest"'),
        ("topics", "a,,b", "names an empty topic or one of more than 128 bytes"),
        ("topics", "x" * 129, "names an empty topic or one of more than 128 bytes"),
        ("topics", ",".join(f"t{i}" for i in range(65)), "names 65 topics, at most 64 are taken"),
        ("wasm-sha256", "ABCD", "must be a SHA-256 in lower-case hex"),
        ("restore-from", "No Name", SUBDOMAIN_RULE),
    ],
)
def test_an_annotation_is_checked_at_admission(
    pod: dict[str, Any], refusals: Refusals, annotation: str, value: str, said: str
) -> None:
    pod["metadata"]["annotations"] = {f"kube32.io/{annotation}": value}
    (fault,) = refusals(pod)
    assert fault.startswith(f"metadata.annotations[kube32.io/{annotation}]: ")
    assert said in fault


def test_annotations_that_are_right_are_taken(pod: dict[str, Any], admit: Callable) -> None:
    pod["metadata"]["annotations"] = {
        "kube32.io/tick-interval": "1m30s",
        "kube32.io/checkpoint-interval": "10s",
        "kube32.io/call-timeout": "500ms",
        "kube32.io/migration": "Never",
        "kube32.io/placement": "fastest",
        "kube32.io/topics": "lamp, door",
        "kube32.io/wasm-sha256": "0" * 64,
        "kube32.io/restore-from": "echo-1",
    }
    admit(pod)


def updated(pod: dict[str, Any], path: str, value: Any) -> ApiFailure | None:
    default(POD, pod)
    new = copy.deepcopy(pod)
    put(new, path, value)
    try:
        validate_update(POD, pod, new)
    except ApiFailure as failure:
        return failure
    return None


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("spec.nodeName", "other"),
        ("spec.restartPolicy", "Never"),
        ("spec.containers.0.name", "other"),
        ("spec.containers.0.env", []),
        ("spec.volumes", [{"name": "tmp", "emptyDir": {"medium": "Memory"}}]),
    ],
)
def test_the_spec_of_a_pod_stays(pod: dict[str, Any], path: str, value: Any) -> None:
    failure = updated(pod, path, value)
    assert failure is not None
    assert failure.code == 422
    assert "spec: Forbidden: pod updates may not change fields other than" in failure.message


def test_what_kubernetes_lets_change_changes(pod: dict[str, Any]) -> None:
    default(POD, pod)
    more = [*pod["spec"]["tolerations"], {"key": "a", "operator": "Exists"}]
    assert updated(pod, "spec.tolerations", more) is None
    assert updated(pod, "spec.activeDeadlineSeconds", 100) is None
    assert updated(pod, "spec.terminationGracePeriodSeconds", 1) is None
    assert updated(pod, "metadata.labels", {"b": "c"}) is None


def test_tolerations_are_only_added_and_deadlines_only_shortened(pod: dict[str, Any]) -> None:
    pod["spec"]["activeDeadlineSeconds"] = 100
    assert "spec.tolerations: Forbidden" in str(updated(pod, "spec.tolerations", []))
    longer = updated(pod, "spec.activeDeadlineSeconds", 101)
    assert "must be less than or equal to previous value" in str(longer)
    assert updated(pod, "spec.activeDeadlineSeconds", 99) is None


def test_a_pod_keeps_its_module(pod: dict[str, Any]) -> None:
    fixed = "the module of a pod is fixed at creation"
    assert f"spec.containers[0].image: Forbidden: {fixed}" in str(
        updated(pod, "spec.containers.0.image", "wasm://x")
    )
    digest = {"kube32.io/wasm-sha256": "1" * 64}
    assert updated(pod, "metadata.annotations", digest) is None
    pod["metadata"]["annotations"] = digest
    for changed in ({"kube32.io/wasm-sha256": "2" * 64}, {}):
        assert fixed in str(updated(pod, "metadata.annotations", changed))
