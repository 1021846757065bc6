"""Freeze, thaw and rollback as the specification's "Kubelet endpoints" and "Moves" say, on real processes."""

import json
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import SimCluster

COUNTER = "examples/counter/counter.wasm"
NODE_A = "/api/v1/nodes/node-a/proxy"

# Counts requests; k32_restored traps where the environment variable NODE ends in the letter of TRAP.
MOODY = """
(module
  (import "env" "k32_env" (func $env (param i32 i32 i32 i32) (result i32)))
  (import "env" "k32_resp_write" (func $write (param i32 i32) (result i32)))
  (memory (export "memory") 1 1)
  (data (i32.const 0) "NODE")
  (data (i32.const 8) "TRAP")
  (global $count (mut i32) (i32.const 0))
  (func $last (param $name i32) (result i32)
    (i32.load8_u (i32.add (i32.const 63)
      (call $env (local.get $name) (i32.const 4) (i32.const 64) (i32.const 64)))))
  (func (export "k32_restored")
    (if (i32.eq (call $last (i32.const 0)) (call $last (i32.const 8))) (then unreachable)))
  (func (export "k32_handle")
    (global.set $count (i32.add (global.get $count) (i32.const 1)))
    (i32.store8 (i32.const 32) (i32.add (i32.const 48) (global.get $count)))
    (drop (call $write (i32.const 32) (i32.const 1)))))
"""

# k32_handle takes three seconds.
SLOW = """
(module
  (import "env" "k32_time_ms" (func $now (result i64)))
  (memory (export "memory") 1 1)
  (func (export "k32_handle") (local $end i64)
    (local.set $end (i64.add (call $now) (i64.const 3000)))
    (loop $again (br_if $again (i64.lt_u (call $now) (local.get $end))))))
"""


@pytest.fixture
def counter(cluster: SimCluster, request: pytest.FixtureRequest) -> Iterator[str]:
    """A counter on node-a, named after the test, that has answered once."""
    name = "f-" + request.node.name.removeprefix("test_").replace("_", "-")[:40].strip("-")
    cluster.cli("deploy", COUNTER, "--name", name, "--node", "node-a", "--memory", "64Ki", "--tick", "50ms")
    cluster.kubectl("wait", "--for=condition=Ready", f"pod/{name}", "--timeout=30s")
    assert cluster.http("GET", proxy(name))[0] == 200
    yield name
    cluster.kubectl("delete", "pod", name)


def proxy(name: str, path: str = "/") -> str:
    """The pod's path through the API server."""
    return f"/api/v1/namespaces/default/pods/{name}/proxy{path}"


def checkpoint(cluster: SimCluster, name: str, query: str) -> tuple[int, dict[str, str], bytes]:
    """POST of the kubelet's checkpoint endpoint through the node proxy."""
    return cluster.http("POST", f"{NODE_A}/checkpoint/default/{name}/{name}?{query}")


def thaw(cluster: SimCluster, name: str) -> tuple[int, Any]:
    """POST of the kubelet's thaw endpoint."""
    status, _, body = cluster.http("POST", f"{NODE_A}/thaw/default/{name}/{name}")
    return status, json.loads(body)


def test_a_frozen_pod_answers_503_gives_the_same_bytes_and_thaws(cluster: SimCluster, counter: str) -> None:
    status, headers, first = checkpoint(cluster, counter, "leave=frozen")
    assert status == 200
    assert headers["Content-Type"] == "application/octet-stream"
    assert int(headers["Content-Length"]) == len(first)
    assert headers["X-Kube32-Snapshot-Sha256"] == first[-32:].hex()
    assert headers["X-Kube32-Image-Sha256"] == first[8:40].hex()
    assert int(headers["X-Kube32-Pod-Time-Ms"]) == int.from_bytes(first[48:56], "little")
    again = checkpoint(cluster, counter, "leave=frozen")[2]
    assert again == first
    assert checkpoint(cluster, counter, "leave=running")[2] == first
    pod = cluster.get("pod", counter)
    status, headers, _ = cluster.http("GET", proxy(counter))
    assert (status, headers["Retry-After"]) == (503, "1")
    assert headers["X-Kube32-Frozen"] == pod["metadata"]["uid"]

    def not_ready() -> Any:
        found = cluster.get("pod", counter)
        ready = [c for c in found["status"]["conditions"] if c["type"] == "Ready"]
        return ready[0] if ready[0]["status"] == "False" and found["status"]["phase"] == "Running" else None

    assert cluster.until("Ready=False", not_ready)["reason"] == "Frozen"
    assert thaw(cluster, counter) == (200, {"thawed": True})
    status, body = thaw(cluster, counter)
    assert (status, body["reason"]) == (404, "NotFound")
    assert json.loads(cluster.http("GET", proxy(counter))[2])["count"] == 2


