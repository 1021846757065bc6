"""Makes one run of a container ready: module, environment, volumes, instance, restored state."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from kube32.contract import NAMES, text
from kube32.formats.k32s import HeldEvent
from kube32.kubelet.calls import RunSettings
from kube32.kubelet.config import ConfigError, ConfigSource, environment
from kube32.kubelet.logs import ContainerLog
from kube32.kubelet.node_services import NodeServices
from kube32.kubelet.own_thread import on_own_thread
from kube32.kubelet.pod_context import PodContext
from kube32.kubelet.projections import Projections
from kube32.kubelet.refresher import Refresher
from kube32.kubelet.restore import SnapshotFetch
from kube32.kubelet.values import Obj, annotation, duration_ms, whole_quantity
from kube32.wasm import FileTable, HostServices, Instance, LoadedModule, PodClock


@dataclass(slots=True)
class Prepared:
    """A run that can begin: nothing of the module was called but its start function.

    `last_words` is the file terminationMessagePath on the node, None when the container has none.
    """

    module: LoadedModule
    instance: Instance
    services: HostServices
    log: ContainerLog
    settings: RunSettings
    refresher: Refresher
    last_words: Path | None


class Starter:
    """Prepares the runs of one container. `container` gives its spec as the pod has it now."""

    def __init__(
        self, context: PodContext, node: NodeServices, container: Callable[[], Obj], *, init: bool
    ) -> None:
        self._context = context
        self._node = node
        self._container = container
        self._init = init

    async def prepare(self, fetch: SnapshotFetch | None) -> Prepared:
        """A new instance, restored when there is a `fetch`.

        ImageError, ConfigError, ModuleRefused, Trap, RestoreFailed, OSError: nothing of it is left then.
        """
        context, node, pod, container = self._context, self._node, self._context.pod, self._container()
        module = await node.images.load(pod, container)
        if self._init and module.info.entry_point is None:
            raise ConfigError(text("statuses", "init_stays", container=container.get("name", "")))
        source = ConfigSource(node.client, context.key[0])
        env = await environment(pod, container, source, node.facts)
        projections = Projections(node.client, node.facts)
        mounts, changing = await node.volumes.mounts(pod, container, source, projections, env)
        words = node.volumes.last_words(pod, container)
        context.sandbox_ready()
        clock = PodClock()
        clock.freeze()
        log = ContainerLog(node.limits)
        services = HostServices(
            log=log.write,
            clock=clock,
            unix_ms=node.unix_ms,
            env=env,
            channels=node.channels.attach(context.key[0], f"{context.uid}/{container.get('name', '')}"),
            # A volume at the same path goes before the last words.
            files=FileTable(node.limits, mounts if words is None else [words, *mounts]),
            publish=context.publisher,
        )
        try:
            instance = await on_own_thread(self._instantiate, module, services, fetch is not None)
        except BaseException:
            services.channels.detach()
            raise
        try:
            held = [] if fetch is None else await fetch.fill(instance)
        except BaseException:
            instance.close()
            raise
        settings = self._settings(module, instance, tuple(held), fetch is not None)
        refresher = Refresher(context, projections, changing, node.limits, source.fixed)
        file = None if words is None else words.source
        return Prepared(module, instance, services, log, settings, refresher, file)

    def _instantiate(self, module: LoadedModule, services: HostServices, restore: bool) -> Instance:
        limits = (self._container().get("resources") or {}).get("limits") or {}
        memory_limit = whole_quantity(limits["memory"]) if "memory" in limits else None
        if "memory" in limits and memory_limit is None:
            raise ConfigError(text("statuses", "memory_quantity", value=limits["memory"]))
        return Instance.start(
            module, limits=self._node.limits, memory_limit=memory_limit, services=services, restore=restore
        )

    def _settings(
        self, module: LoadedModule, instance: Instance, held: tuple[HeldEvent, ...], restored: bool
    ) -> RunSettings:
        pod, limits = self._context.pod, self._node.limits
        entry_point = module.info.entry_point
        tick_ms = duration_ms(annotation(pod, NAMES.ann_tick_interval)) or limits.pod_tick_default_ms
        call_ms = duration_ms(annotation(pod, NAMES.ann_call_timeout)) or limits.pod_call_timeout_ms
        request_pod = entry_point is None
        ticks = request_pod and instance.has("k32_tick")
        return RunSettings(
            name=f"pod {'/'.join(self._context.key)}",
            entry_point=entry_point,
            restored=restored,
            takes_requests=request_pod and instance.has("k32_handle"),
            takes_events=request_pod and instance.has("k32_event"),
            tick_ms=max(tick_ms, limits.pod_tick_min_ms) if ticks else None,
            call_timeout_ms=call_ms,
            held=held,
        )
