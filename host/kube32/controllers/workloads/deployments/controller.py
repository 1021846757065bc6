"""The Deployment controller. It owns its pods directly; ReplicaSets are computed by the API server for readers.

What is a ReplicaSet in Kubernetes is a revision of status.history here: a step changes the sizes of revisions and
writes them, then the pods follow. A pod that is frozen or moves counts as its one pod (specification, "Moves").
"""

import asyncio
from functools import partial

from kube32.client.api import ApiClient, ApiError
from kube32.client.events import EventRecorder
from kube32.client.informer import Informer, Key, key_of
from kube32.contract import Limits
from kube32.controllers.objects import (
    Obj,
    annotation,
    is_deleting,
    is_finished,
    is_true,
    name_of,
    spec_of,
    status_of,
    uid_of,
)
from kube32.controllers.queue import WorkQueue
from kube32.controllers.workloads.deployments import history, rollout
from kube32.controllers.workloads.deployments import status as deployment_status
from kube32.controllers.workloads.deployments.history import History, Revision
from kube32.controllers.workloads.deployments.status import HASH_LABEL, Facts, Pods
from kube32.controllers.workloads.held import Held
from kube32.controllers.workloads.later import Later
from kube32.controllers.workloads.order import in_deletion_order
from kube32.controllers.workloads.owned import OwnedPods, labels_of
from kube32.controllers.workloads.pods import PodControl, in_batches, is_closing
from kube32.controllers.workloads.readiness import Readiness
from kube32.controllers.workloads.selectors import selects
from kube32.controllers.workloads.written import Written
from kube32.formats.template_hash import template_hash

_KIND = "Deployment"


