"""How long a container waits before it is started again, and whether it is, as the kubelet decides it."""

from kube32.contract import Limits


class Backoff:
    """Grows from run to run; begins anew after a run that lasted."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._next_ms = 0

    def take_ms(self) -> int:
        """The wait before the next run: none at first, then one that doubles."""
        delay_ms = self._next_ms
        self._next_ms = min(
            max(delay_ms * 2, self._limits.pod_backoff_initial_ms), self._limits.pod_backoff_max_ms
        )
        return delay_ms

    def ran(self, seconds: float) -> None:
        """A run of this length is over."""
        if seconds >= self._limits.pod_backoff_reset_ms / 1000:
            self._next_ms = 0


def restarts(policy: str, exit_code: int | None, *, init: bool) -> bool:
    """Whether the restart policy wants another run; an init container that ended well is done."""
    if init and policy == "Always":
        policy = "OnFailure"
    return policy == "Always" or (policy == "OnFailure" and exit_code != 0)
