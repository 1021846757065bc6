"""The finalizer of Jobs' pods: it goes when a pod is counted, and when there is no Job that would count it."""

from collections.abc import Callable, Iterable

from kube32.client.api import ApiClient, ApiError
from kube32.client.informer import Informer, Key, key_of
from kube32.contract import NAMES
from kube32.controllers.objects import Obj, uid_of
from kube32.controllers.queue import WorkQueue
from kube32.controllers.workloads.jobs.tally import has_finalizer
from kube32.controllers.workloads.owned import OwnedPods, controller_of
from kube32.controllers.workloads.selectors import selects

_KIND = "Job"


class Finalizers:
    """Removes them. Follows pods and Jobs for pods whose Job is gone."""

    def __init__(self, client: ApiClient, jobs: Informer, pods: Informer, owned: OwnedPods) -> None:
        self._client = client
        self._jobs = jobs
        self._pods = pods
        self._owned = owned
        self._lone: WorkQueue[Key] = WorkQueue()

    def follow(self) -> Callable[[], None]:
        """Begins to follow the watches; gives the end."""
        ends = [self._pods.subscribe(self._on_pod), self._jobs.subscribe(self._on_job)]

        def end() -> None:
            for one in ends:
                one()

        return end

    async def run(self) -> None:
        """Frees pods whose Job is gone, until cancelled."""
        await self._lone.run(self._free)

    async def remove(self, pods: Iterable[Obj]) -> None:
        """Removes the finalizer of pods. Those that are gone, or were replaced, need none."""
        for pod in pods:
            meta = pod["metadata"]
            patch: Obj = {
                "metadata": {"uid": meta["uid"], "$deleteFromPrimitiveList/finalizers": [NAMES.finalizer_job]}
            }
            try:
                changed = await self._client.patch(
                    "Pod", meta["name"], patch, meta["namespace"], type="strategic"
                )
            except ApiError as error:
                if error.code not in (404, 409):
                    raise
            else:
                self._owned.wrote(changed)

    def _on_job(self, kind: str, job: Obj, old: Obj | None) -> None:
        gone = job if kind == "DELETED" else old if old is not None and uid_of(old) != uid_of(job) else None
        if gone is not None:
            for pod in self._owned.of(gone):
                self._on_pod("MODIFIED", pod, None)

    def _on_pod(self, kind: str, pod: Obj, old: Obj | None) -> None:
        if kind == "DELETED":
            self._lone.drop(key_of(pod))
        elif has_finalizer(pod) and self._is_lone(pod):
            self._lone.add(key_of(pod))

    def _is_lone(self, pod: Obj) -> bool:
        reference = controller_of(pod)
        if reference is None:
            return not any(selects(job, pod) for job in self._jobs.items.values())
        job = self._jobs.get(key_of(pod)[0], str(reference.get("name")))
        return reference.get("kind") == _KIND and (job is None or uid_of(job) != reference.get("uid"))

    async def _free(self, key: Key) -> None:
        pod = self._pods.get(*key)
        if pod is None or not has_finalizer(pod) or not self._is_lone(pod):
            return
        reference = controller_of(pod)
        if reference is not None:
            # The watch of Jobs may be behind that of pods.
            try:
                job = await self._client.get(_KIND, str(reference.get("name")), key[0])
            except ApiError as error:
                if error.code != 404:
                    raise
            else:
                if uid_of(job) == reference.get("uid"):
                    return
        await self.remove([pod])
