"""What all workloads do with pods: make them from a template, delete them, judge them, order them for deletion."""

import asyncio
import copy
from datetime import datetime
from typing import Any

from kube32.client.api import ApiClient, ApiError
from kube32.client.events import EventRecorder
from kube32.contract import NAMES, text
from kube32.controllers.objects import (
    Obj,
    annotation,
    condition,
    is_finished,
    is_true,
    name_of,
    node_of,
    seconds_since,
    spec_of,
    status_of,
    uid_of,
)
from kube32.controllers.workloads.owned import OwnedPods, controller_of
from kube32.controllers.workloads.selectors import matches

_DELETION_COST = "controller.kubernetes.io/pod-deletion-cost"
_PHASES = {"Pending": 0, "Unknown": 1}


def owner_reference(owner: Obj, kind: str, api_version: str) -> Obj:
    """The reference by which a pod names its controller."""
    return {
        "apiVersion": api_version,
        "kind": kind,
        "name": name_of(owner),
        "uid": uid_of(owner),
        "controller": True,
        "blockOwnerDeletion": True,
    }


def is_held(pod: Obj) -> bool:
    """Whether the pod is frozen or moves: it counts as its owner's one pod and is left alone.

    So does one whose restore failed: the Checkpoint controller replaces it (specification, "Moves").
    """
    ready = condition(pod, "Ready") or {}
    return (
        ready.get("reason") == text("reasons", "frozen")
        or annotation(pod, NAMES.ann_restore_from) is not None
    )


def is_active(pod: Obj) -> bool:
    """Whether the pod has not ended for good, or comes back."""
    return not is_finished(pod) or is_held(pod)


class Readiness:
    """Since when pods are Ready, on a monotonic clock: a wall clock that jumps makes none available sooner."""

    def __init__(self) -> None:
        self._since: dict[str, float] = {}

    def available(self, pod: Obj, min_ready_s: int) -> tuple[bool, float]:
        """Whether the pod has been Ready for long enough, and the seconds until it will have been (0: unknown)."""
        if is_held(pod):
            return True, 0.0
        uid = uid_of(pod)
        if not is_true(pod, "Ready"):
            self._since.pop(uid, None)
            return False, 0.0
        now = asyncio.get_running_loop().time()
        if uid not in self._since:
            told = seconds_since(str((condition(pod, "Ready") or {}).get("lastTransitionTime") or ""))
            self._since[uid] = now - max(told or 0.0, 0.0)
        left = self._since[uid] + min_ready_s - now
        return left <= 0, max(left, 0.0)

    def forget(self, pods: set[str]) -> None:
        """Drops what is known of pods that are not in `pods` (uids)."""
        for uid in [u for u in self._since if u not in pods]:
            del self._since[uid]


def deletion_rank(pod: Obj, siblings_on_node: int = 0) -> tuple[Any, ...]:
    """Pods with a smaller rank are deleted first: as Kubernetes' ReplicaSet controller chooses."""
    status = status_of(pod)
    cost = annotation(pod, _DELETION_COST) or "0"
    restarts = max(
        (int(s.get("restartCount") or 0) for s in status.get("containerStatuses") or []), default=0
    )
    ready = condition(pod, "Ready") or {}
    # One that moves goes last: it carries state.
    return (
        is_held(pod),
        bool(node_of(pod)),
        _PHASES.get(str(status.get("phase")), 2),
        ready.get("status") == "True",
        int(cost) if cost.lstrip("-").isdigit() else 0,
        -siblings_on_node,
        -_stamp(ready.get("lastTransitionTime")),
        -restarts,
        -_stamp(pod["metadata"].get("creationTimestamp")),
        name_of(pod),
    )


def _stamp(value: Any) -> float:
    try:
        return datetime.fromisoformat(str(value)).timestamp()
    except ValueError:
        return 0.0


def in_deletion_order(pods: list[Obj]) -> list[Obj]:
    """The pods, those that are deleted first in front; more on one node makes each of them earlier."""
    on_node: dict[str, int] = {}
    for pod in pods:
        on_node[node_of(pod)] = on_node.get(node_of(pod), 0) + 1
    return sorted(pods, key=lambda p: deletion_rank(p, on_node[node_of(p)] if node_of(p) else 0))


