"""The health of a container's runs: probes and hooks, and what follows when one of them fails."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

from kube32.contract import text
from kube32.kubelet.calls import Exit, Exits
from kube32.kubelet.hooks import HookFailed, run_hook
from kube32.kubelet.pod_context import PodContext
from kube32.kubelet.pod_status import ContainerRecord
from kube32.kubelet.pod_thread import PodThread
from kube32.kubelet.probes import Hooks, Prober
from kube32.kubelet.values import Obj, spec


class Health:
    """Watches one container, run after run. `end_run` ends a run within seconds of grace, its preStop hook
    first.
    """

    def __init__(
        self,
        context: PodContext,
        record: ContainerRecord,
        end_run: Callable[[PodThread, float], Coroutine[Any, Any, None]],
    ) -> None:
        self._context = context
        self._record = record
        self._end_run = end_run
        self._exits = Exits(context.node.limits)
        self._prober: Prober | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        # Why the run is ended for its health, a key of the contract's statuses.
        self._verdict: str | None = None

    def begin(self, container: Obj, thread: PodThread, *, restored: bool) -> None:
        """A run has begun, before it counts as running. Init containers have neither probes nor hooks."""
        self._verdict = None
        if self._record.init:
            return
        self._record.starting = Prober.needed(container, "startupProbe") and not restored
        self._record.unready = Prober.needed(container, "readinessProbe")
        hooks = Hooks(
            ready=self._on_ready,
            started=self._on_started,
            unhealthy=lambda kind, cause: self._tell("unhealthy", kind, cause),
            errored=lambda kind, cause: self._tell("errored", kind, cause),
            kill=lambda kind: self._on_hopeless(container, thread, kind),
        )
        self._prober = Prober(container, thread, hooks, host=self._context.node.facts.ip, restored=restored)
        self._prober.start()
        if (container.get("lifecycle") or {}).get("postStart") and not restored:
            self._spawn(self._after_start(container, thread))

    def rest(self) -> None:
        """No probe is made from now on: the run is being ended."""
        if self._prober is not None:
            self._prober.stop()
            self._prober = None

    def stop(self) -> None:
        """The run is over."""
        self.rest()
        self._record.starting = self._record.unready = False
        self._verdict = None

    def judged(self, exit_: Exit) -> Exit:
        """How the run ended: as its thread says, unless it was ended for its health."""
        return exit_ if self._verdict is None else self._exits.ended(self._verdict)

    async def before_stop(self, container: Obj, thread: PodThread, grace_s: float) -> float:
        """Runs the preStop hook, within the grace period; the seconds that it took."""
        loop = asyncio.get_running_loop()
        begun = loop.time()
        if self._record.init or grace_s <= 0 or thread.frozen or thread.ended or not thread.begun:
            return 0.0
        try:
            async with asyncio.timeout(grace_s):
                await run_hook(container, "preStop", thread, self._context.node.facts.ip)
        except (HookFailed, TimeoutError) as failed:
            cause = str(failed) or text("probes", "hook_timeout")
            self._context.event("FailedPreStopHook", container=self._record.name, cause=cause)
        return min(loop.time() - begun, grace_s)

    async def _after_start(self, container: Obj, thread: PodThread) -> None:
        """Runs the postStart hook; a container whose hook fails is ended, as the kubelet does it."""
        try:
            await run_hook(container, "postStart", thread, self._context.node.facts.ip)
        except HookFailed as failed:
            if thread.ended:
                return
            self._context.event("FailedPostStartHook", container=self._record.name, cause=str(failed))
            self._verdict = "hook_failed"
            await self._end_run(thread, 0.0)

    def _on_ready(self, ready: bool) -> None:
        self._record.unready = not ready
        self._context.changed()

    def _on_started(self) -> None:
        if self._record.starting:
            self._record.starting = False
            self._context.changed()

    def _tell(self, words: str, kind: str, cause: str) -> None:
        message = text("probes", words, kind=kind, cause=cause)
        self._context.event("Unhealthy", container=self._record.name, cause=message)

    def _on_hopeless(self, container: Obj, thread: PodThread, kind: str) -> None:
        """The run is ended; the restart policy says whether another one follows."""
        pod_spec = spec(self._context.pod)
        words = "killing_last" if pod_spec.get("restartPolicy") == "Never" else "killing"
        message = text("probes", words, container=self._record.name, kind=kind)
        self._context.event("KillingUnhealthy", container=self._record.name, cause=message)
        self._verdict = "unhealthy"
        grace = (container.get(f"{kind}Probe") or {}).get("terminationGracePeriodSeconds")
        pod_grace = pod_spec.get("terminationGracePeriodSeconds")
        self._spawn(self._end_run(thread, float(grace or pod_grace or 0)))

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
