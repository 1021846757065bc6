"""Floods: 10,000 connections, headers without end, huge bodies, deep documents; the Lease is kept, others are
served, and the control plane's memory grows by less than 64 MB.
"""

import resource
import socket
import threading
import time
from collections.abc import Iterator

import pytest

from kube32.contract import LIMITS
from tests.conftest import SimCluster
from tests.e2e.raw import Api
from tests.e2e.test_hostile import Bystander, resident_bytes

CONNECTIONS, WAVE = 10_000, 500
GROWTH_BYTES = 64_000_000
MAPS = "/api/v1/namespaces/default/configmaps"
JSON = {"Content-Type": "application/json"}
YAML = {"Content-Type": "application/yaml"}
BOMB = b"a: &a [x,x,x,x,x,x,x,x,x]\n" + b"".join(
    b"%c: &%c [%s]\n" % (98 + n, 98 + n, b",".join([b"*%c" % (97 + n)] * 9)) for n in range(12)
)


@pytest.fixture(scope="module")
def flooded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[SimCluster, Api]]:
    cluster = SimCluster(tmp_path_factory.mktemp("floods"))
    try:
        process = cluster.control_plane()
        cluster.cli("deploy", "examples/echo/echo.wasm", "--name", "ordinary", "--memory", "64Ki")
        cluster.kubectl("wait", "--for=condition=Ready", "pod/ordinary", "--timeout=30s")
        cluster.kubectl("create", "configmap", "ordinary", "--from-literal=a=b")
        api = Api.of(cluster.kubeconfig)
        bystander = Bystander(api)
        time.sleep(1)
        before, renewed = resident_bytes(process.popen.pid), _renewed(cluster)
        yield cluster, api
        bystander.served()
        bystander.stop()
        assert _renewed(cluster) > renewed
        if before:
            grown = resident_bytes(process.popen.pid) - before
            assert grown < GROWTH_BYTES, f"{grown / 1e6:.0f} MB more"
    finally:
        cluster.close()


def _renewed(cluster: SimCluster) -> str:
    return str(cluster.get("lease", "control", "-n", "kube-node-lease")["spec"]["renewTime"])


def test_ten_thousand_connections_come_and_go(flooded: tuple[SimCluster, Api]) -> None:
    _, api = flooded
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, 4096) if hard > 0 else 4096, hard))
    try:
        opened = 0
        while opened < CONNECTIONS:
            wave = []
            for _ in range(WAVE):
                sock = socket.socket()
                sock.settimeout(5)
                try:
                    sock.connect((api.host, api.port))
                except OSError:
                    pass
                wave.append(sock)
            opened += len(wave)
            for sock in wave:
                sock.close()
        assert api.ask("GET", f"{MAPS}/ordinary").status == 200
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_headers_without_end_cost_their_sender_the_connection(flooded: tuple[SimCluster, Api]) -> None:
    _, api = flooded

    def flood() -> None:
        with api.socket() as tls:
            tls.settimeout(20)
            try:
                tls.sendall(b"GET /version HTTP/1.1\r\n")
                for _ in range(4 * LIMITS.api_header_bytes // 64):
                    tls.sendall(b"X-" + b"a" * 30 + b": " + b"b" * 28 + b"\r\n")
                while tls.recv(4096):
                    pass
            except OSError:
                pass
            ended.append(True)

    ended: list[bool] = []
    threads = [threading.Thread(target=flood) for _ in range(20)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(40)
    assert len(ended) == len(threads), "a connection was kept"


def test_bodies_of_100_mb_are_refused(flooded: tuple[SimCluster, Api]) -> None:
    _, api = flooded
    head = f"POST {MAPS} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {api.token}\r\n"
    for framing in ("Content-Length: 104857600", "Transfer-Encoding: chunked"):
        with api.socket() as tls:
            tls.settimeout(30)
            tls.sendall(f"{head}Content-Type: application/json\r\n{framing}\r\n\r\n".encode())
            piece = b"x" * 65536
            chunk = b"%x\r\n%s\r\n" % (len(piece), piece) if "chunked" in framing else piece
            try:
                for _ in range(1600):
                    tls.sendall(chunk)
            except OSError:
                pass  # the server has closed: what it said may be lost with it
            try:
                answer = tls.recv(4096)
            except OSError:
                answer = b""
            assert answer == b"" or b" 413 " in answer.split(b"\r\n")[0]


@pytest.mark.parametrize(
    ("body", "headers"),
    [
        (b"[" * 100_000, JSON),
        (b'{"a":' * 100_000 + b"1" + b"}" * 100_000, JSON),
        (b"- " * 50_000 + b"x", YAML),
        (BOMB, YAML),
    ],
    ids=["arrays", "objects", "yaml", "aliases"],
)
def test_deep_documents_and_alias_bombs_are_bad_requests(
    flooded: tuple[SimCluster, Api], body: bytes, headers: dict[str, str]
) -> None:
    _, api = flooded
    answer = api.ask("POST", MAPS, body, headers)
    assert answer.status in (400, 413, 415, 422)
    apply = {"Content-Type": "application/apply-patch+yaml"}
    answer = api.ask("PATCH", f"{MAPS}/bomb?fieldManager=x", body, apply)
    assert answer.status in (400, 413, 415, 422)
