"""What the server gives a new object beside its defaults, because it depends on other objects or on its uid."""

from typing import Any

from kube32.api import ingress_classes, services
from kube32.api.admission.kinds.workloads import generate_selector
from kube32.api.status import forbidden_because
from kube32.contract import NAMES, Resource, resource_of, text
from kube32.store import Store

Object = dict[str, Any]


def complete(store: Store, resource: Resource, obj: Object) -> None:
    """Fills in a new object, in place, that has its defaults and is not yet validated. ApiFailure 403."""
    kind = resource.builtin
    if kind == "Pod":
        _check_account(store, resource, obj)
    elif kind == "Job":
        generate_selector(obj)
    elif kind == "Ingress":
        ingress_classes.choose(store, obj)
    elif kind == "Service":
        services.prepare_create(obj)


def _check_account(store: Store, resource: Resource, pod: Object) -> None:
    """A pod's ServiceAccount exists. Every namespace gets its default one, if a moment later."""
    account, namespace = pod["spec"].get("serviceAccountName", ""), pod["metadata"]["namespace"]
    if account in ("", NAMES.service_account):
        return
    if store.get(resource_of("ServiceAccount").object_key(namespace, account)) is None:
        why = text("answers", "account_missing", namespace=namespace, name=account)
        raise forbidden_because(resource, pod["metadata"].get("name", ""), why)
