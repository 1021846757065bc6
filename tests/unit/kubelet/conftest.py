"""A kubelet with the real engine and real TLS, on a stand-in for the control plane (the peer, not under
test).
"""

import asyncio
import base64
import copy
import hashlib
import itertools
import json
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import aiohttp
import pytest
import wasmtime
from multidict import CIMultiDict
from yarl import URL

from kube32.api.security import Security
from kube32.client.api import ApiClient
from kube32.client.transport import ClientResponse, Transport, TransportError
from kube32.contract import LIMITS, NAMES, Limits
from kube32.kubelet.kubelet import Kubelet
from kube32.kubelet.node_status import NodeOptions
from kube32.wasm import Engine

Obj = dict[str, Any]

COUNTER = """
(module
  (import "env" "k32_resp_write" (func $write (param i32 i32) (result i32)))
  (import "env" "k32_time_ms" (func $time (result i64)))
  (import "env" "k32_log" (func $log (param i32 i32)))
  (import "env" "kube32_channel_open" (func $open (param i32 i32) (result i32)))
  (memory (export "memory") 1 1)
  (data (i32.const 0) "init")
  (data (i32.const 16) "restored")
  (data (i32.const 32) "news")
  (global $calls (mut i32) (i32.const 48))
  (global $events (mut i32) (i32.const 48))
  (global $restored (mut i32) (i32.const 48))
  (func $answer (param i32) (i32.store8 (i32.const 100) (local.get 0))
    (drop (call $write (i32.const 100) (i32.const 1))))
  (func (export "k32_init") (call $log (i32.const 0) (i32.const 4))
    (drop (call $open (i32.const 32) (i32.const 4))))
  (func (export "k32_restored") (call $log (i32.const 16) (i32.const 8))
    (global.set $restored (i32.add (global.get $restored) (i32.const 1))))
  (func (export "k32_event") (global.set $events (i32.add (global.get $events) (i32.const 1))))
  (func (export "k32_handle")
    (global.set $calls (i32.add (global.get $calls) (i32.const 1)))
    (call $answer (global.get $calls)) (call $answer (global.get $events))
    (call $answer (global.get $restored))))
"""
"""Answers three digits: calls, events, restores."""

_PLURALS = {
    "pods": "Pod",
    "nodes": "Node",
    "leases": "Lease",
    "configmaps": "ConfigMap",
    "secrets": "Secret",
    "events": "Event",
    "modules": "Module",
    "checkpoints": "Checkpoint",
    "persistentvolumeclaims": "PersistentVolumeClaim",
}


def wasm(wat: str) -> bytes:
    """A module from its text."""
    return bytes(wasmtime.wat2wasm(wat))


def merge(target: Any, patch: Any) -> Any:
    """RFC 7396."""
    if not isinstance(patch, dict):
        return patch
    result = dict(target) if isinstance(target, dict) else {}
    for key, value in patch.items():
        if value is None:
            result.pop(key, None)
        else:
            result[key] = merge(result.get(key), value)
    return result


class Answer(ClientResponse):
    """An answer in memory; `stream` for a watch."""

    def __init__(self, status: int, body: bytes = b"", stream: AsyncIterator[bytes] | None = None) -> None:
        self.status = status
        self.headers = CIMultiDict({"Content-Length": str(len(body))} if stream is None else {})
        self._body = body
        self._stream = stream

    async def read(self) -> bytes:
        return self._body

    async def chunks(self) -> AsyncIterator[bytes]:
        if self._stream is not None:
            async for chunk in self._stream:
                yield chunk
            return
        for start in range(0, len(self._body), 1000):
            yield self._body[start : start + 1000]

    async def close(self) -> None:
        if self._stream is not None:
            await self._stream.aclose()  # type: ignore[attr-defined]


