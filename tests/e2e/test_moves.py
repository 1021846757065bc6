"""Moves and saves as a user types them: kube32-cli and kubectl against real processes."""

import http.client
import json
import threading
from typing import Any

import pytest

from tests.conftest import SimCluster

COUNTER = "examples/counter/counter.wasm"


def deploy(cluster: SimCluster, name: str, *arguments: str, wasm: str = COUNTER) -> None:
    """A pod that is Ready."""
    cluster.cli("deploy", wasm, "--name", name, "--memory", "64Ki", *arguments)
    cluster.kubectl("wait", "--for=condition=Ready", f"pod/{name}", "--timeout=30s")


def ask(cluster: SimCluster, name: str, path: str = "/state") -> dict[str, Any]:
    """One request through the API server's pod proxy."""
    answer: dict[str, Any] = json.loads(
        cluster.kubectl("get", "--raw", f"/api/v1/namespaces/default/pods/{name}/proxy{path}")
    )
    return answer


def node_of(cluster: SimCluster, name: str) -> str:
    """The node that the pod is bound to."""
    return str(cluster.get("pod", name)["spec"]["nodeName"])


def test_a_pod_keeps_its_state_over_many_moves(cluster: SimCluster) -> None:
    deploy(cluster, "nomad", "--node", "node-a", "--tick", "100ms")
    before = ask(cluster, "nomad", "/")
    uids = {cluster.get("pod", "nomad")["metadata"]["uid"]}
    for hop, target in enumerate(["node-b", "control", "node-a", "node-b"], 1):
        output = cluster.cli("move", "nomad", "--to", target)
        assert "Completed" in output and "ms from the freeze" in output
        pod = cluster.get("pod", "nomad")
        assert pod["spec"]["nodeName"] == target
        assert "kube32.io/restore-from" not in pod["metadata"]["annotations"]
        uids.add(pod["metadata"]["uid"])
        after = ask(cluster, "nomad", "/")
        assert after["count"] == before["count"] + 1
        assert after["global"] == before["global"] + 1
        assert after["time_ms"] >= before["time_ms"]
        assert after["ticks"] >= before["ticks"]
        assert after["channel"] == before["channel"]
        assert after["restored"] == hop
        before = after
    assert len(uids) == 5
    cluster.kubectl("delete", "pod", "nomad")


def test_move_by_selector_and_by_the_scheduler(cluster: SimCluster) -> None:
    deploy(cluster, "chosen", "--node", "node-a")
    cluster.cli("move", "chosen", "--selector", "zone=b")
    assert node_of(cluster, "chosen") == "node-b"
    cluster.cli("move", "chosen")
    assert node_of(cluster, "chosen") in ("node-a", "control")
    output = cluster.cli("move", "chosen", "--selector", "zone=nowhere", code=1)
    assert "0/3 nodes are available" in output
    cluster.kubectl("delete", "pod", "chosen")


@pytest.mark.parametrize(
    ("target", "cause"),
    [("node-a", "already runs on node node-a"), ("nowhere", "node nowhere not found")],
)
def test_a_move_to_a_wrong_target_is_refused_and_the_pod_runs_on(
    cluster: SimCluster, target: str, cause: str
) -> None:
    name = f"stays-{target}"
    deploy(cluster, name, "--node", "node-a")
    count = ask(cluster, name, "/")["count"]
    assert cause in cluster.cli("move", name, "--to", target, code=1)
    assert ask(cluster, name, "/")["count"] == count + 1
    cluster.kubectl("delete", "pod", name)


def test_a_move_to_a_cordoned_node_is_refused(cluster: SimCluster) -> None:
    deploy(cluster, "uncalled", "--node", "node-a")
    cluster.kubectl("cordon", "node-b")
    try:
        assert "cordoned" in cluster.cli("move", "uncalled", "--to", "node-b", code=1)
    finally:
        cluster.kubectl("uncordon", "node-b")
    cluster.kubectl("delete", "pod", "uncalled")


