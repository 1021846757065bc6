"""What claims say: their class, whether they are bound, which node holds them, who uses them. Pure."""

from collections.abc import Iterator
from dataclasses import dataclass

from kube32.contract import NAMES
from kube32.controllers.objects import (
    Obj,
    annotation,
    is_finished,
    name_of,
    node_of,
    spec_of,
    status_of,
    uid_of,
)


@dataclass(frozen=True, slots=True)
class ClaimUse:
    """A claim that a pod names; `template`: the spec of an ephemeral volume's own claim."""

    name: str
    template: Obj | None = None


def claims_of(pod: Obj) -> Iterator[ClaimUse]:
    """The claims that the pod's volumes name."""
    for volume in spec_of(pod).get("volumes") or []:
        claim, ephemeral = volume.get("persistentVolumeClaim"), volume.get("ephemeral")
        if claim is not None:
            yield ClaimUse(str(claim.get("claimName") or ""))
        elif ephemeral is not None:
            template = ephemeral.get("volumeClaimTemplate") or {}
            yield ClaimUse(f"{name_of(pod)}-{volume.get('name', '')}", template)


def uses(pod: Obj, claim: str) -> bool:
    """Whether a pod that has a node and has not ended uses the claim: then the claim may not go."""
    return bool(node_of(pod)) and not is_finished(pod) and any(u.name == claim for u in claims_of(pod))


def is_bound(claim: Obj) -> bool:
    """Whether a node holds the claim."""
    return status_of(claim).get("phase") == "Bound"


def is_ours(claim: Obj) -> bool:
    """Whether the claim asks for node storage: it names our class, or none at all."""
    name = spec_of(claim).get("storageClassName")
    return name is None or name == NAMES.storage_class


def holder_of(claim: Obj) -> str:
    """The node that holds the claim or was chosen for it, "" when there is none yet."""
    return annotation(claim, NAMES.ann_selected_node) or ""


def volume_name(claim: Obj, node: str) -> str:
    """The volume's name: whose node it is, and which claim."""
    return f"{node}-pvc-{uid_of(claim)}"


def owned_by(claim: Obj, pod: Obj) -> bool:
    """Whether the claim was made for this very pod."""
    return any(r.get("uid") == uid_of(pod) for r in claim["metadata"].get("ownerReferences") or ())
