"""The DaemonSet controller: one pod on every node that takes it, bound there by the scheduler as any pod."""

import asyncio
import copy
import logging
from collections.abc import Iterator

from kube32.client.api import ApiClient, ApiError
from kube32.client.events import EventRecorder
from kube32.client.informer import Informer, Key, key_of
from kube32.contract import NAMES, Limits, resource_of
from kube32.controllers.node_match import matches_required_affinity, matches_selector, tolerated
from kube32.controllers.objects import Obj, is_deleting, is_true, name_of, node_of, spec_of, status_of, uid_of
from kube32.controllers.queue import WorkQueue
from kube32.controllers.workloads.owned import OwnedPods
from kube32.controllers.workloads.pods import PodControl, Readiness, is_active
from kube32.controllers.workloads.rollout import resolve
from kube32.formats.template_hash import template_hash

_LOG = logging.getLogger(__name__)
_KIND = "DaemonSet"
_HASH_LABEL = "controller-revision-hash"
# What a daemon's pod stays on a node in spite of, as Kubernetes adds it.
_STAYS = (
    ("node.kubernetes.io/not-ready", "NoExecute"),
    ("node.kubernetes.io/unreachable", "NoExecute"),
    ("node.kubernetes.io/disk-pressure", "NoSchedule"),
    ("node.kubernetes.io/memory-pressure", "NoSchedule"),
    ("node.kubernetes.io/pid-pressure", "NoSchedule"),
    (NAMES.taint_unschedulable, "NoSchedule"),
)


