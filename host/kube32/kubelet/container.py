"""One container of a pod: how it starts, runs, ends and is started again (restart policy, back-off,
restore).
"""

import asyncio
import contextlib
import logging
from collections import deque
from dataclasses import dataclass, field

from kube32.client.api import ApiError
from kube32.contract import NAMES, text
from kube32.formats.k32s import HeldEvent
from kube32.formats.wasm_module import ModuleRefused
from kube32.kubelet.calls import Exit, Exits, RunSettings
from kube32.kubelet.config import ConfigError, ConfigSource, environment
from kube32.kubelet.freezer import MOVE
from kube32.kubelet.health import Health
from kube32.kubelet.images import ImageError
from kube32.kubelet.logs import ContainerLog
from kube32.kubelet.node_services import NodeServices
from kube32.kubelet.own_thread import on_own_thread
from kube32.kubelet.pod_context import PodContext
from kube32.kubelet.pod_status import ContainerRecord
from kube32.kubelet.pod_thread import PodThread
from kube32.kubelet.projections import Projections
from kube32.kubelet.refresher import Refresher
from kube32.kubelet.restore import RestoreFailed, SnapshotFetch, fetching, restores_container
from kube32.kubelet.values import Obj, annotation, duration_ms, spec, status, whole_quantity
from kube32.wasm import FileTable, HostServices, Instance, LoadedModule, PodClock, Trap

_LOG = logging.getLogger(__name__)
_RESTORE_TRIES = 3
_RESTORE_RETRY_S = 0.5
_INTERRUPT_AGAIN_S = 0.05


@dataclass(slots=True)
class Run:
    """One run of the container, from the instance to its end."""

    thread: PodThread
    digest: str
    log: ContainerLog
    ended: "asyncio.Future[Exit]"
    started: float = field(default_factory=lambda: asyncio.get_running_loop().time())


