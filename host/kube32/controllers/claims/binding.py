"""Claims as the scheduler sees them: what keeps a pod waiting, where its claims are, and binding them."""

from kube32.client.api import ApiClient, ApiError
from kube32.client.events import EventRecorder
from kube32.client.informer import Informer, key_of
from kube32.contract import NAMES, text
from kube32.controllers.claims.facts import (
    claims_of,
    holder_of,
    is_bound,
    is_ours,
    owned_by,
    volume_name,
)
from kube32.controllers.objects import Obj, is_deleting, name_of, spec_of

_KIND = "PersistentVolumeClaim"


class ClaimBinding:
    """Binds claims to nodes. `claims` watches PersistentVolumeClaims."""

    def __init__(self, client: ApiClient, claims: Informer, events: EventRecorder) -> None:
        self._client = client
        self._claims = claims
        self._events = events

    def problem(self, pod: Obj) -> str:
        """Why no node can take the pod yet, in the kube-scheduler's words; "" when its claims are well."""
        for use in claims_of(pod):
            claim = self._claims.get(pod["metadata"].get("namespace", ""), use.name)
            if claim is None:
                missing = "claim_missing" if use.template is None else "claim_ephemeral"
                return text("scheduling", missing, claim=use.name)
            if use.template is not None and not owned_by(claim, pod):
                return text("scheduling", "claim_not_owned", claim=use.name, pod=name_of(pod))
            if is_deleting(claim):
                return text("scheduling", "claim_deleting", claim=use.name)
            if not is_bound(claim) and not _can_be_bound(claim):
                return text("scheduling", "claim_unbound")
        return ""

    def nodes(self, pod: Obj) -> set[str]:
        """The nodes that hold claims of the pod."""
        namespace = pod["metadata"].get("namespace", "")
        found = (self._claims.get(namespace, use.name) for use in claims_of(pod))
        return {holder_of(claim) for claim in found if claim is not None and holder_of(claim)}

    async def bind(self, pod: Obj, node: str) -> None:
        """Gives the pod's unbound claims to the node. ApiError (409 when another node was faster), OSError."""
        namespace = pod["metadata"].get("namespace", "")
        for use in claims_of(pod):
            claim = self._claims.get(namespace, use.name)
            if claim is not None and not is_bound(claim) and _can_be_bound(claim):
                await self._bind(claim, node)

    async def _bind(self, seen: Obj, node: str) -> None:
        namespace, name = key_of(seen)
        claim = await self._client.get(_KIND, name, namespace)
        if holder_of(claim) not in ("", node):
            raise ApiError(409, "Conflict", f"claim {namespace}/{name} belongs to node {holder_of(claim)}")
        meta, volume = claim["metadata"], volume_name(claim, node)
        # The node first: if the rest is not written, the next attempt still finds the same node.
        chosen = {
            "metadata": {
                "uid": meta["uid"],
                "resourceVersion": meta["resourceVersion"],
                "annotations": {NAMES.ann_selected_node: node},
            },
            "spec": {"volumeName": volume, "storageClassName": NAMES.storage_class},
        }
        await self._client.patch(_KIND, name, chosen, namespace)
        bound = {
            "phase": "Bound",
            "accessModes": spec_of(claim).get("accessModes") or [],
            "capacity": (spec_of(claim).get("resources") or {}).get("requests") or {},
        }
        patch = {"metadata": {"uid": meta["uid"]}, "status": bound}
        await self._client.patch(_KIND, name, patch, namespace, subresource="status")
        self._events.event(claim, "ProvisioningSucceeded", volume=volume)


def _can_be_bound(claim: Obj) -> bool:
    """A claim for a volume that somebody named is not ours to make."""
    named = spec_of(claim).get("volumeName")
    chosen = holder_of(claim)
    return is_ours(claim) and (not named or (bool(chosen) and named == volume_name(claim, chosen)))
