"""Namespaces: creates need an open one; a namespace goes by Terminating and its spec.finalizers."""

from typing import Any

from kube32.api import admission, metadata
from kube32.api.status import forbidden_because, not_found
from kube32.contract import NAMES, Resource, resource_of
from kube32.store import Store

Object = dict[str, Any]
_IMMORTAL = ("default", "kube-system", "kube-public")


def check_open(store: Store, resource: Resource, namespace: str, name: str) -> None:
    """ApiFailure 404 when the namespace of a new object does not exist, 403 when it is being deleted."""
    kind = resource_of("Namespace")
    entry = store.get(kind.object_key("", namespace))
    if entry is None:
        raise not_found(kind, namespace)
    if entry.obj["metadata"].get("deletionTimestamp"):
        failure = forbidden_because(
            resource,
            name,
            f"unable to create new content in namespace {namespace} because it is being terminated",
        )
        assert failure.details is not None
        failure.details["causes"] = [
            {
                "reason": "NamespaceTerminating",
                "message": f"namespace {namespace} is being terminated",
                "field": "metadata.namespace",
            }
        ]
        raise failure


def check_mortal(name: str) -> None:
    """ApiFailure 403 for a namespace that the cluster cannot do without."""
    if name in _IMMORTAL or name == NAMES.lease_namespace:
        raise forbidden_because(resource_of("Namespace"), name, "this namespace may not be deleted")


def prepare_create(namespace: Object) -> None:
    """Gives a new namespace its phase and the finalizer that the namespace controller removes."""
    spec = namespace.setdefault("spec", {})
    if isinstance(spec, dict):
        finalizers = spec.get("finalizers")
        held = finalizers if isinstance(finalizers, list) else []
        if NAMES.finalizer_namespace not in held:
            spec["finalizers"] = [*held, NAMES.finalizer_namespace]
    namespace["status"] = {"phase": "Active"}


def keep_finalizers(new: Object, old: Object) -> None:
    """Only /finalize changes spec.finalizers."""
    spec = {k: v for k, v in (new.get("spec") or {}).items() if k != "finalizers"}
    held = (old.get("spec") or {}).get("finalizers")
    if held:
        spec["finalizers"] = list(held)
    new["spec"] = spec


def terminate(namespace: Object) -> None:
    """Marks a namespace that is being deleted."""
    namespace["status"] = {**(namespace.get("status") or {}), "phase": "Terminating"}


def bootstrap(store: Store) -> None:
    """Makes the namespaces that every cluster has, those that are missing."""
    resource = resource_of("Namespace")
    for name in NAMES.init_namespaces:
        key = resource.object_key("", name)
        if store.get(key) is None:
            namespace = {
                "kind": resource.kind,
                "apiVersion": resource.api_version,
                "metadata": {"name": name},
            }
            metadata.prepare_create(resource, namespace, "")
            prepare_create(namespace)
            admission.default(resource, namespace)
            store.put(key, namespace)
