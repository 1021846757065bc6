"""A control plane with --enable-flash comes back as it was (specification, "Persistence journal")."""

import json
import signal
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
import wasmtime

from tests.conftest import Process, SimCluster
from tests.e2e.world import WITNESS

ONCE = '(module (memory (export "memory") 1 1) (func (export "main") (result i32) (i32.const 0)))'
ONCE_POD = """
apiVersion: v1
kind: Pod
metadata: {name: once}
spec: {restartPolicy: Never, containers: [{name: main, image: "wasm://once"}]}
"""
KIND = """
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: lamps.example.com}
spec:
  group: example.com
  scope: Namespaced
  names: {kind: Lamp, plural: lamps, singular: lamp}
  versions:
  - name: v1
    served: true
    storage: true
    schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}
"""
LAMP = "{apiVersion: example.com/v1, kind: Lamp, metadata: {name: desk}, spec: {watts: 5}}"
SERVICE = "{apiVersion: v1, kind: Service, metadata: {name: web}, spec: {selector: {app: web}, ports: [{port: 80}]}}"


def restart(cluster: SimCluster, process: Process, number: signal.Signals) -> Process:
    """Ends the control plane and starts it again on the same port and data."""
    address = urlsplit(process.facts["url"])
    process.stop(number)
    listen = f"{address.hostname}:{address.port}"
    return cluster.start("control", "--listen", listen, "--enable-flash")


def facts_of(obj: dict[str, Any]) -> dict[str, Any]:
    """What a restart must not change."""
    metadata = {k: v for k, v in obj["metadata"].items() if k != "managedFields"}
    return {**{k: v for k, v in obj.items() if k != "status"}, "metadata": metadata}


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_everything_that_users_made_is_there(
    own_cluster: SimCluster, tmp_path: Path, number: signal.Signals
) -> None:
    process = own_cluster.control_plane("control", "--enable-flash")
    kubectl = own_cluster.kubectl
    kubectl("apply", "-f", "-", stdin=KIND)
    kubectl("wait", "--for=condition=Established", "crd/lamps.example.com", "--timeout=30s")
    for manifest in (LAMP, SERVICE):
        kubectl("apply", "-f", "-", stdin=manifest)
    kubectl("create", "secret", "generic", "key", "--from-literal=k=hidden")
    kubectl("create", "namespace", "other")
    kubectl("create", "role", "reader", "--verb=get", "--resource=pods")
    kubectl("create", "rolebinding", "reads", "--role=reader", "--user=ann")
    own_cluster.deploy_wat(tmp_path, "counter", WITNESS, "--tick", "50ms")
    names = [
        *("crd/lamps.example.com", "lamp/desk", "service/web", "secret/key", "namespace/other"),
        *("role/reader", "rolebinding/reads", "module/counter", "pod/counter"),
    ]
    before = {name: facts_of(own_cluster.get(name)) for name in names}
    newest = max(int(obj["metadata"]["resourceVersion"]) for obj in before.values())
    process = restart(own_cluster, process, number)
    for name, obj in before.items():
        found = facts_of(own_cluster.get(name))
        if name != "pod/counter":  # its status goes on
            assert found == obj
        assert found["metadata"]["uid"] == obj["metadata"]["uid"]
    kubectl("wait", "--for=condition=Ready", "pod/counter", "--timeout=30s")
    assert kubectl("auth", "can-i", "get", "pods", "--as=ann").strip() == "yes"
    kubectl("create", "configmap", "new")
    assert int(own_cluster.get("configmap/new")["metadata"]["resourceVersion"]) > newest
    # The address of a Service is still taken.
    kubectl("expose", "pod", "counter", "--port=80", "--name=second", code=None)
    addresses = [s["spec"]["clusterIP"] for s in own_cluster.get("services")["items"]]
    assert len(set(addresses)) == len(addresses)
    kubectl("delete", "lamp/desk", "secret/key")
    restart(own_cluster, process, number)
    assert "NotFound" in kubectl("get", "secret/key", code=1)
    assert "NotFound" in kubectl("get", "lamp/desk", code=1)


