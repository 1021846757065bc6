"""Defaults: what a kube-apiserver would fill in, and that filling in twice changes nothing."""

import base64
import copy
from typing import Any

import pytest

from kube32.api.admission import default, qos_class
from kube32.contract import RESOURCES, resource_of


def filled(obj: dict[str, Any]) -> dict[str, Any]:
    default(resource_of(obj["kind"]), obj)
    return obj


def test_a_pod_gets_what_kubernetes_gives_it(pod: dict[str, Any]) -> None:
    spec = filled(pod)["spec"]
    assert spec["restartPolicy"] == "Always"
    assert spec["terminationGracePeriodSeconds"] == 30
    assert spec["dnsPolicy"] == "ClusterFirst"
    assert spec["schedulerName"] == "default-scheduler"
    assert spec["securityContext"] == {}
    assert spec["enableServiceLinks"] is True
    container = spec["containers"][0]
    assert container["imagePullPolicy"] == "IfNotPresent"
    assert container["terminationMessagePath"] == "/dev/termination-log"
    assert container["terminationMessagePolicy"] == "File"
    assert container["resources"] == {"limits": {"memory": "32Ki"}, "requests": {"memory": "32Ki"}}
    assert pod["status"] == {"phase": "Pending", "qosClass": "Burstable"}


def test_a_pod_stays_300_s_on_a_lost_node_unless_it_says_otherwise(pod: dict[str, Any]) -> None:
    own = {
        "key": "node.kubernetes.io/not-ready",
        "operator": "Exists",
        "effect": "NoExecute",
        "tolerationSeconds": 5,
    }
    pod["spec"]["tolerations"] = [own]
    unreachable = {
        "key": "node.kubernetes.io/unreachable",
        "operator": "Exists",
        "effect": "NoExecute",
        "tolerationSeconds": 300,
    }
    assert filled(pod)["spec"]["tolerations"] == [own, unreachable]
    everything = {"operator": "Exists"}
    pod["spec"]["tolerations"] = [everything]
    assert filled(pod)["spec"]["tolerations"] == [everything]


def test_what_is_set_stays(pod: dict[str, Any]) -> None:
    pod["spec"].update(restartPolicy="Never", terminationGracePeriodSeconds=0, enableServiceLinks=False)
    pod["spec"]["containers"][0]["resources"]["requests"] = {"memory": "16Ki"}
    spec = filled(pod)["spec"]
    assert (spec["restartPolicy"], spec["terminationGracePeriodSeconds"]) == ("Never", 0)
    assert spec["enableServiceLinks"] is False
    assert spec["containers"][0]["resources"]["requests"] == {"memory": "16Ki"}


def test_parts_of_a_container_and_volumes_are_filled_in(pod: dict[str, Any]) -> None:
    container = pod["spec"]["containers"][0]
    container["ports"] = [{"containerPort": 80}]
    container["env"] = [{"name": "N", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}}]
    container["readinessProbe"] = {"httpGet": {"port": 80}, "periodSeconds": 3}
    pod["spec"]["volumes"] = [
        {"name": "a"},
        {"name": "b", "configMap": {"name": "c"}},
        {"name": "d", "secret": {}},
    ]
    spec = filled(pod)["spec"]
    assert container["ports"] == [{"containerPort": 80, "protocol": "TCP"}]
    assert container["env"][0]["valueFrom"]["fieldRef"]["apiVersion"] == "v1"
    assert container["readinessProbe"] == {
        "httpGet": {"port": 80, "path": "/", "scheme": "HTTP"},
        "periodSeconds": 3,
        "timeoutSeconds": 1,
        "successThreshold": 1,
        "failureThreshold": 3,
    }
    assert spec["volumes"] == [
        {"name": "a", "emptyDir": {}},
        {"name": "b", "configMap": {"name": "c", "defaultMode": 420}},
        {"name": "d", "secret": {"defaultMode": 420}},
    ]


@pytest.mark.parametrize(
    ("resources", "expected"),
    [
        ({}, "BestEffort"),
        ({"requests": {"cpu": "1"}}, "Burstable"),
        ({"limits": {"esp32.io/x": "1"}}, "BestEffort"),
        ({"limits": {"cpu": "1", "memory": "1Ki"}, "requests": {"cpu": "1", "memory": "1Ki"}}, "Guaranteed"),
        (
            {"limits": {"cpu": "1", "memory": "1Ki"}, "requests": {"cpu": "500m", "memory": "1Ki"}},
            "Burstable",
        ),
    ],
)
def test_the_quality_of_service_follows_from_cpu_and_memory(resources: dict, expected: str) -> None:
    assert qos_class({"spec": {"containers": [{"resources": resources}]}}) == expected


def test_a_secrets_texts_become_data() -> None:
    secret = {"kind": "Secret", "data": {"a": "eA=="}, "stringData": {"a": "new", "b": "ü"}}
    filled(secret)
    assert secret["type"] == "Opaque"
    assert "stringData" not in secret
    assert {k: base64.b64decode(v).decode() for k, v in secret["data"].items()} == {"a": "new", "b": "ü"}


def test_a_namespace_is_active_named_and_kept_by_its_finalizer() -> None:
    namespace: dict[str, Any] = {"kind": "Namespace", "metadata": {"name": "x"}}
    filled(namespace)
    assert namespace["spec"] == {"finalizers": ["kubernetes"]}
    assert namespace["status"] == {"phase": "Active"}
    assert namespace["metadata"]["labels"] == {"kubernetes.io/metadata.name": "x"}


def test_a_namespace_that_is_going_gets_no_new_finalizer() -> None:
    namespace = {"kind": "Namespace", "metadata": {"name": "x", "deletionTimestamp": "t"}, "spec": {}}
    assert filled(namespace)["spec"] == {}


def test_a_checkpoint_saves_unless_it_says_move(checkpoint: dict[str, Any]) -> None:
    del checkpoint["spec"]["action"]
    assert filled(checkpoint)["spec"]["action"] == "Save"
    assert checkpoint["status"] == {"phase": "Pending"}


@pytest.mark.parametrize("resource", RESOURCES, ids=lambda r: r.kind)
def test_filling_in_twice_changes_nothing(resource: Any, pod: dict, checkpoint: dict) -> None:
    obj = {"Pod": pod, "Checkpoint": checkpoint}.get(resource.kind, {"metadata": {"name": "x"}})
    default(resource, obj)
    once = copy.deepcopy(obj)
    default(resource, obj)
    assert obj == once
