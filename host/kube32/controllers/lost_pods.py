"""Pods of a node that is known to be lost: they are not Ready, and one that is deleted goes without its kubelet."""

from kube32.client.api import ApiClient, ApiError
from kube32.client.events import EventRecorder
from kube32.client.informer import Informer, Key, key_of
from kube32.contract import text
from kube32.controllers.objects import (
    Obj,
    condition,
    is_deleting,
    is_finished,
    is_true,
    name_of,
    node_of,
    now_rfc3339,
    uid_of,
)
from kube32.controllers.queue import WorkQueue


def is_lost(node: Obj | None) -> bool:
    """Whether the node's Lease ran out: only the control plane says Unknown of Ready."""
    return node is not None and (condition(node, "Ready") or {}).get("status") == "Unknown"


class LostPods:
    """Follows pods and nodes. A kubelet that comes back reports anew, and stops what is no longer there."""

    def __init__(self, client: ApiClient, pods: Informer, nodes: Informer, events: EventRecorder) -> None:
        self._client = client
        self._pods = pods
        self._nodes = nodes
        self._events = events
        self._queue: WorkQueue[Key] = WorkQueue()
        # To be marked not Ready: once when their node is lost. A kubelet that writes after that is not dead.
        self._unmarked: set[Key] = set()
        pods.subscribe(self._on_pod)
        nodes.subscribe(self._on_node)

    def _on_pod(self, kind: str, pod: Obj, old: Obj | None) -> None:
        if kind == "DELETED":
            self._queue.drop(key_of(pod))
            self._unmarked.discard(key_of(pod))
        elif is_deleting(pod) and self._is_lost(pod):
            self._queue.add(key_of(pod))

    def _on_node(self, kind: str, node: Obj, old: Obj | None) -> None:
        if kind == "DELETED" or not is_lost(node) or is_lost(old):
            return
        for key, pod in self._pods.items.items():
            if node_of(pod) == name_of(node):
                self._unmarked.add(key)
                self._queue.add(key)

    def _is_lost(self, pod: Obj) -> bool:
        return bool(node_of(pod)) and is_lost(self._nodes.get("", node_of(pod)))

    async def run(self) -> None:
        """Works until cancelled."""
        for node in list(self._nodes.items.values()):
            self._on_node("ADDED", node, None)
        await self._queue.run(self._work)

    async def _work(self, key: Key) -> None:
        pod = self._pods.get(*key)
        if pod is None or not self._is_lost(pod):
            self._unmarked.discard(key)
            return
        try:
            if is_deleting(pod):
                await self._client.delete("Pod", key[1], key[0], uid=uid_of(pod), grace_s=0)
            elif key in self._unmarked and is_true(pod, "Ready") and not is_finished(pod):
                await self._mark(pod)
            self._unmarked.discard(key)
        except ApiError as error:
            if error.code not in (404, 409):
                raise

    async def _mark(self, pod: Obj) -> None:
        namespace, name = key_of(pod)
        ready = {
            "type": "Ready",
            "status": "False",
            "reason": text("nodes", "pod_not_ready_reason"),
            "message": text("nodes", "pod_not_ready_message"),
            "lastTransitionTime": now_rfc3339(),
        }
        patch = {"metadata": {"uid": uid_of(pod)}, "status": {"conditions": [ready]}}
        await self._client.patch("Pod", name, patch, namespace, subresource="status", type="strategic")
        self._events.event(pod, "PodNodeNotReady")
