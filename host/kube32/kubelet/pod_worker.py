"""One pod on this node: its containers from start to end, its requests and events, its graceful deletion."""

import asyncio

from kube32.client.api import ApiError
from kube32.contract import NAMES, text
from kube32.formats.k32s import HeldEvent
from kube32.formats.pins import pins
from kube32.kubelet.calls import NotDelivered
from kube32.kubelet.container import Container
from kube32.kubelet.freezer import MOVE
from kube32.kubelet.node_services import NodeServices
from kube32.kubelet.pod_context import PodContext
from kube32.kubelet.pod_status import gates_of
from kube32.kubelet.pod_thread import PodThread
from kube32.kubelet.values import Obj, annotation, metadata, seconds_since, spec, status
from kube32.wasm import HttpCall

_TERMINAL = ("Succeeded", "Failed")
_DELETE_RETRY_S = 1.0
NOT_FOUND = 404
CONFLICT = 409


class PodWorker:
    """Runs one pod, one uid. `start` once, `update` for each newer object, `stop` once."""

    def __init__(self, pod: Obj, node: NodeServices) -> None:
        self.context = PodContext(pod, node)
        self.containers = [Container(self.context, node, c) for c in spec(pod).get("containers") or []]
        self.init_containers = [
            Container(self.context, node, c, init=True) for c in spec(pod).get("initContainers") or []
        ]
        self.context.record.containers = [c.record for c in self.containers]
        self.context.record.init_containers = [c.record for c in self.init_containers]
        self.stopped = asyncio.Event()
        self.topics = self._topics()
        self.held_bytes = 0
        self._node = node
        self._stopping: asyncio.Task[None] | None = None
        self._initializing: asyncio.Task[None] | None = None
        self._expiring: asyncio.Task[None] | None = None
        self._deadline: asyncio.TimerHandle | None = None
        self._deadline_s: int | None = None
        self._started = False

    # --- what it is ---

    @property
    def pod(self) -> Obj:
        """The pod's object as last seen."""
        return self.context.pod

    @property
    def uid(self) -> str:
        """The pod's uid, which never changes for a worker."""
        return self.context.uid

    @property
    def key(self) -> tuple[str, str]:
        """(namespace, name)."""
        return self.context.key

    @property
    def everything(self) -> list[Container]:
        """The init containers and the containers."""
        return [*self.init_containers, *self.containers]

    @property
    def terminal(self) -> bool:
        """Whether the pod has ended for good."""
        return status(self.pod).get("phase") in _TERMINAL

    @property
    def memory_bytes(self) -> int:
        """Linear memory in use."""
        return sum(c.memory_bytes for c in self.everything)

    @property
    def digests(self) -> set[str]:
        """Modules that the pod names or runs."""
        pinned = {str(d) for d in pins(metadata(self.pod).get("annotations") or {}).values()}
        return {c.current.digest for c in self.everything if c.current} | pinned

    @property
    def fenced(self) -> bool:
        """Whether the fence holds a container."""
        return any(c.thread.fenced for c in self.containers if c.thread is not None)

    @property
    def restoring(self) -> bool:
        """Whether the pod's state is on its way here: a request for it was not delivered, as with a frozen
        pod.
        """
        return any(c.restoring for c in self.containers)

    def container(self, name: str) -> Container | None:
        """A container by name."""
        return next((c for c in self.everything if c.name == name), None)

    def receives(self, topic: str) -> bool:
        """Whether an event on the topic would be taken."""
        if topic not in self.topics or self._stopping is not None:
            return False
        return any(
            c.thread is not None and c.thread.begun and c.thread.settings.takes_events
            for c in self.containers
        )

    # --- its life ---

    def start(self) -> None:
        """Starts the containers; a pod that has ended, or is being deleted, is not started."""
        if metadata(self.pod).get("deletionTimestamp"):
            self._delete()
        elif self.terminal:
            return
        else:
            self.context.report_soon()
            self._started = True
            self._watch_deadline()
            if self._must_initialize():
                for container in self.containers:
                    container.record.wait(text("reasons", "pod_initializing"))
                self._initializing = asyncio.create_task(self._initialize())
            else:
                self._start_containers()

    def _must_initialize(self) -> bool:
        """Whether init containers have to run: not for a pod that is restored, which does not start again."""
        if annotation(self.pod, NAMES.ann_restore_from) is not None:
            for container in self.init_containers:
                container.record.skip()
        return any(not c.record.ready for c in self.init_containers)

    async def _initialize(self) -> None:
        """Runs the init containers one after the other, then starts the others."""
        for container in self.init_containers:
            if not await container.run_init():
                self.context.changed()
                return
            self.context.changed()
        if self._stopping is None:
            self._start_containers()

    def _start_containers(self) -> None:
        for container in self.containers:
            container.start()

    # --- activeDeadlineSeconds ---

    def _watch_deadline(self) -> None:
        """Also when the pod is changed: a deadline may be set late, or made shorter."""
        seconds = spec(self.pod).get("activeDeadlineSeconds")
        if not self._started or seconds == self._deadline_s or self._stopping is not None:
            return
        if self._deadline is not None:
            self._deadline.cancel()
        self._deadline_s = seconds
        if seconds is None:
            return
        begun = seconds_since(str(status(self.pod).get("startTime") or "")) or 0.0
        left = max(float(seconds) - begun, 0.0)
        self._deadline = asyncio.get_running_loop().call_later(left, self._on_deadline)

    def _on_deadline(self) -> None:
        if self._stopping is None and self._expiring is None and not self.terminal:
            self._expiring = asyncio.create_task(self._expire())

    async def _expire(self) -> None:
        """Ends the pod for good: it ran for longer than it may."""
        record = self.context.record
        record.reason, record.message = text("reasons", "deadline"), text("statuses", "pod_deadline")
        self.context.fail()
        self.context.changed()
        self.context.event("DeadlineExceededPod", cause=record.message)
        grace = float(spec(self.pod).get("terminationGracePeriodSeconds") or 0)
        await asyncio.gather(*(c.stop(grace) for c in self.everything))
        self.context.changed()

    def update(self, pod: Obj) -> None:
        """A newer object: annotations and images are for the next start, a deletion is carried out."""
        before = self.pod
        self.context.observe(pod)
        self.topics = self._topics()
        self._watch_deadline()
        if gates_of(pod) and status(before).get("conditions") != status(pod).get("conditions"):
            self.context.changed()
        changed = _start_facts(before) != _start_facts(pod)
        for container in self.everything:
            if changed:
                container.nudge()
            if container.thread is not None:
                container.thread.may_call = self.context.may_call
        if metadata(pod).get("deletionTimestamp") and self._stopping is None:
            self._delete()

    async def stop(self, grace_s: float = 0.0) -> None:
        """Ends all calls, within the grace period, and frees what the pod has on this node."""
        if self._stopping is None:
            self._stopping = asyncio.create_task(self._stop(grace_s))
        else:  # a graceful deletion that is now to end sooner
            await self._stop_all(grace_s)
        await asyncio.shield(self._stopping)

    async def halt(self, grace_s: float) -> None:
        """The node stops: calls end, the pod's files stay for the next life of this kubelet."""
        # Closed first: the next life finds the containers as running, hence lost, and not as completed.
        await self.context.close()
        await self._stop_all(grace_s)
        if self._stopping is not None:
            self._stopping.cancel()

    async def _stop_all(self, grace_s: float) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
        if self._initializing is not None:
            self._initializing.cancel()
        await asyncio.gather(*(c.stop(grace_s) for c in self.everything))

    def late_events(self) -> list[HeldEvent]:
        """Events held after the snapshot of a pod that was frozen for a move; after `stop`."""
        return [event for c in self.containers for event in c.late_events]

    def _delete(self) -> None:
        self._stopping = asyncio.create_task(self._delete_gracefully())

    async def _stop(self, grace_s: float) -> None:
        try:
            await self.context.close()
            await self._stop_all(grace_s)
            await self._node.volumes.remove(self.uid)
        finally:
            self.stopped.set()

    async def _delete_gracefully(self) -> None:
        grace = metadata(self.pod).get("deletionGracePeriodSeconds")
        if grace is None:
            grace = spec(self.pod).get(
                "terminationGracePeriodSeconds", self._node.limits.pod_termination_grace_s
            )
        for container in self.everything:
            if container.thread is not None:
                self.context.event("Killing", container=container.name)
        try:
            await self._stop_all(float(grace))
            await self._node.volumes.remove(self.uid)
        finally:
            self.stopped.set()
        await self._delete_object()
        await self.context.close()

    async def _delete_object(self) -> None:
        namespace, name = self.key
        while True:
            try:
                await self._node.client.delete("Pod", name, namespace, uid=self.uid, grace_s=0)
                return
            except ApiError as error:
                if error.code in (NOT_FOUND, CONFLICT):
                    return
            except OSError:
                pass
            await asyncio.sleep(_DELETE_RETRY_S)

    def _topics(self) -> frozenset[str]:
        found = [t.strip() for t in (annotation(self.pod, NAMES.ann_topics) or "").split(",")]
        return frozenset([t for t in found if t][: self.context.node.limits.pod_topics])

    # --- requests and events ---

    def check(self) -> None:
        """Raises NotDelivered when a request would be refused now: before its body is read."""
        if self.held_bytes >= self._node.limits.pod_request_bytes_held:
            raise NotDelivered("busy_bytes")
        self._serving().check()

    def submit(self, call: HttpCall) -> "asyncio.Future[HttpCall]":
        """Queues a request for the first container that has k32_handle; NotDelivered says why not."""
        return self._serving().submit(call)

    def _serving(self) -> PodThread:
        """The first container that has k32_handle; one that has not run yet may have it."""
        if self._stopping is not None:
            raise NotDelivered("not_running")
        found = next((c for c in self.containers if c.takes_requests is not False), None)
        thread = self.containers[0].thread if found is None else found.thread
        if thread is None:
            raise NotDelivered("not_running")
        return thread

    def deliver(self, event: HeldEvent) -> bool:
        """Gives an event to the containers; True when one took it."""
        if self._stopping is not None:
            return False
        taken = [container.deliver(event) for container in self.containers]
        return any(taken)

    # --- freezes ---

    def refresh(self) -> None:
        """Readiness may differ."""
        for container in self.containers:
            container.refresh()

    def thaw(self, holder: str) -> bool:
        """Ends a holder's freeze of all containers; True when there was one."""
        thawed = [c.thread.thaw(holder) for c in self.containers if c.thread is not None]
        self.refresh()
        return any(thawed)

    def thaw_move(self, container: Container) -> bool:
        """Ends the freeze that `leave=frozen` made."""
        thread = container.thread
        thawed = thread is not None and not thread.ended and thread.thaw(MOVE)
        container.refresh()
        return thawed


def _start_facts(pod: Obj) -> tuple[object, object]:
    """What the start of a container depends on."""
    return spec(pod), metadata(pod).get("annotations")