def pod_with(name: str, **spec: Any) -> dict[str, Any]:
    """A counter pod on node-a with more in its spec; container fields are under "container"."""
    container = {"name": "counter", "image": "wasm://counter", **spec.pop("container", {})}
    metadata = {"name": name, "annotations": spec.pop("annotations", {})}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": metadata,
        "spec": {"nodeName": "node-a", "containers": [container], **spec},
    }


BLOCKED: dict[str, tuple[dict[str, Any], list[str]]] = {
    "hardware": (
        {"container": {"resources": {"limits": {"hardware.kube32.io/led": "1"}}}},
        ["grant hardware.kube32.io/led"],
    ),
    "gpio": ({"container": {"resources": {"limits": {"esp32.io/gpio": "1"}}}}, ["grant esp32.io/gpio"]),
    "display": (
        {"container": {"securityContext": {"capabilities": {"add": ["DISPLAY"]}}}},
        ["grant capability DISPLAY"],
    ),
    "i2c": (
        {"container": {"resources": {"limits": {"kube32.io/i2c-device": "1"}}}},
        ["grant kube32.io/i2c-device"],
    ),
    "claim": (
        {
            "volumes": [{"name": "data", "persistentVolumeClaim": {"claimName": "disk"}}],
            "container": {"volumeMounts": [{"name": "data", "mountPath": "/data"}]},
        },
        ["volume claim disk on node storage"],
    ),
    "never": (
        {"annotations": {"kube32.io/migration": "Never"}},
        ["annotation kube32.io/migration: Never"],
    ),
    "several": (
        {
            "annotations": {"kube32.io/migration": "Never"},
            "container": {
                "resources": {"limits": {"hardware.kube32.io/led": "1"}},
                "securityContext": {"capabilities": {"add": ["SD"]}},
            },
        },
        [
            "grant hardware.kube32.io/led",
            "grant capability SD",
            "annotation kube32.io/migration: Never",
        ],
    ),
}


CLAIM = {
    "apiVersion": "v1",
    "kind": "PersistentVolumeClaim",
    "metadata": {"name": "disk"},
    "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Mi"}}},
}


@pytest.mark.parametrize("case", sorted(BLOCKED))
def test_every_blocker_of_a_spec_is_named_and_the_pod_runs_on(cluster: SimCluster, case: str) -> None:
    spec, blockers = BLOCKED[case]
    cluster.cli("push", COUNTER)
    name = f"blocked-{case}"
    if case == "claim":
        cluster.kubectl("apply", "-f", "-", stdin=json.dumps(CLAIM))
    cluster.kubectl("apply", "-f", "-", stdin=json.dumps(pod_with(name, **json.loads(json.dumps(spec)))))
    cluster.kubectl("wait", "--for=condition=Ready", f"pod/{name}", "--timeout=30s")
    output = cluster.cli("move", name, "--to", "node-b", code=1)
    checkpoints = [c for c in cluster.get("ckpt")["items"] if c["spec"]["podName"] == name]
    assert checkpoints[0]["status"]["phase"] == "Failed"
    assert checkpoints[0]["status"]["blockers"] == blockers
    events = cluster.get("events", "--field-selector", f"involvedObject.name={name},reason=MoveFailed")[
        "items"
    ]
    for blocker in blockers:
        assert blocker in output
        assert blocker in events[0]["message"]
    pod = cluster.get("pod", name)
    assert pod["spec"]["nodeName"] == "node-a" and pod["status"]["phase"] == "Running"
    assert ask(cluster, name, "/")["count"] == 1
    cluster.kubectl("delete", "pod", name)
    cluster.kubectl("delete", "pvc", "--all", "--timeout=30s")


def test_an_entry_point_pod_refuses_to_move(cluster: SimCluster) -> None:
    deploy(cluster, "daemon", "--node", "node-a", wasm="examples/entry/entry.wasm")
    output = cluster.cli("move", "daemon", "--to", "node-b", code=1)
    assert "entry point _start runs on its own thread" in output
    assert node_of(cluster, "daemon") == "node-a"
    cluster.kubectl("delete", "pod", "daemon")


