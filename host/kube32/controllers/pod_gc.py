"""Pods bound to a node that is no longer there are deleted, after a while in which the node may come back."""

from kube32.client.api import ApiClient, ApiError
from kube32.client.informer import Informer, Key, key_of
from kube32.contract import Limits
from kube32.controllers.deadlines import Deadlines
from kube32.controllers.objects import Obj, name_of, node_of, uid_of

# Times node_lost_ms: a worker that restarts puts its Node back well before.
_PATIENCE = 2


class PodGc:
    """Kubernetes' PodGC for pods of nodes that are gone."""

    def __init__(self, client: ApiClient, pods: Informer, nodes: Informer, limits: Limits) -> None:
        self._client = client
        self._pods = pods
        self._nodes = nodes
        self._wait_s = _PATIENCE * limits.node_lost_ms / 1000
        self._orphans: Deadlines[Key] = Deadlines()
        pods.subscribe(self._on_pod)
        nodes.subscribe(self._on_node)

    def _on_pod(self, kind: str, pod: Obj, old: Obj | None) -> None:
        key = key_of(pod)
        if kind == "DELETED" or not self._is_orphan(pod):
            self._orphans.drop(key)
        elif key not in self._orphans:
            self._orphans.set(key, self._wait_s)

    def _on_node(self, kind: str, node: Obj, old: Obj | None) -> None:
        if kind == "MODIFIED":
            return
        for pod in self._pods.items.values():
            if node_of(pod) == name_of(node):
                self._on_pod("MODIFIED", pod, None)

    def _is_orphan(self, pod: Obj) -> bool:
        return bool(node_of(pod)) and self._nodes.get("", node_of(pod)) is None

    async def run(self) -> None:
        """Deletes orphans as their time comes, until cancelled."""
        await self._orphans.run(self._collect)

    async def _collect(self, key: Key) -> None:
        pod = self._pods.get(*key)
        if pod is None or not self._is_orphan(pod):
            return
        try:
            await self._client.get("Node", node_of(pod))
        except ApiError as error:
            if error.code != 404:
                raise
        else:
            return
        try:
            await self._client.delete("Pod", key[1], key[0], uid=uid_of(pod), grace_s=0)
        except ApiError as error:
            if error.code not in (404, 409):
                raise
