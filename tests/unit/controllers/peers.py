"""Peers of the controllers: kubelets that follow a script, behind the real API server. They run no pods."""

import asyncio
import hashlib
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import orjson
from multidict import CIMultiDict

from kube32.api.checkpoint_data import make_pool
from kube32.api.http import BodyCut
from kube32.api.modules import ModuleStore
from kube32.api.security import Security
from kube32.api.server import ApiServer
from kube32.api.status import ApiFailure
from kube32.client.api import ApiClient
from kube32.client.informer import Informer
from kube32.client.transport import ClientResponse
from kube32.contract import LIMITS, NAMES, Limits
from kube32.controllers.manager import Controllers
from kube32.formats.k32s import Snapshot, encode
from kube32.sim.inprocess import InProcessTransport
from kube32.store import Store, WatchHub

Obj = dict[str, Any]
# The smallest module that is a request pod: a memory, and k32_handle.
WASM = bytes.fromhex(
    "0061736d01000000010401600000030201000503010001071702066d656d6f727902000a6b33325f68616e646c6500000a040102000b"
)
DIGEST = hashlib.sha256(WASM).hexdigest()


def snapshot_bytes() -> bytes:
    """A snapshot of a pod of WASM."""
    memory = bytes(range(256)) * 4
    return encode(Snapshot(hashlib.sha256(WASM).digest(), len(memory), 1, 1234, 0, memory, [], [], [], []))


class Stream:
    """An answer of a scripted kubelet, as the connector gives it. `cut` breaks it off after so many bytes."""

    def __init__(self, status: int, body: bytes, cut: int | None = None) -> None:
        self.status = status
        self.headers = CIMultiDict(
            {"Content-Length": str(len(body)), "Content-Type": "application/octet-stream"}
        )
        self._chunks = self._run(body, cut)

    async def _run(self, body: bytes, cut: int | None) -> AsyncIterator[bytes]:
        yield body[:cut]
        if cut is not None:
            raise BodyCut("it closed the connection")

    def __aiter__(self) -> AsyncIterator[bytes]:
        return self._chunks

    async def aclose(self) -> None:
        """Nothing to close."""


class ScriptedNode:
    """What one node's kubelet does: `on_checkpoint` gives its answer, `on_pod` the status of a bound pod."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.on_checkpoint: Callable[[], Stream] = lambda: Stream(200, snapshot_bytes())
        self.on_pod: Callable[[Obj], Obj | None] = lambda pod: running(pod)
        self.frozen: set[str] = set()
        self.calls: list[str] = []
        self.reachable = True
        self.before_answer: Callable[[], Any] | None = None


def running(pod: Obj, **changes: Any) -> Obj:
    """The status of a pod whose containers run."""
    statuses = [
        {
            "name": c["name"],
            "image": c["image"],
            "imageID": f"wasm-sha256:{DIGEST}",
            "ready": True,
            "restartCount": 0,
            "state": {"running": {"startedAt": "2026-01-01T00:00:00Z"}},
        }
        for c in pod["spec"]["containers"]
    ]
    ready = [{"type": "Ready", "status": "True"}]
    return {"phase": "Running", "containerStatuses": statuses, "conditions": ready, **changes}


def restore_error(pod: Obj) -> Obj:
    """The status of a pod that could not be restored."""
    terminated = {"reason": "RestoreError", "exitCode": 128, "message": "cannot restore the snapshot: no"}
    status = running(pod, phase="Failed", conditions=[])
    status["containerStatuses"][0]["state"] = {"terminated": terminated}
    return status


class ScriptedKubelets:
    """Stands where the API server's connector to kubelets stands."""

    def __init__(self) -> None:
        self.nodes: dict[str, ScriptedNode] = {}
        self.removed_claims: list[tuple[str, str]] = []

    async def request(self, node: str, method: str, path: str, *, query: str = "", **_: Any) -> Stream:
        """A checkpoint or a thaw."""
        if path == "/routes":
            return json_answer(200)
        if path.startswith("/claims/"):
            self.removed_claims.append((node, path.removeprefix("/claims/")))
            return json_answer(200)
        peer = self.nodes[node]
        action, namespace, pod, _container = path.removeprefix("/").split("/")
        peer.calls.append(f"{action}?{query}" if query else action)
        if not peer.reachable:
            raise ApiFailure(503, f"node {node} cannot be reached", reason="ServiceUnavailable")
        if peer.before_answer is not None:
            await peer.before_answer()
        if action == "thaw":
            found = f"{namespace}/{pod}" in peer.frozen
            peer.frozen.discard(f"{namespace}/{pod}")
            return Stream(200 if found else 404, b'{"thawed":true}' if found else b'{"reason":"NotFound"}')
        answer = peer.on_checkpoint()
        if answer.status == 200 and "leave=frozen" in query:
            peer.frozen.add(f"{namespace}/{pod}")
        return answer

    async def close(self) -> None:
        """Nothing to close."""


