"""Pods as their users reach them: NodePorts, the Ingress, the Service's name, the service proxy; through moves."""

import http.client
import json
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest

from tests.conftest import ROOT, SimCluster

SPACE = "reach"
MANIFEST = """
apiVersion: apps/v1
kind: Deployment
metadata: {name: web}
spec:
  replicas: 2
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
  type: NodePort
  selector: {app: web}
  ports: [{name: http, port: 80, targetPort: http}]
---
apiVersion: networking.k8s.io/v1
kind: Ingress
metadata: {name: web}
spec:
  rules:
    - host: web.example
      http:
        paths:
          - path: /
            pathType: Prefix
            backend: {service: {name: web, port: {name: http}}}
    - host: only.example
      http:
        paths:
          - path: /count
            pathType: Prefix
            backend: {service: {name: web, port: {number: 80}}}
"""


@dataclass
class Reach:
    """A cluster whose nodes listen for Ingress requests, and a Deployment with its Service and Ingress."""

    cluster: SimCluster
    ingress: tuple[str, int]
    node_port: int

    def ask(
        self, where: tuple[str, int], path: str = "/", host: str = "", body: bytes | None = None
    ) -> tuple[int, bytes]:
        connection = http.client.HTTPConnection(*where, timeout=30)
        try:
            headers = {"Host": host} if host else {}
            connection.request("POST" if body is not None else "GET", path, body, headers)
            answer = connection.getresponse()
            return answer.status, answer.read()
        finally:
            connection.close()

    def count(self, where: tuple[str, int], path: str = "/", host: str = "") -> int:
        status, text = self.ask(where, path, host)
        assert status == 200, text
        return int(json.loads(text)["count"])


@pytest.fixture(scope="module")
def reach(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Reach]:
    cluster = SimCluster(tmp_path_factory.mktemp("reach"))
    try:
        cluster.control_plane("control", "--ingress", "127.0.0.1:0")
        cluster.worker("node-a", "--ingress", "127.0.0.1:0")
        cluster.worker("node-b")
        cluster.cli("push", str(ROOT / "examples/counter/counter.wasm"))
        cluster.kubectl("create", "namespace", SPACE)
        cluster.kubectl("apply", "-n", SPACE, "-f", "-", stdin=MANIFEST)
        cluster.kubectl("rollout", "status", "-n", SPACE, "deployment/web", "--timeout=60s")
        service = cluster.get("service", "web", "-n", SPACE)
        found = Reach(cluster, _listener(cluster, "node-a"), service["spec"]["ports"][0]["nodePort"])
        cluster.until("the routes are there", lambda: _answers(found))
        yield found
    finally:
        cluster.close()


def _listener(cluster: SimCluster, node: str) -> tuple[str, int]:
    address = cluster.get("node", node)["metadata"]["annotations"]["kube32.io/ingress"]
    host, _, port = address.rpartition(":")
    return host, int(port)


def _answers(found: Reach) -> bool:
    try:
        return (
            found.ask(found.ingress, "/", "web.example")[0] == 200
            and found.ask(("127.0.0.1", found.node_port))[0] == 200
        )
    except OSError:
        return False


def pods(cluster: SimCluster) -> list[dict[str, Any]]:
    items: list[dict[str, Any]] = cluster.get("pods", "-n", SPACE, "-l", "app=web")["items"]
    return items


def test_a_node_port_goes_round_all_pods(reach: Reach) -> None:
    where = ("127.0.0.1", reach.node_port)
    counts = [reach.count(where) for _ in range(6)]
    # Two pods that take turns: each counts its own requests.
    assert counts[0::2] == list(range(counts[0], counts[0] + 3))
    assert counts[1::2] == list(range(counts[1], counts[1] + 3))


