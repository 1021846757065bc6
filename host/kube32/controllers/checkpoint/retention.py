"""Finished Checkpoints go after checkpoint_retention_ms, unless a pod's restore-from names them.

"Retention" of the specification, on the monotonic clock from when this controller saw them finished; Saved
periodic ones follow another rule.
"""

from kube32.client.api import ApiClient, ApiError
from kube32.client.informer import Informer, Key, key_of
from kube32.contract import NAMES, Limits
from kube32.controllers.checkpoint.record import FINAL, phase_of
from kube32.controllers.deadlines import Deadlines
from kube32.controllers.objects import Obj, annotation, is_deleting, uid_of

_HELD_RECHECK_S = 60.0


class Retention:
    """Deletes Checkpoints as their time comes."""

    def __init__(self, client: ApiClient, checkpoints: Informer, pods: Informer, limits: Limits) -> None:
        self._client = client
        self._checkpoints = checkpoints
        self._pods = pods
        self._keep_s = limits.checkpoint_retention_ms / 1000
        self._due: Deadlines[tuple[Key, str]] = Deadlines()
        checkpoints.subscribe(self._on_checkpoint)

    def _on_checkpoint(self, kind: str, checkpoint: Obj, old: Obj | None) -> None:
        ticket = key_of(checkpoint), uid_of(checkpoint)
        if kind == "DELETED" or not _expires(checkpoint):
            self._due.drop(ticket)
        elif ticket not in self._due:
            self._due.set(ticket, self._keep_s)

    async def run(self) -> None:
        """Deletes until cancelled."""
        await self._due.run(self._expire)

    async def _expire(self, ticket: tuple[Key, str]) -> None:
        key, uid = ticket
        checkpoint = self._checkpoints.get(*key)
        if checkpoint is None or uid_of(checkpoint) != uid or is_deleting(checkpoint):
            return
        if self._is_named(key):
            self._due.set(ticket, min(_HELD_RECHECK_S, self._keep_s))
            return
        try:
            await self._client.delete("Checkpoint", key[1], key[0], uid=uid)
        except ApiError as error:
            if error.code not in (404, 409):
                raise

    def _is_named(self, key: Key) -> bool:
        return any(
            pod_key[0] == key[0] and annotation(pod, NAMES.ann_restore_from) == key[1]
            for pod_key, pod in self._pods.items.items()
        )


def _expires(checkpoint: Obj) -> bool:
    labels = checkpoint["metadata"].get("labels") or {}
    phase = phase_of(checkpoint)
    return phase in FINAL and not (phase == "Saved" and labels.get(NAMES.label_trigger) == "periodic")