class Intercepted(InProcessTransport):
    """The controllers' transport; a test may do something right before a request goes out."""

    before: Callable[[str, str], Awaitable[None]] | None = None

    async def send(self, method: str, path: str, **options: Any) -> ClientResponse:
        """As Transport.send."""
        if self.before is not None:
            await self.before(method, path)
        return await super().send(method, path, **options)


class Cell:
    """One cluster: API server, scripted nodes that report on their pods, and an admin's client."""

    def __init__(self, server: ApiServer, kubelets: ScriptedKubelets) -> None:
        loop = asyncio.get_running_loop()
        self.server = server
        self.kubelets = kubelets
        self.client = ApiClient(InProcessTransport(server, server.security.admin_token, loop))
        self.transport = Intercepted(server, server.security.controller_token, loop)
        self._controllers: list[Controllers] = []
        self._reports: set[asyncio.Task[None]] = set()
        self.pods = Informer(self.client, "Pod")
        self.checkpoints = Informer(self.client, "Checkpoint")
        self._changed = asyncio.Event()
        self.history: list[tuple[str, Obj]] = []
        self._watches: list[asyncio.Task[None]] = []

    @classmethod
    async def make(cls, folder: Path) -> "Cell":
        """A running API server without nodes."""
        security = Security.create(folder, LIMITS, advertise=[])
        store = Store(LIMITS)
        security.bind(store)
        kubelets = ScriptedKubelets()
        server = ApiServer(
            store=store,
            hub=WatchHub(store, LIMITS),
            limits=LIMITS,
            security=security,
            data_dir=folder,
            kubelets=kubelets,  # type: ignore[arg-type]
            pool=make_pool(store, LIMITS),
            modules=ModuleStore(folder / "modules", store, LIMITS),
        )
        await server.start()
        found = cls(server, kubelets)
        for informer in (found.pods, found.checkpoints):
            informer.subscribe(found._on_change)
            found._watches.append(asyncio.create_task(informer.run()))
            await informer.synced.wait()
        return found

    def _on_change(self, kind: str, obj: Obj, old: Obj | None) -> None:
        self.history.append((kind, obj))
        self._changed.set()
        if obj["kind"] == "Pod" and kind != "DELETED":
            peer = self.kubelets.nodes.get(obj["spec"].get("nodeName", ""))
            fresh = not obj["status"].get("containerStatuses")
            if peer is not None and fresh and obj["status"].get("phase") == "Pending":
                task = asyncio.create_task(self._report(peer, obj))
                self._reports.add(task)
                task.add_done_callback(self._reports.discard)

    async def _report(self, peer: ScriptedNode, pod: Obj) -> None:
        status = peer.on_pod(pod)
        if status is not None:
            await self.set_status(pod, status)
        self._changed.set()

    async def set_status(self, pod: Obj, status: Obj) -> None:
        """Reports a pod's status as its kubelet does."""
        meta = pod["metadata"]
        patch = {"metadata": {"uid": meta["uid"]}, "status": status}
        await self.client.patch("Pod", meta["name"], patch, meta["namespace"], subresource="status")

    async def add_node(self, name: str, **allocatable: str) -> ScriptedNode:
        """A Ready node with a scripted kubelet."""
        self.kubelets.nodes[name] = ScriptedNode(name)
        offered = {"cpu": "2", "memory": "1Gi", "pods": "110", **allocatable}
        await self.client.create(
            "Node",
            {
                "apiVersion": "v1",
                "kind": "Node",
                "metadata": {"name": name, "labels": {"zone": name}},
                "status": {
                    "capacity": offered,
                    "allocatable": offered,
                    "conditions": [{"type": "Ready", "status": "True"}],
                },
            },
        )
        return self.kubelets.nodes[name]

    async def set_ready(self, name: str, status: str) -> None:
        """Changes a node's Ready condition."""
        patch = {"status": {"conditions": [{"type": "Ready", "status": status}]}}
        await self.client.patch("Node", name, patch, subresource="status")

    async def push_module(self, name: str = "m", wasm: bytes = WASM) -> None:
        """A Module with data."""
        await self.client.create(
            "Module", {"apiVersion": "kube32.io/v1", "kind": "Module", "metadata": {"name": name}}
        )
        headers = {"Content-Type": "application/wasm", "Content-Length": str(len(wasm))}
        response = await self.client.raw(
            "PUT", f"/apis/kube32.io/v1/modules/{name}/data", headers=headers, body=wasm
        )
        async with response:
            await self.client.check(response)

    async def add_pod(self, name: str = "echo", node: str = "a", **spec: Any) -> Obj:
        """A running pod of Module m on a node ("" leaves it to the scheduler)."""
        if self.server.store.get("/registry/modules/m") is None:
            await self.push_module()
        body: Obj = {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": name, "namespace": "default", "labels": {"app": name}},
            "spec": {"containers": [{"name": "main", "image": "wasm://m"}], **spec},
        }
        if node:
            body["spec"]["nodeName"] = node
        await self.client.create("Pod", body)
        if not node:
            return await self.client.get("Pod", name, "default")
        pod: Obj = await self.until(lambda: self._running(name))
        return pod

    def pod(self, name: str = "echo", namespace: str = "default") -> Obj:
        """The pod as last seen, empty when there is none."""
        return self.pods.get(namespace, name) or {"metadata": {}, "spec": {}, "status": {}}

    def _running(self, name: str) -> Obj | None:
        pod = self.pods.get("default", name)
        return pod if pod is not None and pod["status"].get("phase") == "Running" else None

    async def checkpoint(self, name: str = "ckpt", pod: str = "echo", **spec: Any) -> Obj:
        """Creates a Checkpoint."""
        body = {
            "apiVersion": "kube32.io/v1",
            "kind": "Checkpoint",
            "metadata": {"name": name, "namespace": "default"},
            "spec": {"podName": pod, **spec},
        }
        return await self.client.create("Checkpoint", body)

    async def finish(self, name: str = "ckpt") -> Obj:
        """The Checkpoint in its last phase, with its finalizer gone."""

        def check() -> Obj | None:
            found = self.checkpoints.get("default", name)
            if found is None or found.get("status", {}).get("phase") not in ("Saved", "Completed", "Failed"):
                return None
            return None if found["metadata"].get("finalizers") else found

        finished: Obj = await self.until(check)
        return finished

    async def move(self, to: str | None = "b", name: str = "ckpt", pod: str = "echo") -> Obj:
        """Moves a pod; the finished Checkpoint."""
        target = {"target": {"nodeName": to}} if to else {}
        await self.checkpoint(name, pod, action="Move", **target)
        return await self.finish(name)

    async def until(self, check: Callable[[], Any]) -> Any:
        """Waits for a change of pods or Checkpoints after which `check` gives something true."""
        async with asyncio.timeout(10):
            while not (found := check()):
                self._changed.clear()
                await self._changed.wait()
        return found

    def phases(self, name: str = "ckpt") -> list[str]:
        """The phases that a Checkpoint went through, in order."""
        seen: list[str] = []
        for _, obj in self.history:
            if obj["kind"] == "Checkpoint" and obj["metadata"]["name"] == name:
                phase = obj.get("status", {}).get("phase", "")
                if phase and (not seen or seen[-1] != phase):
                    seen.append(phase)
        return seen

    async def reasons(self, name: str = "echo") -> list[tuple[str, str]]:
        """(reason, message) of the events about an object of that name, once the recorders are idle."""
        for controllers in self._controllers:
            for recorder in controllers._recorders:
                while recorder._worker is not None and not recorder._worker.done():
                    await asyncio.wait([recorder._worker])
        events = await self.client.list("Event", "default", field_selector=f"involvedObject.name={name}")
        ordered = sorted(events.items, key=lambda e: int(e["metadata"]["resourceVersion"]))
        return [(e["reason"], e["message"]) for e in ordered]

    async def start(self, limits: Limits = LIMITS) -> Controllers:
        """Starts controllers."""
        controllers = Controllers(ApiClient(self.transport), limits)
        self._controllers.append(controllers)
        await controllers.start()
        return controllers

    async def close(self) -> None:
        """Stops everything."""
        for controllers in self._controllers:
            await controllers.stop()
        tasks = [*self._watches, *self._reports]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await self.server.close()


async def eventually(check: Callable[[], Any]) -> Any:
    """What `check` (a function, plain or async) gives as soon as that is true. For what no watch tells."""
    async with asyncio.timeout(10):
        while True:
            found = check()
            if asyncio.iscoroutine(found):
                found = await found
            if found:
                return found
            await asyncio.sleep(0.02)


def json_answer(status: int, **body: Any) -> Stream:
    """A kubelet's answer in JSON."""
    return Stream(status, orjson.dumps(body))


def restore_from(pod: Obj) -> str | None:
    """The Checkpoint that a pod is to be restored from."""
    value: str | None = pod["metadata"].get("annotations", {}).get(NAMES.ann_restore_from)
    return value
