"""Keeps the computed objects true: a change of a Service, Pod or Deployment marks what depends on it.

What is marked is computed by the next reader, or soon, so that watches hear of it; what is large is computed the
more seldom for it: writers of pods wait for none of this.
"""

import asyncio
import logging
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from threading import RLock
from typing import Any

from kube32.api.computed.endpoints import endpoints, fixed_endpoints
from kube32.api.computed.facts import PodFacts
from kube32.api.computed.replica_sets import replica_sets
from kube32.api.computed.slices import Placement, fixed_slices, slices
from kube32.api.computed.store import ComputedStore
from kube32.contract import resource_of
from kube32.store import Change, Store

_log = logging.getLogger(__name__)
Obj = dict[str, Any]
_API_SERVER = ("default", "kubernetes")
_STEP_S = 0.005
# Half a stream's buffer: readers of watches get their turn before they fall behind.
_STEP_OWNERS = 8
# A computation without a reader that waits is followed by a rest of this many times its duration.
_REST = 4


@dataclass(slots=True, eq=False)
class _Owner:
    """A Service or Deployment, its pods by key, and the keys of what was computed from it."""

    obj: Obj
    compute: "Callable[[_Owner], list[Obj]]"
    pods: dict[str, PodFacts] = field(default_factory=dict)
    keys: set[str] = field(default_factory=set)
    placement: Placement = field(default_factory=Placement)
    rests_until: float = 0.0
    listed: tuple[str, str, str] | None = None