class Cluster(Transport):
    """Objects by kind and (namespace, name), watches of pods, data of modules and checkpoints. Runs on one
    loop.
    """

    def __init__(self) -> None:
        self.objects: dict[str, dict[tuple[str, str], Obj]] = {kind: {} for kind in _PLURALS.values()}
        self.data: dict[tuple[str, str], bytes] = {}
        self.published: list[tuple[str, str, bytes, str]] = []
        self.requests: list[tuple[str, str]] = []
        self.tokens = 0
        self.cut = False
        self.cut_leases = False
        self.on_publish: Callable[[str, str, bytes, str], int] = lambda *_: 0
        self._revision = 0
        self._watchers: set[asyncio.Queue[bytes]] = set()
        self._history: list[tuple[int, bytes]] = []
        self._loop = asyncio.get_running_loop()

    # --- what tests do ---

    def put(self, kind: str, obj: Obj, namespace: str = "") -> Obj:
        meta = obj["metadata"]
        key = (namespace, meta["name"])
        old = self.objects[kind].get(key)
        self._revision += 1
        meta["resourceVersion"] = str(self._revision)
        meta.setdefault("uid", f"uid-{self._revision}")
        if namespace:
            meta["namespace"] = namespace
        self.objects[kind][key] = obj
        if kind == "Pod":
            same = old is not None and old["spec"].get("nodeName") == obj["spec"].get("nodeName")
            if old is not None and not same:
                self._tell(
                    "DELETED",
                    {**old, "metadata": {**old["metadata"], "resourceVersion": str(self._revision)}},
                )
            self._tell("MODIFIED" if same else "ADDED", obj)
        return obj

    def module(self, name: str, wasm: bytes) -> None:
        """A Module with its data."""
        self.put("Module", {"apiVersion": "kube32.io/v1", "kind": "Module", "metadata": {"name": name}})
        self.data["Module", name] = wasm

    def remove(self, kind: str, name: str, namespace: str = "") -> None:
        old = self.objects[kind].pop((namespace, name))
        self._revision += 1
        if kind == "Pod":
            self._tell(
                "DELETED", {**old, "metadata": {**old["metadata"], "resourceVersion": str(self._revision)}}
            )

    def pod(self, name: str) -> Obj:
        return self.objects["Pod"]["default", name]

    def events(self, reason: str) -> list[Obj]:
        return [e for e in self.objects["Event"].values() if e["reason"] == reason]

    def replace_pod(self, name: str, node: str, **annotations: str | None) -> Obj:
        """The one-write replacement."""
        pod = copy.deepcopy(self.pod(name))
        del pod["metadata"]["uid"]
        pod["spec"]["nodeName"] = node
        pod["status"] = {"phase": "Pending"}
        return self.put("Pod", merge(pod, {"metadata": {"annotations": annotations}}), "default")

    def _tell(self, kind: str, pod: Obj) -> None:
        line = json.dumps({"type": kind, "object": pod}).encode() + b"\n"
        self._history.append((self._revision, line))
        for queue in self._watchers:
            queue.put_nowait(line)

    def silence(self) -> None:
        """Watches that are open tell nothing more."""
        self._watchers.clear()

    # --- what the kubelet does ---

    async def send(
        self,
        method: str,
        path: str,
        *,
        query: Mapping[str, str] | Sequence[tuple[str, str]] | None = None,
        headers: Mapping[str, str] | None = None,
        body: Any = None,
        timeout_s: float | None = 30,
    ) -> ClientResponse:
        if asyncio.get_running_loop() is not self._loop:
            call = self._send(method, path, dict(query or {}), body)
            return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(call, self._loop))
        return await self._send(method, path, dict(query or {}), body)

    async def _send(
        self, method: str, path: str, query: dict[str, str], body: bytes | None
    ) -> ClientResponse:
        parts = [unquote(p) for p in path.strip("/").split("/")]
        parts = parts[2:] if parts[0] == "api" else parts[3:]
        namespace = ""
        if parts[0] == "namespaces" and len(parts) > 2:
            namespace, parts = parts[1], parts[2:]
        self.requests.append((method, "/".join(parts)))
        if self.cut or (self.cut_leases and parts[0] == "leases"):
            raise TransportError("cut off")
        if parts[0] == "topics":
            self.published.append((namespace, parts[1], body or b"", query.get("pod", "")))
            taken = self.on_publish(namespace, parts[1], body or b"", query.get("pod", ""))
            return self._json(201, {"delivered": taken})
        if parts[0] == "serviceaccounts":
            self.tokens += 1
            return self._json(201, {"status": {"token": f"token-{self.tokens}"}})
        return self._object(method, _PLURALS[parts[0]], namespace, parts[1:], query, body)

    def _object(
        self,
        method: str,
        kind: str,
        namespace: str,
        rest: list[str],
        query: dict[str, str],
        body: bytes | None,
    ) -> ClientResponse:
        objects = self.objects[kind]
        if not rest:
            if method == "POST":
                obj = json.loads(body or b"{}")
                if (namespace, obj["metadata"]["name"]) in objects:
                    return self._failure(409, "AlreadyExists")
                return self._json(201, self.put(kind, obj, namespace))
            return self._collection(kind, query)
        name, subresource = rest[0], rest[1] if len(rest) > 1 else ""
        if subresource == "data":
            key = name if kind == "Checkpoint" else query.get("digest") or name
            found = self.data.get((kind, key))
            return self._failure(404, "NotFound") if found is None else Answer(200, found)
        old = objects.get((namespace, name))
        if old is None:
            return self._failure(404, "NotFound")
        if method == "GET":
            return self._json(200, old)
        if method == "DELETE":
            wanted = json.loads(body or b"{}").get("preconditions", {}).get("uid")
            if wanted not in (None, old["metadata"]["uid"]):
                return self._failure(409, "Conflict")
            self.remove(kind, name, namespace)
            return self._json(200, old)
        patch = json.loads(body or b"{}")
        if method == "PUT":
            return self._json(
                200,
                self.put(kind, {**patch, "metadata": {**old["metadata"], **patch["metadata"]}}, namespace),
            )
        uid = patch.get("metadata", {}).get("uid")
        if uid not in (None, old["metadata"]["uid"]):
            return self._failure(409, "Conflict")
        if subresource == "status":
            patch = {"status": patch["status"]}
        return self._json(200, self.put(kind, merge(copy.deepcopy(old), patch), namespace))

    def _collection(self, kind: str, query: dict[str, str]) -> ClientResponse:
        node = query.get("fieldSelector", "").removeprefix("spec.nodeName=")
        if not query.get("watch"):
            items = [o for o in self.objects[kind].values() if o["spec"].get("nodeName") == node]
            return self._json(200, {"items": items, "metadata": {"resourceVersion": str(self._revision)}})
        queue: asyncio.Queue[bytes] = asyncio.Queue()
        self._watchers.add(queue)
        since = int(query.get("resourceVersion") or self._revision)
        for revision, line in self._history:
            if revision > since:
                queue.put_nowait(line)

        async def stream() -> AsyncIterator[bytes]:
            try:
                while True:
                    line = await queue.get()
                    if json.loads(line)["object"]["spec"].get("nodeName") == node:
                        yield line
            finally:
                self._watchers.discard(queue)

        return Answer(200, stream=stream())

    @staticmethod
    def _json(status: int, body: Obj) -> Answer:
        return Answer(status, json.dumps(body).encode())

    def _failure(self, code: int, reason: str) -> Answer:
        return self._json(code, {"kind": "Status", "code": code, "reason": reason, "message": reason})

    async def close(self) -> None:
        pass