def test_save_leaves_the_pod_running_and_inspect_reads_the_file(cluster: SimCluster, tmp_path: Any) -> None:
    deploy(cluster, "saved", "--node", "node-b")
    for _ in range(3):
        count = ask(cluster, "saved", "/")["count"]
    file = tmp_path / "saved.k32s"
    output = cluster.cli("checkpoint", "saved", "-o", str(file))
    assert "saved" in output and str(file) in output
    assert ask(cluster, "saved", "/")["count"] == count + 1
    assert file.stat().st_mode & 0o777 == 0o600
    status = next(c for c in cluster.get("ckpt")["items"] if c["spec"]["podName"] == "saved")["status"]
    assert status["phase"] == "Saved" and status["nodeName"] == "node-b"
    assert status["sizeBytes"] == file.stat().st_size
    shown = cluster.cli("inspect", str(file))
    assert status["imageSha256"] in shown and "MEMORY" in shown and "GLOBALS" in shown and "CHANNELS" in shown
    facts = json.loads(cluster.cli("inspect", str(file), "-o", "json"))
    assert facts["problem"] is None
    data = bytearray(file.read_bytes())
    data[100] ^= 1
    file.write_bytes(data)
    shown = cluster.cli("inspect", str(file), code=1)
    assert "does not match its contents" in shown
    cluster.kubectl("delete", "pod", "saved")


def test_checkpoints_print_the_columns_of_the_specification(cluster: SimCluster) -> None:
    deploy(cluster, "shown", "--node", "node-a")
    cluster.cli("move", "shown", "--to", "node-b")
    lines = cluster.kubectl("get", "checkpoints").splitlines()
    assert lines[0].split() == ["NAME", "POD", "ACTION", "PHASE", "NODE", "SIZE", "AGE"]
    wide = cluster.kubectl("get", "ckpt", "-o", "wide").splitlines()
    assert wide[0].split() == [*lines[0].split(), "TARGET", "NEW", "POD", "MESSAGE"]
    row = next(line for line in wide if " shown " in line)
    assert "Move" in row and "Completed" in row and "node-a" in row and "node-b" in row
    reasons = [
        e["reason"] for e in cluster.get("events", "--field-selector", "involvedObject.name=shown")["items"]
    ]
    assert "Moving" in reasons and "Moved" in reasons
    cluster.kubectl("delete", "pod", "shown")


def test_a_move_of_a_pod_that_is_not_there_fails_with_its_name(cluster: SimCluster) -> None:
    assert "pod ghost not found" in cluster.cli("move", "ghost", code=1)


def test_requests_during_moves_are_answered_once_or_told_to_try_again(cluster: SimCluster) -> None:
    deploy(cluster, "busy", "--node", "node-a")
    host, port, token, context = cluster.access
    stop = threading.Event()
    counts: list[int] = []
    others: set[tuple[int, str | None]] = set()

    def ask_on() -> None:
        connection = http.client.HTTPSConnection(host, port, context=context, timeout=30)
        while not stop.is_set():
            headers = {"Authorization": f"Bearer {token}"}
            connection.request("GET", "/api/v1/namespaces/default/pods/busy/proxy/", headers=headers)
            response = connection.getresponse()
            body = response.read()
            if response.status == 200:
                counts.append(json.loads(body)["count"])
            else:
                others.add((response.status, response.headers["Retry-After"]))
        connection.close()

    asking = threading.Thread(target=ask_on)
    asking.start()
    try:
        for target in ["node-b", "node-a"] * 6:
            cluster.cli("move", "busy", "--to", target)
    finally:
        stop.set()
        asking.join()
    assert counts == list(range(1, len(counts) + 1))
    assert others <= {(503, "1")}
    assert ask(cluster, "busy")["restored"] == 12
    cluster.kubectl("delete", "pod", "busy")
