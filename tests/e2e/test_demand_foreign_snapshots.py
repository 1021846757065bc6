"""Foreign snapshots with a true trailer over lies: refused in words, and nothing is allocated by a claim
(user demand, A8).
"""

import hashlib
import json
import socket
import struct
from collections.abc import Callable
from typing import Any

import pytest
import wasmtime

from kube32.contract import LIMITS, text
from tests.conftest import SimCluster
from tests.e2e.world import HAS_PROC, RESTORE_FROM, World, forget_peak, peak_memory

pytestmark = pytest.mark.skipif(not HAS_PROC, reason="memory of other processes is read from /proc")

HUGE = 0xFFFFFFFF
# What a server may take for reading one: far below what any of the lies claims, or brings along.
ALLOWED_BYTES = 4 << 20
DATA = "/apis/kube32.io/v1/namespaces/default/checkpoints/a8/data"
OCTETS = {"Content-Type": "application/octet-stream"}
POD = '(module (memory (export "memory") 1 1) (data (i32.const 9) "a8") (func (export "k32_handle")))'
WASM = bytes(wasmtime.wat2wasm(POD))
IMAGE = hashlib.sha256(WASM).digest()


def section(kind: int, content: bytes, length: int | None = None) -> bytes:
    """A section; `length` lies about the content when given."""
    return struct.pack("<HI", kind, len(content) if length is None else length) + content


def snapshot(*sections: bytes, **header: Any) -> bytes:
    """A snapshot of a page of zeros with a true trailer over whatever the header and sections claim."""
    memory = bytes(header.get("memory", 65536))
    parts = [section(1, memory), *sections]
    body = struct.pack(
        "<4sHH32sIIQQI",
        b"K32S",
        header.get("version", 1),
        header.get("flags", 0),
        header.get("image", IMAGE),
        header.get("memory_bytes", len(memory)),
        header.get("pages", 1),
        1000,
        0,
        header.get("count", len(parts)),
    ) + b"".join(parts)
    return body + hashlib.sha256(body).digest()


LIES: dict[str, tuple[Callable[[], bytes], str]] = {
    "version": (lambda: snapshot(version=2), text("refusals", "version", version=2, supported=1)),
    "memory": (
        lambda: snapshot(memory_bytes=HUGE, pages=HUGE),
        text("refusals", "memory_shape", bytes=HUGE, pages=HUGE),
    ),
    "sections": (
        lambda: snapshot(count=HUGE),
        text("refusals", "section_count", found=HUGE, limit=LIMITS.k32s_sections),
    ),
    "past-the-end": (lambda: snapshot(section(9, b"x", HUGE)), text("refusals", "truncated")),
    "table": (
        lambda: snapshot(section(3, struct.pack("<II", 0, HUGE) + b"\0" * 400)),
        text("refusals", "section_length", name="TABLE", length=408),
    ),
    "events": (
        lambda: snapshot(section(5, struct.pack("<HI", 0, 0) * 1_000_000)),
        text(
            "refusals",
            "section_limit",
            name="EVENTS",
            found=6_000_000,
            unit="bytes",
            limit=LIMITS.pod_held_events * (6 + LIMITS.pod_topic_bytes + LIMITS.pod_payload_bytes),
        ),
    ),
}


@pytest.fixture(scope="module")
def world(cluster: SimCluster) -> World:
    """With a Checkpoint that snapshots can be put into, and a module for those who restore from it."""
    found = World(cluster)
    found.push("a8", WASM)
    checkpoint = {
        "apiVersion": "kube32.io/v1",
        "kind": "Checkpoint",
        "metadata": {"name": "a8"},
        "spec": {"podName": "nobody"},
    }
    found.json("POST", DATA.rsplit("/", 2)[0], checkpoint)
    return found


@pytest.mark.parametrize("lie", sorted(LIES))
def test_data_that_lie_are_refused_with_the_cause_and_little_memory(world: World, lie: str) -> None:
    data, cause = LIES[lie]
    server = world.cluster.processes["control"].popen.pid
    body = data()
    forget_peak(server)
    before = peak_memory(server)
    status, _, answer = world.cluster.http("PUT", DATA, body, OCTETS)
    assert status == 422
    assert cause in json.loads(answer)["message"]
    assert peak_memory(server) - before < ALLOWED_BYTES


def test_the_announced_length_alone_takes_no_memory(world: World) -> None:
    host, port, token, context = world.cluster.access
    server = world.cluster.processes["control"].popen.pid
    forget_peak(server)
    before = peak_memory(server)
    connections = []
    for _ in range(4):
        sock = context.wrap_socket(socket.create_connection((host, port)), server_hostname=host)
        head = (
            f"PUT {DATA} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {token}\r\nContent-Length: 16777216\r\n"
        )
        sock.sendall(head.encode() + b"Content-Type: application/octet-stream\r\n\r\n" + snapshot()[:100])
        connections.append(sock)
    assert world.cluster.http("GET", "/readyz")[0] == 200
    assert peak_memory(server) - before < ALLOWED_BYTES
    for sock in connections:
        sock.close()


@pytest.mark.parametrize(
    ("data", "cause"),
    [
        (
            lambda: snapshot(memory=200 * 65536, pages=200),
            text("refusals", "memory_limit", limit=65536, found=200 * 65536),
        ),
        (lambda: snapshot(image=bytes(32)), text("refusals", "image", found="0" * 64, expected=IMAGE.hex())),
        (
            lambda: snapshot(section(3, struct.pack("<II", 0, 60_000) + bytes(240_000))),
            text("refusals", "table_mismatch", index=0, found=60_000),
        ),
        (
            lambda: snapshot(section(2, struct.pack("<IBQ", 0, 0x7F, 0))),
            text("refusals", "globals_count", found=1, expected=0),
        ),
    ],
    ids=["larger-than-the-limit", "another-module", "table", "global"],
)
def test_a_restore_refuses_what_does_not_fit_the_pod_within_the_pods_own_limit(
    world: World, data: Callable[[], bytes], cause: str, request: pytest.FixtureRequest
) -> None:
    assert world.cluster.http("PUT", DATA, data(), OCTETS)[0] == 200
    name = "a8-" + request.node.callspec.id
    worker = world.cluster.processes["node-a"].popen.pid
    forget_peak(worker)
    before = peak_memory(worker)
    world.pod_of("a8", name, "node-a", memory="64Ki", annotations={RESTORE_FROM: "a8"})

    def told() -> list[str]:
        query = f"involvedObject.name={name},reason=RestoreError"
        events = world.json("GET", f"/api/v1/namespaces/default/events?fieldSelector={query}")
        return [event["message"] for event in events["items"]]

    assert world.cluster.until("the refusal", told) == [text("refusals", "prefix", cause=cause)]
    # Outside a move the pod is put in its own place and starts afresh.
    assert RESTORE_FROM not in world.ready(name)["metadata"]["annotations"]
    assert peak_memory(worker) - before < ALLOWED_BYTES
    world.delete(name)
