"""Room on nodes that is promised but not yet seen in the API, so no two choices count on the same room."""

from kube32.client.informer import Informer, Key, key_of
from kube32.controllers.load import Load
from kube32.controllers.objects import Obj, node_of, uid_of


class Bookings:
    """The pods as the Informer knows them, and promised ones. For scheduler and Checkpoint controller."""

    def __init__(self, pods: Informer) -> None:
        self.load = Load()
        self._pods = pods
        # ticket -> who was promised room, and where
        self._promised: dict[str, tuple[Key, str]] = {}
        pods.subscribe(self._on_pod)

    def _on_pod(self, kind: str, pod: Obj, old: Obj | None) -> None:
        if old is not None and uid_of(old) != uid_of(pod):
            self.load.remove(uid_of(old))
        if kind == "DELETED":
            self.load.remove(uid_of(pod))
            return
        self.load.put(pod)
        seen = key_of(pod), node_of(pod)
        for ticket in [t for t, promise in self._promised.items() if promise == seen]:
            self.load.remove(ticket)

    def book(self, pod: Obj, node: str) -> str:
        """Promises room on `node`; the promise ends with `release`, or when the pod is seen there."""
        ticket = f"{uid_of(pod)}@{node}"
        key = key_of(pod)
        self._promised[ticket] = key, node
        seen = self._pods.get(*key)
        # A promise takes room without being the pod: a moving pod counts at its source and at its target.
        if seen is None or node_of(seen) != node:
            self.load.put({**pod, "spec": {**pod["spec"], "nodeName": node}, "status": {}}, ticket)
        return ticket

    def release(self, ticket: str) -> None:
        """Ends a promise."""
        if self._promised.pop(ticket, None) is not None:
            self.load.remove(ticket)
