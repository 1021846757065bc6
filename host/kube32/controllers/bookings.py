"""Room on nodes that is promised but not yet seen in the API, so no two choices count on the same room."""

from collections.abc import Iterator

from kube32.client.informer import Informer
from kube32.controllers.objects import Obj, node_of, uid_of


class Bookings:
    """The pods as the Informer knows them, and promised ones. For scheduler and Checkpoint controller."""

    def __init__(self, pods: Informer) -> None:
        self._pods = pods
        self._promised: dict[str, Obj] = {}

    def book(self, pod: Obj, node: str) -> str:
        """Promises room on `node`; the promise ends with `release`, or when the pod is seen there."""
        ticket = f"{uid_of(pod)}@{node}"
        # A promise takes room without being the pod: a moving pod counts at its source and at its target.
        metadata = {**pod["metadata"], "uid": ticket}
        self._promised[ticket] = {
            **pod,
            "metadata": metadata,
            "spec": {**pod["spec"], "nodeName": node},
            "status": {},
        }
        return ticket

    def release(self, ticket: str) -> None:
        """Ends a promise."""
        self._promised.pop(ticket, None)

    def pods(self) -> Iterator[Obj]:
        """Every pod, bound and promised."""
        yield from self._pods.items.values()
        for promised in list(self._promised.values()):
            meta = promised["metadata"]
            seen = self._pods.get(meta.get("namespace", ""), meta["name"])
            if seen is None or node_of(seen) != node_of(promised):
                yield promised
