"""Pods leave nodes with NoExecute taints that they do not tolerate, or no longer: Kubernetes' taint eviction.

"Clocks" of the decisions: tolerationSeconds count on the monotonic clock from when the taint was seen.
"""

import asyncio
from collections.abc import Iterable

from kube32.client.api import ApiClient, ApiError
from kube32.client.events import EventRecorder
from kube32.client.informer import Informer, Key, key_of
from kube32.contract import text
from kube32.controllers.deadlines import Deadlines
from kube32.controllers.node_match import toleration_of
from kube32.controllers.objects import (
    Obj,
    is_deleting,
    is_finished,
    name_of,
    node_of,
    now_rfc3339,
    spec_of,
    uid_of,
)

_Ticket = tuple[str, str, str]


def seconds_tolerated(pod: Obj, taints: Iterable[Obj]) -> float | None:
    """How long the pod stays with NoExecute taints: 0 when one is not tolerated, None for ever."""
    shortest: float | None = None
    for taint in taints:
        toleration = toleration_of(pod, taint)
        if toleration is None:
            return 0
        seconds = toleration.get("tolerationSeconds")
        if seconds is not None and (shortest is None or seconds < shortest):
            shortest = max(float(seconds), 0)
    return shortest


def _no_execute(node: Obj | None) -> list[Obj]:
    taints = spec_of(node).get("taints") or [] if node is not None else []
    return [t for t in taints if t.get("effect") == "NoExecute"]


class TaintEviction:
    """Deletes pods as their time with a taint runs out."""

    def __init__(self, client: ApiClient, pods: Informer, nodes: Informer, events: EventRecorder) -> None:
        self._client = client
        self._pods = pods
        self._nodes = nodes
        self._events = events
        self._due: Deadlines[_Ticket] = Deadlines()
        # When a pod's time began, and how long it is.
        self._since: dict[_Ticket, tuple[float, float]] = {}
        pods.subscribe(self._on_pod)
        nodes.subscribe(self._on_node)

    def _on_pod(self, kind: str, pod: Obj, old: Obj | None) -> None:
        if old is not None and uid_of(old) != uid_of(pod):
            self._forget(_ticket(old))
        if kind == "DELETED" or is_deleting(pod) or is_finished(pod):
            self._forget(_ticket(pod))
        elif node_of(pod):
            self._look(pod, _no_execute(self._nodes.get("", node_of(pod))))

    def _on_node(self, kind: str, node: Obj, old: Obj | None) -> None:
        taints = [] if kind == "DELETED" else _no_execute(node)
        if not taints and not self._since:
            return
        if kind == "MODIFIED" and _no_execute(old) == taints:
            return
        for pod in self._pods.items.values():
            if node_of(pod) == name_of(node) and not is_deleting(pod) and not is_finished(pod):
                self._look(pod, taints)

    def _look(self, pod: Obj, taints: list[Obj]) -> None:
        ticket = _ticket(pod)
        left_s = seconds_tolerated(pod, taints) if taints else None
        if left_s is None:
            if self._forget(ticket):
                self._tell(pod, "CancelDeletion")
            return
        now = asyncio.get_running_loop().time()
        # Another taint, or fewer of them, does not start the time anew.
        since, before = self._since.get(ticket, (now, None))
        if before != left_s:
            self._since[ticket] = since, left_s
            self._due.set(ticket, max(since + left_s - now, 0))

    def _forget(self, ticket: _Ticket) -> bool:
        self._due.drop(ticket)
        return self._since.pop(ticket, None) is not None

    def _tell(self, pod: Obj, name: str) -> None:
        namespace, pod_name = key_of(pod)
        self._events.event(pod, name, namespace=namespace, pod=pod_name)

    async def run(self) -> None:
        """Deletes pods as they fall due, until cancelled."""
        await self._due.run(self._evict)

    async def _evict(self, ticket: _Ticket) -> None:
        namespace, name, uid = ticket
        pod = self._pods.get(namespace, name)
        if pod is None or uid_of(pod) != uid or is_deleting(pod):
            self._forget(ticket)
            return
        self._tell(pod, "DeletingPod")
        try:
            await self._explain(pod)
            await self._client.delete("Pod", name, namespace, uid=uid)
        except ApiError as error:
            if error.code not in (404, 409):
                raise
        self._forget(ticket)

    async def _explain(self, pod: Obj) -> None:
        """The condition by which Job controllers and people tell a disruption from a failure of the pod's own."""
        namespace, name = key_of(pod)
        disrupted = {
            "type": "DisruptionTarget",
            "status": "True",
            "reason": text("nodes", "evicted_reason"),
            "message": text("nodes", "evicted_message"),
            "lastTransitionTime": now_rfc3339(),
        }
        patch = {"metadata": {"uid": uid_of(pod)}, "status": {"conditions": [disrupted]}}
        await self._client.patch("Pod", name, patch, namespace, subresource="status", type="strategic")


def _ticket(pod: Obj) -> _Ticket:
    key: Key = key_of(pod)
    return (*key, uid_of(pod))
