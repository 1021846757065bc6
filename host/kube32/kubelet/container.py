"""One container of a pod: how it runs, ends and is started again (restart policy, back-off, restore)."""

import asyncio
import contextlib
import logging
from collections import deque
from dataclasses import dataclass, field
from pathlib import Path

from kube32.client.api import ApiError
from kube32.contract import NAMES, text
from kube32.formats.k32s import HeldEvent
from kube32.formats.wasm_module import ModuleRefused
from kube32.kubelet.backoff import Backoff, restarts
from kube32.kubelet.calls import Exit, Exits
from kube32.kubelet.config import ConfigError
from kube32.kubelet.freezer import MOVE
from kube32.kubelet.health import Health
from kube32.kubelet.images import ImageError
from kube32.kubelet.last_words import with_last_words
from kube32.kubelet.logs import ContainerLog
from kube32.kubelet.node_services import NodeServices
from kube32.kubelet.pod_context import PodContext
from kube32.kubelet.pod_status import POLICY_DEFAULT, ContainerRecord
from kube32.kubelet.pod_thread import PodThread
from kube32.kubelet.refresher import Refresher
from kube32.kubelet.restore import RestoreFailed, SnapshotFetch, fetching, restores_container
from kube32.kubelet.starter import Prepared, Starter
from kube32.kubelet.values import Obj, annotation, spec, status
from kube32.kubelet.volumes import MountFailed
from kube32.wasm import LoadedModule, Trap

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
    refresher: Refresher
    last_words: Path | None
    ended: "asyncio.Future[Exit]"
    started: float = field(default_factory=lambda: asyncio.get_running_loop().time())
    # Whether its preStop hook was begun, which happens once.
    pre_stop: bool = False