@dataclass
class Reply:
    """What an endpoint answered."""

    status: int
    headers: Mapping[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)


class Node:
    """A kubelet and a client with the API server's certificate."""

    def __init__(self, kubelet: Kubelet, http: aiohttp.ClientSession) -> None:
        self.kubelet = kubelet
        self.http = http

    @property
    def url(self) -> str:
        return f"https://127.0.0.1:{self.kubelet.port}"

    async def request(self, method: str, path: str, **options: Any) -> Reply:
        async with self.http.request(method, URL(self.url + path, encoded=True), **options) as response:
            return Reply(response.status, response.headers, await response.read())

    async def get(self, path: str, **options: Any) -> Reply:
        return await self.request("GET", path, **options)

    async def ask(self, pod: str, path: str = "/") -> Reply:
        return await self.get(f"/proxy/default/{pod}{path}")

    async def checkpoint(self, pod: str, query: str = "") -> Reply:
        return await self.request("POST", f"/checkpoint/default/{pod}/main{query}")

    async def thaw(self, pod: str) -> Reply:
        return await self.request("POST", f"/thaw/default/{pod}/main")


async def until(check: Callable[[], Any], timeout_s: float = 20.0) -> Any:
    """Waits for something that other tasks do."""
    async with asyncio.timeout(timeout_s):
        while not (found := check()):  # noqa: ASYNC110 - what is waited for has no event
            await asyncio.sleep(0.005)
    return found


