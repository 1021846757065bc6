"""Deletion as kubectl asks for it: cascades, waiting, namespaces that say why they stay, taints that evict."""

import json
import signal
import subprocess
import time
from collections.abc import Iterator
from typing import Any

import pytest
import yaml

from tests.conftest import BIN, SimCluster

SPACE = "deletion"
SOON_S = 2.0


class Kubectl:
    """kubectl in a namespace of its own."""

    def __init__(self, cluster: SimCluster) -> None:
        self.cluster = cluster

    def __call__(self, *arguments: str, **options: Any) -> str:
        return self.cluster.kubectl("-n", SPACE, *arguments, **options)

    def apply(self, *objects: Any) -> None:
        self("apply", "-f", "-", stdin=yaml.safe_dump_all(objects))

    def config_map(self, name: str, owner: str = "", **meta: Any) -> None:
        """A ConfigMap, owned by another one."""
        if owner:
            uid = self("get", "cm", owner, "-o", "jsonpath={.metadata.uid}")
            reference = {"apiVersion": "v1", "kind": "ConfigMap", "name": owner, "uid": uid}
            meta["ownerReferences"] = [{**reference, "blockOwnerDeletion": True}]
        self.apply({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, **meta}})

    def names(self) -> set[str]:
        """The ConfigMaps that tests made."""
        found = self("get", "cm", "-o", "jsonpath={.items[*].metadata.name}").split()
        return set(found) - {"kube-root-ca.crt"}


@pytest.fixture
def kubectl(cluster: SimCluster) -> Iterator[Kubectl]:
    """An empty namespace, gone afterwards."""
    cluster.kubectl("create", "namespace", SPACE)
    yield Kubectl(cluster)
    cluster.kubectl("delete", "namespace", SPACE, "--timeout=60s")


def test_background_is_the_default_and_takes_dependents_soon(kubectl: Kubectl) -> None:
    kubectl.config_map("a")
    kubectl.config_map("b", "a")
    kubectl.config_map("c", "b")
    kubectl("delete", "cm", "a")
    kubectl("wait", "--for=delete", "cm/b", "cm/c", "--timeout=10s")
    assert kubectl.names() == set()


def test_foreground_returns_when_dependents_are_gone(kubectl: Kubectl) -> None:
    kubectl.config_map("a")
    kubectl.config_map("b", "a")
    kubectl.config_map("c", "b")
    kubectl("delete", "cm", "a", "--cascade=foreground", "--timeout=20s")
    assert kubectl.names() == set()


def test_orphan_leaves_dependents_without_their_owner(kubectl: Kubectl) -> None:
    kubectl.config_map("a")
    kubectl.config_map("b", "a")
    kubectl("delete", "cm", "a", "--cascade=orphan", "--timeout=20s")
    assert kubectl.names() == {"b"}
    assert kubectl("get", "cm", "b", "-o", "jsonpath={.metadata.ownerReferences}") == ""


def test_delete_returns_soon_although_the_name_is_taken_again(kubectl: Kubectl) -> None:
    kubectl.config_map("a", finalizers=["example.com/hold"])
    command = [str(BIN / "kubectl"), "-n", SPACE, "delete", "cm", "a", "--timeout=30s"]
    deleting = subprocess.Popen(command, env=kubectl.cluster.environment, stdout=subprocess.PIPE)
    waiting = subprocess.Popen(
        [str(BIN / "kubectl"), "-n", SPACE, "wait", "--for=delete", "cm/a", "--timeout=30s"],
        env=kubectl.cluster.environment,
        stdout=subprocess.PIPE,
    )
    kubectl.cluster.until(
        "the mark", lambda: kubectl("get", "cm", "a", "-o", "jsonpath={.metadata.deletionTimestamp}")
    )
    time.sleep(0.5)
    kubectl("patch", "cm", "a", "--type=merge", "-p", json.dumps({"metadata": {"finalizers": None}}))
    kubectl.config_map("a")
    began = time.monotonic()
    assert deleting.wait(30) == 0 and waiting.wait(30) == 0
    assert time.monotonic() - began < SOON_S
    assert kubectl.names() == {"a"}


def test_a_collection_is_deleted_by_label(kubectl: Kubectl) -> None:
    for name, color in (("a", "red"), ("b", "red"), ("c", "blue")):
        kubectl.config_map(name, labels={"color": color})
    kubectl("delete", "cm", "-l", "color=red")
    assert kubectl.names() == {"c"}


def test_a_namespace_that_stays_says_why(cluster: SimCluster) -> None:
    cluster.kubectl("create", "namespace", "stuck")
    held = {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {"name": "held", "namespace": "stuck", "finalizers": ["example.com/hold"]},
    }
    cluster.kubectl("apply", "-f", "-", stdin=yaml.safe_dump(held))
    cluster.kubectl("delete", "namespace", "stuck", "--wait=false")
    said = cluster.until(
        "a reason",
        lambda: cluster.kubectl(
            "get",
            "namespace",
            "stuck",
            "-o",
            'jsonpath={.status.conditions[?(@.type=="NamespaceFinalizersRemaining")].message}',
        ),
    )
    assert said == (
        "Some content in the namespace has finalizers remaining: example.com/hold in 1 resource instances"
    )
    assert "NamespaceContentRemaining" in cluster.kubectl("describe", "namespace", "stuck")
    patch = json.dumps({"metadata": {"finalizers": None}})
    cluster.kubectl("patch", "secret", "held", "-n", "stuck", "--type=merge", "-p", patch)
    cluster.kubectl("wait", "--for=delete", "namespace/stuck", "--timeout=5s")


