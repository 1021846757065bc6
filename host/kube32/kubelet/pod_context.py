"""What the containers of one pod share: its object, its record and status writer, its events, its place on
the node.
"""

import asyncio
import json
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

from kube32.contract import NAMES, text
from kube32.kubelet.node_services import NodeServices
from kube32.kubelet.pod_status import PodRecord, build, gates_of
from kube32.kubelet.publisher import PodPublisher
from kube32.kubelet.status_writer import StatusWriter
from kube32.kubelet.values import Obj, annotation, duration_ms, key_of, metadata, uid_of
from kube32.wasm import LoadedModule

# A pod that runs sooner is reported once, as Running.
_CREATING_REPORT_S = 0.2
_FILE = "state.json"


class PodState:
    """Which containers of a pod ever ran on this node, and how often: kept in a file, for a kubelet that
    restarts.
    """

    def __init__(self, directory: Path) -> None:
        self._path = directory / _FILE
        self._restarts: dict[str, int] = {}
        try:
            found = json.loads(self._path.read_bytes())
            self._restarts = {str(k): int(v) for k, v in found["restarts"].items()}
        except (OSError, ValueError, KeyError, TypeError, AttributeError):
            pass

    def restarts(self, container: str) -> int | None:
        """restartCount of the last run that was begun here, None when there was none."""
        return self._restarts.get(container)

    async def mark(self, container: str, restarts: int) -> None:
        """A run begins: written before its first call."""
        self._restarts[container] = restarts
        await asyncio.to_thread(self._write, json.dumps({"restarts": self._restarts}))

    def _write(self, content: str) -> None:
        self._path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        part = self._path.with_suffix(".part")
        part.write_text(content, encoding="utf-8")
        part.replace(self._path)


class PodContext:
    """One pod on this node. `pod` is the object as last seen."""

    def __init__(self, pod: Obj, node: NodeServices) -> None:
        self.pod = pod
        self.key = key_of(pod)
        self.uid = uid_of(pod)
        self.node = node
        self.state = PodState(node.volumes.directory(self.uid))
        self.record = PodRecord([])
        self.writer = StatusWriter(node.client, pod, self._build, self.observe, self._guarding)
        self.publisher = PodPublisher(
            node.client,
            self.key[0],
            node.limits,
            loop=asyncio.get_running_loop(),
            receivers=node.receivers,
            allowed=lambda: self.may_call is None or self.may_call(),
        )
        self._tasks: set[asyncio.Task[None]] = set()
        self._creating: asyncio.TimerHandle | None = None

    @property
    def guarded(self) -> bool:
        """Whether the pod comes back elsewhere when this node is out of reach, so that it must stop here before.

        So does one that a move or a rollback has just brought: as long as it is not known to run, it is taken
        back.
        """
        return (
            duration_ms(annotation(self.pod, NAMES.ann_checkpoint_interval)) is not None
            or annotation(self.pod, NAMES.ann_restore_from) is not None
        )

    @property
    def may_call(self) -> Callable[[], bool] | None:
        """What to ask before each call; None when nothing is to be asked."""
        return self.node.lease_fresh if self.guarded else None

    def observe(self, pod: Obj) -> None:
        """A newer object of the pod."""
        if uid_of(pod) == self.uid and _version(pod) >= _version(self.pod):
            self.pod = pod
            if _marked_lost(pod):
                self.writer.overwritten()

    def compare(self, pod: Obj) -> None:
        """The pod as the server has it now: where that is older than what it has answered, it has lost the
        status, which is written again.
        """
        if uid_of(pod) == self.uid and _version(pod) < _version(self.pod):
            self.writer.overwritten()

    def report_soon(self) -> None:
        """Reports ContainerCreating, unless the pod runs before."""
        loop = asyncio.get_running_loop()
        self._creating = loop.call_later(_CREATING_REPORT_S, self.writer.changed)

    def changed(self) -> None:
        """The status differs: report it now."""
        if self._creating is not None:
            self._creating.cancel()
        self.writer.changed()

    def topics_changed(self) -> None:
        """The pod takes events from now on, or no more."""
        self.node.topics_changed()

    def sandbox_ready(self) -> None:
        """Volumes and network are there."""
        self.record.sandbox = True

    def fail(self) -> None:
        """The pod is Failed, whatever its containers say."""
        self.record.failed = True

    def event(self, name: str, **fields: object) -> None:
        """Records an event about the pod, or about its container `fields["container"]`."""
        about: Obj = {"apiVersion": "v1", "kind": "Pod", **self.pod}
        if container := fields.get("container"):
            initial = any(c.name == container for c in self.record.init_containers)
            about["fieldPath"] = f"spec.{'initContainers' if initial else 'containers'}{{{container}}}"
        self.node.events.event(about, name, **fields)

    def started(self, container: str, image: str, module: LoadedModule) -> None:
        """Tells of a start, after the status that says Running is written: nothing may delay that one."""
        self._spawn(self._tell_started(container, image, module))

    async def _tell_started(self, container: str, image: str, module: LoadedModule) -> None:
        await self.writer.clean.wait()
        self.event("Pulled", container=container, image=image, digest=module.digest, bytes=module.info.size)
        self.event("Created", container=container)
        self.event("Started", container=container)

    async def close(self) -> None:
        """Ends everything that runs for the pod; what it published is still sent."""
        if self._creating is not None:
            self._creating.cancel()
        await self.writer.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def _build(self) -> Obj:
        return build(self.pod, self.record, self.node.facts.ip)

    def _guarding(self) -> str:
        """The version that a status is made of, for a pod whose readiness gates others write."""
        return str(metadata(self.pod).get("resourceVersion", "")) if gates_of(self.pod) else ""

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)


def _marked_lost(pod: Obj) -> bool:
    """Whether the control plane took this node for lost and its pods for not Ready."""
    reason = text("nodes", "pod_not_ready_reason")
    conditions = (pod.get("status") or {}).get("conditions") or ()
    return any(c.get("type") == "Ready" and c.get("reason") == reason for c in conditions)


def _version(pod: Obj) -> int:
    version = str(metadata(pod).get("resourceVersion", ""))
    return int(version) if version.isdigit() else 0
