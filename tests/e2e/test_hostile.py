"""Hostile modules, clients and pods: each gets its answer, the others are served, memory stays where it was."""

import base64
import http.client
import os
import random
import re
import socket
import ssl
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import wasmtime

from kube32.contract import LIMITS
from tests.conftest import ROOT, SimCluster
from tests.e2e.raw import Answer, Api, assert_status

MIB = 1 << 20
GROWTH_BYTES = 32_000_000
COUNTER = ROOT / "examples" / "counter" / "counter.wasm"
MODULES = "/apis/kube32.io/v1/modules"
PODS = "/api/v1/namespaces/default/pods"
CONFIG_MAPS = "/api/v1/namespaces/default/configmaps"
OCTETS = {"Content-Type": "application/octet-stream"}
STALL_S = LIMITS.api_read_stall_ms / 1000
LOG_LOOP = """(module
  (import "env" "k32_log" (func $log (param i32 i32)))
  (memory (export "memory") 1)
  (data (i32.const 0) "a line of a pod that writes its log without end")
  (func (export "k32_tick")
    (loop $for_ever (call $log (i32.const 0) (i32.const 47)) (br $for_ever))))"""


@dataclass
class Bystander:
    """Somebody with ordinary wishes: reads a ConfigMap and asks a pod, again and again."""

    api: Api
    faults: list[str] = field(default_factory=list)
    rounds: int = 0
    longest_s: float = 0

    def __post_init__(self) -> None:
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        while not self._end.wait(0.05):
            for path in (f"{CONFIG_MAPS}/ordinary", f"{PODS}/ordinary/proxy/"):
                begun = time.monotonic()
                try:
                    answer = self.api.ask("GET", path)
                    if answer.status != 200:
                        self.faults.append(f"{path}: {answer.status} {answer.body[:200]!r}")
                except OSError as error:
                    self.faults.append(f"{path}: {error!r}")
                self.longest_s = max(self.longest_s, time.monotonic() - begun)
            self.rounds += 1

    def served(self) -> None:
        """Fails unless it was served again and again, without a fault, since it was last asked."""
        rounds = self.rounds
        deadline = time.monotonic() + 20
        while self.rounds < rounds + 2 and time.monotonic() < deadline:
            time.sleep(0.02)
        assert self.rounds >= rounds + 2 and not self.faults, self.faults[:3]

    def stop(self) -> None:
        """Ends it."""
        self._end.set()
        self._thread.join(30)


@dataclass
class Victim:
    """The cluster under attack: what its control plane held at the start, and the connections left open."""

    cluster: SimCluster
    api: Api
    bystander: Bystander
    resident: int
    half_open: list[socket.socket]
    opened: float

    @property
    def pid(self) -> int:
        """The control plane."""
        return self.cluster.processes["control"].popen.pid


def resident_bytes(pid: int) -> int:
    """Resident memory of a process, 0 where there is no /proc."""
    try:
        pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    except OSError:
        return 0
    return pages * os.sysconf("SC_PAGE_SIZE")


def half_open_connections(api: Api, each: int) -> list[socket.socket]:
    """Clients that begin and do not go on: at once after connecting, after TLS, in the head, in the body."""
    auth = f"Authorization: Bearer {api.token}\r\n"
    head = f"POST {CONFIG_MAPS} HTTP/1.1\r\nHost: x\r\n{auth}Content-Type: application/json\r\n"
    halves = [b"", b"GET /api/v1/po", head.encode(), f"{head}Content-Length: 1000\r\n\r\n{{".encode()]
    found: list[socket.socket] = [socket.create_connection((api.host, api.port)) for _ in range(each)]
    for half in halves:
        for _ in range(each):
            tls = api.socket()
            if half:
                tls.sendall(half)
            found.append(tls)
    return found