class Container:
    """Keeps one container as its spec wants it. `run` is its whole life; everything is for the event loop."""

    def __init__(
        self, context: PodContext, node: NodeServices, container: Obj, *, init: bool = False
    ) -> None:
        self.name = str(container.get("name", ""))
        self.record = ContainerRecord(self.name, str(container.get("image", "")), init=init)
        self._health = Health(self.name, self.record, context, self._end_run)
        self._refresher: Refresher | None = None
        self.current: Run | None = None
        self.log: ContainerLog | None = None
        self.previous_log: ContainerLog | None = None
        self.late_events: list[HeldEvent] = []
        self.restoring = False
        self._context = context
        self._node = node
        self._limits = node.limits
        self._pending: deque[HeldEvent] = deque()
        self._nudged = asyncio.Event()
        self._backoff_ms = 0
        self._ran = False
        self._stopping = False
        self._task: asyncio.Task[None] | None = None
        self._adopt()

    # --- what the worker and the servers see ---

    @property
    def thread(self) -> PodThread | None:
        """The thread of the current run."""
        return None if self.current is None else self.current.thread

    @property
    def ended_log(self) -> ContainerLog | None:
        """What `previous` means: the run before the current one, or the last run while none goes on."""
        return self.log if self.current is None and self.record.waiting is not None else self.previous_log

    @property
    def spec(self) -> Obj:
        """The container's spec as the pod has it now."""
        part = "initContainers" if self.record.init else "containers"
        return next((c for c in spec(self._context.pod).get(part) or [] if c.get("name") == self.name), {})

    @property
    def memory_bytes(self) -> int:
        """Linear memory in use."""
        thread = self.thread
        return 0 if thread is None or thread.ended else thread.instance.memory_bytes

    @property
    def cpu_ns(self) -> int:
        """CPU time of the current run, in ns."""
        return 0 if self.thread is None else self.thread.cpu_ns

    def nudge(self) -> None:
        """The pod changed: what waits looks again."""
        self._nudged.set()

    def refresh(self) -> None:
        """Readiness may differ after a freeze or a thaw."""
        thread = self.thread
        frozen = thread is not None and thread.frozen and not thread.ended
        if frozen != self.record.frozen:
            self.record.frozen = frozen
            self._context.changed()

    async def drain_published(self, within_s: float) -> None:
        """Waits until what the pod published so far is sent or lost, `within_s` at most."""
        await self._context.publisher.drain(within_s)

    def blockers(self) -> list[str]:
        """What keeps the container from moving, beside what its thread and its instance know."""
        named = (annotation(self._context.pod, NAMES.ann_wasm_sha256) or "").lower()
        if self.current is None or not named or named == self.current.digest or not self._only_container:
            return []
        return [text("blockers", "digest_differs", running=self.current.digest, named=named)]

    def deliver(self, event: HeldEvent) -> bool:
        """Takes an event; while a restore runs, up to 8 wait for it."""
        thread = self.thread
        if thread is not None:
            return thread.deliver(event)
        if not self.restoring or len(self._pending) >= self._limits.pod_held_events:
            return False
        self._pending.append(event)
        return True

    @property
    def _only_container(self) -> bool:
        return len(spec(self._context.pod).get("containers") or []) == 1

    # --- its life ---

    def start(self) -> None:
        """Begins the container's life."""
        self._task = asyncio.create_task(self._live())

    async def run_init(self) -> bool:
        """The life of an init container; whether it ended well."""
        if not self.record.ready:
            self.start()
            assert self._task is not None
            await asyncio.wait([self._task])
        return self.record.ready

    async def stop(self, grace_s: float) -> None:
        """No call begins after this; one that runs may end within the grace period, then it is
        interrupted.
        """
        self._stopping = True
        task = self._task
        while task is not None and not task.done():
            run = self.current
            if run is None:
                task.cancel()
            else:
                taken_s = await self._health.before_stop(self.spec, run.thread, grace_s)
                await self._end_calls(run, grace_s - taken_s)
            await asyncio.wait([task])

    async def _end_run(self, grace_s: float) -> None:
        """Ends the current run alone: the restart policy says what follows."""
        if self.current is not None and not self._stopping:
            await self._end_calls(self.current, grace_s)

    async def _end_calls(self, run: Run, grace_s: float) -> None:
        thread = run.thread
        thread.stop()
        if thread.settings.entry_point is None:
            await asyncio.wait([run.ended], timeout=grace_s)
        while not run.ended.done():
            thread.interrupt()
            await asyncio.wait([run.ended], timeout=_INTERRUPT_AGAIN_S)
        # What the snapshot does not carry is the replacement's, when there is one.
        self.late_events = thread.late_events() if thread.holds(MOVE) else []

    async def _live(self) -> None:
        while True:
            if self._ran and not await self._wait_before_restart():
                return
            exit_ = await self._run_once()
            self._on_end(exit_)
            if self._stopping or exit_.restore_failed:
                return

    def _adopt(self) -> None:
        """Takes over what an earlier life of this kubelet left: a container that ran is lost with its
        state.
        """
        part = "initContainerStatuses" if self.record.init else "containerStatuses"
        statuses = status(self._context.pod).get(part) or []
        before: Obj = next((s for s in statuses if s.get("name") == self.name), {})
        state, marked = before.get("state") or {}, self._context.state.restarts(self.name)
        if not before.get("containerID") and marked is None:
            return
        self._ran = True
        self.record.restart_count = max(int(before.get("restartCount") or 0), marked or 0)
        self.record.container_id = str(before.get("containerID") or "")
        self.record.image_id = str(before.get("imageID") or "")
        self.record.last_terminated = (before.get("lastState") or {}).get("terminated")
        if "terminated" in state:
            self.record.terminated = state["terminated"]
        else:
            self.record.started_at = (state.get("running") or {}).get("startedAt")
            self.record.end(Exits(self._limits).lost())

    async def _wait_before_restart(self) -> bool:
        """Waits out the back-off; False when the policy wants no restart."""
        ended = self.record.terminated or {}
        policy = str(spec(self._context.pod).get("restartPolicy") or "Always")
        if self.record.init and policy == "Always":
            policy = "OnFailure"
        if policy == "Never" or (policy == "OnFailure" and ended.get("exitCode") == 0):
            return False
        delay_ms = self._backoff_ms
        self._backoff_ms = min(
            max(delay_ms * 2, self._limits.pod_backoff_initial_ms), self._limits.pod_backoff_max_ms
        )
        if delay_ms:
            namespace, name = self._context.key
            message = text(
                "statuses",
                "crash_loop",
                seconds=delay_ms // 1000,
                container=self.name,
                pod=name,
                namespace=namespace,
                uid=self._context.uid,
            )
            self.record.wait(text("reasons", "crash_loop"), message)
            self._context.changed()
            self._context.event("BackOff", container=self.name, pod=name)
            await asyncio.sleep(delay_ms / 1000)
        return True

    def _on_end(self, exit_: Exit) -> None:
        run, self.current = self.current, None
        self._health.stop()
        if self._refresher is not None:
            self._refresher.stop()
        if run is not None:
            run.log.close()
            if asyncio.get_running_loop().time() - run.started >= self._limits.pod_backoff_reset_ms / 1000:
                self._backoff_ms = 0
        self.restoring = False
        self._ran = True
        if self._health.killed:
            self._health.killed = False
            exit_ = Exits(self._limits).unhealthy()
        self.record.end(exit_)
        if exit_.restore_failed:
            self._context.fail()
            self._context.event("RestoreError", cause=exit_.message)
        self._context.changed()
        self._context.topics_changed()

    async def _run_once(self) -> Exit:
        retry_ms = self._limits.pod_image_retry_ms
        while True:
            self._nudged.clear()
            try:
                run = await self._start()
            except RestoreFailed as failed:
                return Exits(self._limits).restore(str(failed))
            except Trap as trap:
                exits = Exits(self._limits, self._limits.pod_call_timeout_ms)
                return exits.restore(trap.message) if self.restoring else exits.trapped(trap)
            except Exception as error:
                refused = self._wait_after(error)
            else:
                return await run.ended
            with contextlib.suppress(TimeoutError):
                # Not wait_for: before Python 3.12 that may swallow a cancellation.
                async with asyncio.timeout(retry_ms / 1000):
                    await self._nudged.wait()
            # What is missing may appear at any time; what is refused stays so until the pod changes.
            if refused:
                retry_ms = min(retry_ms * 2, self._limits.pod_backoff_max_ms)

    def _wait_after(self, error: Exception) -> bool:
        """Shows why the start failed; whether it was refused rather than something missing."""
        if isinstance(error, ImageError):
            self._wait_for_image(error)
            return not error.pull
        if not isinstance(error, (ModuleRefused, ConfigError, ApiError, OSError)):
            _LOG.error("start of container %s of pod %s/%s", self.name, *self._context.key, exc_info=error)
        self._wait(text("reasons", "config_error"), str(error) or type(error).__name__)
        return not isinstance(error, (ConfigError, OSError))

    def _wait_for_image(self, error: ImageError) -> None:
        image = self.record.image
        if error.pull:
            message = text("statuses", "image_backoff", image=image, cause=error.message)
            if self._wait(text("reasons", "image_backoff"), message, tell=False):
                self._context.event("Failed", cause=f"{error.reason}: {error.message}")
            return
        invalid = error.reason == text("reasons", "image_invalid")
        if self._wait(error.reason, error.message, tell=not invalid) and invalid:
            self._context.event("InspectFailed", image=image, cause=error.message)

    def _wait(self, reason: str, message: str, tell: bool = True) -> bool:
        """Waits with a reason; whether it is another one than before, which is told as an event."""
        if self.record.waiting == (reason, message):
            return False
        self.record.wait(reason, message)
        self._context.changed()
        if tell:
            self._context.event("Failed", cause=f"Error: {message}")
        return True

    # --- a start ---

    async def _start(self) -> Run:
        """Makes module, environment, volumes and instance ready, restores when due, starts the thread."""
        checkpoint = await self._restore_from()
        if checkpoint is None:
            return await self._launch(None)
        self.restoring = True
        for attempt in range(1, _RESTORE_TRIES + 1):
            try:
                async with fetching(
                    self._node.client, self._context.key[0], checkpoint, self._limits
                ) as fetch:
                    return await self._launch(fetch)
            except OSError as error:
                # Nothing ran yet: a broken connection may be tried again, into a new instance.
                if attempt == _RESTORE_TRIES:
                    raise RestoreFailed(str(error) or text("refusals", "truncated")) from None
                await asyncio.sleep(_RESTORE_RETRY_S)
        raise AssertionError("the last attempt returns or raises")

    async def _restore_from(self) -> str | None:
        pod = self._context.pod
        checkpoint = annotation(pod, NAMES.ann_restore_from)
        if not checkpoint or self._ran or self.record.init:
            return None
        restores = await restores_container(
            self._node.client, pod, self.name, self._context.key[0], checkpoint
        )
        return checkpoint if restores else None

    async def _launch(self, fetch: SnapshotFetch | None) -> Run:
        context, node, pod = self._context, self._node, self._context.pod
        self.record.image = str(self.spec.get("image", ""))
        module = await node.images.load(pod, self.spec)
        source = ConfigSource(node.client, context.key[0])
        env = await environment(pod, self.spec, source, node.node_ip)
        projections = Projections(node.client, node.node_ip)
        mounts, changing = await node.volumes.mounts(pod, self.spec, source, projections)
        context.sandbox_ready()
        clock = PodClock()
        clock.freeze()
        log = ContainerLog(self._limits)
        services = HostServices(
            log=log.write,
            clock=clock,
            unix_ms=node.unix_ms,
            env=env,
            channels=node.channels.attach(context.key[0], f"{context.uid}/{self.name}"),
            files=FileTable(self._limits, mounts),
            publish=context.publisher,
        )
        try:
            instance = await on_own_thread(self._instantiate, module, services, fetch is not None)
        except BaseException:
            services.channels.detach()
            raise
        try:
            held = [] if fetch is None else await fetch.fill(instance)
            restarts = self.record.restart_count + 1 if self._ran else 0
            await context.state.mark(self.name, restarts)
        except BaseException:
            instance.close()
            raise
        run = self._begin(module, instance, services, tuple(held), fetch is not None, restarts, log)
        self._refresher = Refresher(context, projections, changing, self._limits)
        self._refresher.start()
        return run

    def _instantiate(self, module: LoadedModule, services: HostServices, restore: bool) -> Instance:
        limits = (self.spec.get("resources") or {}).get("limits") or {}
        memory_limit = whole_quantity(limits["memory"]) if "memory" in limits else None
        if "memory" in limits and memory_limit is None:
            raise ConfigError(text("statuses", "memory_quantity", value=limits["memory"]))
        return Instance.start(
            module, limits=self._limits, memory_limit=memory_limit, services=services, restore=restore
        )

    def _begin(
        self,
        module: LoadedModule,
        instance: Instance,
        services: HostServices,
        held: tuple[HeldEvent, ...],
        restored: bool,
        restarts: int,
        log: ContainerLog,
    ) -> Run:
        loop = asyncio.get_running_loop()
        ended: asyncio.Future[Exit] = loop.create_future()
        thread = PodThread(
            instance,
            self._settings(module, instance, held, restored),
            self._limits,
            loop=loop,
            clock=services.clock,
            unix_ms=services.unix_ms,
            on_begun=lambda: self._on_begun(module),
            on_exit=lambda exit_: None if ended.done() else ended.set_result(exit_),
            may_call=self._context.may_call,
        )
        self.previous_log, self.log = self.log or self.previous_log, log
        self.current = Run(thread, module.digest, log, ended)
        self.record.restart_count = restarts
        self.record.container_id = f"{NAMES.image_prefix}{self._context.uid}/{self.name}/{restarts}"
        self.record.image_id = f"wasm-sha256:{module.digest}"
        while self._pending:
            thread.deliver(self._pending.popleft())
        thread.start()
        return self.current

    def _settings(
        self, module: LoadedModule, instance: Instance, held: tuple[HeldEvent, ...], restored: bool
    ) -> RunSettings:
        pod = self._context.pod
        entry_point = module.info.entry_point
        tick_ms = duration_ms(annotation(pod, NAMES.ann_tick_interval)) or self._limits.pod_tick_default_ms
        call_ms = duration_ms(annotation(pod, NAMES.ann_call_timeout)) or self._limits.pod_call_timeout_ms
        request_pod = entry_point is None
        return RunSettings(
            name=f"pod {'/'.join(self._context.key)}",
            entry_point=entry_point,
            restored=restored,
            takes_requests=request_pod and instance.has("k32_handle"),
            takes_events=request_pod and instance.has("k32_event"),
            tick_ms=max(tick_ms, self._limits.pod_tick_min_ms)
            if request_pod and instance.has("k32_tick")
            else None,
            call_timeout_ms=call_ms,
            held=held,
        )

    def _on_begun(self, module: LoadedModule) -> None:
        if self.current is None:
            return
        restored, self.restoring = self.restoring, False
        self._health.begin(self.spec, self.current.thread, restored=restored)
        self.record.run()
        self.refresh()
        self._context.changed()
        self._context.topics_changed()
        self._context.started(self.name, self.record.image, module)
