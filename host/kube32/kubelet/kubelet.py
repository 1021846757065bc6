"""The kubelet: adopts the pods that are bound to its node, stops those that are not, serves them, reports
the node.

A pure API client. One watch of pods with spec.nodeName is all that it needs ("decisions", Store, watches,
journal).
"""

import asyncio
import logging
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

from kube32.client.api import ApiClient, ApiError
from kube32.client.events import EventRecorder
from kube32.client.informer import Informer
from kube32.client.transport import Transport
from kube32.contract import NAMES, Limits
from kube32.kubelet.checkpoint_endpoint import CheckpointEndpoint
from kube32.kubelet.clocks import WallClock
from kube32.kubelet.downward import NodeFacts
from kube32.kubelet.fence import Fence
from kube32.kubelet.freezer import Freezer
from kube32.kubelet.handover import hand_over
from kube32.kubelet.images import Images
from kube32.kubelet.lease import LeaseThread
from kube32.kubelet.node_services import NodeServices
from kube32.kubelet.node_status import NodeOptions, NodeStatus
from kube32.kubelet.pod_worker import PodWorker
from kube32.kubelet.registry import Registry
from kube32.kubelet.server import Credentials, KubeletServer, TakeRoutes, server_ssl_context
from kube32.kubelet.values import Obj, key_of, spec, uid_of
from kube32.kubelet.volumes import Volumes
from kube32.wasm import ChannelHub, Engine, interp_mops

__all__ = ["Credentials", "Kubelet", "NodeOptions"]

_LOG = logging.getLogger(__name__)
_HALT_GRACE_S = 2.0


