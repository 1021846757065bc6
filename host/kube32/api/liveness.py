"""Which nodes are alive: whose Lease the control plane saw renewed lately, by its own monotonic clock.

Stamps in Leases are not read: a wall clock that is unset or jumps changes nothing (decisions, "Freezing and
moving").
"""

import time
from collections.abc import Callable

from kube32.contract import NAMES, Limits, resource_of
from kube32.store import Change, Store


class NodeLiveness:
    """When each node's Lease was last renewed. `clock` gives seconds and never goes backward."""

    def __init__(self, store: Store, limits: Limits, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._lost_s = limits.node_lost_ms / 1000
        self._started = clock()
        self._seen: dict[str, float] = {}
        self._prefix = resource_of("Lease").object_key(NAMES.lease_namespace, "")
        self.close = store.subscribe(self._prefix, self._changed)

    def alive(self, name: str, *, known: bool) -> bool:
        """Whether a node holds `name` now.

        Leases live in memory: a name that joined before this start (`known`) counts as alive until its node
        had the time to renew.
        """
        seen = self._seen.get(name)
        if seen is None:
            if not known:
                return False
            seen = self._started
        return self._clock() - seen < self._lost_s

    def saw(self, name: str) -> None:
        """Counts a node as alive from now."""
        self._seen[name] = self._clock()

    def _changed(self, change: Change) -> None:
        name = change.key[len(self._prefix) :]
        if change.type == "DELETED":
            self._seen.pop(name, None)
        else:
            self.saw(name)
