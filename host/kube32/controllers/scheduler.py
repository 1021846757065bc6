"""The scheduler: binds pods that have no node. It looks again when nodes or pods change, and never polls."""

import asyncio
import logging

from kube32.client.api import ApiClient, ApiError
from kube32.client.events import EventRecorder
from kube32.client.informer import Informer, Key, key_of
from kube32.contract import NAMES, text
from kube32.controllers.bookings import Bookings
from kube32.controllers.claims.binding import ClaimBinding
from kube32.controllers.objects import (
    Obj,
    condition,
    is_deleting,
    is_finished,
    is_true,
    node_of,
    now_rfc3339,
    spec_of,
    status_of,
    uid_of,
)
from kube32.controllers.scheduling import Placement, choose, nowhere

_LOG = logging.getLogger(__name__)
_RETRY_FIRST_S = 0.5
_RETRY_MAX_S = 30.0
# So many pods that fit nowhere are not looked at anew for each change.
_CROWD = 100
_CROWD_S = 1.0


def wants_node(pod: Obj) -> bool:
    """Whether the pod is ours to bind, now or once its gates are gone."""
    return (
        not node_of(pod)
        and not is_deleting(pod)
        and not is_finished(pod)
        and spec_of(pod).get("schedulerName", NAMES.scheduler_name) == NAMES.scheduler_name
    )


def _offer(node: Obj) -> tuple[object, ...]:
    """What a choice depends on; a heartbeat changes none of it."""
    meta, status = node["metadata"], status_of(node)
    offered = status.get("allocatable") or status.get("capacity")
    return meta.get("labels"), meta.get("annotations"), spec_of(node), offered, is_true(node, "Ready")


