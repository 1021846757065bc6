"""The Deployment controller. It owns its pods directly; ReplicaSets are computed by the API server for readers.

A pod that is frozen or moves counts as its one pod: none is added for it and none goes (specification, "Moves").
"""

import asyncio
import logging

from kube32.client.api import ApiClient, ApiError
from kube32.client.events import EventRecorder
from kube32.client.informer import Informer, Key, key_of
from kube32.contract import Limits, resource_of
from kube32.controllers.objects import (
    Obj,
    annotation,
    is_deleting,
    is_true,
    name_of,
    spec_of,
    status_of,
    uid_of,
)
from kube32.controllers.queue import WorkQueue
from kube32.controllers.workloads import deployment_status, history
from kube32.controllers.workloads.owned import OwnedPods
from kube32.controllers.workloads.pods import PodControl, Readiness, is_active
from kube32.controllers.workloads.rollout import Pods, Step, next_step
from kube32.formats.template_hash import template_hash

_LOG = logging.getLogger(__name__)
HASH_LABEL = "pod-template-hash"
_KIND = "Deployment"


class DeploymentController:
    """Keeps Deployments: one at a time, whenever it or one of its pods changes."""

    def __init__(
        self, client: ApiClient, deployments: Informer, pods: Informer, limits: Limits, events: EventRecorder
    ) -> None:
        self._client = client
        self._deployments = deployments
        self._limits = limits
        self._events = events
        self._queue: WorkQueue[Key] = WorkQueue()
        self._owned = OwnedPods(pods, _KIND, self._look_at)
        self._control = PodControl(client, self._owned, events, _KIND, resource_of(_KIND).api_version)
        self._readiness = Readiness()
        self._progress: dict[str, float] = {}
        self._failures: dict[str, str] = {}
        self._timers: dict[Key, asyncio.TimerHandle] = {}

    async def run(self) -> None:
        """Until cancelled."""
        ends = [self._owned.follow(), self._deployments.subscribe(self._on_deployment)]
        try:
            await self._queue.run(self._sync)
        finally:
            for end in ends:
                end()
            for timer in self._timers.values():
                timer.cancel()

    def _on_deployment(self, kind: str, deployment: Obj, old: Obj | None) -> None:
        key = key_of(deployment)
        if kind == "DELETED":
            self._progress.pop(uid_of(deployment), None)
            self._failures.pop(uid_of(deployment), None)
            self._queue.drop(key)
            return
        self._queue.add(key)

    def _look_at(self, key: Key) -> None:
        namespace, name = key
        if name:
            if self._deployments.get(*key) is not None:
                self._queue.add(key)
            return
        for found in self._deployments.items:
            if found[0] == namespace:
                self._queue.add(found)

    async def _sync(self, key: Key) -> None:
        deployment = self._deployments.get(*key)
        if deployment is None or is_deleting(deployment):
            return
        template = spec_of(deployment)["template"]
        current = template_hash(template)
        known = {str(r["hash"]) for r in status_of(deployment).get("history") or []}
        owned = await self._control.claim(deployment, known | {current}, HASH_LABEL)
        pods = self._sorted(owned, current)
        rows = self._history(deployment, current, pods)
        await self._tell_revision(deployment, rows)
        available = {uid_of(p): self._readiness.available(p, self._min_ready(deployment)) for p in pods.all}
        step = next_step(
            deployment, pods, lambda p: available[uid_of(p)][0], lambda: _newest_with_pods(rows, pods)
        )
        if (spec_of(deployment).get("strategy") or {}).get("type") == "Recreate" and not spec_of(
            deployment
        ).get("paused"):
            step = self._recreate(step, pods)
        failed: ApiError | None = None
        try:
            await self._take(deployment, step, rows, pods)
            self._failures.pop(uid_of(deployment), None)
        except ApiError as error:
            failed = error
            self._failures[uid_of(deployment)] = error.message
        await self._write_status(deployment, rows, current)
        if failed is not None:
            raise failed

    def _sorted(self, owned: list[Obj], current: str) -> Pods:
        pods = Pods(current)
        for pod in owned:
            if self._owned.is_going(pod):
                pods.going.append(pod)
            elif is_active(pod):
                labels = pod["metadata"].get("labels") or {}
                pods.by_hash.setdefault(str(labels.get(HASH_LABEL, "")), []).append(pod)
        return pods

    @staticmethod
    def _min_ready(deployment: Obj) -> int:
        return int(spec_of(deployment).get("minReadySeconds") or 0)

    def _history(self, deployment: Obj, current: str, pods: Pods) -> list[Obj]:
        """While it is paused, a new template is not a revision yet."""
        rows: list[Obj] = status_of(deployment).get("history") or []
        if spec_of(deployment).get("paused") and rows:
            return rows
        return history.recorded(deployment, current, set(pods.by_hash), self._limits)

    async def _tell_revision(self, deployment: Obj, rows: list[Obj]) -> None:
        revision = str(rows[-1]["revision"]) if rows else ""
        if not revision or annotation(deployment, history.REVISION) == revision:
            return
        meta = deployment["metadata"]
        patch: Obj = {"metadata": {"uid": meta["uid"], "annotations": {history.REVISION: revision}}}
        await self._client.patch(_KIND, meta["name"], patch, meta["namespace"])

    @staticmethod
    def _recreate(step: Step, pods: Pods) -> Step:
        """Recreate: nothing new begins while something old is still there, or on its way out."""
        old_going = [
            p for p in pods.going if (p["metadata"].get("labels") or {}).get(HASH_LABEL) != pods.current
        ]
        return Step(delete=step.delete) if pods.old or old_going else step

    async def _take(self, deployment: Obj, step: Step, rows: list[Obj], pods: Pods) -> None:
        name = name_of(deployment)
        if step.create:
            template = history.template_of(rows, step.create_hash) or spec_of(deployment)["template"]
            have = len(pods.by_hash.get(step.create_hash, []))
            self._tell_scaling(deployment, "up", step.create_hash, have, have + step.create)
            for _ in range(step.create):
                made = await self._control.create(
                    deployment,
                    template,
                    prefix=f"{name}-{step.create_hash}-",
                    labels={HASH_LABEL: step.create_hash},
                )
                pods.by_hash.setdefault(step.create_hash, []).append(made)
        gone: dict[str, int] = {}
        for pod in step.delete:
            label = str((pod["metadata"].get("labels") or {}).get(HASH_LABEL, ""))
            gone[label] = gone.get(label, 0) + 1
        for label, count in gone.items():
            have = len(pods.by_hash.get(label, []))
            self._tell_scaling(deployment, "down", label, have, have - count)
        for pod in step.delete:
            await self._control.delete(deployment, pod)

    def _tell_scaling(self, deployment: Obj, way: str, hash_: str, before: int, now: int) -> None:
        self._events.event(
            deployment,
            "ScalingReplicaSet",
            direction=way,
            name=f"{name_of(deployment)}-{hash_}",
            before=before,
            now=now,
        )

    # --- status ---

    async def _write_status(self, deployment: Obj, rows: list[Obj], current: str) -> None:
        pods = self._sorted(self._owned.of(deployment), current)
        min_ready, loop = self._min_ready(deployment), asyncio.get_running_loop()
        judged = {uid_of(p): self._readiness.available(p, min_ready) for p in pods.all}
        waits = [left for _, left in judged.values() if left]
        facts = deployment_status.Facts(
            pods,
            available=sum(ok and is_true(p, "Ready") for p in pods.all for ok in (judged[uid_of(p)][0],)),
            counted_available=sum(ok for ok, _ in judged.values()),
            updated_available=sum(judged[uid_of(p)][0] for p in pods.new),
            late=self._late(deployment, pods, judged),
            failure=self._failures.get(uid_of(deployment), ""),
        )
        status = deployment_status.make(deployment, facts, rows)
        if deployment_status.has_progressed(deployment, facts):
            self._progress[uid_of(deployment)] = loop.time()
        if not deployment_status.is_complete(deployment, facts) and not spec_of(deployment).get("paused"):
            waits.append(self._deadline_s(deployment))
        self._again(key_of(deployment), min(waits, default=0.0))
        if status == status_of(deployment):
            return
        meta = deployment["metadata"]
        changed = {**deployment, "status": status}
        try:
            await self._client.update(_KIND, changed, subresource="status")
        except ApiError as error:
            if error.code == 409:  # it has changed: its watch brings it here again
                _LOG.debug("status of deployment %s/%s: %s", meta["namespace"], meta["name"], error)
            elif error.code != 404:
                raise

    def _late(self, deployment: Obj, pods: Pods, judged: dict[str, tuple[bool, float]]) -> bool:
        """Whether the rollout has made no progress for longer than it may."""
        return self._deadline_s(deployment) <= 0

    def _deadline_s(self, deployment: Obj) -> float:
        """Seconds until the rollout counts as failed, from its last progress on our clock."""
        now = asyncio.get_running_loop().time()
        seconds = int(
            spec_of(deployment).get("progressDeadlineSeconds") or self._limits.deployment_progress_s
        )
        since = self._progress.setdefault(uid_of(deployment), now)
        return max(since + seconds - now, 0.0)

    def _again(self, key: Key, after_s: float) -> None:
        timer = self._timers.pop(key, None)
        if timer is not None:
            timer.cancel()
        if after_s > 0:
            self._timers[key] = asyncio.get_running_loop().call_later(after_s, self._queue.add, key)


def _newest_with_pods(rows: list[Obj], pods: Pods) -> str:
    """The newest template that has pods."""
    return next((str(r["hash"]) for r in reversed(rows) if pods.by_hash.get(str(r["hash"]))), "")
