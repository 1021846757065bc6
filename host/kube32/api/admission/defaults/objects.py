"""What the other kinds may leave out."""

import base64
from typing import Any

from kube32.api.admission.defaults.values import fill
from kube32.contract import NAMES
from kube32.contract.rbac import GROUP as RBAC

Object = dict[str, Any]
_NAME_LABEL = "kubernetes.io/metadata.name"


def secret(obj: Object) -> None:
    """A Secret."""
    fill(obj, type="Opaque")
    written = obj.pop("stringData", None)
    if written:
        data = obj.setdefault("data", {})
        for key, value in written.items():
            data[key] = base64.b64encode(value.encode("utf-8", "surrogatepass")).decode("ascii")


def namespace(obj: Object) -> None:
    """A Namespace."""
    meta: Object = obj.setdefault("metadata", {})
    if meta.get("name"):
        meta.setdefault("labels", {})[_NAME_LABEL] = meta["name"]
    spec: Object = obj.setdefault("spec", {})
    status: Object = obj.setdefault("status", {})
    if not meta.get("deletionTimestamp"):
        spec.setdefault("finalizers", [NAMES.finalizer_namespace])
    status.setdefault("phase", "Active")


def claim(obj: Object) -> None:
    """A PersistentVolumeClaim: of the nodes' own storage, unless it says that it is of no class."""
    spec: Object = obj.setdefault("spec", {})
    fill(spec, volumeMode="Filesystem")
    spec.setdefault("storageClassName", NAMES.storage_class)
    obj.setdefault("status", {}).setdefault("phase", "Pending")


def binding(obj: Object) -> None:
    """A RoleBinding or ClusterRoleBinding."""
    if "roleRef" in obj:
        fill(obj["roleRef"], apiGroup=RBAC)
    for subject in obj.get("subjects") or ():
        if subject.get("kind") in ("User", "Group"):
            fill(subject, apiGroup=RBAC)


def checkpoint(obj: Object) -> None:
    """A Checkpoint."""
    fill(obj.setdefault("spec", {}), action="Save")
    obj.setdefault("status", {}).setdefault("phase", "Pending")


def module(obj: Object) -> None:
    """A Module."""
    obj.setdefault("spec", {})


def event(obj: Object) -> None:
    """An Event."""
    obj.setdefault("source", {})