class Views:
    """Computes Endpoints, EndpointSlices and ReplicaSets over a store, from now on.

    Lock order: a hub's, the views', the computed store's, the main store's; watches are told with none held.
    """

    def __init__(self, store: Store) -> None:
        self.store = ComputedStore(store, self.settle)
        self._lock = RLock()
        self._pods: dict[str, dict[str, PodFacts]] = {}
        self._services: dict[str, dict[str, _Owner]] = {}
        # By namespace and one label of the selector: pods without it are not selected.
        self._by_label: dict[tuple[str, str, str], dict[_Owner, None]] = {}
        self._deployments: dict[str, _Owner] = {}
        self._marked: dict[_Owner, None] = {}
        self._api_server: tuple[str, int] | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._planned = False
        self._ends: list[Callable[[], None]] = []
        for kind, take in (
            ("Service", self._take_service),
            ("Deployment", self._take_deployment),
            ("Pod", self._take_pod),
        ):
            self._follow(store, resource_of(kind).prefix, take)

    def start(self, loop: asyncio.AbstractEventLoop) -> None:
        """From now on changes are computed also when nobody reads."""
        with self._lock:
            self._loop = loop
            self._plan()

    def close(self) -> None:
        """Computes no more."""
        self._loop = None
        for end in self._ends:
            end()

    def set_api_server(self, host: str, port: int) -> None:
        """Where the API server is reached: the endpoints of Service default/kubernetes."""
        with self._lock:
            self._api_server = (host, port)
            owner = self._services.get(_API_SERVER[0], {}).get(_API_SERVER[1])
            if owner is not None:
                self._mark(owner)

    def selected(self, namespace: str, service: str) -> list[str]:
        """The keys of the pods that a Service selects, whatever their state."""
        with self._lock:
            owner = self._services.get(namespace, {}).get(service)
            return [] if owner is None else sorted(owner.pods)

    def settle(self) -> None:
        """Computes everything that is out of date."""
        if not self._marked:
            return
        with self._lock:
            for owner in list(self._marked):
                self._compute(owner)
        self.store.deliver()

    # --- what changes ---

    def _follow(self, store: Store, prefix: str, take: Callable[[str, Obj, bool], None]) -> None:
        def changed(change: Change) -> None:
            with self._lock:
                take(change.key, change.entry.obj, change.type == "DELETED")
            self.store.deliver()

        self._ends.append(store.subscribe(prefix, changed))
        for entry in store.scan(prefix)[0]:
            take(entry.key, entry.obj, False)

    def _take_pod(self, key: str, pod: Obj, gone: bool) -> None:
        now = PodFacts.of(pod)
        here = self._pods.setdefault(now.namespace, {})
        before = here.get(key)
        if gone:
            here.pop(key, None)
            if not here:
                del self._pods[now.namespace]
        elif now == before:
            return
        else:
            here[key] = now
        for owner in self._concerned(now, before):
            if not gone and now.selected_by((owner.obj.get("spec") or {}).get("selector")):
                owner.pods[key] = now
            elif owner.pods.pop(key, None) is None:
                continue
            self._mark(owner)
        for uid in {now.owner} if before is None else {now.owner, before.owner}:
            deployment = self._deployments.get(uid)
            if deployment is not None:
                deployment.pods.pop(key, None)
                if not gone and uid == now.owner:
                    deployment.pods[key] = now
                self._mark(deployment)

    def _concerned(self, *states: PodFacts | None) -> dict[_Owner, None]:
        """The Services that may select a pod in one of these states."""
        found: dict[_Owner, None] = {}
        for pod in states:
            if pod is not None:
                for label in pod.labels.items():
                    found.update(self._by_label.get((pod.namespace, *label), {}))
        return found

    def _list(self, owner: _Owner, namespace: str, selector: dict[str, str] | None) -> None:
        """Has a Service found by the pods that it may select."""
        if owner.listed is not None:
            others = self._by_label[owner.listed]
            del others[owner]
            if not others:
                del self._by_label[owner.listed]
        owner.listed = (namespace, *next(iter(selector.items()))) if selector else None
        if owner.listed is not None:
            self._by_label.setdefault(owner.listed, {})[owner] = None

    def _take_service(self, key: str, service: Obj, gone: bool) -> None:
        metadata = service["metadata"]
        namespace, name = metadata["namespace"], metadata["name"]
        here = self._services.setdefault(namespace, {})
        if gone:
            owner = here.pop(name, None)
            if owner is not None:
                self._list(owner, namespace, None)
                self._drop(owner)
            if not here:
                del self._services[namespace]
            return
        owner = here.get(name)
        if owner is None:
            owner = here[name] = _Owner(service, self._of_service)
        owner.obj = service
        selector = (service.get("spec") or {}).get("selector")
        self._list(owner, namespace, selector)
        owner.pods = {k: p for k, p in self._pods.get(namespace, {}).items() if p.selected_by(selector)}
        self._mark(owner)

    def _take_deployment(self, key: str, deployment: Obj, gone: bool) -> None:
        metadata = deployment["metadata"]
        uid = metadata["uid"]
        if gone:
            if (owner := self._deployments.pop(uid, None)) is not None:
                self._drop(owner)
            return
        owner = self._deployments.get(uid)
        if owner is None:
            owner = self._deployments[uid] = _Owner(deployment, _of_deployment)
            pods = self._pods.get(metadata["namespace"], {})
            owner.pods = {k: p for k, p in pods.items() if p.owner == uid}
        owner.obj = deployment
        self._mark(owner)

    def _drop(self, owner: _Owner) -> None:
        """At once: what comes next under the same name is another object."""
        self._marked.pop(owner, None)
        for key in sorted(owner.keys):
            self.store.remove(key)

    # --- when it is computed ---

    def _mark(self, owner: _Owner) -> None:
        self._marked[owner] = None
        self._plan()

    def _plan(self) -> None:
        if self._loop is not None and self._marked and not self._planned:
            # The loop has ended: nobody watches.
            with suppress(RuntimeError):
                self._loop.call_soon_threadsafe(self._step)
                self._planned = True

    def _step(self) -> None:
        """Computes a few, and comes again for the others."""
        began = time.monotonic()
        with self._lock:
            ready = [o for o in self._marked if o.rests_until <= began]
            for owner in ready[:_STEP_OWNERS]:
                self._compute(owner)
                if time.monotonic() - began > _STEP_S:
                    break
            self._planned = bool(self._marked) and self._loop is not None
            if self._planned and self._loop is not None:
                rest = min(o.rests_until for o in self._marked) - time.monotonic()
                self._loop.call_later(max(rest, 0.0), self._step)
        self.store.deliver()

    def _compute(self, owner: _Owner) -> None:
        began = time.monotonic()
        del self._marked[owner]
        keys = set()
        try:
            objects = owner.compute(owner)
        except Exception:
            # One object must not keep all others from being computed.
            _log.exception("%s %s", owner.obj["kind"], owner.obj["metadata"]["name"])
            return
        for obj in objects:
            metadata = obj["metadata"]
            key = resource_of(obj["kind"]).object_key(metadata["namespace"], metadata["name"])
            keys.add(key)
            self.store.set(key, obj)
        for key in sorted(owner.keys - keys):
            self.store.remove(key)
        owner.keys = keys
        ended = time.monotonic()
        owner.rests_until = ended + _REST * (ended - began)

    # --- what is computed ---

    def _of_service(self, owner: _Owner) -> list[Obj]:
        service = owner.obj
        spec, metadata = service.get("spec") or {}, service["metadata"]
        if spec.get("type") == "ExternalName":
            return []
        if spec.get("selector"):
            return [endpoints(service, owner.pods.values()), *slices(service, owner.pods, owner.placement)]
        if self._api_server is None or (metadata["namespace"], metadata["name"]) != _API_SERVER:
            return []
        return [fixed_endpoints(service, *self._api_server), *fixed_slices(service, *self._api_server)]


def _of_deployment(owner: _Owner) -> list[Obj]:
    return replica_sets(owner.obj, owner.pods.values())