@pytest.fixture(scope="module")
def victim(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Victim]:
    """Control plane and worker, an ordinary pod and its ordinary client, and 200 half-open connections."""
    cluster = SimCluster(tmp_path_factory.mktemp("hostile"))
    with ExitStack() as stack:
        stack.callback(cluster.close)
        cluster.control_plane()
        cluster.worker("node")
        api = Api.of(cluster.kubeconfig)
        cluster.kubectl("create", "configmap", "ordinary", "--from-literal=key=value")
        cluster.cli("deploy", str(COUNTER), "--name", "ordinary", "--node", "node", "--memory", "64Ki")
        cluster.cli("deploy", str(COUNTER), "--name", "beside", "--node", "control", "--memory", "64Ki")
        cluster.kubectl("wait", "--for=condition=Ready", "pod", "--all", "--timeout=30s")
        cluster.kubectl("get", "pods", "-A", "-o", "wide")
        cluster.kubectl("explain", "pod")
        bystander = Bystander(api)
        stack.callback(bystander.stop)
        bystander.served()
        resident = resident_bytes(cluster.processes["control"].popen.pid)
        half_open = half_open_connections(api, 40)
        for connection in half_open:
            stack.callback(connection.close)
        found = Victim(cluster, api, bystander, resident, half_open, time.monotonic())
        found.bystander.served()
        yield found


@pytest.fixture(autouse=True)
def others_are_served(victim: Victim) -> Iterator[None]:
    """During each attack, and after it, the bystander is served and every node is Ready."""
    yield
    victim.bystander.served()
    assert victim.cluster.kubectl("get", "nodes", "--no-headers").count(" Ready ") == 2
    assert victim.cluster.processes["control"].popen.poll() is None
    assert victim.cluster.processes["node"].popen.poll() is None


# --- modules that lie ---


def leb(value: int) -> bytes:
    """Unsigned LEB128."""
    found = bytearray()
    while True:
        value, low = value >> 7, value & 127
        found.append(low | (128 if value else 0))
        if not value:
            return bytes(found)


def sections(wasm: bytes) -> list[tuple[int, int, int, int]]:
    """(id, where the section begins, where its content begins, where it ends)."""
    found, at = [], 8
    while at < len(wasm):
        begin, kind, size, shift = at, wasm[at], 0, 0
        at += 1
        while True:
            byte = wasm[at]
            size, shift, at = size | (byte & 127) << shift, shift + 7, at + 1
            if not byte & 128:
                break
        found.append((kind, begin, at, at + size))
        at += size
    return found