class DaemonSetController:
    """Keeps DaemonSets: when one of them, one of their pods or a node changes."""

    def __init__(
        self,
        client: ApiClient,
        daemonsets: Informer,
        pods: Informer,
        nodes: Informer,
        limits: Limits,
        events: EventRecorder,
    ) -> None:
        self._client = client
        self._daemonsets = daemonsets
        self._nodes = nodes
        self._events = events
        self._queue: WorkQueue[Key] = WorkQueue()
        self._owned = OwnedPods(pods, _KIND, self._look_at)
        self._control = PodControl(client, self._owned, events, _KIND, resource_of(_KIND).api_version)
        self._readiness = Readiness()
        self._timers: dict[Key, asyncio.TimerHandle] = {}

    async def run(self) -> None:
        """Until cancelled."""
        ends = [
            self._owned.follow(),
            self._daemonsets.subscribe(self._on_daemonset),
            self._nodes.subscribe(self._on_node),
        ]
        try:
            await self._queue.run(self._sync)
        finally:
            for end in ends:
                end()
            for timer in self._timers.values():
                timer.cancel()

    def _on_daemonset(self, kind: str, daemonset: Obj, old: Obj | None) -> None:
        if kind == "DELETED":
            self._queue.drop(key_of(daemonset))
        else:
            self._queue.add(key_of(daemonset))

    def _on_node(self, kind: str, node: Obj, old: Obj | None) -> None:
        if old is None or kind == "DELETED" or _place(node) != _place(old):
            for key in self._daemonsets.items:
                self._queue.add(key)

    def _look_at(self, key: Key) -> None:
        namespace, name = key
        for found in self._daemonsets.items:
            if found == key or (not name and found[0] == namespace):
                self._queue.add(found)

    async def _sync(self, key: Key) -> None:
        daemonset = self._daemonsets.get(*key)
        if daemonset is None or is_deleting(daemonset):
            return
        current = template_hash(spec_of(daemonset)["template"])
        pods = await self._control.claim(daemonset, None, _HASH_LABEL)
        by_node = self._by_node(pods)
        wanted = {name_of(n): n for n in self._nodes.items.values() if _runs_on(daemonset, n)}
        kept = {name_of(n): n for n in self._nodes.items.values() if _stays_on(daemonset, n)}
        failed: ApiError | None = None
        try:
            await self._clear(daemonset, by_node, kept)
            for node in sorted(wanted):
                if not [p for p in by_node.get(node, []) if is_active(p)]:
                    await self._create(daemonset, node, current, by_node)
            await self._update(daemonset, current, by_node, wanted)
        except ApiError as error:
            failed = error
        await self._write_status(daemonset, current, wanted, kept)
        if failed is not None:
            raise failed

    def _by_node(self, pods: list[Obj]) -> dict[str, list[Obj]]:
        found: dict[str, list[Obj]] = {}
        for pod in pods:
            if not self._owned.is_going(pod):
                found.setdefault(target_of(pod), []).append(pod)
        return found

    async def _clear(self, daemonset: Obj, by_node: dict[str, list[Obj]], kept: dict[str, Obj]) -> None:
        """Deletes pods of nodes that take none, pods that failed, and all but the oldest of each template."""
        for node, pods in by_node.items():
            seen: set[str] = set()
            for pod in sorted(
                pods, key=lambda p: (not is_active(p), p["metadata"].get("creationTimestamp") or "")
            ):
                revision = _revision(pod)
                if node in kept and is_active(pod) and revision not in seen:
                    seen.add(revision)
                    continue
                if node in kept and not is_active(pod):
                    self._events.event(daemonset, "FailedDaemonPod", pod=name_of(pod), node=node)
                await self._control.delete(daemonset, pod)
            by_node[node] = [p for p in pods if not self._owned.is_going(p)]

    async def _create(self, daemonset: Obj, node: str, current: str, by_node: dict[str, list[Obj]]) -> None:
        made = await self._control.create(
            daemonset,
            spec_of(daemonset)["template"],
            prefix=f"{name_of(daemonset)}-",
            labels={
                _HASH_LABEL: current,
                "pod-template-generation": str(daemonset["metadata"].get("generation", 1)),
            },
            change={"spec": _bound_to(spec_of(daemonset)["template"], node)},
        )
        by_node.setdefault(node, []).append(made)

    async def _update(
        self, daemonset: Obj, current: str, by_node: dict[str, list[Obj]], wanted: dict[str, Obj]
    ) -> None:
        """A step of a rolling update."""
        strategy = spec_of(daemonset).get("updateStrategy") or {}
        if strategy.get("type", "RollingUpdate") != "RollingUpdate":
            return
        rolling = strategy.get("rollingUpdate") or {}
        surge = resolve(rolling.get("maxSurge", 0), len(wanted), up=True)
        unavailable = resolve(rolling.get("maxUnavailable", 1), len(wanted), up=True)
        if surge == 0 and unavailable == 0:
            unavailable = 1
        missing, old_serving, surging = 0, [], 0
        for node in sorted(wanted):
            pods = [p for p in by_node.get(node, []) if is_active(p)]
            new = [p for p in pods if _revision(p) == current]
            old = [p for p in pods if _revision(p) != current]
            if new and old:
                surging += 1
                if self._available(daemonset, new[0]):
                    for pod in old:
                        await self._control.delete(daemonset, pod)
            elif old and not self._available(daemonset, old[0]):
                missing += 1
                await self._control.delete(daemonset, old[0])
            elif old:
                old_serving.append((node, old[0]))
            elif not new or not self._available(daemonset, new[0]):
                missing += 1
        if surge:
            for node, _ in old_serving[: max(surge - surging, 0)]:
                await self._create(daemonset, node, current, by_node)
        else:
            for _, pod in old_serving[: max(unavailable - missing, 0)]:
                await self._control.delete(daemonset, pod)

    def _available(self, daemonset: Obj, pod: Obj) -> bool:
        seconds = int(spec_of(daemonset).get("minReadySeconds") or 0)
        good, left = self._readiness.available(pod, seconds)
        if left:
            self._again(key_of(daemonset), left)
        return good

    def _again(self, key: Key, after_s: float) -> None:
        timer = self._timers.pop(key, None)
        if timer is not None:
            timer.cancel()
        self._timers[key] = asyncio.get_running_loop().call_later(after_s, self._queue.add, key)

    async def _write_status(
        self, daemonset: Obj, current: str, wanted: dict[str, Obj], kept: dict[str, Obj]
    ) -> None:
        by_node = self._by_node(self._owned.of(daemonset))
        scheduled = ready = available = updated = 0
        for node in wanted:
            pods = [p for p in by_node.get(node, []) if is_active(p)]
            if not pods:
                continue
            scheduled += 1
            pod = max(pods, key=lambda p: _revision(p) == current)
            updated += _revision(pod) == current
            if is_true(pod, "Ready"):
                ready += 1
                available += self._available(daemonset, pod)
        status: Obj = {
            "currentNumberScheduled": scheduled,
            "desiredNumberScheduled": len(wanted),
            "numberMisscheduled": sum(bool(p) for n, p in by_node.items() if n not in wanted),
            "numberReady": ready,
            "observedGeneration": daemonset["metadata"].get("generation", 1),
        }
        more = {
            "updatedNumberScheduled": updated,
            "numberAvailable": available,
            "numberUnavailable": len(wanted) - available,
        }
        status.update({k: v for k, v in more.items() if v})
        if status == status_of(daemonset):
            return
        try:
            await self._client.update(_KIND, {**daemonset, "status": status}, subresource="status")
        except ApiError as error:
            if error.code not in (404, 409):
                raise


