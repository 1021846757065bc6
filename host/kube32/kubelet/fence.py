"""Fencing: pods with periodic checkpoints stop before their node can have been declared lost ("decisions",
Fencing).

When the Lease is renewed again, a pod still bound here is thawed, any other is stopped.
"""

import asyncio
import contextlib
from collections.abc import Callable

from kube32.client.api import ApiClient, ApiError
from kube32.kubelet.pod_thread import FENCE
from kube32.kubelet.pod_worker import PodWorker
from kube32.kubelet.registry import Registry
from kube32.kubelet.values import spec, uid_of

# Gone, or bound to another node: a node may not read such a pod.
_NOT_HERE = (403, 404)


class Fence:
    """`on_stale` and `on_renewed` are called by the Lease's thread; `retire` stops a pod, on the event
    loop.
    """

    def __init__(
        self, registry: Registry, client: ApiClient, node_name: str, retire: Callable[[PodWorker], None]
    ) -> None:
        self.renewed = asyncio.Event()
        self._registry = registry
        self._client = client
        self._node_name = node_name
        self._retire = retire
        self._loop: asyncio.AbstractEventLoop | None = None
        self._verifying: asyncio.Task[None] | None = None

    def bind(self, loop: asyncio.AbstractEventLoop) -> None:
        """The loop that the pods belong to."""
        self._loop = loop

    def on_stale(self, overdue: bool) -> None:
        """Freezes what has to stop; `overdue`: ends calls that still run."""
        for worker in self._registry.all():
            if not worker.context.guarded:
                continue
            for container in worker.containers:
                thread = container.thread
                if thread is not None and not thread.ended:
                    thread.fence()
                    if overdue:
                        thread.interrupt()
        self.post(self._refresh)

    def on_renewed(self) -> None:
        """The node is known to be alive: looks which fenced pods are still its own."""
        self.post(self._verify)

    def post(self, function: Callable[[], None]) -> None:
        """Calls a function on the pods' loop. Any thread."""
        if self._loop is not None:
            with contextlib.suppress(RuntimeError):  # the loop is closed
                self._loop.call_soon_threadsafe(function)

    def _refresh(self) -> None:
        for worker in self._registry.all():
            if worker.fenced:
                worker.refresh()

    def _verify(self) -> None:
        self.renewed.set()
        fenced = [w for w in self._registry.all() if w.fenced]
        if fenced and (self._verifying is None or self._verifying.done()):
            self._verifying = asyncio.create_task(self._verify_all(fenced))

    async def _verify_all(self, workers: list[PodWorker]) -> None:
        await asyncio.gather(*(self._verify_one(w) for w in workers))

    async def _verify_one(self, worker: PodWorker) -> None:
        namespace, name = worker.key
        try:
            pod = await self._client.get("Pod", name, namespace)
        except ApiError as error:
            if error.code in _NOT_HERE:
                self._retire(worker)
            return
        except OSError:
            return  # the next renewal looks again
        if uid_of(pod) == worker.uid and spec(pod).get("nodeName") == self._node_name:
            worker.thaw(FENCE)
        else:
            self._retire(worker)
