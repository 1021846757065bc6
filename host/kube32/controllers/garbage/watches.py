"""The garbage collector's watches: one of metadata for each kind that can be deleted, as kinds come and go.

A kind that other controllers watch in all namespaces is not watched twice.
"""

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from kube32.client.api import ApiClient, Obj
from kube32.client.informer import Informer
from kube32.contract import Resource, resource_of
from kube32.controllers.served import ServedKinds

KindKey = tuple[str, str]
OnObject = Callable[[KindKey, str, Obj, Obj | None], None]
# Events own nothing and nobody owns them, as Kubernetes' garbage collector has it.
_IGNORED = frozenset({("", "events"), ("events.k8s.io", "events")})
# A kind that cannot be listed holds the others up for this long only, as in Kubernetes.
_SYNC_S = 30.0


_KEPT = ("name", "namespace", "uid", "resourceVersion", "ownerReferences", "finalizers", "deletionTimestamp")


def _bones(obj: Obj) -> Obj:
    """What the graph looks at: annotations and managed fields would be most of an object's size."""
    meta = {key: obj["metadata"][key] for key in _KEPT if key in obj["metadata"]}
    return {"apiVersion": obj["apiVersion"], "kind": obj["kind"], "metadata": meta}


@dataclass(slots=True)
class _Watch:
    resource: Resource
    informer: Informer
    task: asyncio.Task[None] | None
    end: Callable[[], None]


class Watches:
    """`on_object` hears of each change; `on_kind_gone` which objects of a kind are left after a gap."""

    def __init__(
        self,
        client: ApiClient,
        kinds: ServedKinds,
        shared: Mapping[str, Informer],
        on_object: OnObject,
        on_kind_gone: Callable[[KindKey, set[str]], None],
    ) -> None:
        self._client = client
        self._kinds = kinds
        self._shared = {(r.group, r.plural): i for k, i in shared.items() for r in (resource_of(k),)}
        self._on_object = on_object
        self._on_kind_gone = on_kind_gone
        self._watches: dict[KindKey, _Watch] = {}
        self._retired: dict[KindKey, Resource] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    def resource(self, key: KindKey) -> Resource | None:
        """The kind as it is watched."""
        watch = self._watches.get(key)
        return watch.resource if watch is not None else None

    def adjust(self) -> None:
        """Watches what is served now."""
        wanted = {
            (r.group, r.plural): r
            for r in self._kinds.with_verbs("list", "watch", "delete", "get")
            if (r.group, r.plural) not in _IGNORED
        }
        for key, watch in list(self._watches.items()):
            if wanted.get(key) != watch.resource:
                self._retired[key] = watch.resource
                self._end(self._watches.pop(key))
        for key, resource in wanted.items():
            if key not in self._watches:
                self._begin(key, resource)
        for key, resource in list(self._retired.items()):
            if key in self._watches:
                del self._retired[key]
            elif not self._kinds.is_defined(resource):
                del self._retired[key]
                self._on_kind_gone(key, set())

    def _begin(self, key: KindKey, resource: Resource) -> None:
        informer = self._shared.get(key)
        task = None
        if informer is None:
            informer = Informer(self._client, resource, metadata_only=True, transform=_bones)
            task = asyncio.get_running_loop().create_task(informer.run(), name=f"watch {resource.plural}")
        if key in self._retired:
            gap = asyncio.get_running_loop().create_task(self._after_gap(key, informer))
            self._tasks.add(gap)
            gap.add_done_callback(self._tasks.discard)
        end = informer.subscribe(lambda kind, obj, old: self._on_object(key, kind, obj, old))
        self._watches[key] = _Watch(resource, informer, task, end)

    async def _after_gap(self, key: KindKey, informer: Informer) -> None:
        """What went while another version of the kind was watched, or none."""
        await informer.synced.wait()
        self._on_kind_gone(key, {o["metadata"]["uid"] for o in informer.items.values()})

    def _end(self, watch: _Watch) -> None:
        watch.end()
        if watch.task is not None:
            watch.task.cancel()

    async def synced(self) -> None:
        """Waits for the first list of each kind: without them a dependent could be overlooked."""
        missing = [w.informer for w in self._watches.values() if not w.informer.synced.is_set()]
        if missing:
            try:
                async with asyncio.timeout(_SYNC_S):
                    for informer in missing:
                        await informer.synced.wait()
            except TimeoutError:
                pass

    async def stop(self) -> None:
        """Ends its own watches."""
        tasks = [w.task for w in self._watches.values() if w.task is not None] + list(self._tasks)
        for watch in self._watches.values():
            self._end(watch)
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
