"""Pods, saves and moves over plain HTTP, and a pod that tells all that it has seen."""

import hashlib
import http.client
import json
import socket
import struct
import threading
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import wasmtime

from tests.conftest import SimCluster

Obj = dict[str, Any]
RESTORE_FROM = "kube32.io/restore-from"
TICK = "kube32.io/tick-interval"

TICKS_KEPT = 1024
HAS_PROC = Path("/proc/self/clear_refs").exists()
_SEEN = struct.Struct("<Qq16sQQ8xIIQI180s")
WITNESS = f"""
(module
  (import "env" "k32_random" (func $random (param i32 i32)))
  (import "env" "k32_instance_id" (func $id (result i64)))
  (import "env" "k32_time_ms" (func $time (result i64)))
  (import "env" "k32_unix_ms" (func $unix (result i64)))
  (import "env" "k32_resp_write" (func $write (param i32 i32) (result i32)))
  (memory (export "memory") 1 1)
  (func $next (param $at i32) (local $x i64)
    (local.set $x (i64.load (local.get $at)))
    (local.set $x (i64.xor (local.get $x) (i64.shl (local.get $x) (i64.const 13))))
    (local.set $x (i64.xor (local.get $x) (i64.shr_u (local.get $x) (i64.const 7))))
    (i64.store (local.get $at) (i64.xor (local.get $x) (i64.shl (local.get $x) (i64.const 17)))))
  (func $note (param $letter i32)
    (i64.store (i32.const 8) (call $id))
    (if (i32.lt_u (i32.load (i32.const 72)) (i32.const 180)) (then
      (i32.store8 (i32.add (i32.const 76) (i32.load (i32.const 72))) (local.get $letter))
      (i32.store (i32.const 72) (i32.add (i32.load (i32.const 72)) (i32.const 1))))))
  (func (export "k32_init") (call $note (i32.const 73))
    (i64.store (i32.const 0) (i64.const 88172645463325252)) (call $random (i32.const 64) (i32.const 8)))
  (func (export "k32_restored") (call $note (i32.const 82)) (call $random (i32.const 64) (i32.const 8)))
  (func (export "k32_event") (call $note (i32.const 69)))
  (func (export "k32_tick")
    (i64.store
      (i32.add (i32.const 256) (i32.mul (i32.const 8)
        (i32.rem_u (i32.load (i32.const 56)) (i32.const {TICKS_KEPT}))))
      (call $time))
    (i32.store (i32.const 56) (i32.add (i32.load (i32.const 56)) (i32.const 1))))
  (func (export "k32_handle") (call $note (i32.const 72))
    (call $next (i32.const 0)) (call $next (i32.const 64))
    (call $random (i32.const 16) (i32.const 16))
    (i64.store (i32.const 32) (call $time)) (i64.store (i32.const 40) (call $unix))
    (i32.store (i32.const 60) (i32.add (i32.load (i32.const 60)) (i32.const 1)))
    (drop (call $write (i32.const 0) (i32.const {256 + 8 * TICKS_KEPT})))))
"""


@dataclass(frozen=True, slots=True)
class Seen:
    """What a WITNESS answers. `calls`: a letter for each k32_init (I), k32_restored (R), k32_event (E) and
    k32_handle (H); `kept` a random generator in memory, `reseeded` one that is seeded at each start.
    """

    kept: int
    instance: int
    random: bytes
    time_ms: int
    unix_ms: int
    ticks: int
    requests: int
    reseeded: int
    calls: str
    tick_times: list[int] = field(repr=False)

    @classmethod
    def read(cls, body: bytes) -> "Seen":
        """From the body of an answer."""
        kept, instance, random, time_ms, unix_ms, ticks, requests, reseeded, count, calls = _SEEN.unpack(
            body[: _SEEN.size]
        )
        times = list(struct.unpack(f"<{TICKS_KEPT}Q", body[256:]))
        first = ticks % TICKS_KEPT
        ordered = times[:ticks] if ticks <= TICKS_KEPT else times[first:] + times[:first]
        letters = calls[:count].decode()
        return cls(kept, instance, random, time_ms, unix_ms, ticks, requests, reseeded, letters, ordered)


