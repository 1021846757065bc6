"""Validation of the kinds other than Pod: what is refused, and what an update may not change."""

import copy
from collections.abc import Callable
from typing import Any

import pytest

from kube32.api.admission import default, validate_update
from kube32.api.status import ApiFailure
from kube32.contract import resource_of

Refusals = Callable[[dict[str, Any]], list[str]]


def named(kind: str, **parts: Any) -> dict[str, Any]:
    return {"kind": kind, "metadata": {"name": "x"}, **parts}


FAULTS = [
    (
        named("Namespace", metadata={"name": "a.b"}),
        'metadata.name: Invalid value: "a.b": a lowercase RFC 1123 label',
    ),
    (
        named("ConfigMap", data={"a/b": ""}),
        'data[a/b]: Invalid value: "a/b": a valid config key must consist of',
    ),
    (named("ConfigMap", data={"..a": ""}), "must not start with '..'"),
    (named("ConfigMap", data={"a": ""}, binaryData={"a": ""}), "binaryData[a]: Invalid value"),
    (named("Secret", data={"a b": ""}), 'data[a b]: Invalid value: "a b"'),
    (named("Secret", type="kubernetes.io/tls", data={"tls.crt": ""}), "data[tls.key]: Required value"),
    (named("Secret", type="kubernetes.io/basic-auth"), "data[username]: Required value"),
    (
        named("Secret", type="kubernetes.io/service-account-token"),
        "metadata.annotations[kubernetes.io/service-account.name]: Required value",
    ),
    (
        named("Lease", spec={"leaseDurationSeconds": 0}),
        "spec.leaseDurationSeconds: Invalid value: 0: must be greater",
    ),
    (named("Lease", spec={"leaseTransitions": -1}), "spec.leaseTransitions: Invalid value: -1"),
    (
        named("Node", spec={"taints": [{"key": "a b", "effect": "NoSchedule"}]}),
        "spec.taints[0].key: Invalid value",
    ),
    (named("Node", spec={"taints": [{"key": "a"}]}), "spec.taints[0].effect: Required value"),
    (
        named("Node", spec={"taints": [{"key": "a", "effect": "No"}]}),
        "spec.taints[0].effect: Unsupported value",
    ),
    (
        named("Node", spec={"taints": [{"key": "a", "effect": "NoExecute"}] * 2}),
        "spec.taints[1]: Duplicate value",
    ),
    (named("Event"), "involvedObject: Required value"),
    (
        named("Event", involvedObject={"namespace": "b"}, metadata={"name": "x", "namespace": "a"}),
        'involvedObject.namespace: Invalid value: "b": does not match event.namespace',
    ),
    (
        named("Module", metadata={"name": "embedded"}),
        "the name is taken by modules in the annotation kube32.io/wasm",
    ),
    (named("Checkpoint", spec={}), "spec.podName: Required value"),
    (named("Checkpoint", spec={"podName": "A"}), 'spec.podName: Invalid value: "A"'),
    (named("Checkpoint", spec={"podName": "a", "containerName": "a.b"}), "spec.containerName: Invalid value"),
    (
        named("Checkpoint", spec={"podName": "a", "action": "Restore"}),
        'spec.action: Unsupported value: "Restore": supported values: "Move", "Save"',
    ),
    (
        named(
            "Checkpoint",
            spec={"podName": "a", "action": "Move", "target": {"nodeName": "b", "nodeSelector": {"c": "d"}}},
        ),
        "spec.target has both nodeName and nodeSelector",
    ),
    (
        named(
            "Checkpoint", spec={"podName": "a", "action": "Move", "target": {"nodeSelector": {"c": "d e"}}}
        ),
        'spec.target.nodeSelector: Invalid value: "d e"',
    ),
    (
        named("Checkpoint", spec={"podName": "a", "target": {"nodeName": "b"}}),
        "spec.target: Forbidden: only for the action Move",
    ),
]


@pytest.mark.parametrize(("obj", "said"), FAULTS)
def test_a_fault_is_refused_with_its_path(obj: dict[str, Any], said: str, refusals: Refusals) -> None:
    found = refusals(copy.deepcopy(obj))
    assert any(said in fault for fault in found), found


@pytest.mark.parametrize(
    "obj",
    [
        named("Namespace"),
        named("ConfigMap", data={"a.txt": "x", "B_c-d": ""}, binaryData={"e": "AA=="}),
        named("Secret", stringData={"a": "b"}),
        named("Lease", spec={"holderIdentity": "n", "leaseDurationSeconds": 20}),
        named("Node", spec={"taints": [{"key": "a.io/b", "value": "c", "effect": "NoSchedule"}]}),
        named("Event", involvedObject={"kind": "Pod", "name": "a"}),
        named("Module", spec={"description": "an echo"}),
        named("Checkpoint", spec={"podName": "a"}),
        named("Checkpoint", spec={"podName": "a", "action": "Move"}),
        named("Checkpoint", spec={"podName": "a", "action": "Move", "target": {"nodeSelector": {"c": "d"}}}),
    ],
    ids=lambda o: o["kind"],
)
def test_what_is_right_is_taken(obj: dict[str, Any], admit: Callable) -> None:
    admit(copy.deepcopy(obj))


def refused_update(old: dict[str, Any], **changes: Any) -> str:
    resource = resource_of(old["kind"])
    default(resource, old)
    new = {**copy.deepcopy(old), **changes}
    default(resource, new)
    with pytest.raises(ApiFailure) as failure:
        validate_update(resource, old, new)
    assert failure.value.code == 422
    return failure.value.message


def test_the_spec_of_a_checkpoint_stays_while_its_status_changes(checkpoint: dict[str, Any]) -> None:
    said = refused_update(checkpoint, spec={"podName": "other", "action": "Move"})
    assert said == (
        'Checkpoint.kube32.io "echo-move" is invalid: '
        "spec: Forbidden: the spec of a Checkpoint is fixed at creation"
    )
    resource = resource_of("Checkpoint")
    validate_update(resource, checkpoint, {**checkpoint, "status": {"phase": "Saving"}})


def test_immutable_data_stays() -> None:
    old = named("ConfigMap", data={"a": "b"}, immutable=True)
    assert "data: Forbidden: field is immutable when `immutable` is set" in refused_update(
        old, data={"a": "c"}
    )
    assert "immutable: Forbidden" in refused_update(old, immutable=False)
    secret = named("Secret", data={"a": "Yg=="}, immutable=True)
    assert "data: Forbidden" in refused_update(secret, data={})


def test_the_type_of_a_secret_stays() -> None:
    said = refused_update(named("Secret"), type="example.com/x")
    assert 'type: Invalid value: "example.com/x": field is immutable' in said
