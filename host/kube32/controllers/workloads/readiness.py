"""Since when pods are Ready, on a monotonic clock: a wall clock that jumps makes none available sooner."""

import asyncio

from kube32.controllers.objects import Obj, condition, is_true, seconds_since, uid_of
from kube32.controllers.workloads.held import Held


class Readiness:
    """Judges pods. A pod keeps its time over a move, which gives it another uid."""

    def __init__(self, held: Held) -> None:
        self._held = held
        self._since: dict[str, float] = {}

    def left(self, pod: Obj, min_ready_s: int) -> float | None:
        """Seconds until the pod will be available, 0 when it is; None: that depends on more than time."""
        uid = uid_of(pod)
        if not is_true(pod, "Ready"):
            # One that only waits to be restored counts when it was Ready before it was replaced.
            if self._held.is_still(pod) or (self._held.holds(pod) and uid in self._since):
                return 0 if self._held.is_active(pod) else None
            self._since.pop(uid, None)
            return None
        now = asyncio.get_running_loop().time()
        if uid not in self._since:
            told = seconds_since(str((condition(pod, "Ready") or {}).get("lastTransitionTime") or ""))
            self._since[uid] = now - max(told or 0.0, 0.0)
        return max(self._since[uid] + min_ready_s - now, 0.0)

    def carry(self, old: Obj, new: Obj) -> None:
        """The one-write replacement: `new` is `old` on another node."""
        since = self._since.pop(uid_of(old), None)
        if since is not None:
            self._since[uid_of(new)] = since

    def forget(self, uid: str) -> None:
        """The pod is gone."""
        self._since.pop(uid, None)
