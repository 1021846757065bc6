"""How a step of a Checkpoint fails: with the sentence for status.message, and any blockers."""

from collections.abc import Sequence

from kube32.contract import text


class StepFailed(Exception):
    """The Checkpoint turns Failed. `maybe_frozen` tells that the pod may stand frozen and must be thawed."""

    def __init__(self, message: str, blockers: Sequence[str] = (), *, maybe_frozen: bool = False) -> None:
        super().__init__(message)
        self.message = message
        self.blockers = list(blockers)
        self.maybe_frozen = maybe_frozen


class CheckpointGone(Exception):
    """The Checkpoint object is not there any more."""


def failed(name: str, /, *, maybe_frozen: bool = False, **fields: object) -> StepFailed:
    """A failure with the contract's text `name` (failures)."""
    return StepFailed(text("failures", name, **fields), maybe_frozen=maybe_frozen)


def blocked(blockers: Sequence[str], *, maybe_frozen: bool = False) -> StepFailed:
    """A failure that names every blocker."""
    message = text("failures", "blocked", count=len(blockers), blockers=", ".join(blockers))
    return StepFailed(message, blockers, maybe_frozen=maybe_frozen)
