"""The DaemonSet controller: one pod on every node that takes it, bound there by the scheduler as any pod."""

from collections.abc import Callable
from functools import partial

from kube32.client.api import ApiClient, ApiError
from kube32.client.events import EventRecorder
from kube32.client.informer import Informer, Key, key_of
from kube32.contract import Limits
from kube32.controllers.objects import Obj, is_deleting, is_true, name_of, node_of, spec_of, status_of, uid_of
from kube32.controllers.queue import WorkQueue
from kube32.controllers.workloads.daemons.nodes import Places, bind_to, target_of
from kube32.controllers.workloads.daemons.update import HASH_LABEL, Plan, bounds, hash_of, next_step, rolling
from kube32.controllers.workloads.delays import Delays
from kube32.controllers.workloads.held import Held
from kube32.controllers.workloads.later import Later
from kube32.controllers.workloads.order import created_at
from kube32.controllers.workloads.owned import OwnedPods
from kube32.controllers.workloads.pods import PodControl, in_batches, is_closing
from kube32.controllers.workloads.readiness import Readiness
from kube32.controllers.workloads.selectors import selects
from kube32.controllers.workloads.written import Written
from kube32.formats.template_hash import template_hash

_KIND = "DaemonSet"
_GENERATION_LABEL = "pod-template-generation"