class DeploymentController:
    """Keeps Deployments: one at a time, whenever it or one of its pods changes."""

    def __init__(
        self,
        client: ApiClient,
        deployments: Informer,
        pods: Informer,
        held: Held,
        limits: Limits,
        events: EventRecorder,
    ) -> None:
        self._client = client
        self._deployments = deployments
        self._pods = pods
        self._held = held
        self._limits = limits
        self._events = events
        self._queue: WorkQueue[Key] = WorkQueue()
        self._readiness = Readiness(held)
        self._owned = OwnedPods(
            pods, _KIND, changed=self._look_at, strayed=self._on_stray, replaced=self._readiness.carry
        )
        self._control = PodControl(client, self._owned, events, _KIND, tells=False)
        self._written = Written(client, _KIND)
        self._later = Later(self._queue.add)
        # By uid: when a rollout last progressed, on our own clock, and why its pods could not be changed.
        self._progress: dict[str, float] = {}
        self._failures: dict[str, tuple[str, str]] = {}

    async def run(self) -> None:
        """Until cancelled."""
        self._held.subscribe(self._on_held)
        ends = [
            self._owned.follow(),
            self._pods.subscribe(self._on_pod),
            self._deployments.subscribe(self._on_deployment),
        ]
        try:
            await self._queue.run(self._sync)
        finally:
            for end in ends:
                end()
            self._later.close()

    # --- what makes us look ---

    def _on_deployment(self, kind: str, deployment: Obj, old: Obj | None) -> None:
        key = key_of(deployment)
        if old is not None and (kind == "DELETED" or uid_of(old) != uid_of(deployment)):
            self._forget(old)
        if kind == "DELETED":
            self._queue.drop(key)
            self._later.drop(key)
        else:
            self._queue.add(key)

    def _forget(self, deployment: Obj) -> None:
        uid = uid_of(deployment)
        self._progress.pop(uid, None)
        self._failures.pop(uid, None)
        self._written.forget(uid)
        self._control.forget(deployment)

    def _on_pod(self, kind: str, pod: Obj, old: Obj | None) -> None:
        if kind == "DELETED":
            self._readiness.forget(uid_of(pod))

    def _look_at(self, key: Key) -> None:
        if self._deployments.get(*key) is not None:
            self._queue.add(key)

    def _on_stray(self, pod: Obj) -> None:
        if HASH_LABEL in labels_of(pod):
            for key, deployment in self._deployments.items.items():
                if selects(deployment, pod):
                    self._queue.add(key)

    def _on_held(self, key: Key) -> None:
        pod = self._pods.get(*key)
        if pod is not None:
            for reference in pod["metadata"].get("ownerReferences") or []:
                self._look_at((key[0], str(reference.get("name"))))

    # --- one step ---

    async def _sync(self, key: Key) -> None:
        seen = self._deployments.get(*key)
        if seen is None:
            return
        deployment = self._written.newest(seen)
        if is_deleting(deployment):
            return
        await self._control.settle(deployment)
        past = History(deployment, template_hash(spec_of(deployment)["template"]))
        owned = await self._control.claim(deployment, partial(_carries, past.hashes))
        pods = self._sorted(deployment, owned)
        before = {r.hash: r.replicas for r in past.revisions}
        self._decide(deployment, past, pods)
        begun = past.current is not None and past.hash not in before
        deployment = await self._tell_revision(deployment, past)
        deployment = await self._write_status(deployment, past, pods, begun=begun)
        self._tell_scaling(deployment, past, before)
        await self._follow(deployment, past, pods)

    def _sorted(self, deployment: Obj, owned: list[Obj]) -> Pods:
        pods, seconds = Pods(), int(spec_of(deployment).get("minReadySeconds") or 0)
        for pod in owned:
            if self._owned.is_going(pod):
                if not is_finished(pod):
                    pods.going.append(pod)
            elif self._held.is_active(pod):
                hash_ = labels_of(pod).get(HASH_LABEL, "")
                pods.by_hash.setdefault(hash_, []).append(pod)
                left = self._readiness.left(pod, seconds)
                pods.waits.append(left)
                pods.serving[hash_] += left == 0
                pods.available += left == 0 and is_true(pod, "Ready")
        return pods

    def _decide(self, deployment: Obj, past: History, pods: Pods) -> None:
        """Changes the sizes of revisions, by one step."""
        past.renumber()
        for revision in past.old:
            if revision.template is None:
                revision.replicas = min(revision.replicas, len(pods.by_hash.get(revision.hash, [])))
        serving = pods.serving
        if spec_of(deployment).get("paused") or rollout.was_scaled(deployment, past.revisions):
            rollout.scale(deployment, past.current, past.old, serving)
        elif rollout.is_rolling(deployment):
            current = past.begin()
            rollout.roll(deployment, current, past.old, serving)
        else:
            old_pods = any(found for h, found in pods.by_hash.items() if h != past.hash) or any(
                labels_of(p).get(HASH_LABEL) != past.hash for p in pods.going
            )
            if (
                rollout.recreate(deployment, past.current, past.old, old_pods=old_pods)
                and past.current is None
            ):
                past.begin()
                rollout.recreate(deployment, past.current, past.old, old_pods=False)
        in_use = {labels_of(p).get(HASH_LABEL, "") for p in pods.going} | set(pods.by_hash)
        past.trim(in_use, self._limits)

    # --- telling ---

    async def _tell_revision(self, deployment: Obj, past: History) -> Obj:
        current = past.current
        if current is None or annotation(deployment, history.REVISION) == str(current.number):
            return deployment
        meta = deployment["metadata"]
        patch: Obj = {
            "metadata": {"uid": meta["uid"], "annotations": {history.REVISION: str(current.number)}}
        }
        changed = await self._client.patch(_KIND, meta["name"], patch, meta["namespace"])
        self._written.note(changed)
        # What we decided is about the spec that we saw: a newer one must not pass for it.
        return {**deployment, "metadata": {**changed["metadata"], "generation": meta.get("generation", 1)}}

    def _tell_scaling(self, deployment: Obj, past: History, before: dict[str, int]) -> None:
        for revision in past.revisions:
            had = before.get(revision.hash, 0)
            if had != revision.replicas:
                self._events.event(
                    deployment,
                    "ScalingReplicaSet",
                    direction="up" if revision.replicas > had else "down",
                    name=f"{name_of(deployment)}-{revision.hash}",
                    before=had,
                    now=revision.replicas,
                )

    async def _write_status(self, deployment: Obj, past: History, pods: Pods, *, begun: bool) -> Obj:
        uid, now = uid_of(deployment), asyncio.get_running_loop().time()
        paused = bool(spec_of(deployment).get("paused"))
        deadline, since = deployment_status.deadline_of(deployment), self._progress.setdefault(uid, now)
        late = deadline is not None and since + deadline <= now
        facts = Facts(past.hash, pods, late=late, begun=begun, failure=self._failures.get(uid))
        status = deployment_status.make(deployment, facts, past, self._limits, rolls=not paused)
        complete = deployment_status.is_complete(deployment, facts)
        progressed = begun or deployment_status.has_progressed(status_of(deployment), status)
        if paused or complete or progressed or any(self._held.holds(p) for p in pods.all):
            self._progress[uid] = since = now
        if deadline is not None and not paused and not complete:
            pods.waits.append(max(since + deadline - now, 0.0))
        self._later.set(key_of(deployment), pods.waits)
        if status == status_of(deployment):
            return deployment
        return await self._written.status({**deployment, "status": status})

    # --- pods follow the sizes ---

    async def _follow(self, deployment: Obj, past: History, pods: Pods) -> None:
        uid, words = uid_of(deployment), "failed_delete"
        try:
            alive = len(pods.all) - await self._delete_extra(deployment, past, pods)
            words = "failed_create"
            # A pod that moves just now may outlive its deletion: no other takes its place before it is gone.
            room = rollout.replicas_of(deployment) + rollout.bounds(deployment)[0] - alive
            for revision in past.revisions:
                missing = min(revision.replicas - len(pods.by_hash.get(revision.hash, [])), room)
                if missing > 0 and revision.template is not None:
                    make = partial(self._create, deployment, revision, revision.template)
                    await in_batches([make] * missing)
                    room -= missing
        except ApiError as error:
            if is_closing(error):
                return
            self._failures[uid] = words, error.message
            raise
        if self._failures.pop(uid, None) is not None:
            self._queue.add(key_of(deployment))

    async def _delete_extra(self, deployment: Obj, past: History, pods: Pods) -> int:
        """Deletes what revisions have too much; how many went."""
        sizes, gone = {r.hash: r.replicas for r in past.revisions}, 0
        for hash_, found in pods.by_hash.items():
            extra = len(found) - sizes.get(hash_, 0)
            if extra <= 0:
                continue
            for pod in in_deletion_order(found, self._held.holds, pods.all)[:extra]:
                gone += await self._control.delete(deployment, pod)
        return gone

    async def _create(self, deployment: Obj, revision: Revision, template: Obj) -> None:
        prefix = f"{name_of(deployment)}-{revision.hash}-"
        pod = self._control.pod_of(deployment, template, prefix, {HASH_LABEL: revision.hash})
        await self._control.create(deployment, pod)


def _carries(hashes: set[str], pod: Obj) -> bool:
    return labels_of(pod).get(HASH_LABEL) in hashes
