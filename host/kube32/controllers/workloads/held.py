"""Pods that are frozen or move: each counts as its owner's one pod and is left alone (specification, "Moves")."""

from collections.abc import Callable

from kube32.client.informer import Informer, Key, key_of
from kube32.contract import NAMES, text
from kube32.controllers.checkpoint.outcome import restore_error
from kube32.controllers.checkpoint.record import phase_of
from kube32.controllers.objects import (
    Obj,
    annotation,
    condition,
    is_deleting,
    is_finished,
    spec_of,
    status_of,
)

_UNDER_WAY = ("Saving", "Moving")


class Held:
    """Follows Checkpoints; `changed` gets the key of a pod of which one began or ended."""

    def __init__(self, checkpoints: Informer) -> None:
        self._checkpoints = checkpoints
        self._under_way: dict[Key, set[str]] = {}
        self._listeners: list[Callable[[Key], None]] = []
        checkpoints.subscribe(self._on_checkpoint)

    def subscribe(self, changed: Callable[[Key], None]) -> None:
        """Calls `changed` with the key of each pod that a Checkpoint takes hold of or lets go."""
        self._listeners.append(changed)

    def _on_checkpoint(self, kind: str, checkpoint: Obj, old: Obj | None) -> None:
        namespace, name = key_of(checkpoint)
        key = namespace, str(spec_of(checkpoint).get("podName") or "")
        before = name in self._under_way.get(key, ())
        now = kind != "DELETED" and phase_of(checkpoint) in _UNDER_WAY
        if before == now:
            return
        if now:
            self._under_way.setdefault(key, set()).add(name)
        else:
            self._under_way[key].discard(name)
            if not self._under_way[key]:
                del self._under_way[key]
        for changed in self._listeners:
            changed(key)

    def moves(self, pod: Obj) -> bool:
        """Whether a Checkpoint is working on the pod now."""
        return key_of(pod) in self._under_way

    def is_still(self, pod: Obj) -> bool:
        """Whether the pod is frozen, or moves now: it does not serve for a while, and comes back."""
        return self.moves(pod) or (condition(pod, "Ready") or {}).get("reason") == text("reasons", "frozen")

    def holds(self, pod: Obj) -> bool:
        """Whether the pod is frozen, moves, or waits to be restored."""
        return self.is_still(pod) or annotation(pod, NAMES.ann_restore_from) is not None

    def is_active(self, pod: Obj) -> bool:
        """Whether the pod has not ended, or comes back from a restore that failed."""
        if not is_finished(pod):
            return True
        if status_of(pod).get("phase") == "Succeeded" or is_deleting(pod):
            return False
        waits = annotation(pod, NAMES.ann_restore_from) is not None
        return waits and (self.moves(pod) or restore_error(pod) is not None)