class PodControl:
    """Creates and deletes the pods of one kind of owner, and tells about it."""

    def __init__(
        self, client: ApiClient, owned: OwnedPods, events: EventRecorder, kind: str, api_version: str
    ) -> None:
        self._client = client
        self._owned = owned
        self._events = events
        self._kind = kind
        self._api_version = api_version

    async def create(
        self, owner: Obj, template: Obj, *, prefix: str, labels: dict[str, str], change: Obj | None = None
    ) -> Obj:
        """A pod from the template, with more labels; `change` is merged into it. ApiError is told and raised."""
        metadata = copy.deepcopy(template.get("metadata") or {})
        pod: Obj = {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {
                "generateName": prefix,
                "namespace": owner["metadata"]["namespace"],
                "labels": {**(metadata.get("labels") or {}), **labels},
                "annotations": metadata.get("annotations") or {},
                "finalizers": metadata.get("finalizers") or [],
                "ownerReferences": [owner_reference(owner, self._kind, self._api_version)],
            },
            "spec": copy.deepcopy(template.get("spec") or {}),
        }
        for key, value in (change or {}).items():
            pod[key] = _merged(pod.get(key), value)
        try:
            made = await self._client.create("Pod", pod)
        except ApiError as error:
            self._events.event(owner, "FailedCreate", cause=error.message)
            raise
        self._owned.created(made)
        if self._kind != "Deployment":
            self._events.event(owner, "SuccessfulCreate", pod=name_of(made))
        return made

    async def delete(self, owner: Obj, pod: Obj) -> None:
        """Deletes the pod, if it is still that one."""
        meta = pod["metadata"]
        try:
            await self._client.delete("Pod", meta["name"], meta["namespace"], uid=meta["uid"])
        except ApiError as error:
            if error.code not in (404, 409):
                raise
        self._owned.deleted(pod)
        if self._kind != "Deployment":
            self._events.event(owner, "SuccessfulDelete", pod=name_of(pod))

    async def release(self, pod: Obj, owner: Obj) -> None:
        """The pod is not the owner's any more."""
        left = [o for o in pod["metadata"].get("ownerReferences") or [] if o.get("uid") != uid_of(owner)]
        await self._own(pod, left)

    async def adopt(self, pod: Obj, owner: Obj) -> None:
        """The pod, which has no controller, becomes the owner's."""
        references = pod["metadata"].get("ownerReferences") or []
        await self._own(pod, [*references, owner_reference(owner, self._kind, self._api_version)])

    async def _own(self, pod: Obj, references: list[Obj]) -> None:
        meta = pod["metadata"]
        patch: Obj = {
            "metadata": {
                "uid": meta["uid"],
                "resourceVersion": meta["resourceVersion"],
                "ownerReferences": references,
            }
        }
        try:
            await self._client.patch("Pod", meta["name"], patch, meta["namespace"])
        except ApiError as error:
            if error.code not in (404, 409):
                raise

    async def claim(self, owner: Obj, hashes: set[str] | None, label: str) -> list[Obj]:
        """The owner's pods after those that no longer fit its selector are let go and orphans that fit taken.

        With `hashes` an orphan must carry one of them in `label`.
        """
        selector, kept = spec_of(owner).get("selector") or {}, []
        if not selector:
            return self._owned.of(owner)
        for pod in self._owned.of(owner):
            labels = pod["metadata"].get("labels") or {}
            if matches(selector, labels) or self._owned.is_going(pod):
                kept.append(pod)
            else:
                await self.release(pod, owner)
        for pod in self._owned.orphans(owner["metadata"]["namespace"]):
            labels = pod["metadata"].get("labels") or {}
            known = hashes is None or labels.get(label) in hashes
            if known and matches(selector, labels) and is_active(pod) and controller_of(pod) is None:
                await self.adopt(pod, owner)
        return kept


def _merged(one: Any, other: Any) -> Any:
    if isinstance(one, dict) and isinstance(other, dict):
        return {**one, **{k: _merged(one.get(k), v) for k, v in other.items()}}
    return other
