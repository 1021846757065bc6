"""What the kubelet asks a running container for: its probes, its lifecycle hooks, and what follows from them."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

from kube32.contract import text
from kube32.kubelet.hooks import HookFailed, run_hook
from kube32.kubelet.pod_context import PodContext
from kube32.kubelet.pod_status import ContainerRecord
from kube32.kubelet.pod_thread import PodThread
from kube32.kubelet.probes import Hooks, Prober
from kube32.kubelet.values import Obj, spec


class Health:
    """Probes and hooks of one container, run by run. `end_run` ends the current run within so many seconds.

    `killed` is set when the run is ended for its health: its exit counts as a failure then.
    """

    def __init__(
        self,
        name: str,
        record: ContainerRecord,
        context: PodContext,
        end_run: Callable[[float], Coroutine[Any, Any, None]],
    ) -> None:
        self.killed = False
        self._name = name
        self._record = record
        self._context = context
        self._end_run = end_run
        self._prober: Prober | None = None
        self._tasks: set[asyncio.Task[None]] = set()

    def begin(self, container: Obj, thread: PodThread, *, restored: bool) -> None:
        """A run begins: of an init container nothing is asked."""
        self.killed = False
        if self._record.init:
            return
        self._record.starting = Prober.needed(container, "startupProbe") and not restored
        self._record.unready = Prober.needed(container, "readinessProbe")

        def kill(kind: str, cause: str) -> None:
            self._on_hopeless(container, kind)

        hooks = Hooks(self._on_ready, self._on_started, self._on_unhealthy, kill)
        self._prober = Prober(container, thread, hooks, restored=restored)
        self._prober.start()
        if (container.get("lifecycle") or {}).get("postStart") and not restored:
            self._spawn(self._after_start(container, thread))

    def stop(self) -> None:
        """The run is over."""
        if self._prober is not None:
            self._prober.stop()
            self._prober = None
        self._record.starting = self._record.unready = False

    async def before_stop(self, container: Obj, thread: PodThread, grace_s: float) -> float:
        """Runs the preStop hook, within the grace period; the seconds that it took."""
        loop = asyncio.get_running_loop()
        begun = loop.time()
        if thread.frozen or grace_s <= 0:
            return 0.0
        try:
            async with asyncio.timeout(grace_s):
                await run_hook(container, "preStop", thread)
        except (HookFailed, TimeoutError) as failed:
            self._context.event("FailedPreStopHook", cause=str(failed) or "it took too long")
        return min(loop.time() - begun, grace_s)

    async def _after_start(self, container: Obj, thread: PodThread) -> None:
        """Runs the postStart hook; a container whose hook fails is ended, as the kubelet does it."""
        try:
            await run_hook(container, "postStart", thread)
        except HookFailed as failed:
            self._context.event("FailedPostStartHook", cause=str(failed))
            self.killed = True
            await self._end_run(0.0)

    def _on_ready(self, ready: bool) -> None:
        self._record.unready = not ready
        self._context.changed()

    def _on_started(self) -> None:
        if self._record.starting:
            self._record.starting = False
            self._context.changed()

    def _on_unhealthy(self, kind: str, cause: str) -> None:
        self._context.event("Unhealthy", cause=text("probes", "unhealthy", kind=kind, cause=cause))

    def _on_hopeless(self, container: Obj, kind: str) -> None:
        """The run is ended; the restart policy says whether another one follows."""
        words = text("probes", "killing", container=self._name, kind=kind)
        self._context.event("KillingUnhealthy", cause=words)
        self.killed = True
        grace = (container.get(f"{kind}Probe") or {}).get("terminationGracePeriodSeconds")
        pod_grace = spec(self._context.pod).get("terminationGracePeriodSeconds")
        self._spawn(self._end_run(float(grace or pod_grace or 0)))

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
