"""All controllers of a control plane, on one API client and one set of watches."""

import asyncio
import logging
from collections.abc import Coroutine
from typing import Protocol

from kube32.client.api import ApiClient
from kube32.client.events import EventRecorder
from kube32.client.informer import Informer
from kube32.contract import NAMES, Limits, resource_of
from kube32.controllers.bookings import Bookings
from kube32.controllers.checkpoint.controller import CheckpointController
from kube32.controllers.claims.binding import ClaimBinding
from kube32.controllers.claims.keeper import ClaimKeeper
from kube32.controllers.events_ttl import EventsTtl
from kube32.controllers.garbage.collector import GarbageCollector
from kube32.controllers.lost_pods import LostPods
from kube32.controllers.namespace_objects import root_certificates, service_accounts
from kube32.controllers.namespaces import Namespaces
from kube32.controllers.node_lifecycle import NodeLifecycle
from kube32.controllers.pod_gc import PodGc
from kube32.controllers.routes.controller import RoutesController
from kube32.controllers.scheduler import Scheduler
from kube32.controllers.served import ServedKinds
from kube32.controllers.taint_eviction import TaintEviction
from kube32.controllers.workloads.daemons.controller import DaemonSetController
from kube32.controllers.workloads.deployments.controller import DeploymentController
from kube32.controllers.workloads.held import Held
from kube32.controllers.workloads.jobs.controller import JobController

_LOG = logging.getLogger(__name__)
_WORKLOADS = ("Deployment", "DaemonSet", "Job")


class _Controller(Protocol):
    async def run(self) -> None: ...