class Container:
    """Keeps one container as its spec wants it. Everything is for the event loop."""

    def __init__(
        self, context: PodContext, node: NodeServices, container: Obj, *, init: bool = False
    ) -> None:
        self.name = str(container.get("name", ""))
        self.record = ContainerRecord(self.name, str(container.get("image", "")), init=init)
        self.current: Run | None = None
        self.log: ContainerLog | None = None
        self.previous_log: ContainerLog | None = None
        self.late_events: list[HeldEvent] = []
        self.restoring = False
        # Whether its module has k32_handle; None before its first run.
        self.takes_requests: bool | None = None
        self._context = context
        self._node = node
        self._limits = node.limits
        self._starter = Starter(context, node, lambda: self.spec, init=init)
        self._health = Health(context, self.record, self._end_run)
        self._pending: deque[HeldEvent] = deque()
        self._nudged = asyncio.Event()
        self._backoff = Backoff(node.limits)
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
                await self._end_run(run.thread, grace_s)
            await asyncio.wait([task])

    async def _end_run(self, thread: PodThread, grace_s: float) -> None:
        """Ends a run: first its preStop hook, then the call that runs may return, within the grace period."""
        run = self.current
        if run is None or run.thread is not thread:
            return
        self._health.rest()
        left_s = grace_s
        if not run.pre_stop:
            run.pre_stop = True
            left_s -= await self._health.before_stop(self.spec, thread, grace_s)
        thread.stop()
        if thread.settings.entry_point is None:
            await asyncio.wait([run.ended], timeout=left_s)
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
        policy = str(spec(self._context.pod).get("restartPolicy") or POLICY_DEFAULT)
        if not restarts(policy, ended.get("exitCode"), init=self.record.init):
            return False
        delay_ms = self._backoff.take_ms()
        if delay_ms:
            namespace, name = self._context.key
            uid = self._context.uid
            message = text(
                "statuses",
                "crash_loop",
                seconds=delay_ms // 1000,
                container=self.name,
                pod=name,
                namespace=namespace,
                uid=uid,
            )
            self.record.wait(text("reasons", "crash_loop"), message)
            self._context.changed()
            self._context.event("BackOff", container=self.name, pod=f"{name}_{namespace}({uid})")
            await asyncio.sleep(delay_ms / 1000)
        return True

    def _on_end(self, exit_: Exit) -> None:
        run, self.current = self.current, None
        self._health.stop()
        if run is not None:
            run.refresher.stop()
            run.log.close()
            self._backoff.ran(asyncio.get_running_loop().time() - run.started)
        self.restoring = False
        self._ran = True
        self.record.end(exit_)
        if exit_.restore_failed:
            self._context.fail()
            self._context.event("RestoreError", container=self.name, cause=exit_.message)
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
                return await self._exit_of(run)
            with contextlib.suppress(TimeoutError):
                # Not wait_for: before Python 3.12 that may swallow a cancellation.
                async with asyncio.timeout(retry_ms / 1000):
                    await self._nudged.wait()
            # What is missing may appear at any time; what is refused stays so until the pod changes.
            if refused:
                retry_ms = min(retry_ms * 2, self._limits.pod_backoff_max_ms)

    async def _exit_of(self, run: Run) -> Exit:
        """Waits for the run's end. A pod that has moved away says its last words elsewhere."""
        exit_ = self._health.judged(await run.ended)
        if run.thread.holds(MOVE):
            return exit_
        return await with_last_words(exit_, self.spec, run.log, run.last_words, self._limits)

    def _wait_after(self, error: Exception) -> bool:
        """Shows why the start failed; whether it was refused rather than something missing."""
        if isinstance(error, ImageError):
            self._wait_for_image(error)
            return not error.pull
        if isinstance(error, MountFailed):
            if self._wait(text("reasons", "container_creating"), str(error), tell=False):
                self._context.event("FailedMount", container=self.name, volume=error.volume, cause=str(error))
            return False
        if not isinstance(error, (ModuleRefused, ConfigError, ApiError, OSError)):
            _LOG.error("start of container %s of pod %s/%s", self.name, *self._context.key, exc_info=error)
        self._wait(text("reasons", "config_error"), str(error) or type(error).__name__)
        return not isinstance(error, (ConfigError, OSError))

    def _wait_for_image(self, error: ImageError) -> None:
        image = self.record.image
        if error.pull:
            message = text("statuses", "image_backoff", image=image, cause=error.message)
            if self._wait(text("reasons", "image_backoff"), message, tell=False):
                self._context.event("Failed", container=self.name, cause=f"{error.reason}: {error.message}")
            return
        invalid = error.reason == text("reasons", "image_invalid")
        if self._wait(error.reason, error.message, tell=not invalid) and invalid:
            self._context.event("InspectFailed", container=self.name, image=image, cause=error.message)

    def _wait(self, reason: str, message: str, tell: bool = True) -> bool:
        """Waits with a reason; whether it is another one than before, which is told as an event."""
        if self.record.waiting == (reason, message):
            return False
        self.record.wait(reason, message)
        self._context.changed()
        if tell:
            self._context.event("Failed", container=self.name, cause=f"Error: {message}")
        return True

    # --- a start ---

    async def _start(self) -> Run:
        """Prepares a run, restores it when due, starts its thread."""
        self.record.image = str(self.spec.get("image", ""))
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
        prepared = await self._starter.prepare(fetch)
        count = self.record.restart_count + 1 if self._ran else 0
        try:
            await self._context.state.mark(self.name, count)
        except BaseException:
            prepared.instance.close()
            raise
        return self._begin(prepared, count)

    def _begin(self, prepared: Prepared, count: int) -> Run:
        loop = asyncio.get_running_loop()
        ended: asyncio.Future[Exit] = loop.create_future()
        module = prepared.module
        thread = PodThread(
            prepared.instance,
            prepared.settings,
            self._limits,
            loop=loop,
            clock=prepared.services.clock,
            unix_ms=prepared.services.unix_ms,
            on_begun=lambda: self._on_begun(module),
            on_exit=lambda exit_: None if ended.done() else ended.set_result(exit_),
            may_call=self._context.may_call,
        )
        self.takes_requests = prepared.settings.takes_requests
        self.previous_log, self.log = self.log or self.previous_log, prepared.log
        run = Run(thread, module.digest, prepared.log, prepared.refresher, prepared.last_words, ended)
        self.current = run
        self.record.restart_count = count
        self.record.container_id = f"{NAMES.image_prefix}{self._context.uid}/{self.name}/{count}"
        self.record.image_id = f"wasm-sha256:{module.digest}"
        while self._pending:
            thread.deliver(self._pending.popleft())
        thread.start()
        run.refresher.start()
        return run

    def _on_begun(self, module: LoadedModule) -> None:
        run = self.current
        if run is None:
            return
        restored, self.restoring = self.restoring, False
        self._health.begin(self.spec, run.thread, restored=restored)
        self.record.run()
        self.refresh()
        self._context.changed()
        self._context.topics_changed()
        self._context.started(self.name, self.record.image, module)
