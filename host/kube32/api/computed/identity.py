"""Names that stay: uids of computed objects, and what they say of the objects that they come from."""

import uuid
from typing import Any

from kube32.api.computed.facts import PodFacts
from kube32.contract import resource_of

Obj = dict[str, Any]


def derived_uid(kind: str, uid: str) -> str:
    """A uid that is always the same for what is computed from one object."""
    return str(uuid.uuid5(uuid.NAMESPACE_OID, f"kube32.io/{kind}/{uid}"))


def owned_by(kind: str, owner: Obj) -> list[Obj]:
    """The ownerReferences of what is computed from an object."""
    metadata = owner["metadata"]
    return [
        {
            "apiVersion": resource_of(kind).api_version,
            "kind": kind,
            "name": metadata["name"],
            "uid": metadata["uid"],
            "controller": True,
            "blockOwnerDeletion": True,
        }
    ]


def reference(pod: PodFacts) -> Obj:
    """A targetRef."""
    return {"kind": "Pod", "namespace": pod.namespace, "name": pod.name, "uid": pod.uid}


def in_order(pod: PodFacts) -> tuple[str, str]:
    """Sorts endpoints as Kubernetes does."""
    return pod.ip, pod.uid


def hostname(service: Obj, pod: PodFacts) -> str:
    """The pod's own name within a Service that is its subdomain."""
    return pod.hostname if pod.subdomain == service["metadata"]["name"] else ""
