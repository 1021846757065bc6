"""Endpoints, EndpointSlices, ReplicaSets, the service proxy and kubectl top, with real nodes and pods."""

import json
import subprocess
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from tests.conftest import BIN, SimCluster

SPACE = "computed"
MANIFEST = """
apiVersion: apps/v1
kind: Deployment
metadata: {name: web}
spec:
  replicas: %d
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec:
      containers:
        - name: counter
          image: wasm://counter
          ports: [{containerPort: 80, name: http}]
          resources: {limits: {memory: 64Ki}}
---
apiVersion: v1
kind: Service
metadata: {name: web}
spec:
  selector: {app: web}
  ports: [{name: http, port: 80, targetPort: http}]
"""


class Space:
    """kubectl in a namespace of its own."""

    def __init__(self, cluster: SimCluster) -> None:
        self.cluster = cluster

    def __call__(self, *arguments: str, **options: Any) -> str:
        return self.cluster.kubectl("-n", SPACE, *arguments, **options)

    def json(self, *arguments: str) -> Any:
        """`get ... -o json`, parsed."""
        return json.loads(self("get", *arguments, "-o", "json"))

    def run(self, replicas: int) -> None:
        """The Deployment with its Service, Ready."""
        self("apply", "-f", "-", stdin=MANIFEST % replicas)
        self("rollout", "status", "deployment/web", "--timeout=60s")


@pytest.fixture
def space(cluster: SimCluster) -> Iterator[Space]:
    cluster.cli("push", "examples/counter/counter.wasm")
    cluster.kubectl("create", "namespace", SPACE)
    yield Space(cluster)
    cluster.kubectl("delete", "namespace", SPACE, "--timeout=60s")


class Watch:
    """The lines of a `kubectl get -w`."""

    def __init__(self, space: Space, *arguments: str) -> None:
        command = [str(BIN / "kubectl"), "-n", SPACE, "get", *arguments, "--watch", "--no-headers"]
        self._popen = subprocess.Popen(
            command, env=space.cluster.environment, stdout=subprocess.PIPE, text=True
        )
        self.lines: list[list[str]] = []
        self._thread = threading.Thread(target=self._read, daemon=True)
        self._thread.start()

    def _read(self) -> None:
        assert self._popen.stdout is not None
        for line in self._popen.stdout:
            self.lines.append(line.split())

    def stop(self) -> None:
        """Ends the watch."""
        self._popen.terminate()
        self._popen.wait(10)
        self._thread.join(10)


def test_kubectl_watches_pods_become_endpoints_and_replicas(space: Space) -> None:
    space("create", "service", "clusterip", "web", "--tcp=80")
    watches = [Watch(space, *kind) for kind in (("endpoints", "web"), ("endpointslices",), ("replicasets",))]
    endpoints, slices, sets = watches
    try:
        space.cluster.until("both watches have begun", lambda: endpoints.lines and slices.lines)
        assert endpoints.lines[0][:2] == ["web", "<none>"]
        space.run(2)
        space.cluster.until("two addresses", lambda: endpoints.lines[-1][1].count(":80") == 2)
        space.cluster.until("two endpoints", lambda: slices.lines[-1][3].count(",") == 1)
        space.cluster.until("two replicas", lambda: sets.lines[-1][1:4] == ["2", "2", "2"])
        space("scale", "deployment/web", "--replicas=0")
        space.cluster.until("no endpoint", lambda: endpoints.lines[-1][1] == "<none>")
        space.cluster.until("no replica", lambda: sets.lines[-1][1:4] == ["0", "0", "0"])
    finally:
        for watch in watches:
            watch.stop()
    assert (
        space("get", "endpointslices", "-o", "name", "-l", "kubernetes.io/service-name=web").count("/") == 1
    )
    says = space("delete", "endpoints", "web", code=1)
    assert "the server does not allow this method on the requested resource" in says


def test_a_request_for_a_service_waits_while_its_only_pod_moves_and_counts_once(space: Space) -> None:
    space.run(1)
    path = f"/api/v1/namespaces/{SPACE}/services/web:http/proxy/"
    stop, faults, answered = threading.Event(), [], []

    def client() -> None:
        while not stop.is_set():
            status, _, text = space.cluster.http("GET", path)
            (answered if status == 200 else faults).append(text)

    threads = [threading.Thread(target=client) for _ in range(3)]
    for thread in threads:
        thread.start()
    try:
        for _ in range(4):
            pod = space.json("pods", "-l", "app=web")["items"][0]
            target = next(n for n in ("node-a", "node-b") if n != pod["spec"]["nodeName"])
            space.cluster.cli("-n", SPACE, "move", pod["metadata"]["name"], "--to", target)
    finally:
        stop.set()
        for thread in threads:
            thread.join(60)
    assert not faults, faults[:3]
    assert json.loads(space("get", "--raw", path))["count"] == len(answered) + 1


def test_a_service_without_ready_pods_says_so(space: Space) -> None:
    space("create", "service", "clusterip", "web", "--tcp=80")
    says = space("get", "--raw", f"/api/v1/namespaces/{SPACE}/services/web/proxy/", code=1)
    assert 'no endpoints available for service "web"' in says


def test_kubectl_top_knows_nodes_pods_and_containers(space: Space) -> None:
    space.run(2)
    nodes = {row.split()[0]: row.split() for row in space("top", "nodes", "--no-headers").splitlines()}
    assert set(nodes) == {"control", "node-a", "node-b"}
    assert all(row[1].endswith("m") and row[2].endswith("%") for row in nodes.values())
    names = sorted(p["metadata"]["name"] for p in space.json("pods", "-l", "app=web")["items"])
    pods = sorted(line.split() for line in space("top", "pods", "--no-headers", "-l", "app=web").splitlines())
    assert [row[0] for row in pods] == names
    rows = sorted(line.split() for line in space("top", "pods", "--containers", "--no-headers").splitlines())
    assert [row[:2] for row in rows] == [[name, "counter"] for name in names]
    metrics = json.loads(space("get", "--raw", f"/apis/metrics.k8s.io/v1beta1/namespaces/{SPACE}/pods"))
    for item in metrics["items"]:
        usage = item["containers"][0]["usage"]
        assert int(usage["cpu"].removesuffix("n")) > 0 and usage["memory"] == "64Ki"