class DaemonSetController:
    """Keeps DaemonSets: when one of them, one of their pods or a node changes."""

    def __init__(
        self,
        client: ApiClient,
        daemon_sets: Informer,
        pods: Informer,
        nodes: Informer,
        held: Held,
        limits: Limits,
        events: EventRecorder,
    ) -> None:
        self._daemon_sets = daemon_sets
        self._pods = pods
        self._nodes = nodes
        self._held = held
        self._events = events
        self._queue: WorkQueue[Key] = WorkQueue()
        self._readiness = Readiness(held)
        self._owned = OwnedPods(
            pods, _KIND, changed=self._look_at, strayed=self._on_stray, replaced=self._readiness.carry
        )
        self._control = PodControl(client, self._owned, events, _KIND, tells=True)
        self._written = Written(client, _KIND)
        self._later = Later(self._queue.add)
        # Seconds until something of the DaemonSet at hand is to be looked at again.
        self._waits: list[float | None] = []
        # Of pods that failed, by DaemonSet and node: the next is not made at once again and again.
        self._delays: Delays[tuple[str, str]] = Delays(
            limits.daemon_backoff_initial_ms / 1000, limits.daemon_backoff_max_ms / 1000
        )

    async def run(self) -> None:
        """Until cancelled."""
        self._held.subscribe(self._on_held)
        ends = [
            self._owned.follow(),
            self._pods.subscribe(self._on_pod),
            self._daemon_sets.subscribe(self._on_daemon_set),
            self._nodes.subscribe(self._on_node),
        ]
        try:
            await self._queue.run(self._sync)
        finally:
            for end in ends:
                end()
            self._later.close()

    # --- what makes us look ---

    def _on_daemon_set(self, kind: str, daemon_set: Obj, old: Obj | None) -> None:
        key = key_of(daemon_set)
        if old is not None and (kind == "DELETED" or uid_of(old) != uid_of(daemon_set)):
            uid = uid_of(old)
            self._written.forget(uid)
            self._control.forget(old)
            self._delays.forget(lambda k: k[0] == uid)
        if kind == "DELETED":
            self._queue.drop(key)
            self._later.drop(key)
        else:
            self._queue.add(key)

    def _on_node(self, kind: str, node: Obj, old: Obj | None) -> None:
        if old is None or kind == "DELETED" or _place(node) != _place(old):
            for key in self._daemon_sets.items:
                self._queue.add(key)

    def _on_pod(self, kind: str, pod: Obj, old: Obj | None) -> None:
        if kind == "DELETED":
            self._readiness.forget(uid_of(pod))

    def _look_at(self, key: Key) -> None:
        if self._daemon_sets.get(*key) is not None:
            self._queue.add(key)

    def _on_stray(self, pod: Obj) -> None:
        for key, daemon_set in self._daemon_sets.items.items():
            if selects(daemon_set, pod):
                self._queue.add(key)

    def _on_held(self, key: Key) -> None:
        pod = self._pods.get(*key)
        for reference in pod["metadata"].get("ownerReferences") or [] if pod is not None else []:
            self._look_at((key[0], str(reference.get("name"))))

    # --- one step ---

    async def _sync(self, key: Key) -> None:
        seen = self._daemon_sets.get(*key)
        if seen is None:
            return
        daemon_set = self._written.newest(seen)
        if is_deleting(daemon_set):
            return
        await self._control.settle(daemon_set)
        current = template_hash(spec_of(daemon_set)["template"])
        pods = _by_node(await self._control.claim(daemon_set, lambda _: True))
        places, nodes = Places(daemon_set), list(self._nodes.items.values())
        wanted = {name_of(n) for n in nodes if places.runs_on(n)}
        kept = {name_of(n) for n in nodes if places.stays_on(n)}
        self._waits = []
        failed: ApiError | None = None
        plan = self._manage(daemon_set, current, pods, wanted, kept)
        try:
            await self._carry_out(daemon_set, current, plan)
            if not plan.create and not plan.delete and rolling(daemon_set) is not None:
                await self._carry_out(daemon_set, current, self._update(daemon_set, current, pods, wanted))
        except ApiError as error:
            failed = None if is_closing(error) else error
        await self._write_status(daemon_set, current, wanted)
        if failed is not None:
            raise failed

    def _manage(
        self, daemon_set: Obj, current: str, pods: dict[str, list[Obj]], wanted: set[str], kept: set[str]
    ) -> Plan:
        """Pods that nodes lack, and pods that no node is to have."""
        plan = Plan()
        known = {name_of(n) for n in self._nodes.items.values()}
        for node in sorted(wanted | set(pods)):
            here = [p for p in pods.get(node, []) if not self._owned.is_going(p)]
            if node not in known:
                # What is bound there is left to the collector of pods without a node.
                plan.delete += [p for p in here if not node_of(p)]
            elif node not in kept:
                plan.delete += here
            else:
                running = [p for p in here if self._held.is_active(p)]
                self._bury(daemon_set, node, [p for p in here if not self._held.is_active(p)], plan)
                plan.delete += self._too_many(daemon_set, current, running)
            if node in wanted and not pods.get(node):
                plan.create.append(node)
        return plan

    def _bury(self, daemon_set: Obj, node: str, ended: list[Obj], plan: Plan) -> None:
        """Pods that have ended go, and others come; after failures with growing delays."""
        for pod in ended:
            place = {"namespace": key_of(pod)[0], "pod": name_of(pod), "node": node}
            if status_of(pod).get("phase") == "Failed":
                wait_s = self._delays.wait((uid_of(daemon_set), node))
                if wait_s > 0:
                    self._waits.append(wait_s)
                    continue
                self._delays.more((uid_of(daemon_set), node))
                self._events.event(daemon_set, "FailedDaemonPod", **place)
            else:
                self._events.event(daemon_set, "SucceededDaemonPod", **place)
            plan.delete.append(pod)

    def _too_many(self, daemon_set: Obj, current: str, running: list[Obj]) -> list[Obj]:
        """All but the oldest, bound ones first; while it surges, all but the oldest of each template."""
        ordered = sorted(running, key=lambda p: (not node_of(p), created_at(p)))
        if bounds(daemon_set, 1)[0] == 0 or rolling(daemon_set) is None:
            return ordered[1:]
        new = [p for p in ordered if hash_of(p) == current]
        old = [p for p in ordered if hash_of(p) != current]
        return new[1:] + old[1:]

    def _update(self, daemon_set: Obj, current: str, pods: dict[str, list[Obj]], wanted: set[str]) -> Plan:
        running = {
            node: [p for p in found if self._held.is_active(p) or self._owned.is_going(p)]
            for node, found in pods.items()
        }
        plan = next_step(daemon_set, current, running, wanted, self._judge(daemon_set))
        plan.delete = [p for p in plan.delete if not self._owned.is_going(p)]
        return plan

    def _judge(self, daemon_set: Obj) -> Callable[[Obj], bool]:
        seconds = int(spec_of(daemon_set).get("minReadySeconds") or 0)

        def available(pod: Obj) -> bool:
            if self._owned.is_going(pod):
                return False
            left = self._readiness.left(pod, seconds)
            self._waits.append(left)
            return left == 0

        return available

    async def _carry_out(self, daemon_set: Obj, current: str, plan: Plan) -> None:
        for pod in plan.delete:
            await self._control.delete(daemon_set, pod)
        await in_batches([partial(self._create, daemon_set, current, node) for node in plan.create])

    async def _create(self, daemon_set: Obj, current: str, node: str) -> None:
        labels = {
            HASH_LABEL: current,
            _GENERATION_LABEL: str(daemon_set["metadata"].get("generation", 1)),
        }
        template = spec_of(daemon_set)["template"]
        pod = self._control.pod_of(daemon_set, template, f"{name_of(daemon_set)}-", labels)
        bind_to(pod, node)
        await self._control.create(daemon_set, pod)

    # --- status ---

    async def _write_status(self, daemon_set: Obj, current: str, wanted: set[str]) -> None:
        pods = _by_node(self._owned.of(daemon_set))
        available, counts = (
            self._judge(daemon_set),
            {"scheduled": 0, "ready": 0, "available": 0, "updated": 0},
        )
        for node in wanted:
            # The pod that counts is the one that stays, of those the oldest.
            found = sorted(pods.get(node, []), key=lambda p: (self._owned.is_going(p), created_at(p)))
            if found:
                counts["scheduled"] += 1
                counts["updated"] += hash_of(found[0]) == current
                counts["ready"] += is_true(found[0], "Ready")
                counts["available"] += is_true(found[0], "Ready") and available(found[0])
        status: Obj = {
            "currentNumberScheduled": counts["scheduled"],
            "desiredNumberScheduled": len(wanted),
            "numberMisscheduled": sum(node not in wanted for node in pods),
            "numberReady": counts["ready"],
            "observedGeneration": daemon_set["metadata"].get("generation", 1),
        }
        more = {
            "updatedNumberScheduled": counts["updated"],
            "numberAvailable": counts["available"],
            "numberUnavailable": len(wanted) - counts["available"],
        }
        status |= {k: v for k, v in more.items() if v}
        conditions = status_of(daemon_set).get("conditions")
        if conditions:
            status["conditions"] = conditions
        self._later.set(key_of(daemon_set), self._waits)
        if status != status_of(daemon_set):
            await self._written.status({**daemon_set, "status": status})


def _by_node(pods: list[Obj]) -> dict[str, list[Obj]]:
    found: dict[str, list[Obj]] = {}
    for pod in pods:
        found.setdefault(target_of(pod), []).append(pod)
    return found


def _place(node: Obj) -> tuple[object, ...]:
    """What it depends on whether a node takes a daemon's pod."""
    return node["metadata"].get("labels"), spec_of(node).get("taints"), uid_of(node)
