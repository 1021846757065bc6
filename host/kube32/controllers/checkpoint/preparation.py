"""What is looked at before a pod is touched: is it there, may it move, where to ("Moves", step 1)."""

from dataclasses import dataclass

from kube32.client.api import ApiClient, ApiError
from kube32.client.transport import TransportError
from kube32.contract import NAMES, resource_of
from kube32.controllers.bookings import Bookings
from kube32.controllers.checkpoint.blockers import (
    ModuleFacts,
    blockers_of,
    entry_point_of,
    is_embedded,
    pinned_digest,
)
from kube32.controllers.checkpoint.failure import blocked, failed
from kube32.controllers.checkpoint.record import CheckpointRecord, persevere
from kube32.controllers.checkpoint.snapshot import PodPlace
from kube32.controllers.checkpoint.target import check_source, pick_target
from kube32.controllers.objects import (
    Obj,
    containers,
    is_deleting,
    name_of,
    node_of,
    spec_of,
    status_of,
    uid_of,
)


@dataclass(frozen=True, slots=True)
class Plan:
    """What is to be done: the pod as it was looked at, its place, and for a move the target."""

    pod: Obj
    place: PodPlace
    target: str | None


class Preparation:
    """Checks against the API as it is now, not against what a watch may not have brought yet."""

    def __init__(self, client: ApiClient, bookings: Bookings) -> None:
        self._client = client
        self._bookings = bookings

    async def pod(self, record: CheckpointRecord) -> Obj | None:
        """The pod, None when there is none."""
        try:
            return await persevere(lambda: self._client.get("Pod", record.pod_name, record.namespace))
        except ApiError as error:
            if error.code == 404:
                return None
            raise

    async def plan(self, record: CheckpointRecord) -> Plan:
        """What to do with the pod; StepFailed names why nothing can be done, with every blocker."""
        if record.deleted.is_set():
            raise failed("checkpoint_deleted", checkpoint=record.name)
        pod = await self.pod(record)
        if pod is None:
            raise failed("pod_missing", pod=record.pod_name)
        if is_deleting(pod):
            raise failed("pod_deleting", pod=name_of(pod))
        container = _container(record, pod)
        found = blockers_of(pod, await self._module(pod))
        if found:
            raise blocked(found)
        if not node_of(pod):
            raise failed("pod_unbound", pod=name_of(pod))
        phase = status_of(pod).get("phase") or "Pending"
        if phase != "Running":
            raise failed("pod_not_running", pod=name_of(pod), phase=phase)
        nodes = (await persevere(lambda: self._client.list("Node"))).items
        check_source(pod, nodes)
        target = None
        if record.is_move:
            wanted = spec_of(record.obj).get("target") or {}
            target = pick_target(pod, wanted, nodes, self._bookings.load)
        place = PodPlace(record.namespace, name_of(pod), uid_of(pod), container, node_of(pod))
        return Plan(pod, place, target)

    async def _module(self, pod: Obj) -> ModuleFacts:
        """What the Module that the pod's image names says of the module that its digest names."""
        digest = pinned_digest(pod)
        if is_embedded(pod):
            return ModuleFacts()
        image = str(containers(pod)[0].get("image", ""))
        name = image.removeprefix(NAMES.image_prefix)
        entry_point = None
        try:
            status = status_of(await persevere(lambda: self._client.get("Module", name)))
            if not digest or status.get("sha256") == digest:
                entry_point = entry_point_of(status.get("exports") or [])
        except ApiError as error:
            if error.code != 404:
                raise
        return ModuleFacts(entry_point, not digest or await self._is_stored(name, digest))

    async def _is_stored(self, name: str, digest: str) -> bool:
        """Whether a node that lacks the module can still get it; only the headers are waited for."""
        path = resource_of("Module").object_path("", name, "data")
        response = await self._client.raw("GET", path, query={"digest": digest})
        async with response:
            if response.status >= 500:
                raise TransportError(f"GET {path}: {response.status}")
            return response.status == 200


def _container(record: CheckpointRecord, pod: Obj) -> str:
    """The container's name; a move carries one container's state, so the pod may have no other."""
    named = spec_of(record.obj).get("containerName")
    names = [str(c.get("name")) for c in containers(pod)]
    if named and named not in names:
        raise failed("container_missing", pod=name_of(pod), container=named)
    if len(names) > 1 and record.is_move:
        raise failed("move_many", pod=name_of(pod), count=len(names))
    if len(names) != 1 and not named:
        raise failed("container_many", pod=name_of(pod), count=len(names))
    return str(named or names[0])
