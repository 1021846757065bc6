"""The pods of this node by name and uid, who takes which topic, and events for them."""

from kube32.contract import text
from kube32.formats.k32s import HeldEvent
from kube32.kubelet.answers import not_found
from kube32.kubelet.container import Container
from kube32.kubelet.pod_worker import PodWorker
from kube32.kubelet.values import Obj


class Registry:
    """Workers by uid, the newest of each name. `receivers` is for any thread, the rest for the event loop."""

    def __init__(self, node_name: str) -> None:
        self._node_name = node_name
        self._by_uid: dict[str, PodWorker] = {}
        self._by_key: dict[tuple[str, str], PodWorker] = {}
        self._receivers: dict[tuple[str, str], int] = {}

    def all(self) -> list[PodWorker]:
        """Every worker; a copy, so that any thread may walk it."""
        return list(self._by_uid.values())

    def get(self, uid: str) -> PodWorker | None:
        """The worker of a uid."""
        return self._by_uid.get(uid)

    def worker(self, namespace: str, name: str) -> PodWorker | None:
        """The worker of a name."""
        return self._by_key.get((namespace, name))

    def add(self, worker: PodWorker) -> None:
        """A pod of this node; it takes the name over."""
        self._by_uid[worker.uid] = worker
        self._by_key[worker.key] = worker

    def remove(self, worker: PodWorker) -> None:
        """A pod that is no longer of this node."""
        self._by_uid.pop(worker.uid, None)
        if self._by_key.get(worker.key) is worker:
            del self._by_key[worker.key]
        self.count_receivers()

    def pods(self) -> list[Obj]:
        """The objects of all pods."""
        return [worker.pod for worker in self.all()]

    def missing(self, namespace: str, name: str) -> str:
        """What is said of a pod that is not here."""
        return text("answers", "pod_not_found", namespace=namespace, pod=name, node=self._node_name)

    def container(self, namespace: str, name: str, container: str) -> tuple[PodWorker, Container]:
        """A container and its pod; Refusal 404 when they are not here."""
        worker = self.worker(namespace, name)
        if worker is None:
            raise not_found(self.missing(namespace, name))
        found = worker.container(container)
        if found is None:
            raise not_found(
                text("answers", "container_not_found", namespace=namespace, pod=name, container=container)
            )
        return worker, found

    def deliver(self, namespace: str, topic: str, payload: bytes, pod: str = "") -> int:
        """Gives an event to the subscribed pods of the namespace, or to one pod; the number that took it."""
        event = HeldEvent(topic, payload)
        if pod:
            worker = self.worker(namespace, pod)
            return 0 if worker is None else int(worker.deliver(event))
        takers = [w for w in self._by_key.values() if w.key[0] == namespace and topic in w.topics]
        return sum([worker.deliver(event) for worker in takers])

    def receivers(self, namespace: str, topic: str) -> int:
        """How many pods of this node would take an event. Any thread."""
        return self._receivers.get((namespace, topic), 0)

    def count_receivers(self) -> None:
        """Pods began, ended or changed their topics."""
        counts: dict[tuple[str, str], int] = {}
        for worker in self._by_key.values():
            for topic in worker.topics:
                if worker.receives(topic):
                    counts[worker.key[0], topic] = counts.get((worker.key[0], topic), 0) + 1
        self._receivers = counts
