"""All controllers of a control plane, on one API client and one set of watches."""

import asyncio
import logging
from collections.abc import Coroutine
from typing import Protocol

from kube32.client.api import ApiClient
from kube32.client.events import EventRecorder
from kube32.client.informer import Informer
from kube32.contract import NAMES, Limits
from kube32.controllers.bookings import Bookings
from kube32.controllers.checkpoint.controller import CheckpointController
from kube32.controllers.events_ttl import EventsTtl
from kube32.controllers.namespaces import Namespaces
from kube32.controllers.node_lifecycle import NodeLifecycle
from kube32.controllers.pod_gc import PodGc
from kube32.controllers.scheduler import Scheduler

_LOG = logging.getLogger(__name__)


class _Controller(Protocol):
    async def run(self) -> None: ...


class Controllers:
    """Scheduler, Checkpoint controller, node lifecycle, namespaces, Event expiry, pod garbage collection."""

    def __init__(self, client: ApiClient, limits: Limits) -> None:
        self._client = client
        self._limits = limits
        self._tasks: list[asyncio.Task[None]] = []
        self._recorders: list[EventRecorder] = []
        self._namespaces: Namespaces | None = None

    async def start(self) -> None:
        """Starts them all, once every watch has its first list; the initial namespaces are there then."""
        client, limits = self._client, self._limits
        kinds = ("Pod", "Node", "Checkpoint", "Namespace", "Event")
        watches = {kind: Informer(client, kind) for kind in kinds}
        watches["Lease"] = Informer(client, "Lease", namespace=NAMES.lease_namespace)
        pods, nodes = watches["Pod"], watches["Node"]
        bookings = Bookings(pods)
        self._namespaces = Namespaces(client, watches["Namespace"], pods)
        work: list[_Controller] = [
            Scheduler(client, pods, nodes, bookings, self._recorder(NAMES.event_component_scheduler)),
            NodeLifecycle(
                client, nodes, watches["Lease"], limits, self._recorder(NAMES.event_component_node_lifecycle)
            ),
            CheckpointController(
                client,
                pods,
                nodes,
                watches["Checkpoint"],
                bookings,
                limits,
                self._recorder(NAMES.event_component_controller),
            ),
            EventsTtl(client, watches["Event"], limits),
            PodGc(client, pods, nodes, limits),
        ]
        await self._namespaces.create_initial()
        for informer in watches.values():
            self._spawn(informer.run(), f"watch {informer.kind}")
        await asyncio.gather(*(informer.synced.wait() for informer in watches.values()))
        for controller in work:
            self._spawn(controller.run(), type(controller).__name__)

    def _recorder(self, component: str) -> EventRecorder:
        recorder = EventRecorder(self._client, component)
        self._recorders.append(recorder)
        return recorder

    def _spawn(self, work: Coroutine[None, None, None], name: str) -> None:
        task = asyncio.get_running_loop().create_task(work, name=name)
        task.add_done_callback(_report)
        self._tasks.append(task)

    async def stop(self) -> None:
        """Stops them all. What is half done stands in the objects and is taken up at the next start."""
        if self._namespaces is not None:
            self._namespaces.stop()
        # The watches stop last: controllers that end still look at what they know.
        for task in reversed(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._tasks.clear()
        await asyncio.gather(*(recorder.close() for recorder in self._recorders))


def _report(task: asyncio.Task[None]) -> None:
    if not task.cancelled() and task.exception() is not None:
        _LOG.error("%s ended: %s", task.get_name(), task.exception(), exc_info=task.exception())
