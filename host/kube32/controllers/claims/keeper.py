"""What happens to claims besides their binding: phase, protection while in use, ephemeral claims, events."""

import asyncio
from urllib.parse import quote

from kube32.client.api import ApiClient, ApiError
from kube32.client.events import EventRecorder
from kube32.client.informer import Informer, Key, key_of
from kube32.contract import NAMES, resource_of
from kube32.controllers.claims.binding import ClaimBinding
from kube32.controllers.claims.facts import claims_of, holder_of, is_bound, is_ours, uses
from kube32.controllers.objects import (
    Obj,
    is_deleting,
    is_finished,
    name_of,
    node_of,
    spec_of,
    status_of,
    uid_of,
)
from kube32.controllers.queue import WorkQueue

_KIND = "PersistentVolumeClaim"


class ClaimKeeper:
    """Follows claims and the pods that use them."""

    def __init__(
        self,
        client: ApiClient,
        pods: Informer,
        claims: Informer,
        binding: ClaimBinding,
        events: EventRecorder,
    ) -> None:
        self._client = client
        self._pods = pods
        self._claims = claims
        self._binding = binding
        self._events = events
        self._queue: WorkQueue[Key] = WorkQueue()
        self._ephemeral: WorkQueue[Key] = WorkQueue()
        # Claims about which it was said what they wait for.
        self._told: set[str] = set()
        claims.subscribe(self._on_claim)
        pods.subscribe(self._on_pod)

    def _on_claim(self, kind: str, claim: Obj, old: Obj | None) -> None:
        if kind == "DELETED":
            self._told.discard(uid_of(claim))
            self._queue.drop(key_of(claim))
        else:
            self._queue.add(key_of(claim))

    def _on_pod(self, kind: str, pod: Obj, old: Obj | None) -> None:
        for use in claims_of(pod):
            key = pod["metadata"].get("namespace", ""), use.name
            if self._claims.get(*key) is not None:
                self._queue.add(key)
            elif use.template is not None and kind != "DELETED" and not is_deleting(pod):
                self._ephemeral.add(key_of(pod))

    async def run(self) -> None:
        """Works until cancelled."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._queue.run(self._sync))
            group.create_task(self._ephemeral.run(self._make))

    async def _sync(self, key: Key) -> None:
        claim = self._claims.get(*key)
        if claim is None:
            return
        users = [p for p in self._pods.items.values() if self._in_use(p, claim)]
        try:
            if is_deleting(claim):
                if not users:
                    await self._remove_data(claim)
                    await self._set_protection(claim, on=False)
                return
            if NAMES.finalizer_pvc not in (claim["metadata"].get("finalizers") or ()):
                await self._set_protection(claim, on=True)
                return  # its event comes back here
            if not is_bound(claim):
                await self._advance(claim, users)
        except ApiError as error:
            if error.code not in (404, 409):
                raise

    async def _remove_data(self, claim: Obj) -> None:
        """Has the node forget what the claim held. A node that is gone has taken it along; one that does not
        answer is asked again, and the claim stays until then.
        """
        node, volume = holder_of(claim), spec_of(claim).get("volumeName")
        if not node or not volume or NAMES.finalizer_pvc not in (claim["metadata"].get("finalizers") or ()):
            return
        path = f"{resource_of('Node').object_path('', quote(node, safe=''), 'proxy')}/claims/{quote(volume)}"
        answer = await self._client.raw("DELETE", path)
        async with answer:
            if answer.status != 404:
                await self._client.check(answer)

    def _in_use(self, pod: Obj, claim: Obj) -> bool:
        namespace, name = key_of(claim)
        return pod["metadata"].get("namespace", "") == namespace and uses(pod, name)

    async def _advance(self, claim: Obj, users: list[Obj]) -> None:
        """An unbound claim: pods that were given a node by hand bind it, the others wait for the scheduler."""
        if not status_of(claim).get("phase"):
            await self._patch(claim, {"status": {"phase": "Pending"}}, subresource="status")
        if users and is_ours(claim):
            await self._binding.bind(users[0], holder_of(claim) or node_of(users[0]))
        elif uid_of(claim) not in self._told:
            self._told.add(uid_of(claim))
            self._tell(claim)

    def _tell(self, claim: Obj) -> None:
        name = spec_of(claim).get("storageClassName")
        if is_ours(claim):
            self._events.event(claim, "WaitForFirstConsumer")
        elif name == "":
            self._events.event(claim, "NoVolume")
        else:
            self._events.event(claim, "ProvisioningFailed", storage_class=name)

    async def _set_protection(self, claim: Obj, *, on: bool) -> None:
        meta = claim["metadata"]
        before = list(meta.get("finalizers") or ())
        after = [f for f in before if f != NAMES.finalizer_pvc] + [NAMES.finalizer_pvc] * on
        if before != after:
            change = {"resourceVersion": meta["resourceVersion"], "finalizers": after or None}
            await self._patch(claim, {"metadata": change})

    async def _patch(self, claim: Obj, patch: Obj, subresource: str = "") -> None:
        namespace, name = key_of(claim)
        body = {**patch, "metadata": {**patch.get("metadata", {}), "uid": uid_of(claim)}}
        await self._client.patch(_KIND, name, body, namespace, subresource=subresource)

    async def _make(self, key: Key) -> None:
        """The claims of a pod's ephemeral volumes, owned by the pod: they go with it."""
        pod = self._pods.get(*key)
        if pod is None or is_deleting(pod) or is_finished(pod):
            return
        owner = {
            "apiVersion": "v1",
            "kind": "Pod",
            "name": name_of(pod),
            "uid": uid_of(pod),
            "controller": True,
            "blockOwnerDeletion": True,
        }
        for use in claims_of(pod):
            if use.template is None or self._claims.get(key[0], use.name) is not None:
                continue
            described = use.template.get("metadata") or {}
            meta = {k: described[k] for k in ("labels", "annotations") if described.get(k)}
            claim = {
                "apiVersion": "v1",
                "kind": _KIND,
                "metadata": {**meta, "name": use.name, "namespace": key[0], "ownerReferences": [owner]},
                "spec": use.template.get("spec") or {},
            }
            try:
                await self._client.create(_KIND, claim)
            except ApiError as error:
                if error.code not in (403, 409):
                    raise
