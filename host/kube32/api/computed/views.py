"""Keeps the computed objects true: a change of a Service, Pod or Deployment recomputes what depends on it."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from kube32.api.computed import endpoints as made
from kube32.api.computed.facts import PodFacts
from kube32.api.computed.replica_sets import replica_sets
from kube32.api.computed.store import ComputedStore
from kube32.contract import resource_of
from kube32.store import Change, Store

Obj = dict[str, Any]
_API_SERVER = ("default", "kubernetes")


@dataclass(slots=True)
class _Owner:
    """A Service or Deployment, its pods by key, and the keys of what was computed from it."""

    obj: Obj
    pods: dict[str, PodFacts] = field(default_factory=dict)
    keys: set[str] = field(default_factory=set)


class Views:
    """Computes Endpoints, EndpointSlices and ReplicaSets over a store, from now on.

    Works in the store's subscriptions: one change at a time, in the order of revisions.
    """

    def __init__(self, store: Store) -> None:
        self.store = ComputedStore(store)
        self._main = store
        self._pods: dict[str, PodFacts] = {}
        self._services: dict[str, dict[str, _Owner]] = {}
        self._deployments: dict[str, _Owner] = {}
        self._api_server: tuple[str, int] | None = None
        self._prefixes = {kind: resource_of(kind).prefix for kind in ("Pod", "Service", "Deployment")}
        self._ends = [
            store.subscribe(self._prefixes["Pod"], self._on_pod),
            store.subscribe(self._prefixes["Service"], self._on_service),
            store.subscribe(self._prefixes["Deployment"], self._on_deployment),
        ]
        for kind, take in (
            ("Pod", self._take_pod),
            ("Service", self._take_service),
            ("Deployment", self._take_deployment),
        ):
            for entry in store.scan(self._prefixes[kind])[0]:
                take(entry.key, entry.obj)

    def close(self) -> None:
        """Computes no more."""
        for end in self._ends:
            end()

    def set_api_server(self, host: str, port: int) -> None:
        """Where the API server is reached: the endpoints of Service default/kubernetes."""
        self._api_server = (host, port)
        owner = self._services.get(_API_SERVER[0], {}).get(_API_SERVER[1])
        if owner is not None:
            self._compute_service(owner)

    # --- pods ---

    def _on_pod(self, change: Change) -> None:
        self._take_pod(change.key, None if change.type == "DELETED" else change.entry.obj)

    def _take_pod(self, key: str, pod: Obj | None) -> None:
        before = self._pods.get(key)
        now = None if pod is None else PodFacts.of(pod)
        if now == before:
            return
        if now is None:
            self._pods.pop(key, None)
        else:
            self._pods[key] = now
        namespace = (now or before).namespace  # type: ignore[union-attr]  # not both are None
        for owner in self._services.get(namespace, {}).values():
            if self._place(owner, key, now, (owner.obj.get("spec") or {}).get("selector")):
                self._compute_service(owner)
        for uid in {f.owner for f in (now, before) if f is not None and f.owner in self._deployments}:
            deployment = self._deployments[uid]
            if now is not None and now.owner == uid:
                deployment.pods[key] = now
            else:
                deployment.pods.pop(key, None)
            self._compute_deployment(deployment)

    @staticmethod
    def _place(owner: _Owner, key: str, pod: PodFacts | None, selector: dict[str, str] | None) -> bool:
        """Whether the Service's pods changed."""
        if pod is not None and pod.selected_by(selector):
            owner.pods[key] = pod
            return True
        return owner.pods.pop(key, None) is not None

    # --- Services ---

    def _on_service(self, change: Change) -> None:
        self._take_service(change.key, None if change.type == "DELETED" else change.entry.obj)

    def _take_service(self, key: str, service: Obj | None) -> None:
        namespace, name = key.removeprefix(self._prefixes["Service"]).split("/", 1)
        here = self._services.setdefault(namespace, {})
        owner = here.get(name)
        if service is None:
            if owner is not None:
                del here[name]
                self._replace(owner, ())
            return
        if owner is None:
            owner = here[name] = _Owner(service)
        owner.obj = service
        selector = (service.get("spec") or {}).get("selector")
        owner.pods = {
            k: p for k, p in self._pods.items() if p.namespace == namespace and p.selected_by(selector)
        }
        self._compute_service(owner)

    def _compute_service(self, owner: _Owner) -> None:
        service = owner.obj
        spec, metadata = service.get("spec") or {}, service["metadata"]
        objects: list[Obj] = []
        if (metadata["namespace"], metadata["name"]) == _API_SERVER and not spec.get("selector"):
            if self._api_server is not None:
                host, port = self._api_server
                objects = [made.fixed_endpoints(service, host, port), *made.fixed_slices(service, host, port)]
        elif spec.get("selector") and spec.get("type") != "ExternalName":
            pods = list(owner.pods.values())
            objects = [made.endpoints(service, pods), *made.slices(service, pods)]
        self._replace(owner, objects)

    # --- Deployments ---

    def _on_deployment(self, change: Change) -> None:
        self._take_deployment(
            change.key, None if change.type == "DELETED" else change.entry.obj, change.entry.obj
        )

    def _take_deployment(self, key: str, deployment: Obj | None, last: Obj | None = None) -> None:
        uid = (deployment or last or {})["metadata"]["uid"]
        owner = self._deployments.get(uid)
        if deployment is None:
            if owner is not None:
                del self._deployments[uid]
                self._replace(owner, ())
            return
        if owner is None:
            owner = self._deployments[uid] = _Owner(deployment)
            owner.pods = {k: p for k, p in self._pods.items() if p.owner == uid}
        owner.obj = deployment
        self._compute_deployment(owner)

    def _compute_deployment(self, owner: _Owner) -> None:
        self._replace(owner, replica_sets(owner.obj, owner.pods.values()))

    # --- what comes out ---

    def _replace(self, owner: _Owner, objects: Iterable[Obj]) -> None:
        keys = set()
        for obj in objects:
            key = resource_of(obj["kind"]).object_key(obj["metadata"]["namespace"], obj["metadata"]["name"])
            keys.add(key)
            self.store.set(key, obj)
        for key in owner.keys - keys:
            self.store.remove(key)
        owner.keys = keys
