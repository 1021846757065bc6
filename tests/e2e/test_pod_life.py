"""The life of a pod as kubectl shows it: probes, init containers, renewed volumes, the downward API, logs."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import wasmtime

from tests.conftest import SimCluster

SPACE = "life"
# /set5 makes all other requests fail, /set2 succeed; /file?PATH and /env?NAME answer what they name.
POD = """(module
  (import "env" "k32_log" (func $log (param i32 i32)))
  (import "env" "k32_env" (func $env (param i32 i32 i32 i32) (result i32)))
  (import "env" "k32_req_path" (func $path (param i32 i32) (result i32)))
  (import "env" "k32_req_query" (func $query (param i32 i32) (result i32)))
  (import "env" "k32_resp_status" (func $status (param i32)))
  (import "env" "k32_resp_write" (func $write (param i32 i32) (result i32)))
  (import "env" "k32_fs_open" (func $open (param i32 i32 i32) (result i32)))
  (import "env" "k32_fs_read" (func $read (param i32 i32 i32) (result i32)))
  (import "env" "k32_fs_close" (func $close (param i32) (result i32)))
  (memory (export "memory") 1)
  (data (i32.const 0) "2")
  (data (i32.const 8) "begins")
  (func (export "k32_init") (call $log (i32.const 8) (i32.const 6)))
  (func (export "k32_handle") (local i32 i32)
    (drop (call $path (i32.const 16) (i32.const 32)))
    (local.set 0 (i32.load8_u (i32.const 17)))
    (local.set 1 (call $query (i32.const 64) (i32.const 256)))
    (if (i32.eq (local.get 0) (i32.const 115)) (then
      (i32.store8 (i32.const 0) (i32.load8_u (i32.const 20))) (return)))
    (if (i32.eq (local.get 0) (i32.const 101)) (then
      (drop (call $write (i32.const 512)
        (call $env (i32.const 64) (local.get 1) (i32.const 512) (i32.const 4096)))) (return)))
    (if (i32.eq (local.get 0) (i32.const 102)) (then
      (local.set 0 (call $open (i32.const 64) (local.get 1) (i32.const 1)))
      (if (i32.gt_s (local.get 0) (i32.const 0)) (then
        (drop (call $write (i32.const 512) (call $read (local.get 0) (i32.const 512) (i32.const 4096))))
        (drop (call $close (local.get 0)))))
      (return)))
    (if (i32.eq (i32.load8_u (i32.const 0)) (i32.const 53)) (then (call $status (i32.const 500))))))"""
Obj = dict[str, Any]


class Space:
    """kubectl and requests to pods in a namespace of its own."""

    def __init__(self, cluster: SimCluster) -> None:
        self.cluster = cluster

    def __call__(self, *arguments: str, **options: Any) -> str:
        return self.cluster.kubectl("-n", SPACE, *arguments, **options)

    def pod(self, name: str, container: Obj | None = None, **spec: Any) -> None:
        main = {"name": "main", "image": "wasm://life", **(container or {})}
        fields = {"terminationGracePeriodSeconds": 1, "containers": [main], **spec}
        pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "labels": {"app": "life"}}}
        self("apply", "-f", "-", stdin=json.dumps({**pod, "spec": fields}))

    def ready(self, name: str, is_ready: bool = True) -> None:
        self("wait", f"--for=condition=Ready={is_ready}", f"pod/{name}", "--timeout=30s")

    def ask(self, name: str, target: str) -> str:
        path = f"/api/v1/namespaces/{SPACE}/pods/{name}/proxy{target}"
        return self.cluster.http("GET", path)[2].decode()

    def value(self, name: str, path: str) -> str:
        return self("get", "pod", name, "-o", f"jsonpath={{{path}}}")


@pytest.fixture(scope="module")
def space(cluster: SimCluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Space]:
    """An empty namespace and the module `life`."""
    file: Path = tmp_path_factory.mktemp("life") / "life.wasm"
    file.write_bytes(wasmtime.wat2wasm(POD))
    cluster.cli("push", str(file), "--name", "life")
    cluster.cli("push", "examples/hello/hello.wasm", "--name", "hello")
    cluster.kubectl("create", "namespace", SPACE)
    yield Space(cluster)
    cluster.kubectl("delete", "namespace", SPACE, "--timeout=60s")


def probe(**more: Any) -> Obj:
    return {"httpGet": {"path": "/healthz", "port": 80}, "periodSeconds": 1, "failureThreshold": 1, **more}


def test_readiness_follows_the_pods_answers(space: Space) -> None:
    space.pod("ready", {"readinessProbe": probe()})
    space.ready("ready")
    space.ask("ready", "/set5")
    space.ready("ready", False)
    assert space("get", "pod", "ready", "--no-headers").split()[1:3] == ["0/1", "Running"]
    described = space("describe", "pod", "ready")
    assert "Readiness probe failed: HTTP probe failed with statuscode: 500" in described
    space.ask("ready", "/set2")
    space.ready("ready")


def test_a_container_that_is_not_alive_is_restarted_and_its_log_kept(space: Space) -> None:
    space.pod("alive", {"livenessProbe": probe()})
    space.ready("alive")
    refused = space("logs", "alive", "--previous", code=1)
    assert 'previous terminated container "main" in pod "alive" not found' in refused
    space.ask("alive", "/set5")
    restarts = ".status.containerStatuses[0].restartCount"
    space.cluster.until("a restart", lambda: space.value("alive", restarts) == "1")
    space.ready("alive")
    assert "Container main failed liveness probe, will be restarted" in space("describe", "pod", "alive")
    assert space("logs", "alive", "--previous") == "begins\n"
    assert space("logs", "alive", "--all-containers") == "begins\n"
    stamp = space("logs", "alive", "--timestamps", "--tail=1").split()[0]
    assert stamp.endswith("Z") and "T" in stamp


def test_the_main_container_starts_after_the_init_container(space: Space) -> None:
    space.pod("staged", initContainers=[{"name": "first", "image": "wasm://hello"}])
    space.ready("staged")
    state = space.value("staged", ".status.initContainerStatuses[0].state.terminated.reason")
    assert state == "Completed"
    assert "hello" in space("logs", "staged", "-c", "first")
    conditions = space.value("staged", ".status.conditions[*].type").split()
    assert set(conditions) == {
        "PodReadyToStartContainers",
        "Initialized",
        "Ready",
        "ContainersReady",
        "PodScheduled",
    }


def test_a_config_map_is_renewed_and_the_environment_is_not(space: Space) -> None:
    space("create", "configmap", "settings", "--from-literal=mode=slow")
    reference = {"configMapKeyRef": {"name": "settings", "key": "mode"}}
    fields = {
        "MODE": reference,
        "APP": {"fieldRef": {"fieldPath": "metadata.labels['app']"}},
        "NODE": {"fieldRef": {"fieldPath": "spec.nodeName"}},
        "CPU": {"resourceFieldRef": {"resource": "limits.cpu"}},
    }
    env = [{"name": name, "valueFrom": source} for name, source in fields.items()]
    labels = {"path": "labels", "fieldRef": {"fieldPath": "metadata.labels"}}
    sources = [
        {"configMap": {"name": "settings"}},
        {"downwardAPI": {"items": [labels]}},
        {"serviceAccountToken": {"path": "token"}},
        {"configMap": {"name": "kube-root-ca.crt", "items": [{"key": "ca.crt", "path": "ca.crt"}]}},
    ]
    mounts = [{"name": "v", "mountPath": "/v"}]
    volumes = [{"name": "v", "projected": {"sources": sources}}]
    space.pod("reads", {"env": env, "volumeMounts": mounts}, volumes=volumes)
    space.ready("reads")
    assert space.ask("reads", "/file?/v/mode") == space.ask("reads", "/env?MODE") == "slow"
    assert space.ask("reads", "/file?/v/labels") == 'app="life"' and space.ask("reads", "/env?APP") == "life"
    assert space.ask("reads", "/env?NODE") == space.value("reads", ".spec.nodeName")
    assert int(space.ask("reads", "/env?CPU")) > 0
    token = space.ask("reads", "/file?/v/token")
    assert token.count(".") == 2 and "BEGIN CERTIFICATE" in space.ask("reads", "/file?/v/ca.crt")
    path = "/apis/authentication.k8s.io/v1/selfsubjectreviews"
    body = json.dumps({"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"}).encode()
    status, _, answer = space.cluster.http(
        "POST", path, body, {"Content-Type": "application/json"}, token=token
    )
    assert status == 201 and f"system:serviceaccount:{SPACE}:default" in answer.decode()
    space("patch", "configmap", "settings", "-p", '{"data": {"mode": "fast"}}')
    space.cluster.until("a renewed file", lambda: space.ask("reads", "/file?/v/mode") == "fast", 60)
    assert space.ask("reads", "/env?MODE") == "slow"
    assert space.ask("reads", "/file?/v/token") == token


def test_a_volume_that_is_missing_is_told_as_a_failed_mount(space: Space) -> None:
    volumes = [{"name": "v", "configMap": {"name": "nowhere"}}]
    space.pod("waits", {"volumeMounts": [{"name": "v", "mountPath": "/v"}]}, volumes=volumes)
    words = 'MountVolume.SetUp failed for volume "v" : configmap "nowhere" not found'
    space.cluster.until("the event", lambda: words in space("describe", "pod", "waits"))
    assert space("get", "pod", "waits", "--no-headers").split()[2] == "ContainerCreating"
    space("create", "configmap", "nowhere", "--from-literal=a=b")
    space.ready("waits")


def test_a_node_is_described_without_empty_values(space: Space) -> None:
    space.pod("cached", nodeName="node-a")
    space.ready("cached")
    described = space("describe", "node", "node-a")
    facts = described.partition("System Info:")[2].partition("Non-terminated Pods:")[0]
    rows = [line.partition(":") for line in facts.splitlines() if line.strip()]
    empty = {name.strip() for name, _, value in rows if not value.strip()}
    assert empty <= {"Kube-Proxy Version"}, described
    assert "wasmtime://" in facts
    assert "<unknown>" not in described and "KubeletHasSufficientMemory" in described
    names = "{.status.images[*].names[*]}"
    space.cluster.until(
        "the module's name",
        lambda: "wasm://life" in space("get", "node", "node-a", "-o", f"jsonpath={names}"),
    )
