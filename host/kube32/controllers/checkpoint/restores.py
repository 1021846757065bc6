"""Restores that no move waits for: after a rollback, a node loss, or when a user asked for one.

One that runs gets a Restored event, one that failed is replaced by a pod that starts afresh.
"""

import asyncio
import logging
from collections.abc import Callable, Coroutine

from kube32.client.api import ApiError
from kube32.client.events import EventRecorder
from kube32.client.informer import Informer, Key, key_of
from kube32.contract import NAMES, text
from kube32.controllers.checkpoint.failure import StepFailed
from kube32.controllers.checkpoint.outcome import has_restarted, is_running, restore_error
from kube32.controllers.checkpoint.record import phase_of
from kube32.controllers.checkpoint.replacement import Replacements
from kube32.controllers.objects import (
    Obj,
    annotation,
    is_deleting,
    is_true,
    node_of,
    seconds_since,
    spec_of,
    status_of,
    uid_of,
)
from kube32.formats.duration import human

_LOG = logging.getLogger(__name__)
_RETRY_S = 5.0
_UNKNOWN_AGE = "unknown time"


class Restores:
    """Follows pods with restore-from. `is_busy` tells of a pod that a move of this process waits for."""

    def __init__(
        self,
        replacements: Replacements,
        pods: Informer,
        nodes: Informer,
        checkpoints: Informer,
        events: EventRecorder,
        is_busy: Callable[[Key], bool],
    ) -> None:
        self._replacements = replacements
        self._pods = pods
        self._nodes = nodes
        self._checkpoints = checkpoints
        self._events = events
        self._is_busy = is_busy
        self._tasks: dict[Key, asyncio.Task[None]] = {}
        self._done: dict[Key, str] = {}
        self._running = False

    def start(self) -> None:
        """Begins, once pods and Checkpoints are known."""
        self._running = True
        self._pods.subscribe(self._on_pod)
        self._checkpoints.subscribe(self._on_checkpoint, replay=False)

    def _on_pod(self, kind: str, pod: Obj, old: Obj | None) -> None:
        if kind == "DELETED":
            self._done.pop(key_of(pod), None)
        else:
            self.look(key_of(pod))

    def _on_checkpoint(self, kind: str, checkpoint: Obj, old: Obj | None) -> None:
        namespace = key_of(checkpoint)[0]
        self.look((namespace, str(spec_of(checkpoint).get("podName") or "")))

    def look(self, key: Key) -> None:
        """Looks at a pod again."""
        pod = self._pods.get(*key)
        if not self._running or pod is None or annotation(pod, NAMES.ann_restore_from) is None:
            return
        if is_deleting(pod) or self._is_busy(key) or key in self._tasks or self._done.get(key) == uid_of(pod):
            return
        checkpoint = self._checkpoints.get(key[0], annotation(pod, NAMES.ann_restore_from) or "")
        phase = phase_of(checkpoint) if checkpoint is not None else ""
        if phase == "Moving":
            return
        if restore_error(pod) is not None and status_of(pod).get("phase") == "Failed":
            self._spawn(key, self._start_afresh(pod))
        elif is_running(pod):
            self._spawn(key, self._finish(pod, checkpoint, moved=phase == "Completed"))

    def _spawn(self, key: Key, work: Coroutine[None, None, None]) -> None:
        task = asyncio.get_running_loop().create_task(self._guard(key, work), name=f"restore {key}")
        self._tasks[key] = task

    async def _guard(self, key: Key, work: Coroutine[None, None, None]) -> None:
        try:
            await work
        except (ApiError, OSError, StepFailed) as error:
            _LOG.info("restore of pod %s/%s: %s", *key, str(error) or type(error).__name__)
            asyncio.get_running_loop().call_later(_RETRY_S, self.look, key)
        finally:
            self._tasks.pop(key, None)

    async def _finish(self, pod: Obj, checkpoint: Obj | None, *, moved: bool) -> None:
        await self._replacements.drop_restore_from(pod)
        self._done[key_of(pod)] = uid_of(pod)
        if moved:
            return
        if has_restarted(pod):
            message = text("failures", "restore_fresh", cause=text("failures", "restarted"))
            self._events.event(
                pod, "MoveFailed", checkpoint=annotation(pod, NAMES.ann_restore_from), cause=message
            )
            return
        taken = str(status_of(checkpoint).get("takenAt") or "") if checkpoint is not None else ""
        age = seconds_since(taken)
        self._events.event(
            pod,
            "Restored",
            node=node_of(pod),
            checkpoint=annotation(pod, NAMES.ann_restore_from),
            age=_UNKNOWN_AGE if age is None else human(max(0.0, age)),
        )

    async def _start_afresh(self, pod: Obj) -> None:
        cause = restore_error(pod) or ""
        checkpoint = annotation(pod, NAMES.ann_restore_from)
        node = self._nodes.get("", node_of(pod))
        stays = node is not None and is_true(node, "Ready")
        fresh = await self._replacements.replace(
            pod, node=node_of(pod) if stays else "", annotations={NAMES.ann_restore_from: None}
        )
        if fresh is not None:
            message = text("failures", "restore_fresh", cause=cause)
            self._events.event(fresh, "MoveFailed", checkpoint=checkpoint, cause=message)

    def stop(self) -> None:
        """Ends what is under way; the annotation keeps it for the next start."""
        self._running = False
        for task in list(self._tasks.values()):
            task.cancel()
