"""The IngressClass of the nodes' own listeners, and the class that an Ingress gets which names none."""

from typing import Any

from kube32.api import metadata
from kube32.contract import NAMES, resource_of
from kube32.store import Store

Object = dict[str, Any]
_DEFAULT = "ingressclass.kubernetes.io/is-default-class"
_OLDER = "kubernetes.io/ingress.class"


def choose(store: Store, ingress: Object) -> None:
    """Gives a new Ingress the default class, the newest one where there are several."""
    spec: Object = ingress.get("spec") or {}
    named = (ingress["metadata"].get("annotations") or {}).get(_OLDER)
    if spec.get("ingressClassName") is not None or named:
        return
    found = [entry.obj["metadata"] for entry in store.scan(resource_of("IngressClass").prefix)[0]]
    found = [meta for meta in found if (meta.get("annotations") or {}).get(_DEFAULT) == "true"]
    if found:
        newest = max(found, key=lambda meta: (meta.get("creationTimestamp") or "", meta["name"]))
        spec["ingressClassName"] = newest["name"]


def bootstrap(store: Store) -> None:
    """Makes the class of the nodes' listeners, the default, where it is missing."""
    resource = resource_of("IngressClass")
    key = resource.object_key("", NAMES.ingress_class)
    if store.get(key) is None:
        made: Object = {
            "kind": resource.kind,
            "apiVersion": resource.api_version,
            "metadata": {"name": NAMES.ingress_class, "annotations": {_DEFAULT: "true"}},
            "spec": {"controller": NAMES.ingress_controller},
        }
        metadata.prepare_create(resource, made, "")
        store.put(key, made)