def lies(wasm: bytes) -> Iterator[bytes]:
    """Modules that lie in every section: kind, length, counts, content, order, number; cut and flipped ones."""
    rng = random.Random(32)
    for kind, begin, content, end in sections(wasm):
        body = wasm[content:end]
        before, after = wasm[:begin], wasm[end:]

        def framed(kind: int, size: int, body: bytes, before: bytes = before, after: bytes = after) -> bytes:
            return before + bytes([kind]) + leb(size) + body + after

        for size in (0, 1, len(body) - 1, len(body) + 1, 1 << 20, 0x7FFFFFFF, 0xFFFFFFFF, 1 << 34):
            yield framed(kind, max(size, 0), body)
        for other in (*range(14), 100, 255):
            if other != kind:
                yield framed(other, len(body), body)
        for count in (0, 1000, 0x7FFFFFFF, 0xFFFFFFFF):
            lying = leb(count) + body[1:]
            yield framed(kind, len(lying), lying)
        yield before + wasm[begin:end] * 2 + after
        yield before + after
        yield wasm[: content + len(body) // 2]
        yield wasm[:content]
        for _ in range(12):
            if body:
                flipped = bytearray(body)
                flipped[rng.randrange(len(body))] ^= 1 << rng.randrange(8)
                yield framed(kind, len(body), bytes(flipped))
        yield framed(kind, len(body), bytes(rng.randrange(256) for _ in body))
    for header in (b"", b"\0asm", b"\0asm\2\0\0\0", b"\0asm\x0d\0\1\0", b"\x7fELF" + wasm[4:], b"\0" * 1000):
        yield header + wasm[8:]
        yield header


GREEDY = {
    "memory": '(memory (export "memory") 65536)',
    "table": '(memory (export "memory") 1) (table 10000000 funcref)',
    "tables": '(memory (export "memory") 1) ' + "(table 1 funcref)" * 40,
    "data": '(memory (export "memory") 1) (data (i32.const 0x7fffffff) "x")',
    "elements": '(memory (export "memory") 1) (table 1 funcref) (elem (i32.const 1000) $tick)',
    "recursion": '(memory (export "memory") 1) (func $deep (call $deep)) (start $deep)',
    "growth": '(memory (export "memory") 1) (func (export "k32_init") (drop (memory.grow (i32.const 65535))))',
    "loop": '(memory (export "memory") 1) (func (export "k32_init") (loop $l (br $l)))',
}
"""Modules that say what they are and want too much."""


def greedy(fields: str) -> bytes:
    """The module with these fields and a k32_tick."""
    return bytes(wasmtime.wat2wasm(f'(module {fields} (func $tick (export "k32_tick")))'))


def test_a_module_that_lies_is_refused_when_pushed(victim: Victim) -> None:
    assert victim.api.ask("POST", MODULES, {"metadata": {"name": "liar"}}).status == 201
    refused = 0
    for wasm in lies(COUNTER.read_bytes()):
        answer = victim.api.ask("PUT", f"{MODULES}/liar/data", wasm, OCTETS)
        if answer.status != 200:
            status = assert_status(answer, 422, "Invalid")
            assert "module refused: " in status["message"] and len(status["message"]) < 1000
            refused += 1
    assert refused > 300
    assert victim.api.ask("DELETE", f"{MODULES}/liar").status == 200


def test_pods_with_lying_modules_harm_nobody(victim: Victim) -> None:
    modules = {name: greedy(fields) for name, fields in GREEDY.items()}
    sample = random.Random(1).sample(list(lies(COUNTER.read_bytes())), 150)
    modules |= {f"liar-{number}": module for number, module in enumerate(sample)}
    taken = []
    for number, (name, module) in enumerate(modules.items()):
        node = "node" if number % 2 else "control"
        answer = victim.api.ask("POST", PODS, embedded_pod(name, module, node))
        if answer.status == 201:
            taken.append(name)
        else:
            assert_status(answer, 422, "Invalid")
    assert {"recursion", "growth", "loop"} <= set(taken)

    def state(name: str) -> str:
        """ "waiting Reason" and the like, "" while the pod is being made."""
        for container in pod_status(victim, name).get("containerStatuses", []):
            for kind, detail in container["state"].items():
                found = f"{kind} {detail.get('reason', '')}".strip()
                return "" if "ContainerCreating" in found else found
        return ""

    # The k32_init of "loop" never returns: it is being made until its minute is over.
    for name in taken:
        if name != "loop":
            victim.cluster.until(f"a state of {name}", lambda name=name: state(name))
    assert state("growth") == "running"
    assert state("recursion") != "running"
    for name in taken:
        assert victim.api.ask("DELETE", f"{PODS}/{name}?gracePeriodSeconds=0").status in (200, 202)


def pod_status(victim: Victim, name: str) -> Any:
    """The status of a pod."""
    return victim.api.ask("GET", f"{PODS}/{name}").json.get("status", {})


def embedded_pod(name: str, module: bytes, node: str) -> dict[str, Any]:
    """A pod on `node` that brings its module along."""
    annotations = {"kube32.io/wasm": base64.b64encode(module).decode(), "kube32.io/tick-interval": "10ms"}
    container = {"name": "main", "image": "wasm://embedded", "resources": {"limits": {"memory": "1Mi"}}}
    return {
        "metadata": {"name": name, "annotations": annotations},
        "spec": {"nodeName": node, "containers": [container]},
    }


# --- requests that are too much ---


def chunked(api: Api, path: str, method: str, total: int) -> Answer:
    """A body of `total` bytes that does not say how long it is."""

    def pieces() -> Iterator[bytes]:
        for _ in range(total // 65536 + 1):
            yield b"x" * 65536

    connection = http.client.HTTPSConnection(api.host, api.port, context=api.context, timeout=20)
    try:
        with suppress(ConnectionError, ssl.SSLError):
            connection.request(method, path, pieces(), api.headers(OCTETS), encode_chunked=True)
        response = connection.getresponse()
        return Answer(response.status, dict(response.headers), response.read())
    finally:
        connection.close()


def announced(api: Api, method: str, path: str, length: int) -> bytes:
    """What is answered to a head that announces `length` bytes, of which none comes."""
    media = "application/octet-stream" if path.endswith("/data") else "application/json"
    head = f"{method} {path} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {api.token}\r\n"
    with api.socket() as tls:
        tls.sendall(f"{head}Content-Type: {media}\r\nContent-Length: {length}\r\n\r\n".encode())
        return tls.recv(65536)


def test_a_body_too_large_is_413_before_it_is_read(victim: Victim) -> None:
    api = victim.api
    assert api.ask("POST", MODULES, {"metadata": {"name": "large"}}).status == 201
    for method, path, limit in (
        ("POST", CONFIG_MAPS, LIMITS.api_body_bytes),
        ("PUT", f"{CONFIG_MAPS}/ordinary", LIMITS.api_body_bytes),
        ("PUT", f"{MODULES}/large/data", LIMITS.module_bytes),
        ("POST", f"{PODS}/ordinary/proxy/", LIMITS.pod_request_body_bytes),
    ):
        for length in (limit + 1, 1 << 40):
            first = announced(api, method, path, length)
            assert first.startswith(b"HTTP/1.1 413 "), (method, path, length, first[:200])
    answer = chunked(api, f"{MODULES}/large/data", "PUT", LIMITS.module_bytes + MIB)
    assert answer.status in (411, 413)
    answer = chunked(api, CONFIG_MAPS, "POST", LIMITS.api_body_bytes + MIB)
    assert answer.status in (413, 415)
    big = {"metadata": {"name": "big"}, "data": {"key": "x" * (LIMITS.store_value_bytes + 1)}}
    assert_status(api.ask("POST", CONFIG_MAPS, big), 413, "RequestEntityTooLarge")
    assert api.ask("DELETE", f"{MODULES}/large").status == 200


def test_a_snapshot_that_lies_or_is_too_large_is_refused(victim: Victim) -> None:
    path = "/apis/kube32.io/v1/namespaces/default/checkpoints"
    body = {"metadata": {"name": "lie"}, "spec": {"podName": "nobody"}}
    assert victim.api.ask("POST", path, body).status == 201
    data = f"{path}/lie/data"
    head = b"K32S\x01\0\0\0" + b"\0" * 32
    for snapshot in (
        b"",
        b"K32T" + b"\0" * 200,
        b"K32S\x02\0\0\0" + b"\0" * 200,
        head + b"\xff" * 8 + b"\0" * 16 + b"\xff" * 4,
        head + b"\0\0\1\0\1\0\0\0" + b"\0" * 16 + b"\xff\xff\xff\xff" + b"\1\0\xff\xff\xff\xff",
        head + b"\0" * 4096,
    ):
        answer = victim.api.ask("PUT", data, snapshot, OCTETS)
        assert_status(answer, 422, "Invalid")
    first = announced(victim.api, "PUT", data, LIMITS.snapshot_pool_bytes + 1)
    assert first.startswith(b"HTTP/1.1 413 ")
    assert victim.api.ask("GET", data).status == 404
    assert victim.api.ask("DELETE", f"{path}/lie").status == 200


def test_malformed_json_heads_and_targets_get_a_4xx(victim: Victim) -> None:
    api = victim.api
    for body in (b"[" * 200_000, b'{"a":' * 100_000, b"{", b"\xff\xfe", b"[]", b"null", b'"x"', b"1e999999"):
        answer = api.ask("POST", CONFIG_MAPS, body, {"Content-Type": "application/json"})
        assert answer.status in (400, 422), (body[:20], answer)
        assert answer.json["kind"] == "Status"
    nested: Any = "x"
    for _ in range(500):
        nested = {"a": nested}
    answer = api.ask(
        "PATCH", f"{CONFIG_MAPS}/ordinary", nested, {"Content-Type": "application/merge-patch+json"}
    )
    assert answer.status in (200, 400, 422)
    for request in (
        b"GET /" + b"x" * (LIMITS.api_url_bytes + 100) + b" HTTP/1.1\r\nHost: x\r\n\r\n",
        b"GET /healthz HTTP/1.1\r\nHost: x\r\nX: " + b"x" * (LIMITS.api_header_bytes + 100) + b"\r\n\r\n",
        b"GET /healthz HTTP/1.1\r\nHost: x\r\n" + b"X-Y: z\r\n" * 20_000 + b"\r\n",
        b"\x16\x03\x01 not http at all\r\n\r\n",
        b"GET /healthz HTTP/9.9\r\n\r\n",
        b"POST /api HTTP/1.1\r\nHost: x\r\nContent-Length: -5\r\n\r\n",
        b"POST /api HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\nZZ\r\n",
    ):
        with api.socket() as tls:
            with suppress(ConnectionError, ssl.SSLError):
                tls.sendall(request)
            first = b""
            with suppress(ConnectionError, ssl.SSLError):
                first = tls.recv(65536)
        assert first == b"" or re.match(rb"HTTP/1\.[01] 4\d\d ", first), (request[:60], first[:200])


def test_a_path_that_climbs_leads_nowhere(victim: Victim) -> None:
    folder = victim.cluster.folder / "control"
    before = {path for path in folder.rglob("*") if "compiled" not in path.parts}
    for path in (
        "/api/v1/namespaces/default/configmaps/../../../../etc/passwd",
        "/api/v1/namespaces/../secrets",
        "/api/v1/namespaces/default/configmaps/..%2f..%2fsecrets",
        "/api/v1/namespaces/default/configmaps/%2e%2e",
        "/api/v1/namespaces/default/configmaps/..%5c..%5cx",
        f"{MODULES}/%2e%2e/data",
        f"{MODULES}/..%2f..%2fpki%2fca.pem/data",
        f"{MODULES}/../../pki/ca.pem",
        "/api/v1/nodes/node/proxy/../../../secrets",
        "/api/v1/nodes/node/proxy/..%2fpods",
        "/api/v1/nodes/..%2f..%2fx/proxy/",
        f"{PODS}/ordinary/proxy/../../../../nodes",
        f"{PODS}/..%2fordinary/log",
        "/api/v1/namespaces/default/pods/x%00y",
        "/apis/kube32.io/v1/namespaces/default/topics/..",
        "//api/v1/../secrets",
        "/healthz/..%2f..%2fsecrets",
    ):
        for method in ("GET", "PUT", "DELETE"):
            body = b"{}" if method == "PUT" else None
            answer = victim.api.ask(
                method, path, body, {"Content-Type": "application/json"} if body else None
            )
            assert 400 <= answer.status < 500, (method, path, answer)
            assert b"BEGIN" not in answer.body and b"root:" not in answer.body
    for name in ("..", "../x", "a/../b", ".", "a\x00b"):
        assert_status(victim.api.ask("POST", MODULES, {"metadata": {"name": name}}), 422, "Invalid")
    pod = embedded_pod("climber", COUNTER.read_bytes(), "node")
    pod["spec"]["volumes"] = [
        {"name": "v", "configMap": {"name": "ordinary", "items": [{"key": "key", "path": "../x"}]}}
    ]
    pod["spec"]["containers"][0]["volumeMounts"] = [{"name": "v", "mountPath": "/data"}]
    assert_status(victim.api.ask("POST", PODS, pod), 422, "Invalid")
    assert {path for path in folder.rglob("*") if "compiled" not in path.parts} == before


# --- pods and watchers without manners ---


def test_a_pod_that_writes_its_log_in_a_loop_starves_nobody(victim: Victim) -> None:
    wasm = bytes(wasmtime.wat2wasm(LOG_LOOP))
    cluster = victim.cluster
    for node in ("control", "node"):
        assert victim.api.ask("POST", PODS, embedded_pod(f"loop-{node}", wasm, node)).status == 201
    for node, neighbour in (("control", "beside"), ("node", "ordinary")):
        path = f"{PODS}/loop-{node}/log?tailLines=100000"
        cluster.until(f"lines of the loop on {node}", lambda path=path: b"without end" in log(victim, path))
        begun = time.monotonic()
        assert victim.api.ask("GET", f"{PODS}/{neighbour}/proxy/").status == 200
        assert time.monotonic() - begun < 10
    cluster.until(
        "a line that tells of dropped ones",
        lambda: b"lines dropped: more than" in log(victim, f"{PODS}/loop-node/log?tailLines=100000"),
    )
    whole = log(victim, f"{PODS}/loop-node/log")
    assert len(whole) <= 2 * LIMITS.pod_log_ring_bytes
    renewed = lease_time(victim)
    cluster.until("a renewed Lease", lambda: lease_time(victim) != renewed, timeout_s=20)
    for node in ("control", "node"):
        cluster.kubectl("delete", "pod", f"loop-{node}", "--now", timeout_s=20)


def log(victim: Victim, path: str) -> bytes:
    """A pod's log, b"" while it has none."""
    answer = victim.api.ask("GET", path)
    return answer.body if answer.status == 200 else b""


def lease_time(victim: Victim) -> Any:
    """When the worker last renewed its Lease."""
    return victim.cluster.get("lease", "node", "-n", "kube-node-lease")["spec"]["renewTime"]


def test_watchers_that_do_not_read_hold_nobody_up(victim: Victim) -> None:
    api = victim.api
    request = f"GET {CONFIG_MAPS}?watch=1 HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {api.token}\r\n\r\n"
    with ExitStack() as stack:
        for _ in range(6):
            deaf = stack.enter_context(api.socket())
            deaf.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            deaf.sendall(request.encode())
        body = {"metadata": {"name": "loud"}, "data": {"key": "x" * 60_000}}
        assert api.ask("POST", CONFIG_MAPS, body).status == 201
        merge = {"Content-Type": "application/merge-patch+json"}
        begun = time.monotonic()
        for number in range(200):
            patch = {"data": {"key": str(number % 10) * 60_000}}
            assert api.ask("PATCH", f"{CONFIG_MAPS}/loud", patch, merge).status == 200
        assert time.monotonic() - begun < 60
        with api.watching(f"{CONFIG_MAPS}?watch=1&fieldSelector=metadata.name=loud") as events:
            assert next(events)["type"] == "ADDED"
            assert api.ask("DELETE", f"{CONFIG_MAPS}/loud").status == 200
            assert next(events)["type"] == "DELETED"


def test_at_the_cap_a_further_watch_is_429_and_a_freed_place_is_taken(victim: Victim) -> None:
    api = victim.api
    path = f"{CONFIG_MAPS}?watch=1"
    with ExitStack() as stack:
        refused = None
        for _ in range(LIMITS.watch_streams + 1):
            tls = stack.enter_context(api.socket())
            head = f"GET {path} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {api.token}\r\n\r\n"
            tls.sendall(head.encode())
            first = tls.recv(65536)
            if not first.startswith(b"HTTP/1.1 200 "):
                refused = first
                break
        assert refused is not None and refused.startswith(b"HTTP/1.1 429 "), refused
        assert b"Retry-After: 1\r\n" in refused
    victim.cluster.until("a free place", lambda: opens(api, path))


def opens(api: Api, path: str) -> bool:
    """Whether a watch is taken."""
    try:
        with api.watching(path) as events:
            return bool(next(events))
    except AssertionError:
        return False


# --- at the end of it all ---


def told_off(connection: socket.socket) -> bool:
    """Whether the server has ended the connection, or has answered what came of the request with a 4xx."""
    connection.settimeout(0.01)
    try:
        answer = connection.recv(65536)
    except TimeoutError:
        return False
    except OSError:
        return True
    assert answer == b"" or re.match(rb"HTTP/1\.[01] 4\d\d ", answer), answer
    return True


def test_half_open_connections_are_ended_or_answered(victim: Victim) -> None:
    left = victim.opened + STALL_S - time.monotonic()
    waiting = victim.half_open

    def nobody_waits() -> bool:
        nonlocal waiting
        waiting = [connection for connection in waiting if not told_off(connection)]
        return not waiting

    victim.cluster.until("the end of 200 half-open connections", nobody_waits, timeout_s=max(left, 0) + 10)


def test_the_control_planes_memory_grew_by_less_than_32_mb(victim: Victim) -> None:
    if not victim.resident:
        pytest.skip("no /proc/<pid>/statm here to read resident memory from")
    grown = resident_bytes(victim.pid) - victim.resident
    print(f"grown by {grown / MIB:.1f} MiB; longest wait of the bystander {victim.bystander.longest_s:.2f} s")
    assert grown < GROWTH_BYTES