def test_a_finished_pod_is_not_run_again(own_cluster: SimCluster, tmp_path: Path) -> None:
    process = own_cluster.control_plane("control", "--enable-flash")
    (tmp_path / "once.wasm").write_bytes(wasmtime.wat2wasm(ONCE))
    own_cluster.cli("push", str(tmp_path / "once.wasm"))
    own_cluster.kubectl("apply", "-f", "-", stdin=ONCE_POD)
    own_cluster.kubectl("wait", "--for=jsonpath={.status.phase}=Succeeded", "pod/once", "--timeout=30s")
    before = own_cluster.get("pod/once")
    restart(own_cluster, process, signal.SIGTERM)
    own_cluster.kubectl("wait", "--for=condition=Ready", "node/control", "--timeout=30s")
    after = own_cluster.get("pod/once")
    assert after["metadata"]["uid"] == before["metadata"]["uid"]
    assert after["status"]["phase"] == "Succeeded"
    assert after["status"]["containerStatuses"] == before["status"]["containerStatuses"]
    assert (
        own_cluster.get("events", "--field-selector=involvedObject.name=once,reason=Started")["items"] == []
    )


def test_a_watch_from_before_is_told_to_list_again(own_cluster: SimCluster) -> None:
    process = own_cluster.control_plane("control", "--enable-flash")
    own_cluster.kubectl("create", "configmap", "a")
    version = own_cluster.get("configmap/a")["metadata"]["resourceVersion"]
    own_cluster.kubectl("create", "configmap", "b")
    restart(own_cluster, process, signal.SIGKILL)
    path = f"/api/v1/namespaces/default/configmaps?watch=1&timeoutSeconds=5&resourceVersion={version}"
    status, _, body = own_cluster.http("GET", path)
    event = json.loads(body.splitlines()[0])
    assert (status, event["type"]) == (200, "ERROR")
    assert (event["object"]["code"], event["object"]["reason"]) == (410, "Expired")
    listed = json.loads(own_cluster.http("GET", "/api/v1/namespaces/default/configmaps")[2])
    assert {"a", "b"} <= {item["metadata"]["name"] for item in listed["items"]}
    assert int(listed["metadata"]["resourceVersion"]) > int(version)


def test_leases_and_events_are_made_anew(own_cluster: SimCluster, tmp_path: Path) -> None:
    process = own_cluster.control_plane("control", "--enable-flash")
    own_cluster.deploy_wat(tmp_path, "counter", WITNESS)
    old = {item["metadata"]["uid"] for item in own_cluster.get("events", "-A")["items"]}
    assert old
    restart(own_cluster, process, signal.SIGTERM)
    own_cluster.kubectl("wait", "--for=condition=Ready", "node/control", "--timeout=30s")
    assert not old & {item["metadata"]["uid"] for item in own_cluster.get("events", "-A")["items"]}
    dumped = own_cluster.cli(
        "journal", "dump", "--keys", str(own_cluster.folder / "control/kube32/store/journal.img")
    )
    keys = [json.loads(line).get("key", "") for line in dumped.splitlines()]
    assert any(key.startswith("/registry/pods/") for key in keys)
    assert not any(key.startswith(("/registry/events/", "/registry/leases/")) for key in keys)


def test_a_pod_of_a_worker_runs_through_a_restart_of_the_control_plane(
    own_cluster: SimCluster, tmp_path: Path
) -> None:
    process = own_cluster.control_plane("control", "--enable-flash")
    own_cluster.worker("node-a")
    own_cluster.deploy_wat(tmp_path, "counter", WITNESS, "--tick", "50ms", "--node", "node-a")
    before = own_cluster.get("pod/counter")
    restart(own_cluster, process, signal.SIGKILL)
    own_cluster.kubectl("wait", "--for=condition=Ready", "node/node-a", "pod/counter", "--timeout=60s")
    after = own_cluster.get("pod/counter")
    assert after["metadata"]["uid"] == before["metadata"]["uid"]
    (container,) = after["status"]["containerStatuses"]
    assert container["restartCount"] == 0
    assert container["state"] == before["status"]["containerStatuses"][0]["state"]
