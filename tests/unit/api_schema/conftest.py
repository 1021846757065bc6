"""Objects that pass, for tests to break."""

import copy
from collections.abc import Callable
from typing import Any

import pytest

from kube32.api import admission
from kube32.api.status import ApiFailure
from kube32.contract import resource_of

_POD: dict[str, Any] = {
    "apiVersion": "v1",
    "kind": "Pod",
    "metadata": {"name": "echo", "namespace": "default", "labels": {"app": "echo"}, "annotations": {}},
    "spec": {
        "containers": [
            {
                "name": "echo",
                "image": "wasm://echo",
                "env": [{"name": "GREETING", "value": "hello"}],
                "resources": {"limits": {"memory": "32Ki"}},
                "volumeMounts": [{"name": "tmp", "mountPath": "/tmp"}],
            }
        ],
        "volumes": [{"name": "tmp", "emptyDir": {}}],
    },
}
_CHECKPOINT: dict[str, Any] = {
    "apiVersion": "kube32.io/v1",
    "kind": "Checkpoint",
    "metadata": {"name": "echo-move", "namespace": "default"},
    "spec": {"podName": "echo", "action": "Move", "target": {"nodeName": "devkit"}},
}


@pytest.fixture
def pod() -> dict[str, Any]:
    return copy.deepcopy(_POD)


@pytest.fixture
def checkpoint() -> dict[str, Any]:
    return copy.deepcopy(_CHECKPOINT)


@pytest.fixture
def admit() -> Callable[[dict[str, Any]], dict[str, Any]]:
    """Takes an object through decoding, defaults and validation as a create does."""

    def run(obj: dict[str, Any]) -> dict[str, Any]:
        resource = resource_of(obj["kind"])
        admission.check_fields(resource, obj, "Strict")
        admission.default(resource, obj)
        admission.validate_create(resource, obj)
        return obj

    return run


@pytest.fixture
def refusals(admit: Callable[[dict[str, Any]], dict[str, Any]]) -> Callable[[dict[str, Any]], list[str]]:
    """The faults that a create names, as "field: message"."""

    def run(obj: dict[str, Any]) -> list[str]:
        with pytest.raises(ApiFailure) as failure:
            admit(obj)
        assert failure.value.code == 422, failure.value.message
        assert failure.value.details is not None
        return [f"{c['field']}: {c['message']}" for c in failure.value.details["causes"]]

    return run
