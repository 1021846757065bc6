"""What a new PersistentVolumeClaim has from the start: it is Pending, and protected while pods use it."""

from typing import Any

from kube32.contract import NAMES


def prepare_create(claim: dict[str, Any]) -> None:
    """As Kubernetes' admission does: the finalizer is there before any pod can use the claim."""
    meta = claim["metadata"]
    finalizers = list(meta.get("finalizers") or ())
    if NAMES.finalizer_pvc not in finalizers:
        meta["finalizers"] = [*finalizers, NAMES.finalizer_pvc]
    claim["status"] = {"phase": "Pending"}