class Bench:
    """A cluster with kubelets, and pods made in a line."""

    def __init__(
        self, cluster: Cluster, limits: Limits, security: Security, engine: Engine, directory: Path
    ) -> None:
        self.cluster = cluster
        self.limits = limits.replace(interp_mops_ms=1)
        self.nodes: dict[str, Node] = {}
        self._security = security
        self._engine = engine
        self._directory = directory
        self._numbers = itertools.count()

    async def node(self, name: str = "one", **options: Any) -> Node:
        """A kubelet that is ready."""
        wanted = NodeOptions(memory_bytes=1 << 30, cpu_millis=2000, pods=110, **options)
        kubelet = Kubelet(
            name=name,
            client=ApiClient(self.cluster),
            lease_transport=lambda: self.cluster,
            engine=self._engine,
            limits=self.limits,
            data_dir=self._directory / name,
            credentials=self._security.local_node_credentials(name, ["127.0.0.1"]),
            host="127.0.0.1",
            port=0,
            options=wanted,
        )
        await kubelet.start()
        connector = aiohttp.TCPConnector(ssl=self._security.kubelet_client_ssl_context())
        self.nodes[name] = Node(kubelet, aiohttp.ClientSession(connector=connector))
        await asyncio.wait_for(kubelet.ready.wait(), 20)
        return self.nodes[name]

    async def stop(self, name: str) -> None:
        """Ends a kubelet's process life."""
        node = self.nodes.pop(name)
        await node.http.close()
        await node.kubelet.stop()

    def pod(self, name: str, wat: str | bytes = COUNTER, node: str = "one", **fields: Any) -> Obj:
        """A pod with an embedded module, bound to a node; `fields` are annotations, spec, container."""
        binary = wat if isinstance(wat, bytes) else wasm(wat)
        annotations = {
            NAMES.ann_wasm: base64.b64encode(binary).decode(),
            NAMES.ann_wasm_sha256: hashlib.sha256(binary).hexdigest(),
            **fields.get("annotations", {}),
        }
        container = {"name": "main", "image": NAMES.image_embedded, **fields.get("container", {})}
        return self.cluster.put(
            "Pod",
            {
                "apiVersion": "v1",
                "kind": "Pod",
                "metadata": {"name": name, "annotations": annotations, "labels": fields.get("labels", {})},
                "spec": {"nodeName": node, "containers": [container], **fields.get("spec", {})},
                "status": {"phase": "Pending"},
            },
            "default",
        )

    async def running(self, name: str, wat: str | bytes = COUNTER, node: str = "one", **fields: Any) -> Obj:
        """A pod that runs and is Ready."""
        self.pod(name, wat, node, **fields)
        await self.until_ready(name)
        return self.cluster.pod(name)

    async def until_ready(self, name: str) -> None:
        await until(lambda: condition(self.cluster.pod(name), "Ready").get("status") == "True")

    async def until_waiting(self, name: str, reason: str) -> Obj:
        def waits() -> Obj | None:
            state = container_status(self.cluster.pod(name)).get("state", {}).get("waiting", {})
            return state if state.get("reason") == reason else None

        found: Obj = await until(waits)
        return found

    async def until_phase(self, name: str, phase: str) -> Obj:
        await until(lambda: self.cluster.pod(name)["status"].get("phase") == phase)
        return self.cluster.pod(name)


def condition(pod: Obj, kind: str) -> Obj:
    """A condition of a pod, empty when it has none."""
    found: Obj = next((c for c in pod["status"].get("conditions", []) if c["type"] == kind), {})
    return found


def container_status(pod: Obj) -> Obj:
    """The status of the only container, empty when there is none."""
    found: Obj = next(iter(pod["status"].get("containerStatuses", [])), {})
    return found


class Tools:
    """Functions that tests use, since a conftest cannot be imported."""

    until = staticmethod(until)
    pause = staticmethod(asyncio.sleep)
    condition = staticmethod(condition)
    status = staticmethod(container_status)
    wasm = staticmethod(wasm)
    merge = staticmethod(merge)
    counter = COUNTER


@pytest.fixture
def tools() -> type[Tools]:
    """See Tools."""
    return Tools


@pytest.fixture(scope="session")
def engine() -> Iterator[Engine]:
    """One engine for all tests."""
    engine = Engine(LIMITS)
    yield engine
    engine.close()


@pytest.fixture(scope="session")
def security(tmp_path_factory: pytest.TempPathFactory) -> Security:
    """A cluster CA with its certificates."""
    return Security.create(tmp_path_factory.mktemp("pki"), LIMITS, advertise=[])


@pytest.fixture
def limits() -> Limits:
    """Limits of the simulator; a module may override them."""
    return LIMITS


@pytest.fixture
async def bench(limits: Limits, engine: Engine, security: Security, tmp_path: Path) -> AsyncIterator[Bench]:
    """A cluster without kubelets."""
    bench = Bench(Cluster(), limits, security, engine, tmp_path)
    yield bench
    for name in list(bench.nodes):
        await bench.stop(name)
