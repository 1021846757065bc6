"""The garbage collector: what becomes of dependents whose owner goes, as Kubernetes' own does it.

Before anything is deleted its owners are looked up live, by uid: the graph only says where to look.
"""

import logging
from collections.abc import Callable, Mapping

from kube32.client.api import ApiClient, ApiError
from kube32.client.events import EventRecorder
from kube32.client.informer import Informer
from kube32.contract import NAMES, Resource
from kube32.controllers.garbage.graph import Graph, Node, Obj, Owner, owners_of
from kube32.controllers.garbage.owners import Found, Owners, named
from kube32.controllers.garbage.watches import KindKey, Watches
from kube32.controllers.queue import WorkQueue
from kube32.controllers.served import ServedKinds

_LOG = logging.getLogger(__name__)
_WORKERS = 4
_MISSED = (404, 409)


class GarbageCollector:
    """Deletes objects whose owners are all gone, and carries out Foreground and Orphan deletions.

    `shared` are Informers of whole kinds that others run; `on_gone` hears in which namespace something went.
    """

    def __init__(
        self,
        client: ApiClient,
        kinds: ServedKinds,
        shared: Mapping[str, Informer],
        events: EventRecorder,
        on_gone: Callable[[str], None] = lambda namespace: None,
    ) -> None:
        self._client = client
        self._tell_gone = on_gone
        self._events = events
        self._graph = Graph()
        self._queue: WorkQueue[str] = WorkQueue()
        self._owners = Owners(client, kinds)
        self._kinds = kinds
        self._watches = Watches(client, kinds, shared, self._on_object, self._on_kind_gone)

    async def run(self) -> None:
        """Collects until cancelled."""
        self._kinds.subscribe(self._on_kinds)
        try:
            await self._kinds.known.wait()
            self._watches.adjust()
            await self._queue.run(self._work, _WORKERS)
        finally:
            await self._watches.stop()

    def _on_kinds(self) -> None:
        self._watches.adjust()
        for node in list(self._graph.nodes.values()):
            if node.virtual:
                self._queue.add(node.uid)

    # --- what the watches tell ---

    def _on_object(self, resource: KindKey, kind: str, obj: Obj, old: Obj | None) -> None:
        uid = obj["metadata"]["uid"]
        if old is not None and old["metadata"]["uid"] != uid:
            self._on_gone(old["metadata"]["uid"])
        if kind == "DELETED":
            self._on_gone(uid)
            return
        node, before = self._graph.put(obj, resource)
        if before is None:
            self._on_first(node)
        self._look_at_owners(node, before.owners if before is not None else ())
        if before is not None and before.owners != node.owners:
            self._on_released(node, before)
        if node.waits_for_dependents and (before is None or not before.waits_for_dependents):
            for dependent in self._graph.dependents(node):
                self._queue.add(dependent.uid)
            self._queue.add(uid)
        if node.orphans_dependents and (before is None or not before.orphans_dependents):
            self._queue.add(uid)

    def _on_first(self, node: Node) -> None:
        """An owner is seen for the first time: those that named it before may be elsewhere."""
        for dependent in self._graph.dependents(node):
            owner = dependent.owner(node.uid)
            if owner is not None:
                self._check_namespace(dependent, owner, node)

    def _look_at_owners(self, node: Node, before: tuple[Owner, ...]) -> None:
        for owner in node.owners:
            if owner in before:
                continue
            found = self._graph.nodes[owner.uid]
            if found.virtual:
                self._queue.add(owner.uid)
            else:
                self._check_namespace(node, owner, found)
                if found.waits_for_dependents:
                    self._queue.add(node.uid)

    def _check_namespace(self, dependent: Node, owner: Owner, found: Node) -> None:
        if found.namespace and found.namespace != dependent.namespace:
            self._tell_namespace(dependent, owner)
            self._queue.add(dependent.uid)

    def _tell_namespace(self, dependent: Node, owner: Owner) -> None:
        self._events.event(
            _reference(dependent),
            "OwnerRefInvalidNamespace",
            owner=named(owner, dependent.namespace),
            namespace=dependent.namespace,
        )

    def _on_released(self, node: Node, before: Node) -> None:
        """References went or no longer block: the owner may be free to go."""
        for owner in before.owners:
            now = node.owner(owner.uid)
            if owner.blocks and (now is None or not now.blocks):
                self._wake_owner(owner.uid)

    def _wake_owner(self, uid: str) -> None:
        node = self._graph.nodes.get(uid)
        if node is not None and node.waits_for_dependents:
            self._queue.add(uid)

    def _on_gone(self, uid: str) -> None:
        node = self._graph.remove(uid)
        if node is None or node.virtual:
            return
        self._queue.drop(uid)
        self._tell_gone(node.namespace)
        if node.dependents:
            self._owners.forget(uid, node.namespace)
            for dependent in sorted(node.dependents):
                self._queue.add(dependent)
        for owner in node.owners:
            self._wake_owner(owner.uid)

    def _on_kind_gone(self, resource: KindKey, present: set[str]) -> None:
        """Of a kind only the objects `present` are left; nobody saw the others go."""
        for node in list(self._graph.nodes.values()):
            if node.resource == resource and node.uid not in present:
                self._on_gone(node.uid)

    # --- what is done about it ---

    async def _work(self, uid: str) -> None:
        await self._watches.synced()
        node = self._graph.nodes.get(uid)
        if node is None:
            return
        if node.resource is None:
            await self._verify(node)
            return
        resource = self._watches.resource(node.resource)
        if resource is None:
            return
        try:
            await self._work_on(resource, node)
        except ApiError as error:
            if error.code not in _MISSED:
                raise
            # It changed or went in between: what it is now is looked at afresh.
            if await self._live(resource, node) is not None:
                raise

    async def _verify(self, node: Node) -> None:
        """An owner that only references know: whether it is there."""
        reference = Owner(node.uid, node.api_version, node.kind, node.name)
        for namespace in sorted({d.namespace for d in self._graph.dependents(node)}):
            found = await self._owners.find(reference, namespace)
            if found.state == Found.PRESENT:
                continue
            for dependent in self._graph.dependents(node):
                if dependent.namespace == namespace:
                    if found.state == Found.UNREACHABLE:
                        self._tell_namespace(dependent, reference)
                    else:
                        self._queue.add(dependent.uid)

    async def _work_on(self, resource: Resource, node: Node) -> None:
        if node.deleting and not node.waits_for_dependents and not node.orphans_dependents:
            return
        live = await self._live(resource, node)
        if live is None:
            self._on_gone(node.uid)
        elif node.orphans_dependents:
            await self._orphan(resource, node, live)
        elif node.waits_for_dependents:
            await self._finish_foreground(resource, node, live)
        elif not live["metadata"].get("deletionTimestamp"):
            await self._collect(resource, node, live)

    async def _live(self, resource: Resource, node: Node) -> Obj | None:
        try:
            live = await self._client.get(resource, node.name, node.namespace)
        except ApiError as error:
            if error.code == 404:
                return None
            raise
        return live if live["metadata"]["uid"] == node.uid else None

    async def _orphan(self, resource: Resource, node: Node, live: Obj) -> None:
        """Dependents forget their owner, then it may go."""
        for dependent in list(self._graph.dependents(node)):
            kind = self._watches.resource(dependent.resource) if dependent.resource else None
            if kind is not None:
                await self._release(kind, dependent, {node.uid})
        await self._drop_finalizer(resource, live, NAMES.finalizer_orphan)

    async def _finish_foreground(self, resource: Resource, node: Node, live: Obj) -> None:
        """The owner goes once nothing that blocks it is left."""
        blocking = self._graph.blocking(node)
        for dependent in blocking:
            if not dependent.waits_for_dependents:
                self._queue.add(dependent.uid)
        if not blocking:
            await self._drop_finalizer(resource, live, NAMES.finalizer_foreground)

    async def _drop_finalizer(self, resource: Resource, live: Obj, finalizer: str) -> None:
        meta = live["metadata"]
        left = [f for f in meta.get("finalizers") or () if f != finalizer]
        if len(left) == len(meta.get("finalizers") or ()):
            return
        change = {"uid": meta["uid"], "resourceVersion": meta["resourceVersion"], "finalizers": left or None}
        await self._client.patch(resource, meta["name"], {"metadata": change}, meta.get("namespace", ""))

    async def _collect(self, resource: Resource, node: Node, live: Obj) -> None:
        """Looks at each owner: one that is there keeps the object; without one the object goes."""
        solid, dangling, waiting = [], set(), set()
        for owner in owners_of(live["metadata"]):
            found = await self._owners.find(owner, node.namespace)
            if found.state == Found.UNREACHABLE:
                return
            if found.state == Found.ABSENT:
                dangling.add(owner.uid)
            elif found.waits:
                waiting.add(owner.uid)
            else:
                solid.append(owner.uid)
        if solid:
            await self._release(resource, node, dangling | waiting)
        elif waiting and node.dependents:
            await self._break_circle(resource, node, live)
            await self._delete(resource, live, "Foreground")
        elif waiting or dangling:
            await self._delete(resource, live, _propagation(live))

    async def _break_circle(self, resource: Resource, node: Node, live: Obj) -> None:
        """A dependent that waits for its own dependents may wait for this one: it must not block it too."""
        if not any(d.waits_for_dependents for d in self._graph.dependents(node)):
            return
        meta = live["metadata"]
        references = [{**r, "blockOwnerDeletion": False} for r in meta.get("ownerReferences") or ()]
        change = {"uid": meta["uid"], "ownerReferences": references}
        patched = await self._client.patch(
            resource, meta["name"], {"metadata": change}, meta.get("namespace", "")
        )
        meta["resourceVersion"] = patched["metadata"]["resourceVersion"]

    async def _release(self, resource: Resource, node: Node, owners: set[str]) -> None:
        """Removes references to the owners from an object."""
        live = await self._live(resource, node) if owners else None
        if live is None:
            return
        meta = live["metadata"]
        before = meta.get("ownerReferences") or []
        left = [r for r in before if r.get("uid") not in owners]
        if len(left) == len(before):
            return
        change = {
            "uid": meta["uid"],
            "resourceVersion": meta["resourceVersion"],
            "ownerReferences": left or None,
        }
        await self._client.patch(resource, meta["name"], {"metadata": change}, meta.get("namespace", ""))

    async def _delete(self, resource: Resource, live: Obj, propagation: str) -> None:
        meta = live["metadata"]
        _LOG.info("%s %s/%s has no owner left", resource.kind, meta.get("namespace", ""), meta["name"])
        await self._client.delete(
            resource,
            meta["name"],
            meta.get("namespace", ""),
            uid=meta["uid"],
            resource_version=meta["resourceVersion"],
            propagation=propagation,
        )


def _propagation(live: Obj) -> str:
    """What the object's own finalizers say about its dependents."""
    finalizers = live["metadata"].get("finalizers") or ()
    if NAMES.finalizer_orphan in finalizers:
        return "Orphan"
    return "Foreground" if NAMES.finalizer_foreground in finalizers else "Background"


def _reference(node: Node) -> Obj:
    """Enough of an object for an Event about it."""
    meta = {"name": node.name, "namespace": node.namespace, "uid": node.uid}
    return {"apiVersion": node.api_version, "kind": node.kind, "metadata": meta}