@dataclass
class World:
    """A cluster, asked as curl would."""

    cluster: SimCluster

    def json(self, method: str, path: str, body: Obj | None = None, code: int | None = None) -> Obj:
        """One request with a JSON body; the answer, whose status must be `code` (None: below 300)."""
        kind = "application/merge-patch+json" if method == "PATCH" else "application/json"
        data = None if body is None else json.dumps(body).encode()
        status, _, answer = self.cluster.http(method, path, data, {"Content-Type": kind})
        assert status == code if code is not None else status < 300, answer.decode()
        found: Obj = json.loads(answer)
        return found

    def push(self, name: str, wasm: bytes) -> str:
        """Stores a Module; its digest."""
        base = "/apis/kube32.io/v1/modules"
        module = {"apiVersion": "kube32.io/v1", "kind": "Module", "metadata": {"name": name}}
        assert self.cluster.http("POST", base, json.dumps(module).encode())[0] in (201, 409)
        octets = {"Content-Type": "application/octet-stream"}
        status, _, body = self.cluster.http("PUT", f"{base}/{name}/data", wasm, octets)
        assert status == 200, body
        return hashlib.sha256(wasm).hexdigest()

    def deploy(self, name: str, wat: str, node: str, *, module: str = "", **fields: Any) -> Obj:
        """Stores the module (as `module`, else as `name`) and creates a pod; `fields`: annotations, memory,
        env.
        """
        self.push(module or name, bytes(wasmtime.wat2wasm(wat)))
        return self.pod_of(module or name, name, node, **fields)

    def pod_of(self, module: str, name: str, node: str, **fields: Any) -> Obj:
        """Creates a pod of a Module that is there."""
        container: Obj = {"name": "main", "image": f"wasm://{module}", "env": fields.get("env", [])}
        if fields.get("memory"):
            container["resources"] = {"limits": {"memory": fields["memory"]}}
        spec: Obj = {"containers": [container], **({"nodeName": node} if node else {})}
        metadata = {"name": name, "annotations": fields.get("annotations", {})}
        pod = {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}
        return self.json("POST", "/api/v1/namespaces/default/pods", pod)

    def pod(self, name: str) -> Obj:
        """The pod as it is now."""
        return self.json("GET", f"/api/v1/namespaces/default/pods/{name}")

    def ready(self, name: str, timeout_s: float = 30) -> Obj:
        """The pod once it is Ready."""

        def is_ready() -> Obj | None:
            pod = self.pod(name)
            found = {c["type"]: c["status"] for c in pod.get("status", {}).get("conditions", [])}
            return pod if found.get("Ready") == "True" else None

        pod: Obj = self.cluster.until(f"pod {name} is Ready", is_ready, timeout_s)
        return pod

    def ask(self, name: str) -> bytes:
        """A request that the pod must answer with 200."""
        path = f"/api/v1/namespaces/default/pods/{name}/proxy/"
        status, _, body = self.cluster.http("GET", path)
        assert status == 200, body
        return body

    def seen(self, name: str) -> Seen:
        """What a WITNESS has seen so far."""
        return Seen.read(self.ask(name))

    def checkpoint(self, pod: str, timeout_s: float = 60, **spec: Any) -> Obj:
        """Creates a Checkpoint and waits for its end."""
        path = "/apis/kube32.io/v1/namespaces/default/checkpoints"
        manifest = {
            "apiVersion": "kube32.io/v1",
            "kind": "Checkpoint",
            "metadata": {"generateName": f"{pod}-"},
            "spec": {"podName": pod, **spec},
        }
        name = self.json("POST", path, manifest)["metadata"]["name"]

        def ended() -> Obj | None:
            found = self.json("GET", f"{path}/{name}")
            return found if found.get("status", {}).get("phase") in ("Saved", "Completed", "Failed") else None

        checkpoint: Obj = self.cluster.until(f"checkpoint {name} has ended", ended, timeout_s)
        return checkpoint

    def move(self, pod: str, target: str) -> Obj:
        """Moves a pod; the status of its Checkpoint at the end."""
        status: Obj = self.checkpoint(pod, action="Move", target={"nodeName": target})["status"]
        return status

    def moved(self, pod: str, target: str) -> None:
        """Moves a pod, which must arrive."""
        status = self.move(pod, target)
        assert status["phase"] == "Completed", status

    def freeze(self, node: str, pod: str) -> tuple[int, bytes]:
        """Freezes through the node proxy: the pod's clock and the snapshot."""
        path = f"/api/v1/nodes/{node}/proxy/checkpoint/default/{pod}/main?leave=frozen"
        status, headers, body = self.cluster.http("POST", path)
        assert status == 200, body
        return int(headers["X-Kube32-Pod-Time-Ms"]), body

    def thaw(self, node: str, pod: str) -> None:
        """Ends a freeze."""
        status, _, body = self.cluster.http("POST", f"/api/v1/nodes/{node}/proxy/thaw/default/{pod}/main")
        assert status == 200, body

    def delete(self, *pods: str) -> None:
        """Deletes pods without waiting for their end."""
        for pod in pods:
            self.json("DELETE", f"/api/v1/namespaces/default/pods/{pod}")


class Watch:
    """A watch that a thread reads; `events` are what came so far, parsed."""

    def __init__(self, cluster: SimCluster, path: str, accept: str = "application/json") -> None:
        host, port, token, context = cluster.access
        self.events: list[Obj] = []
        self._connection = http.client.HTTPSConnection(host, port, context=context, timeout=60)
        self._connection.request("GET", path, headers={"Authorization": f"Bearer {token}", "Accept": accept})
        self._response = self._connection.getresponse()
        self.status = self._response.status
        self.port: int = self._connection.sock.getsockname()[1]
        self._thread = threading.Thread(target=self._read, daemon=True)
        self._thread.start()

    def _read(self) -> None:
        with suppress(OSError, ValueError, http.client.HTTPException):
            for line in self._response:
                self.events.append(json.loads(line))

    @property
    def open(self) -> bool:
        """Whether the server has not ended it."""
        return self._thread.is_alive()

    def close(self) -> None:
        """Leaves."""
        if self._connection.sock is not None:
            with suppress(OSError):
                self._connection.sock.shutdown(socket.SHUT_RDWR)
        self._thread.join(5)
        self._connection.close()


def not_ready(events: list[Obj]) -> list[Obj]:
    """Nodes that were not Ready or had a taint for a while."""
    nodes = [event["object"] for event in events]

    def is_bad(node: Obj) -> bool:
        ready = [c for c in node.get("status", {}).get("conditions", []) if c["type"] == "Ready"]
        return any(c["status"] != "True" for c in ready) or bool(node.get("spec", {}).get("taints"))

    return [node for node in nodes if is_bad(node)]


def peak_memory(pid: int) -> int:
    """Bytes of the largest resident memory that the process had since `forget_peak`."""
    return _memory(pid, "VmHWM")


def resident_memory(pid: int) -> int:
    """Bytes of the process's resident memory now."""
    return _memory(pid, "VmRSS")


def _memory(pid: int, row: str) -> int:
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(f"{row}:")) * 1024


def forget_peak(pid: int) -> None:
    """Lets the peak start anew."""
    Path(f"/proc/{pid}/clear_refs").write_text("5")
