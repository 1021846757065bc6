"""PersistentVolumeClaims on node storage, as kubectl shows them: waiting, bound, kept while in use."""

import json
from collections.abc import Iterator
from typing import Any

import pytest
import yaml

from tests.conftest import SimCluster

SPACE = "claims"
CLAIM = {
    "apiVersion": "v1",
    "kind": "PersistentVolumeClaim",
    "metadata": {"name": "data"},
    "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Mi"}}},
}


class Kubectl:
    """kubectl in a namespace of its own."""

    def __init__(self, cluster: SimCluster) -> None:
        self.cluster = cluster

    def __call__(self, *arguments: str, **options: Any) -> str:
        return self.cluster.kubectl("-n", SPACE, *arguments, **options)

    def apply(self, obj: Any) -> None:
        self("apply", "-f", "-", stdin=yaml.safe_dump(obj))

    def pod(self, name: str, claim: str) -> None:
        container = {
            "name": "m",
            "image": "wasm://counter",
            "volumeMounts": [{"name": "v", "mountPath": "/data"}],
        }
        volume = {"name": "v", "persistentVolumeClaim": {"claimName": claim}}
        spec = {"terminationGracePeriodSeconds": 1, "containers": [container], "volumes": [volume]}
        self.apply({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": spec})

    def field(self, path: str, *what: str) -> str:
        return self("get", *what, "-o", f"jsonpath={{{path}}}")


@pytest.fixture
def kubectl(cluster: SimCluster) -> Iterator[Kubectl]:
    """An empty namespace, gone afterwards."""
    cluster.cli("push", "examples/counter/counter.wasm", "--name", "counter")
    cluster.kubectl("create", "namespace", SPACE)
    yield Kubectl(cluster)
    cluster.kubectl("delete", "namespace", SPACE, "--timeout=60s")


def test_a_claim_follows_its_first_pod_and_holds_the_next_one_there(kubectl: Kubectl) -> None:
    kubectl.apply(CLAIM)
    assert kubectl.field(".status.phase", "pvc", "data") == "Pending"
    kubectl.cluster.until(
        "an event", lambda: "waiting for first consumer" in kubectl("describe", "pvc", "data")
    )
    kubectl.pod("one", "data")
    kubectl("wait", "--for=condition=Ready", "pod/one", "--timeout=30s")
    node = kubectl.field(".spec.nodeName", "pod", "one")
    kubectl("wait", "--for=jsonpath={.status.phase}=Bound", "pvc/data", "--timeout=10s")
    assert kubectl.field(".spec.storageClassName", "pvc", "data") == "kube32-node"
    assert kubectl.field(".spec.volumeName", "pvc", "data").startswith(f"{node}-pvc-")
    assert kubectl.field(".status.capacity.storage", "pvc", "data") == "1Mi"
    kubectl.pod("two", "data")
    kubectl("wait", "--for=condition=Ready", "pod/two", "--timeout=30s")
    assert kubectl.field(".spec.nodeName", "pod", "two") == node
    described = kubectl("describe", "pvc", "data")
    assert "ProvisioningSucceeded" in described and "one" in described and "two" in described

    kubectl("delete", "pvc", "data", "--wait=false")
    kubectl("delete", "pod", "one", "--timeout=20s")
    assert kubectl.field(".metadata.deletionTimestamp", "pvc", "data")
    kubectl("delete", "pod", "two", "--timeout=20s")
    kubectl("wait", "--for=delete", "pvc/data", "--timeout=5s")


def test_a_pod_without_its_claim_says_which_one_is_missing(kubectl: Kubectl) -> None:
    nodes = len(json.loads(kubectl("get", "nodes", "-o", "json"))["items"])
    kubectl.pod("p", "nothing")
    expected = f'0/{nodes} nodes are available: persistentvolumeclaim "nothing" not found.'
    path = '.status.conditions[?(@.type=="PodScheduled")].message'
    assert kubectl.cluster.until("a reason", lambda: kubectl.field(path, "pod", "p")) == expected
    assert expected in kubectl("describe", "pod", "p")