def deployment(name: str) -> Any:
    container = {"name": "m", "image": "wasm://counter"}
    template = {
        "metadata": {"labels": {"app": name}},
        "spec": {"terminationGracePeriodSeconds": 1, "containers": [container]},
    }
    spec = {"replicas": 3, "selector": {"matchLabels": {"app": name}}, "template": template}
    return {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": name}, "spec": spec}


def test_pods_of_a_deployment_go_with_it_or_stay_as_orphans(cluster: SimCluster, kubectl: Kubectl) -> None:
    cluster.cli("push", "examples/counter/counter.wasm", "--name", "counter")
    for name in ("goes", "stays"):
        kubectl.apply(deployment(name))
    for name in ("goes", "stays"):
        kubectl("rollout", "status", f"deployment/{name}", "--timeout=30s")
    kubectl("delete", "deployment", "goes", "--cascade=foreground", "--timeout=20s")
    assert kubectl("get", "pods", "-l", "app=goes", "-o", "name") == ""
    kubectl("delete", "deployment", "stays", "--cascade=orphan", "--timeout=20s")
    time.sleep(1)
    pods = json.loads(kubectl("get", "pods", "-l", "app=stays", "-o", "json"))["items"]
    assert len(pods) == 3
    assert not any(
        pod["metadata"].get("ownerReferences") or pod["metadata"].get("deletionTimestamp") for pod in pods
    )


WIDGETS = {
    "apiVersion": "apiextensions.k8s.io/v1",
    "kind": "CustomResourceDefinition",
    "metadata": {"name": "widgets.deletion.example.com"},
    "spec": {
        "group": "deletion.example.com",
        "scope": "Namespaced",
        "names": {"plural": "widgets", "singular": "widget", "kind": "Widget", "listKind": "WidgetList"},
        "versions": [
            {
                "name": "v1",
                "served": True,
                "storage": True,
                "schema": {"openAPIV3Schema": {"type": "object"}},
            }
        ],
    },
}


def test_custom_objects_are_deleted_and_waited_for_like_any_others(
    cluster: SimCluster, kubectl: Kubectl
) -> None:
    kubectl.apply(WIDGETS)
    try:
        cluster.kubectl("wait", "--for=condition=Established", "crd/widgets.deletion.example.com")
        widget = {"apiVersion": "deletion.example.com/v1", "kind": "Widget", "metadata": {"name": "w"}}
        kubectl.apply(widget)
        uid = kubectl("get", "widget", "w", "-o", "jsonpath={.metadata.uid}")
        owner = {"apiVersion": "deletion.example.com/v1", "kind": "Widget", "name": "w", "uid": uid}
        owned = {"name": "owned", "ownerReferences": [{**owner, "blockOwnerDeletion": True}]}
        kubectl.apply({"apiVersion": "v1", "kind": "ConfigMap", "metadata": owned})
        kubectl("delete", "widget", "w", "--cascade=foreground", "--timeout=20s")
        assert kubectl.names() == set()
        kubectl.apply(widget)
        kubectl("delete", "widget", "w", "--wait=false")
        kubectl("wait", "--for=delete", "widget/w", "--timeout=5s")
        kubectl.apply(widget)
    finally:
        cluster.kubectl("delete", "crd", "widgets.deletion.example.com", "--timeout=20s")
    # The namespace still goes: the fixture deletes it.


def test_a_taint_evicts_the_pods_that_do_not_tolerate_it(cluster: SimCluster, kubectl: Kubectl) -> None:
    cluster.cli("push", "examples/counter/counter.wasm", "--name", "counter")
    for name, tolerations in (("leaves", []), ("stays", [{"key": "fire", "operator": "Exists"}])):
        spec = {
            "nodeSelector": {"zone": "b"},
            "tolerations": tolerations,
            "terminationGracePeriodSeconds": 1,
            "containers": [{"name": "m", "image": "wasm://counter"}],
        }
        kubectl.apply({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": spec})
    kubectl("wait", "--for=condition=Ready", "pod/leaves", "pod/stays", "--timeout=30s")
    cluster.kubectl("taint", "nodes", "node-b", "fire=yes:NoExecute")
    try:
        kubectl("wait", "--for=delete", "pod/leaves", "--timeout=20s")
        told = kubectl("get", "events", "--field-selector", "reason=TaintManagerEviction", "-o", "name")
        assert told.count("event/leaves") == 1
        assert kubectl("get", "pod", "stays", "-o", "jsonpath={.metadata.deletionTimestamp}") == ""
    finally:
        cluster.kubectl("taint", "nodes", "node-b", "fire-")


def test_pods_of_a_lost_node_are_not_ready_until_it_is_back(own_cluster: SimCluster) -> None:
    own_cluster.control_plane()
    worker = own_cluster.worker("w")
    own_cluster.cli("push", "examples/counter/counter.wasm", "--name", "counter")
    for name in ("stays", "goes"):
        spec = {"nodeName": "w", "containers": [{"name": "m", "image": "wasm://counter"}]}
        pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": spec}
        own_cluster.kubectl("apply", "-f", "-", stdin=yaml.safe_dump(pod))
    own_cluster.kubectl("wait", "--for=condition=Ready", "pod/stays", "pod/goes", "--timeout=30s")
    worker.popen.send_signal(signal.SIGSTOP)
    try:
        own_cluster.kubectl("wait", "--for=condition=Ready=false", "pod/stays", "--timeout=60s")
        # Nobody on the node can end it: the control plane does.
        own_cluster.kubectl("delete", "pod", "goes", "--timeout=10s")
    finally:
        worker.popen.send_signal(signal.SIGCONT)
    own_cluster.kubectl("wait", "--for=condition=Ready", "pod/stays", "--timeout=60s")
    assert own_cluster.get("pod", "stays")["status"]["containerStatuses"][0]["restartCount"] == 0