def _revision(pod: Obj) -> str:
    return str((pod["metadata"].get("labels") or {}).get(_HASH_LABEL, ""))


def _place(node: Obj) -> tuple[object, ...]:
    """What it depends on whether a node takes a daemon's pod."""
    spec = spec_of(node)
    return node["metadata"].get("labels"), spec.get("taints"), spec.get("unschedulable"), uid_of(node)


def target_of(pod: Obj) -> str:
    """The node that a daemon's pod is on, or is for."""
    if node_of(pod):
        return node_of(pod)
    affinity = (spec_of(pod).get("affinity") or {}).get("nodeAffinity") or {}
    required = affinity.get("requiredDuringSchedulingIgnoredDuringExecution") or {}
    for term in required.get("nodeSelectorTerms") or []:
        for field in term.get("matchFields") or []:
            if field.get("key") == "metadata.name" and field.get("values"):
                return str(field["values"][0])
    return ""


def _as_pod(daemonset: Obj) -> Obj:
    """The template as the node matchers want it."""
    template = spec_of(daemonset)["template"]
    spec = dict(template.get("spec") or {})
    spec["tolerations"] = [*(spec.get("tolerations") or []), *_tolerations(spec)]
    return {"metadata": template.get("metadata") or {}, "spec": spec}


def _tolerations(spec: Obj) -> Iterator[Obj]:
    for key, effect in _STAYS:
        row = {"key": key, "operator": "Exists", "effect": effect}
        if row not in (spec.get("tolerations") or []):
            yield row


def _suits(pod: Obj, node: Obj) -> bool:
    return matches_selector(node, spec_of(pod).get("nodeSelector")) and matches_required_affinity(node, pod)


def _runs_on(daemonset: Obj, node: Obj) -> bool:
    """Whether the node should have a pod."""
    pod = _as_pod(daemonset)
    taints = [t for t in spec_of(node).get("taints") or [] if t.get("effect") in ("NoSchedule", "NoExecute")]
    return _suits(pod, node) and all(tolerated(pod, t) for t in taints)


def _stays_on(daemonset: Obj, node: Obj) -> bool:
    """Whether a pod that is there may stay: a NoSchedule taint does not drive it away."""
    pod = _as_pod(daemonset)
    taints = [t for t in spec_of(node).get("taints") or [] if t.get("effect") == "NoExecute"]
    return _suits(pod, node) and all(tolerated(pod, t) for t in taints)


def _bound_to(template: Obj, node: str) -> Obj:
    """The changes to a pod's spec that keep it to one node."""
    spec = template.get("spec") or {}
    affinity = copy.deepcopy(spec.get("affinity") or {})
    named = {"key": "metadata.name", "operator": "In", "values": [node]}
    there = affinity.setdefault("nodeAffinity", {})
    there["requiredDuringSchedulingIgnoredDuringExecution"] = {
        "nodeSelectorTerms": [{"matchFields": [named]}]
    }
    return {
        "affinity": affinity,
        "tolerations": [*copy.deepcopy(spec.get("tolerations") or []), *_tolerations(spec)],
    }