def test_the_ingress_takes_its_hosts_and_paths_and_no_others(reach: Reach) -> None:
    assert reach.ask(reach.ingress, "/?x=1", "web.example:8080")[0] == 200
    # The pod itself knows no such path: the request has reached it.
    assert reach.ask(reach.ingress, "/count/more", "only.example") == (404, b"no such path\n")
    for path, host in (("/", "only.example"), ("/counting", "only.example"), ("/", "other.example")):
        status, text = reach.ask(reach.ingress, path, host)
        assert (status, text) == (404, f"no rule of an Ingress takes {host}{path}\n".encode())


def test_every_node_with_a_listener_serves_the_ingress_and_says_where(reach: Reach) -> None:
    control = _listener(reach.cluster, "control")
    assert reach.ask(control, "/", "web.example")[0] == 200
    status = reach.cluster.get("ingress", "web", "-n", SPACE)["status"]["loadBalancer"]["ingress"]
    assert sorted(row["ports"][0]["port"] for row in status) == sorted((control[1], reach.ingress[1]))


@pytest.mark.parametrize("host", [f"web.{SPACE}.svc", f"web.{SPACE}.svc.cluster.local:80"])
def test_a_service_is_reached_by_its_name(reach: Reach, host: str) -> None:
    assert reach.ask(reach.ingress, "/", host)[0] == 200


def test_the_service_proxy_goes_round_and_knows_its_ports(reach: Reach) -> None:
    base = f"/api/v1/namespaces/{SPACE}/services"
    for name in ("web", "web:http", "web:80", "http:web:http"):
        assert reach.cluster.http("GET", f"{base}/{name}/proxy/")[0] == 200
    for name, says in (
        ("web:81", 'no service port 81 found for service "web"'),
        ("web:nope", 'no endpoints available for service "web"'),
    ):
        status, _, text = reach.cluster.http("GET", f"{base}/{name}/proxy/")
        assert status == 503 and json.loads(text)["message"] == says
    assert reach.cluster.http("GET", f"{base}/missing/proxy/")[0] == 404


def test_no_request_is_lost_while_pods_move(reach: Reach) -> None:
    """Each request is answered by exactly one pod: the pods' counts grow by the number of answers."""
    cluster, where, asked = reach.cluster, ("127.0.0.1", reach.node_port), []
    stop, faults = threading.Event(), []

    def client(number: int) -> None:
        target = (where, "", "/") if number % 2 else (reach.ingress, "web.example", "/")
        while not stop.is_set():
            try:
                status, text = reach.ask(target[0], target[2], target[1])
            except OSError as error:
                faults.append(repr(error))
                return
            if status == 200:
                asked.append(1)
            else:
                faults.append(f"{status} {text!r}")

    def total() -> int:
        counts = []
        for pod in pods(cluster):
            name = pod["metadata"]["name"]
            path = f"/api/v1/namespaces/{SPACE}/pods/{name}/proxy/"
            counts.append(int(json.loads(cluster.http("GET", path)[2])["count"]))
        return sum(counts)

    before = total()
    threads = [threading.Thread(target=client, args=(n,)) for n in range(4)]
    for thread in threads:
        thread.start()
    try:
        for turn in range(4):
            pod = pods(cluster)[turn % 2]
            here = pod["spec"]["nodeName"]
            target = next(n for n in ("node-a", "node-b", "control") if n != here)
            cluster.cli("-n", SPACE, "move", pod["metadata"]["name"], "--to", target)
    finally:
        stop.set()
        for thread in threads:
            thread.join(60)
    assert not faults, faults[:5]
    # The two requests of the first total() count too.
    assert total() - before == len(asked) + len(pods(cluster))


def test_pods_of_the_own_node_are_served_without_the_control_plane(reach: Reach) -> None:
    cluster = reach.cluster
    here = [p for p in pods(cluster) if p["spec"]["nodeName"] == "node-a"]
    if not here:
        cluster.cli("-n", SPACE, "move", pods(cluster)[0]["metadata"]["name"], "--to", "node-a")
    cluster.until("the routes follow", lambda: reach.ask(reach.ingress, "/", "web.example")[0] == 200)
    cluster.processes["control"].stop()
    for _ in range(4):
        assert reach.ask(reach.ingress, "/", "web.example")[0] == 200