class Kubelet:
    """One node. `ready` is set once the node is registered, its pods are known and its Lease is held.

    `take_routes`, set before `start`, gets the listeners' route tables.
    """

    def __init__(
        self,
        *,
        name: str,
        client: ApiClient,
        lease_transport: Callable[[], Transport],
        engine: Engine,
        limits: Limits,
        data_dir: Path,
        credentials: Credentials,
        host: str,
        port: int,
        options: NodeOptions,
    ) -> None:
        self.name = name
        self.ready = asyncio.Event()
        self.registry = Registry(name)
        self.take_routes: TakeRoutes | None = None
        self._client = client
        self._engine = engine
        self._limits = limits
        self._data_dir = data_dir
        self._credentials = credentials
        self._host = host
        self._port = port
        self._options = options
        self._informer = Informer(client, "Pod", field_selector=f"spec.nodeName={name}")
        self._fence = Fence(self.registry, client, name, retire=self._retire)
        self._lease = LeaseThread(
            name,
            lease_transport,
            limits,
            on_stale=self._fence.on_stale,
            on_renewed=self._fence.on_renewed,
            on_recovered=lambda: self._fence.post(lambda: self._spawn(self._reconnect())),
        )
        self._events = EventRecorder(client, NAMES.event_component_kubelet, name)
        self._freezer = Freezer(limits)
        self._server: KubeletServer | None = None
        self._node_status: NodeStatus | None = None
        self._services: NodeServices | None = None
        self._leaving: dict[tuple[str, str], PodWorker] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    @property
    def port(self) -> int:
        """The port that the endpoints listen on."""
        return 0 if self._server is None else self._server.port

    async def start(self) -> None:
        """Listens (OSError when the port is taken), then registers and runs pods in the background."""
        self._data_dir.mkdir(parents=True, exist_ok=True, mode=0o700)
        self._services = self._make_services()
        self._fence.bind(asyncio.get_running_loop())
        await self._listen()
        mops = await asyncio.to_thread(interp_mops, self._engine, self._limits.interp_mops_ms)
        self._node_status = NodeStatus(
            self._client,
            self.name,
            self._limits,
            self._options,
            port=self.port,
            interp_mops=mops,
            memory_used=lambda: sum(w.memory_bytes for w in self.registry.all()),
            images=self._services.images.listed,
        )
        self._informer.subscribe(self._on_pod)
        self._informer.on_list = self._on_list
        self._lease.start()
        self._spawn(self._node_status.run())
        self._spawn(self._informer.run())
        self._spawn(self._become_ready())

    async def stop(self) -> None:
        """Ends calls, the server and the Lease; the pods stay bound and start again with the next life of
        the node.
        """
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await asyncio.gather(*(w.halt(_HALT_GRACE_S) for w in self.registry.all()), return_exceptions=True)
        if self._server is not None:
            await self._server.stop()
        await asyncio.to_thread(self._lease.stop)
        await self._events.close()

    def _make_services(self) -> NodeServices:
        pods_dir = self._data_dir / "pods"
        return NodeServices(
            node_name=self.name,
            facts=NodeFacts(self._options.node_ip, self._options.capacity()),
            client=self._client,
            limits=self._limits,
            images=Images(self._client, self._engine, self._limits, self._data_dir / "modules"),
            volumes=Volumes(pods_dir, self._options.storage, self.name, self._limits),
            channels=ChannelHub(self._limits),
            events=self._events,
            unix_ms=WallClock(self._limits),
            lease_fresh=self._lease.fresh,
            receivers=self.registry.receivers,
            topics_changed=self.registry.count_receivers,
        )

    async def _listen(self) -> None:
        context = server_ssl_context(self._credentials, self._data_dir)
        checkpoints = CheckpointEndpoint(self.registry, self._freezer, self._client, self.name, self._limits)
        assert self._services is not None
        self._server = KubeletServer(
            self.registry,
            checkpoints,
            self._limits,
            context,
            self.take_routes,
            self._services.volumes.remove_claim,
        )
        await self._server.start(self._host, self._port)

    async def _become_ready(self) -> None:
        assert self._node_status is not None and self._services is not None
        await self._informer.synced.wait()
        await self._services.volumes.remove_others({w.uid for w in self.registry.all()})
        await self._node_status.registered.wait()
        await self._fence.renewed.wait()
        self._events.event({"apiVersion": "v1", "kind": "Node", **self._node_status.node}, "Starting")
        self.ready.set()

    async def _reconnect(self) -> None:
        """The Lease tells that the API server was out of reach: connections from before may be dead, and it
        would take their read deadlines to notice.
        """
        await self._client.transport.renew()
        self._informer.reopen()

    # --- pods come and go ---

    def _on_pod(self, kind: str, pod: Obj, old: Obj | None) -> None:
        if old is not None and uid_of(old) != uid_of(pod):
            self._retire_uid(uid_of(old))
        if kind == "DELETED" or spec(pod).get("nodeName") != self.name:
            self._retire_uid(uid_of(pod))
            return
        worker = self.registry.get(uid_of(pod))
        if worker is None:
            self._adopt(pod)
        else:
            worker.update(pod)
            self.registry.count_receivers()

    def _on_list(self) -> None:
        """A control plane that was cut may have forgotten the last second of what it was told."""
        for worker in self.registry.all():
            pod = self._informer.get(*worker.key)
            if pod is not None:
                worker.context.compare(pod)
        if self._node_status is not None:
            self._node_status.send_again()

    def _adopt(self, pod: Obj) -> None:
        assert self._services is not None
        earlier = self.registry.worker(*key_of(pod)) or self._leaving.get(key_of(pod))
        worker = PodWorker(pod, self._services)
        self.registry.add(worker)
        if earlier is None or earlier.stopped.is_set():
            worker.start()
        else:  # never two of one name at once
            self._spawn(self._start_after(earlier, worker))

    async def _start_after(self, earlier: PodWorker, worker: PodWorker) -> None:
        await earlier.stopped.wait()
        if self.registry.get(worker.uid) is worker:
            worker.start()

    def _retire_uid(self, uid: str) -> None:
        worker = self.registry.get(uid)
        if worker is not None:
            self._retire(worker)

    def _retire(self, worker: PodWorker) -> None:
        if self.registry.get(worker.uid) is not worker:
            return
        self.registry.remove(worker)
        self._leaving[worker.key] = worker
        self._spawn(self._leave(worker))

    async def _leave(self, worker: PodWorker) -> None:
        assert self._services is not None
        try:
            await worker.stop()
        finally:
            if self._leaving.get(worker.key) is worker:
                del self._leaving[worker.key]
        self._services.images.keep({d for w in self.registry.all() for d in w.digests})
        try:
            await hand_over(self._client, worker)
        except (ApiError, OSError) as error:
            _LOG.info("held events of pod %s/%s are lost: %s", *worker.key, error)

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._done)

    def _done(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and task.exception() is not None:
            _LOG.error("a task of node %s failed", self.name, exc_info=task.exception())
