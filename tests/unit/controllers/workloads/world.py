"""Workloads in a Cell: their manifests, their pods as they change, and nodes that end pods that are deleted."""

import asyncio
from collections.abc import Callable
from typing import Any

from tests.unit.controllers.peers import Cell, Obj

from kube32.client.api import ApiError
from kube32.client.informer import Informer, Key, key_of, version_of
from kube32.contract import LIMITS, Limits

KINDS = ("Deployment", "DaemonSet", "Job", "Checkpoint", "Event")
LABELS = {"app": "echo"}


def template(image: str = "wasm://m", labels: dict[str, str] | None = None, **spec: Any) -> Obj:
    """A pod template."""
    return {
        "metadata": {"labels": labels or LABELS},
        "spec": {"containers": [{"name": "main", "image": image}], **spec},
    }


def deployment(name: str = "echo", replicas: int = 3, **spec: Any) -> Obj:
    """A Deployment of Module m."""
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {
            "replicas": replicas,
            "selector": {"matchLabels": LABELS},
            "template": template(),
            "strategy": {
                "type": "RollingUpdate",
                "rollingUpdate": {"maxSurge": "25%", "maxUnavailable": "25%"},
            },
            "progressDeadlineSeconds": 600,
            **spec,
        },
    }


def daemon_set(name: str = "echo", **spec: Any) -> Obj:
    """A DaemonSet of Module m."""
    return {
        "apiVersion": "apps/v1",
        "kind": "DaemonSet",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {"selector": {"matchLabels": LABELS}, "template": template(), **spec},
    }


def job(name: str = "work", **spec: Any) -> Obj:
    """A Job of Module m."""
    pods = {"restartPolicy": spec.pop("restartPolicy", "Never")}
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {"template": template(labels={"work": name}, **pods), **spec},
    }


