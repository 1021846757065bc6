"""Renews the node's Lease on a thread with its own loop, and tells when the node may have been declared lost.

A kubelet that has not renewed for node_fence_ms freezes the pods with periodic checkpoints ("Freezing and
moving", Fencing). The clock counts suspended time, so that a sleep of the machine is noticed.
"""

import asyncio
import contextlib
import logging
import random
import threading
from collections.abc import Callable

from kube32.client.api import ApiClient, ApiError
from kube32.client.transport import Transport
from kube32.contract import NAMES, Limits, resource_of
from kube32.kubelet.clocks import boot_seconds
from kube32.kubelet.values import Obj, rfc3339_micro

_LOG = logging.getLogger(__name__)
_RETRY_S = 1.0
_FENCED_LOOK_S = 0.5
NOT_FOUND = 404


class LeaseThread:
    """Keeps the Lease of one node.

    `on_stale(overdue)` is called on this thread while the Lease is stale, `overdue` when calls must be ended
    too; `on_renewed` after each renewal, `on_recovered` after one that failed ones came before. `boottime`
    gives seconds that count suspended time.
    """

    def __init__(
        self,
        node: str,
        transport: Callable[[], Transport],
        limits: Limits,
        *,
        on_stale: Callable[[bool], None],
        on_renewed: Callable[[], None],
        on_recovered: Callable[[], None] | None = None,
        boottime: Callable[[], float] = boot_seconds,
    ) -> None:
        self.last_renewed: float | None = None
        self._node = node
        self._transport = transport
        self._limits = limits
        self._on_stale = on_stale
        self._on_renewed = on_renewed
        self._on_recovered = on_recovered
        self._boottime = boottime
        self._fence_s = limits.node_fence_ms / 1000
        # Halfway to being declared lost, a call that still runs is ended.
        self._overdue_s = (limits.node_fence_ms + limits.node_lost_ms) / 2000
        self._loop: asyncio.AbstractEventLoop | None = None
        self._stop: asyncio.Event | None = None
        self._stopping = False
        self._thread = threading.Thread(target=self._main, name=f"lease {node}", daemon=True)

    def age_s(self) -> float:
        """Seconds since the last renewal was sent, infinite before the first. Any thread."""
        last = self.last_renewed
        return float("inf") if last is None else self._boottime() - last

    def fresh(self) -> bool:
        """Whether the control plane cannot have declared the node lost. Any thread; looked at before each
        call.
        """
        return self.age_s() < self._fence_s

    def start(self) -> None:
        """Starts renewing."""
        self._thread.start()

    def stop(self, timeout_s: float = 5.0) -> None:
        """Ends the thread. Not on the event loop."""
        self._stopping = True
        loop, stop = self._loop, self._stop
        if loop is not None and stop is not None:
            with contextlib.suppress(RuntimeError):
                loop.call_soon_threadsafe(stop.set)
        if self._thread.ident is not None:
            self._thread.join(timeout_s)

    def _main(self) -> None:
        asyncio.run(self._serve())

    async def _serve(self) -> None:
        self._loop, self._stop = asyncio.get_running_loop(), asyncio.Event()
        transport = self._transport()
        renewing = asyncio.create_task(self._renew_for_ever(ApiClient(transport, self._limits)))
        watching = asyncio.create_task(self._look_for_ever())
        try:
            if not self._stopping:
                await self._stop.wait()
        finally:
            renewing.cancel()
            watching.cancel()
            await asyncio.gather(renewing, watching, return_exceptions=True)
            await transport.close()

    async def _renew_for_ever(self, client: ApiClient) -> None:
        period_s = self._limits.node_lease_renew_ms / 1000
        renewed = True
        while True:
            # After a sleep of the machine this comes before anything else.
            self._look()
            before, renewed = renewed, await self._renew(client, period_s)
            if renewed and not before and self._on_recovered is not None:
                self._on_recovered()
            await asyncio.sleep((period_s if renewed else _RETRY_S) * random.uniform(0.8, 1.0))

    async def _renew(self, client: ApiClient, timeout_s: float) -> bool:
        sent = self._boottime()
        try:
            async with asyncio.timeout(timeout_s):
                await self._write(client)
        except (ApiError, OSError) as error:
            _LOG.info("lease of node %s: %s", self._node, str(error) or type(error).__name__)
            return False
        except Exception:
            _LOG.exception("lease of node %s", self._node)
            return False
        self.last_renewed = sent
        if self.fresh():
            self._on_renewed()
        return True

    async def _write(self, client: ApiClient) -> None:
        lease = self._lease()
        try:
            await client.update("Lease", lease)
        except ApiError as error:
            if error.code != NOT_FOUND:
                raise
            await client.create("Lease", lease)

    def _lease(self) -> Obj:
        resource = resource_of("Lease")
        return {
            "apiVersion": resource.api_version,
            "kind": resource.kind,
            "metadata": {"name": self._node, "namespace": NAMES.lease_namespace},
            "spec": {
                "holderIdentity": self._node,
                "leaseDurationSeconds": self._limits.node_lease_duration_s,
                "renewTime": rfc3339_micro(),
            },
        }

    def _look(self) -> None:
        if not self.fresh():
            self._on_stale(self.age_s() >= self._overdue_s)

    async def _look_for_ever(self) -> None:
        while True:
            left_s = self._fence_s - self.age_s()
            await asyncio.sleep(max(_FENCED_LOOK_S, left_s))
            self._look()
