"""A move from the replacement on: wait until it runs, or take it back to its source ("Moves", steps 3 and 4).

Each step is in the Checkpoint's status before it is made, so that a controller that starts anew can go on.
"""

import asyncio
from dataclasses import dataclass

from kube32.client.events import EventRecorder
from kube32.client.informer import Informer
from kube32.contract import EVENTS, NAMES, Limits, text
from kube32.controllers.checkpoint.failure import StepFailed
from kube32.controllers.checkpoint.outcome import Outcome, failure_text, has_arrived, wait_for
from kube32.controllers.checkpoint.record import CheckpointRecord
from kube32.controllers.checkpoint.replacement import Replacements
from kube32.controllers.objects import Obj, is_deleting, is_true, name_of, seconds_since


@dataclass(slots=True)
class Journey:
    """A replacement under way. `frozen_at` is the loop's time of the freeze, None when that is not known."""

    record: CheckpointRecord
    source: str
    target: str
    replacement: Obj
    frozen_at: float | None


class Moves:
    """Sees replacements to their end."""

    def __init__(
        self,
        replacements: Replacements,
        pods: Informer,
        nodes: Informer,
        limits: Limits,
        events: EventRecorder,
    ) -> None:
        self._replacements = replacements
        self._pods = pods
        self._nodes = nodes
        self._limits = limits
        self._events = events

    async def depart(self, record: CheckpointRecord, pod: Obj, source: str, target: str) -> Obj:
        """The one-write replacement on the target. StepFailed, to be thawed, when it could not be written."""
        annotations: dict[str, str | None] = {NAMES.ann_restore_from: record.name}
        try:
            replacement = await self._replacements.replace(pod, node=target, annotations=annotations)
        except StepFailed as error:
            error.maybe_frozen = True
            raise
        assert replacement is not None
        self._events.event(replacement, "Moving", source=source, target=target, checkpoint=record.name)
        return replacement

    async def arrive(self, journey: Journey) -> None:
        """Waits for the replacement, then completes the move or undoes it."""
        outcome = await wait_for(self._pods, journey.replacement, self._limits.move_timeout_ms)
        if outcome.kind == "running":
            await self._complete(journey)
        else:
            await self._undo(journey, outcome)

    async def _complete(self, journey: Journey) -> None:
        record, pod = journey.record, journey.replacement
        fields = {"source": journey.source, "target": journey.target, "ms": self._elapsed_ms(journey)}
        self._events.event(pod, "Moved", **fields)
        await record.write(
            phase="Completed",
            newPodName=name_of(pod),
            message=EVENTS["Moved"].message.format(**fields),
            blockers=None,
        )
        await self._replacements.drop_restore_from(pod)

    def _elapsed_ms(self, journey: Journey) -> int:
        if journey.frozen_at is not None:
            return round((asyncio.get_running_loop().time() - journey.frozen_at) * 1000)
        # Another life of the controller saw the freeze: the wall clock is all that is left.
        seconds = seconds_since(str(journey.record.status.get("takenAt") or ""))
        return max(0, round((seconds or 0) * 1000))

    async def _undo(self, journey: Journey, outcome: Outcome) -> None:
        pod = journey.replacement
        cause = failure_text(outcome, pod, self._limits.move_timeout_ms)
        if outcome.kind in ("deleted", "replaced") or is_deleting(self._replacements.newest(pod)):
            await self.fail(journey.record, pod, cause)
            return
        await journey.record.write(message=cause)
        back = journey.source if self.is_ready(journey.source) else ""
        try:
            # One that runs at the last moment has arrived after all.
            returned = await self._replacements.replace(
                pod, node=back, annotations={}, still=lambda current: not has_arrived(current)
            )
        except StepFailed as error:
            await self.fail(journey.record, pod, f"{cause}; {error.message}")
            return
        if returned is None:
            await self._complete(journey)
        else:
            await self.report_return(journey.record, returned, cause, journey.source, back)

    async def report_return(
        self, record: CheckpointRecord, pod: Obj, cause: str, source: str, back: str
    ) -> None:
        """The move is undone: the pod restores at its source, or where the scheduler binds it."""
        which = "rolled_back" if back else "rolled_back_unbound"
        await self.fail(record, pod, text("failures", which, cause=cause, node=source))

    async def fail(
        self, record: CheckpointRecord, pod: Obj, message: str, blockers: list[str] | None = None
    ) -> None:
        """The Checkpoint turns Failed, and an event on the pod says why."""
        self._events.event(pod, "MoveFailed", checkpoint=record.name, cause=message)
        await record.write(phase="Failed", message=message, blockers=blockers or None)

    def is_ready(self, node: str) -> bool:
        """Whether the node is there and Ready."""
        found = self._nodes.get("", node)
        return found is not None and is_true(found, "Ready")