class Controllers:
    """Scheduler, Checkpoint controller, node lifecycle, namespaces, Event expiry, garbage collection.

    `ca_pem`: the cluster's CA certificate, for a ConfigMap in each namespace; "" for none.
    """

    def __init__(self, client: ApiClient, limits: Limits, ca_pem: str = "") -> None:
        self._client = client
        self._limits = limits
        self._ca_pem = ca_pem
        self._tasks: list[asyncio.Task[None]] = []
        self._recorders: list[EventRecorder] = []
        self._namespaces: Namespaces | None = None

    async def start(self) -> None:
        """Starts them all, once every watch has its first list; the initial namespaces are there then."""
        client, limits = self._client, self._limits
        kinds = ("Pod", "Node", "Checkpoint", "Namespace", "Event", "PersistentVolumeClaim", *_WORKLOADS)
        watches = {kind: Informer(client, kind) for kind in kinds}
        watches["Lease"] = Informer(client, "Lease", namespace=NAMES.lease_namespace)
        pods, nodes = watches["Pod"], watches["Node"]
        bookings = Bookings(pods)
        kinds_served = self._served(watches)
        self._namespaces = Namespaces(client, watches["Namespace"], kinds_served)
        work: list[_Controller] = [
            *self._scheduling(watches, bookings),
            NodeLifecycle(
                client, nodes, watches["Lease"], limits, self._recorder(NAMES.event_component_node_lifecycle)
            ),
            CheckpointController(
                client,
                pods,
                nodes,
                watches["Checkpoint"],
                bookings,
                limits,
                self._recorder(NAMES.event_component_controller),
            ),
            EventsTtl(client, watches["Event"], limits),
            PodGc(client, pods, nodes, limits),
            TaintEviction(client, pods, nodes, self._recorder(NAMES.event_component_taints)),
            LostPods(client, pods, nodes, self._recorder(NAMES.event_component_node_lifecycle)),
            kinds_served,
            GarbageCollector(
                client,
                kinds_served,
                {kind: watches[kind] for kind in kinds},
                self._recorder(NAMES.event_component_garbage),
                self._namespaces.nudge,
            ),
            *self._namespace_objects(watches),
            *self._workloads(watches),
            self._routes(watches),
        ]
        await self._namespaces.create_initial()
        for informer in watches.values():
            self._spawn(informer.run(), f"watch {informer.kind}")
        await asyncio.gather(*(informer.synced.wait() for informer in watches.values()))
        for controller in work:
            self._spawn(controller.run(), type(controller).__name__)

    def _scheduling(self, watches: dict[str, Informer], bookings: Bookings) -> list[_Controller]:
        """The scheduler, and the claims that bind pods to nodes."""
        client, pods, claims = self._client, watches["Pod"], watches["PersistentVolumeClaim"]
        about_claims = self._recorder(NAMES.event_component_claims)
        binding = ClaimBinding(client, claims, about_claims)
        about_pods = self._recorder(NAMES.event_component_scheduler)
        return [
            Scheduler(client, pods, watches["Node"], claims, bookings, binding, about_pods),
            ClaimKeeper(client, pods, claims, binding, about_claims),
        ]

    def _workloads(self, watches: dict[str, Informer]) -> list[_Controller]:
        """The controllers that own pods."""
        client, pods, limits = self._client, watches["Pod"], self._limits
        held = Held(watches["Checkpoint"])
        deployments = self._recorder(NAMES.event_component_deployments)
        daemons = self._recorder(NAMES.event_component_daemonsets)
        jobs = self._recorder(NAMES.event_component_jobs)
        return [
            DeploymentController(client, watches["Deployment"], pods, held, limits, deployments),
            DaemonSetController(client, watches["DaemonSet"], pods, watches["Node"], held, limits, daemons),
            JobController(client, watches["Job"], pods, held, limits, jobs),
        ]

    def _routes(self, watches: dict[str, Informer]) -> _Controller:
        """What the nodes' listeners know of Services and Ingresses."""
        for kind in ("Service", "EndpointSlice", "Ingress", "IngressClass"):
            watches[kind] = Informer(self._client, kind)
        return RoutesController(
            self._client,
            services=watches["Service"],
            slices=watches["EndpointSlice"],
            ingresses=watches["Ingress"],
            classes=watches["IngressClass"],
            pods=watches["Pod"],
            nodes=watches["Node"],
            limits=self._limits,
        )

    def _served(self, watches: dict[str, Informer]) -> ServedKinds:
        definitions = resource_of("CustomResourceDefinition")
        if self._limits.profile not in definitions.profiles:
            return ServedKinds(self._client)
        watches[definitions.kind] = Informer(self._client, definitions, metadata_only=True)
        return ServedKinds(self._client, watches[definitions.kind])

    def _namespace_objects(self, watches: dict[str, Informer]) -> list[_Controller]:
        client, namespaces = self._client, watches["Namespace"]

        def named(kind: str, name: str) -> Informer:
            watches[kind] = Informer(client, kind, field_selector=f"metadata.name={name}")
            return watches[kind]

        accounts = named("ServiceAccount", NAMES.service_account)
        made: list[_Controller] = [service_accounts(client, namespaces, accounts)]
        if self._ca_pem:
            config_maps = named("ConfigMap", NAMES.configmap_ca)
            made.append(root_certificates(client, namespaces, config_maps, self._ca_pem))
        return made

    def _recorder(self, component: str) -> EventRecorder:
        recorder = EventRecorder(self._client, component)
        self._recorders.append(recorder)
        return recorder

    def _spawn(self, work: Coroutine[None, None, None], name: str) -> None:
        task = asyncio.get_running_loop().create_task(work, name=name)
        task.add_done_callback(_report)
        self._tasks.append(task)

    async def stop(self) -> None:
        """Stops them all. What is half done stands in the objects and is taken up at the next start."""
        if self._namespaces is not None:
            self._namespaces.stop()
        # The watches stop last: controllers that end still look at what they know.
        for task in reversed(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._tasks.clear()
        await asyncio.gather(*(recorder.close() for recorder in self._recorders))


def _report(task: asyncio.Task[None]) -> None:
    if not task.cancelled() and task.exception() is not None:
        _LOG.error("%s ended: %s", task.get_name(), task.exception(), exc_info=task.exception())