class World:
    """A Cell with controllers. `most` is the largest number of pods at one time that count, by app label."""

    def __init__(self, cell: Cell) -> None:
        self.cell = cell
        self.client = cell.client
        self.watched = {kind: Informer(cell.client, kind) for kind in KINDS}
        self.ends_pods = True
        self.most = 0
        self._tasks: set[asyncio.Task[Any]] = set()
        self._changed = asyncio.Event()

    @classmethod
    async def make(cls, cell: Cell, limits: Limits = LIMITS) -> "World":
        """With the controllers running."""
        found = cls(cell)
        await cell.push_module()
        await cell.push_module("n")
        cell.pods.subscribe(found._on_pod)
        for informer in found.watched.values():
            informer.subscribe(found._on_change)
            found._spawn(informer.run())
        await asyncio.gather(*(i.synced.wait() for i in found.watched.values()))
        await cell.start(limits)
        return found

    def _spawn(self, work: Any) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def _on_change(self, kind: str, obj: Obj, old: Obj | None) -> None:
        self._changed.set()

    def _on_pod(self, kind: str, pod: Obj, old: Obj | None) -> None:
        self.most = max(self.most, len(self.alive()))
        self._changed.set()
        deleting = pod["metadata"].get("deletionTimestamp")
        if (
            kind != "DELETED"
            and deleting
            and pod["metadata"].get("deletionGracePeriodSeconds")
            and self.ends_pods
        ):
            self._spawn(self.end(pod))

    async def end(self, pod: Obj) -> None:
        """The pod's node has stopped it."""
        meta = pod["metadata"]
        try:
            await self.client.delete("Pod", meta["name"], meta["namespace"], uid=meta["uid"], grace_s=0)
        except ApiError as error:
            if error.code not in (404, 409):
                raise

    async def create(self, obj: Obj) -> Obj:
        """Creates an object."""
        return await self._seen(await self.client.create(obj["kind"], obj))

    async def _seen(self, obj: Obj) -> Obj:
        """Once our own watch is as new as an object."""
        informer = self.watched.get(obj["kind"])
        if informer is not None:
            await self.until(lambda: version_of(informer.get(*key_of(obj)) or obj) >= version_of(obj))
        return obj

    async def patch(self, kind: str, patch: Obj, name: str = "echo") -> Obj:
        """Merges into an object."""
        return await self._seen(await self.client.patch(kind, name, patch, "default"))

    async def set_image(self, image: str, kind: str = "Deployment", name: str = "echo") -> None:
        """Another template."""
        patch = {"spec": {"template": {"spec": {"containers": [{"name": "main", "image": image}]}}}}
        await self._seen(await self.client.patch(kind, name, patch, "default", type="strategic"))

    def get(self, kind: str, name: str = "echo") -> Obj:
        """The object as last seen, empty when there is none."""
        found = self.watched[kind].get("default", name)
        return found or {"metadata": {}, "spec": {}, "status": {}}

    def status(self, kind: str = "Deployment", name: str = "echo") -> Obj:
        """Its status."""
        status: Obj = self.get(kind, name).get("status") or {}
        return status

    def condition(self, type_: str, kind: str = "Deployment", name: str = "echo") -> Obj:
        """One of its conditions, empty when there is none."""
        rows = self.status(kind, name).get("conditions") or []
        return next((c for c in rows if c["type"] == type_), {})

    def pods(self, **labels: str) -> list[Obj]:
        """Pods with labels, those that are being deleted included."""
        found = []
        for pod in self.cell.pods.items.values():
            own = pod["metadata"].get("labels") or {}
            if all(own.get(k) == v for k, v in labels.items()):
                found.append(pod)
        return sorted(found, key=lambda p: str(p["metadata"]["name"]))

    def alive(self, **labels: str) -> list[Obj]:
        """Pods that are not being deleted and have not ended."""
        return [
            p
            for p in self.pods(**labels)
            if not p["metadata"].get("deletionTimestamp")
            and p["status"].get("phase") not in ("Succeeded", "Failed")
        ]

    def names(self) -> set[Key]:
        """The keys of pods that are alive."""
        return {key_of(p) for p in self.alive()}

    async def until(self, check: Callable[[], Any], seconds: float = 10) -> Any:
        """Waits for a change after which `check` gives something true."""
        async with asyncio.timeout(seconds):
            while not (found := check()):
                self._changed.clear()
                await self._changed.wait()
        return found

    async def rolled_out(self, name: str = "echo") -> Obj:
        """The Deployment, once its rollout is complete."""

        def check() -> Obj | None:
            found = self.get("Deployment", name)
            spec, status = found["spec"], found.get("status") or {}
            wanted = spec.get("replicas")
            counts = [status.get(k, 0) for k in ("replicas", "updatedReplicas", "availableReplicas")]
            seen = status.get("observedGeneration") == found["metadata"].get("generation")
            progress = self.condition("Progressing", name=name).get("reason")
            return found if seen and counts == [wanted] * 3 and progress == "NewReplicaSetAvailable" else None

        done: Obj = await self.until(check)
        return done

    async def finish(self, pod: Obj, phase: str = "Succeeded", code: int = 0, **more: Any) -> None:
        """The pod's container ends."""
        terminated = {"exitCode": code, "reason": "Completed" if not code else "Error"}
        name = pod["spec"]["containers"][0]["name"]
        rows = [
            {
                "name": name,
                "ready": False,
                "restartCount": 0,
                "image": "",
                "imageID": "",
                "state": {"terminated": terminated},
            }
        ]
        ready = [{"type": "Ready", "status": "False", "reason": "PodCompleted"}]
        await self.cell.set_status(
            pod, {"phase": phase, "containerStatuses": rows, "conditions": ready, **more}
        )
        uid = pod["metadata"]["uid"]
        await self.until(lambda: all(p["metadata"]["uid"] != uid for p in self.alive()))

    async def told(self, name: str = "echo") -> list[tuple[str, str]]:
        """(reason, message) of the events about an object."""
        return await self.cell.reasons(name)

    @staticmethod
    def now() -> float:
        """The clock of the controllers."""
        return asyncio.get_running_loop().time()

    async def close(self) -> None:
        """Stops watching."""
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
