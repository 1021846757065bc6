"""Port-forward with the real clients, by WebSocket, SPDY and channels; exec and attach say why not."""

import http.client
import os
import re
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from kubernetes import client, config
from kubernetes.stream import portforward, stream

from tests.conftest import BIN, ROOT, SimCluster

SPACE = "streams"
WORDS = "pods are WebAssembly modules without processes or a shell: nothing can be executed in them"
BY = {"websocket": "true", "spdy": "false"}


@pytest.fixture(scope="module")
def pod(cluster: SimCluster) -> Iterator[str]:
    """A pod that answers with what it was asked."""
    cluster.kubectl("create", "namespace", SPACE)
    cluster.cli("push", str(ROOT / "examples/echo/echo.wasm"))
    cluster.kubectl("apply", "-n", SPACE, "-f", str(ROOT / "examples/echo/pod.yaml"))
    cluster.kubectl("wait", "-n", SPACE, "--for=condition=Ready", "pod/echo", "--timeout=30s")
    yield "echo"
    cluster.kubectl("delete", "namespace", SPACE)


@contextmanager
def forwarded(cluster: SimCluster, folder: Path, what: str, by: str) -> Iterator[int]:
    """kubectl port-forward; the local port."""
    log = folder / "forward.log"
    with log.open("wb") as out:
        process = subprocess.Popen(
            [str(BIN / "kubectl"), "port-forward", "-n", SPACE, what, ":80"],
            env={**cluster.environment, "KUBECTL_PORT_FORWARD_WEBSOCKETS": BY[by]},
            stdout=out,
            stderr=out,
        )
    try:
        deadline = time.monotonic() + 30
        while not (found := re.search(r"127\.0\.0\.1:(\d+)", log.read_text())):
            assert process.poll() is None and time.monotonic() < deadline, log.read_text()
            time.sleep(0.05)
        yield int(found[1])
        assert process.poll() is None, log.read_text()
    finally:
        process.terminate()
        process.wait(30)


def ask(port: int, path: str, body: bytes | None = None) -> tuple[int, bytes]:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
    try:
        connection.request("POST" if body else "GET", path, body)
        answer = connection.getresponse()
        return answer.status, answer.read()
    finally:
        connection.close()


@pytest.mark.parametrize("by", BY)
def test_port_forward_reaches_the_pod(cluster: SimCluster, pod: str, tmp_path: Path, by: str) -> None:
    large = os.urandom(200_000)
    with forwarded(cluster, tmp_path, f"pod/{pod}", by) as port:
        for number in range(20):
            status, text = ask(port, f"/n{number}")
            assert status == 200 and f"path: /n{number}\n".encode() in text
        status, text = ask(port, "/large", large)
        assert status == 200 and text.endswith(large)
        keep = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
        for number in range(3):
            keep.request("GET", f"/kept{number}")
            assert f"/kept{number}\n".encode() in keep.getresponse().read()
        keep.close()


def test_a_forwarded_port_follows_the_pod_to_another_node(
    cluster: SimCluster, pod: str, tmp_path: Path
) -> None:
    with forwarded(cluster, tmp_path, f"pod/{pod}", "websocket") as port:
        assert ask(port, "/before")[0] == 200
        node = cluster.get("pod", pod, "-n", SPACE)["spec"]["nodeName"]
        target = "node-a" if node != "node-a" else "node-b"
        cluster.cli("-n", SPACE, "move", pod, "--to", target)
        cluster.until("the moved pod answers", lambda: ask(port, "/after")[0] == 200)


def test_the_python_client_forwards_by_channels(cluster: SimCluster, pod: str) -> None:
    with config.new_client_from_config(str(cluster.kubeconfig)) as api_client:
        core = client.CoreV1Api(api_client)
        forward = portforward(core.connect_get_namespaced_pod_portforward, pod, SPACE, ports="80")
        socket = forward.socket(80)
        socket.settimeout(30)
        socket.sendall(b"GET /channels HTTP/1.1\r\nHost: pod\r\nConnection: close\r\n\r\n")
        answer = b""
        while chunk := socket.recv(4096):
            answer += chunk
        assert answer.startswith(b"HTTP/1.1 200 OK\r\n") and b"path: /channels\n" in answer
        assert forward.error(80) is None


@pytest.mark.parametrize("by", BY)
@pytest.mark.parametrize(
    "command", [("exec", "echo", "--", "ls"), ("exec", "-i", "echo", "--", "sh"), ("attach", "echo")]
)
def test_exec_and_attach_say_why_not(
    cluster: SimCluster, pod: str, by: str, command: tuple[str, ...]
) -> None:
    done = subprocess.run(
        [str(BIN / "kubectl"), "-n", SPACE, *command],
        env={**cluster.environment, "KUBECTL_REMOTE_COMMAND_WEBSOCKETS": BY[by]},
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 1
    assert f"error: {WORDS}\n" in done.stderr
    assert "unable to upgrade" not in done.stderr


def test_the_python_client_gets_the_refusal_on_the_error_channel(cluster: SimCluster, pod: str) -> None:
    with config.new_client_from_config(str(cluster.kubeconfig)) as api_client:
        core = client.CoreV1Api(api_client)
        session = stream(
            core.connect_get_namespaced_pod_exec,
            pod,
            SPACE,
            command=["ls"],
            stdout=True,
            _preload_content=False,
        )
        session.run_forever(timeout=30)
        assert WORDS in session.read_channel(3)


def test_a_pod_that_is_not_there_and_a_request_without_upgrade(cluster: SimCluster, pod: str) -> None:
    said = cluster.kubectl("exec", "-n", SPACE, "nobody", "--", "ls", code=1)
    assert 'pods "nobody" not found' in said
    status, _, body = cluster.http("POST", f"/api/v1/namespaces/{SPACE}/pods/{pod}/portforward")
    assert status == 400 and b"missing upgrade headers" in body