@pytest.mark.parametrize("query", ["leave=asleep", "timeoutMs=0", "timeoutMs=60001", "timeoutMs=soon"])
def test_a_wrong_checkpoint_parameter_is_400(cluster: SimCluster, query: str) -> None:
    cluster.cli("push", COUNTER)
    assert checkpoint(cluster, "nobody", query)[0] == 400


def test_a_checkpoint_of_no_pod_is_404(cluster: SimCluster) -> None:
    status, _, body = checkpoint(cluster, "nobody", "leave=running")
    assert status == 404
    assert json.loads(body)["reason"] == "NotFound"


def test_a_call_that_outlasts_the_freeze_timeout_is_504_and_goes_on(
    cluster: SimCluster, tmp_path: Path
) -> None:
    cluster.deploy_wat(tmp_path, "slow", SLOW, "--node", "node-a")
    answers: list[int] = []
    call = threading.Thread(target=lambda: answers.append(cluster.http("GET", proxy("slow"))[0]))
    call.start()
    cluster.until("the call runs", lambda: checkpoint(cluster, "slow", "timeoutMs=1")[0] == 504, 5)
    status, _, body = checkpoint(cluster, "slow", "timeoutMs=100")
    assert status == 504
    assert json.loads(body) == {
        **json.loads(body),
        "reason": "Timeout",
        "blockers": ["call k32_handle still running after 100 ms"],
    }
    call.join()
    assert answers == [200]
    assert thaw(cluster, "slow")[0] == 404
    cluster.kubectl("delete", "pod", "slow")


def test_a_restore_that_fails_on_the_target_brings_the_pod_back_with_its_state(
    cluster: SimCluster, tmp_path: Path
) -> None:
    file = tmp_path / "moody.wasm"
    import wasmtime

    file.write_bytes(wasmtime.wat2wasm(MOODY))
    cluster.cli("push", str(file))
    node = {"name": "NODE", "valueFrom": {"fieldRef": {"fieldPath": "spec.nodeName"}}}
    container = {"name": "moody", "image": "wasm://moody", "env": [node, {"name": "TRAP", "value": "b"}]}
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "moody"},
        "spec": {"nodeName": "node-a", "containers": [container]},
    }
    cluster.kubectl("apply", "-f", "-", stdin=json.dumps(pod))
    cluster.kubectl("wait", "--for=condition=Ready", "pod/moody", "--timeout=30s")
    assert cluster.http("GET", proxy("moody"))[2] == b"1"
    output = cluster.cli("move", "moody", "--to", "node-b", code=1)
    assert "k32_restored failed" in output and "the pod went back to node-a" in output
    cluster.kubectl("wait", "--for=condition=Ready", "pod/moody", "--timeout=30s")
    assert cluster.get("pod", "moody")["spec"]["nodeName"] == "node-a"
    assert cluster.http("GET", proxy("moody"))[2] == b"2"

    def reasons() -> Any:
        found = cluster.get("events", "--field-selector", "involvedObject.name=moody")["items"]
        names = {e["reason"] for e in found}
        return {"MoveFailed", "Restored", "Moving"} <= names

    cluster.until("the events of the rollback", reasons)
    cluster.kubectl("delete", "pod", "moody")


def test_held_events_reach_the_pod_after_its_move(cluster: SimCluster) -> None:
    cluster.cli(
        "deploy", "examples/events/events.wasm", "--name", "ears", "--topics", "news", "--node", "node-a"
    )
    cluster.kubectl("wait", "--for=condition=Ready", "pod/ears", "--timeout=30s")
    topic = "/apis/kube32.io/v1/namespaces/default/topics/news"
    octets = {"Content-Type": "application/octet-stream"}
    assert json.loads(cluster.http("POST", topic, b"before", octets)[2])["delivered"] == 1
    cluster.until("the first event", lambda: b"before" in cluster.http("GET", proxy("ears"))[2])
    assert checkpoint(cluster, "ears", "leave=frozen")[0] == 200
    cluster.http("POST", topic, b"meanwhile", octets)
    cluster.cli("move", "ears", "--to", "node-b")
    cluster.until("the held event", lambda: b"meanwhile" in cluster.http("GET", proxy("ears"))[2])
    assert b"before" in cluster.http("GET", proxy("ears"))[2]
    cluster.kubectl("delete", "pod", "ears")
