"""Node health from Leases: a node whose Lease is not renewed is Unknown and tainted until it is.

"Clocks" of the decisions: time counts from when this controller saw a renewal, not from stamps in the Lease.
"""

import asyncio
import logging

from kube32.client.api import ApiClient, ApiError
from kube32.client.events import EventRecorder
from kube32.client.informer import Informer
from kube32.contract import NAMES, Limits, text
from kube32.controllers.deadlines import Deadlines
from kube32.controllers.objects import Obj, condition, is_true, name_of, now_rfc3339, spec_of, status_of

_LOG = logging.getLogger(__name__)
_MANAGED = (
    NAMES.taint_not_ready,
    NAMES.taint_unreachable,
    NAMES.taint_unschedulable,
    *NAMES.condition_taints.values(),
)
_RETRY_S = 1.0


class NodeLifecycle:
    """Keeps each Node's Ready condition and taints true; what that means for its pods others see to."""

    def __init__(
        self, client: ApiClient, nodes: Informer, leases: Informer, limits: Limits, events: EventRecorder
    ) -> None:
        self._client = client
        self._nodes = nodes
        self._leases = leases
        self._lost_s = limits.node_lost_ms / 1000
        self._events = events
        self._silent: Deadlines[str] = Deadlines()
        self._lost: set[str] = set()
        self._waiting: dict[str, None] = {}
        self._wake = asyncio.Event()
        nodes.subscribe(self._on_node)
        leases.subscribe(self._on_lease)

    def _on_lease(self, kind: str, lease: Obj, old: Obj | None) -> None:
        name = name_of(lease)
        if kind == "DELETED" or self._nodes.get("", name) is None:
            return
        self._seen(name)

    def _seen(self, name: str) -> None:
        self._silent.set(name, self._lost_s)
        if name in self._lost:
            self._lost.discard(name)
            self._push(name)

    def _on_node(self, kind: str, node: Obj, old: Obj | None) -> None:
        name = name_of(node)
        if kind == "DELETED":
            self._silent.drop(name)
            self._lost.discard(name)
            return
        if kind == "ADDED":
            self._silent.set(name, self._lost_s)
            if self._nodes.synced.is_set():
                self._events.event(node, "RegisteredNode", node=name)
        self._tell(node, old)
        self._push(name)

    def _tell(self, node: Obj, old: Obj | None) -> None:
        now = (condition(node, "Ready") or {}).get("status")
        before = (condition(old, "Ready") or {}).get("status") if old is not None else None
        if before == "True" and now != "True":
            self._events.event(node, "NodeNotReady", node=name_of(node))

    def _push(self, name: str) -> None:
        self._waiting[name] = None
        self._wake.set()

    async def run(self) -> None:
        """Follows nodes and Leases until cancelled."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._silent.run(self._on_silence))
            group.create_task(self._work())

    async def _on_silence(self, name: str) -> None:
        self._lost.add(name)
        self._push(name)

    async def _work(self) -> None:
        while True:
            await self._wake.wait()
            self._wake.clear()
            while self._waiting:
                name = next(iter(self._waiting))
                del self._waiting[name]
                try:
                    await self._sync(name)
                except (ApiError, OSError) as error:
                    # After a conflict the newer object pushes the node again; the retry is for the rest.
                    _LOG.info("node %s: %s", name, str(error) or type(error).__name__)
                    asyncio.get_running_loop().call_later(_RETRY_S, self._push, name)
                except Exception:
                    _LOG.exception("node %s", name)

    async def _sync(self, name: str) -> None:
        node = self._nodes.get("", name)
        if node is None:
            return
        if name in self._lost and (condition(node, "Ready") or {}).get("status") != "Unknown":
            node = await self._set_unknown(name, node)
        wanted = _taints(node)
        if wanted != (spec_of(node).get("taints") or []):
            version = node["metadata"]["resourceVersion"]
            patch = {"metadata": {"resourceVersion": version}, "spec": {"taints": wanted or None}}
            await self._client.patch("Node", name, patch)

    async def _set_unknown(self, name: str, node: Obj) -> Obj:
        now = now_rfc3339()
        kinds = {str(c.get("type")) for c in status_of(node).get("conditions") or []} | {"Ready"}
        conditions = [
            {
                "type": kind,
                "status": "Unknown",
                "reason": text("nodes", "unknown_reason"),
                "message": text("nodes", "unknown_message"),
                "lastTransitionTime": now,
            }
            for kind in sorted(kinds)
        ]
        patch = {"metadata": {"uid": node["metadata"]["uid"]}, "status": {"conditions": conditions}}
        return await self._client.patch("Node", name, patch, subresource="status", type="strategic")


def _taints(node: Obj) -> list[Obj]:
    """The node's taints as they should be: those of others, and ours by its conditions and cordon."""
    before = [dict(t) for t in spec_of(node).get("taints") or []]
    wanted: list[tuple[str, str]] = []
    ready = (condition(node, "Ready") or {}).get("status")
    if ready != "True":
        key = NAMES.taint_unreachable if ready == "Unknown" else NAMES.taint_not_ready
        wanted += [(key, "NoSchedule"), (key, "NoExecute")]
    for kind, key in NAMES.condition_taints.items():
        if is_true(node, kind):
            wanted.append((key, "NoSchedule"))
    if spec_of(node).get("unschedulable"):
        wanted.append((NAMES.taint_unschedulable, "NoSchedule"))
    kept = [t for t in before if t.get("key") not in _MANAGED or (t.get("key"), t.get("effect")) in wanted]
    there = {(t.get("key"), t.get("effect")) for t in kept}
    return kept + [_taint(key, effect) for key, effect in wanted if (key, effect) not in there]


def _taint(key: str, effect: str) -> Obj:
    taint = {"key": key, "effect": effect}
    return taint | {"timeAdded": now_rfc3339()} if effect == "NoExecute" else taint