class Scheduler:
    """Binds one pod after the other. `events` tells about it as the default scheduler does."""

    def __init__(
        self,
        client: ApiClient,
        pods: Informer,
        nodes: Informer,
        claims: Informer,
        bookings: Bookings,
        binding: ClaimBinding,
        events: EventRecorder,
    ) -> None:
        self._client = client
        self._binding = binding
        self._pods = pods
        self._nodes = nodes
        self._bookings = bookings
        self._events = events
        self._tickets: dict[Key, str] = {}
        self._waiting: dict[Key, None] = {}
        self._unschedulable: set[Key] = set()
        self._delays: dict[Key, float] = {}
        self._crowd: asyncio.TimerHandle | None = None
        self._wake = asyncio.Event()
        pods.subscribe(self._on_pod)
        nodes.subscribe(self._on_node)
        claims.subscribe(self._on_claim)

    def _on_pod(self, kind: str, pod: Obj, old: Obj | None) -> None:
        key = key_of(pod)
        if old is not None and uid_of(old) != uid_of(pod):
            self._forget(key)  # a replacement without a node is a new pod to bind
        if kind != "DELETED" and wants_node(pod):
            known = old is not None and uid_of(old) == uid_of(pod) and spec_of(old) == spec_of(pod)
            if key not in self._tickets and not (known and key in self._unschedulable):
                self._push(key)
            return
        self._forget(key)
        freed = old is not None and bool(node_of(old)) and not is_finished(old)
        if freed and (kind == "DELETED" or is_finished(pod) or node_of(old or {}) != node_of(pod)):
            self._push_unschedulable()

    def _on_node(self, kind: str, node: Obj, old: Obj | None) -> None:
        if kind == "ADDED" or (kind == "MODIFIED" and (old is None or _offer(node) != _offer(old))):
            self._push_unschedulable()

    def _on_claim(self, kind: str, claim: Obj, old: Obj | None) -> None:
        if kind == "ADDED" or (old is not None and spec_of(old) != spec_of(claim)):
            self._push_unschedulable()

    def _forget(self, key: Key) -> None:
        self._waiting.pop(key, None)
        self._unschedulable.discard(key)
        self._delays.pop(key, None)
        ticket = self._tickets.pop(key, None)
        if ticket is not None:
            self._bookings.release(ticket)

    def _push(self, key: Key) -> None:
        self._unschedulable.discard(key)
        self._waiting[key] = None
        self._wake.set()

    def _push_unschedulable(self) -> None:
        """Something changed: whoever waits is looked at again; a crowd together with what changes soon after."""
        if len(self._unschedulable) < _CROWD:
            self._push_all()
        elif self._crowd is None:
            self._crowd = asyncio.get_running_loop().call_later(_CROWD_S, self._push_all)

    def _push_all(self) -> None:
        if self._crowd is not None:
            self._crowd.cancel()
            self._crowd = None
        for key in sorted(self._unschedulable):
            self._push(key)

    async def run(self) -> None:
        """Binds pods as they come, until cancelled."""
        await asyncio.gather(self._pods.synced.wait(), self._nodes.synced.wait())
        while True:
            await self._wake.wait()
            self._wake.clear()
            while self._waiting:
                key = next(iter(self._waiting))
                del self._waiting[key]
                pod = self._pods.get(*key)
                if pod is not None and wants_node(pod) and key not in self._tickets:
                    await self._try(key, pod)
                    # Calls inside the process may never have waited: others have their turn.
                    await asyncio.sleep(0)

    async def _try(self, key: Key, pod: Obj) -> None:
        try:
            await self._schedule(key, pod)
            self._delays.pop(key, None)
        except (ApiError, OSError) as error:
            if isinstance(error, ApiError) and error.code == 404:
                return  # the pod is gone; its watch event says so too
            self._later(key, error)
        except Exception as error:
            _LOG.exception("scheduling of pod %s/%s", *key)
            self._later(key, error)

    def _later(self, key: Key, error: Exception) -> None:
        delay = min(self._delays.get(key, _RETRY_FIRST_S / 2) * 2, _RETRY_MAX_S)
        self._delays[key] = delay
        _LOG.info("pod %s/%s could not be bound, trying again in %.1f s: %s", *key, delay, error)
        asyncio.get_running_loop().call_later(delay, self._again, key)

    def _again(self, key: Key) -> None:
        pod = self._pods.get(*key)
        if pod is not None and wants_node(pod):
            self._push(key)

    async def _schedule(self, key: Key, pod: Obj) -> None:
        if spec_of(pod).get("schedulingGates"):
            await self._explain_gates(pod)
            return
        placement = self._choose(pod)
        if placement.node is None:
            self._unschedulable.add(key)
            await self._explain(pod, placement.reason)
            return
        ticket = self._bookings.book(pod, placement.node)
        self._tickets[key] = ticket
        try:
            await self._binding.bind(pod, placement.node)
            await self._bind(pod, placement.node)
        except BaseException:
            self._bookings.release(ticket)
            self._tickets.pop(key, None)
            raise
        namespace, name = key
        self._events.event(pod, "Scheduled", namespace=namespace, pod=name, node=placement.node)

    def _choose(self, pod: Obj) -> Placement:
        nodes = list(self._nodes.items.values())
        problem = self._binding.problem(pod)
        if problem and nodes:
            return nowhere(len(nodes), problem)
        return choose(pod, nodes, self._bookings.load, volumes_on=self._binding.nodes(pod))

    async def _bind(self, pod: Obj, node: str) -> None:
        meta = pod["metadata"]
        binding = {
            "apiVersion": "v1",
            "kind": "Binding",
            "metadata": {"name": meta["name"], "namespace": meta["namespace"], "uid": uid_of(pod)},
            "target": {"apiVersion": "v1", "kind": "Node", "name": node},
        }
        await self._client.create("Pod", binding, meta["namespace"], subresource="binding", name=meta["name"])

    async def _explain(self, pod: Obj, message: str) -> None:
        """Condition and event say why the pod waits, once for each reason."""
        if await self._set_unscheduled(pod, text("reasons", "unschedulable"), message):
            self._events.event(pod, "FailedScheduling", cause=message)

    async def _explain_gates(self, pod: Obj) -> None:
        gated = text("scheduling", "gated_reason"), text("scheduling", "gated")
        await self._set_unscheduled(pod, *gated)

    async def _set_unscheduled(self, pod: Obj, reason: str, message: str) -> bool:
        """Sets the condition PodScheduled to False; whether it said something else before."""
        before = condition(pod, "PodScheduled") or {}
        if before.get("status") == "False" and before.get("message") == message:
            return False
        since = before.get("lastTransitionTime") if before.get("status") == "False" else None
        scheduled = {
            "type": "PodScheduled",
            "status": "False",
            "reason": reason,
            "message": message,
            "lastProbeTime": None,
            "lastTransitionTime": since or now_rfc3339(),
        }
        meta = pod["metadata"]
        await self._client.patch(
            "Pod",
            meta["name"],
            {"metadata": {"uid": uid_of(pod)}, "status": {"conditions": [scheduled]}},
            meta["namespace"],
            subresource="status",
            type="strategic",
        )
        return True
