"""What all workloads do with pods: make them from a template, create, delete, adopt and release them."""

import asyncio
import copy
import random
from collections.abc import Awaitable, Callable, Iterable
from typing import Any

from kube32.client.api import ApiClient, ApiError
from kube32.client.events import EventRecorder
from kube32.client.informer import Key
from kube32.contract import resource_of
from kube32.controllers.objects import Obj, is_deleting, name_of, spec_of, uid_of
from kube32.controllers.workloads.owned import OwnedPods, labels_of
from kube32.controllers.workloads.selectors import matches

# Names as the API server generates them.
_ALPHABET = "bcdfghjklmnpqrstvwxz2456789"
_SUFFIX = 5
_PREFIX = 63 - _SUFFIX
_NAMES = 8
_BATCH = 32


def owner_reference(owner: Obj, kind: str) -> Obj:
    """The reference by which a pod names its controller."""
    return {
        "apiVersion": resource_of(kind).api_version,
        "kind": kind,
        "name": name_of(owner),
        "uid": uid_of(owner),
        "controller": True,
        "blockOwnerDeletion": True,
    }


def pod_of(owner: Obj, kind: str, template: Obj, prefix: str, labels: dict[str, str]) -> Obj:
    """A pod from the template, the owner's, with more labels. It has a generateName and no name yet."""
    metadata = copy.deepcopy(template.get("metadata") or {})
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "generateName": prefix,
            "namespace": owner["metadata"]["namespace"],
            "labels": {**(metadata.get("labels") or {}), **labels},
            **{k: metadata[k] for k in ("annotations", "finalizers") if metadata.get(k)},
            "ownerReferences": [owner_reference(owner, kind)],
        },
        "spec": copy.deepcopy(template.get("spec") or {}),
    }


async def in_batches(work: Iterable[Callable[[], Awaitable[None]]]) -> None:
    """Does all of it, first 1, then 2, then 4 ... at a time; ends with the first batch in which one fails."""
    left, size = list(work), 1
    while left:
        batch, left = left[:size], left[size:]
        results = await asyncio.gather(*(one() for one in batch), return_exceptions=True)
        for result in results:
            if isinstance(result, BaseException):
                raise result
        size = min(size * 2, _BATCH)


class PodControl:
    """Creates and deletes the pods of owners of one kind. With `tells` the owner gets an event for each."""

    def __init__(
        self, client: ApiClient, owned: OwnedPods, events: EventRecorder, kind: str, *, tells: bool
    ) -> None:
        self._client = client
        self._owned = owned
        self._events = events
        self._kind = kind
        self._tells = tells
        # Pods of which it is not known whether they were created: their keys, by owner.
        self._unsure: dict[str, set[Key]] = {}

    def pod_of(self, owner: Obj, template: Obj, prefix: str, labels: dict[str, str]) -> Obj:
        """A pod to `create`."""
        return pod_of(owner, self._kind, template, prefix, labels)

    async def create(self, owner: Obj, pod: Obj) -> Obj:
        """Creates the pod under a name of our own, so that it is found again should the answer be lost.

        ApiError is told and raised.
        """
        try:
            made = await self._create(owner, pod)
        except ApiError as error:
            if not is_closing(error):
                self._events.event(owner, "FailedCreate", cause=error.message)
            raise
        self._owned.wrote(made)
        if self._tells:
            self._events.event(owner, "SuccessfulCreate", pod=name_of(made))
        return made

    async def _create(self, owner: Obj, pod: Obj) -> Obj:
        meta, prefix = pod["metadata"], pod["metadata"]["generateName"][:_PREFIX]
        unsure = self._unsure.setdefault(uid_of(owner), set())
        for attempt in range(1, _NAMES + 1):
            meta["name"] = prefix + "".join(random.choices(_ALPHABET, k=_SUFFIX))
            key = meta["namespace"], meta["name"]
            unsure.add(key)
            try:
                made = await self._client.create("Pod", pod)
            except ApiError as error:
                if error.code < 500:
                    unsure.discard(key)
                if error.reason != "AlreadyExists" or attempt == _NAMES:
                    raise
            else:
                unsure.discard(key)
                return made
        raise AssertionError("the last attempt returns or raises")

    async def settle(self, owner: Obj) -> None:
        """Finds out about pods whose creation got no answer."""
        unsure = self._unsure.pop(uid_of(owner), set())
        for key in unsure:
            try:
                found = await self._client.get("Pod", key[1], key[0])
            except ApiError as error:
                if error.code == 404:
                    continue
                self._unsure[uid_of(owner)] = unsure
                raise
            except OSError:
                self._unsure[uid_of(owner)] = unsure
                raise
            self._owned.wrote(found)

    def forget(self, owner: Obj) -> None:
        """The owner is gone."""
        self._unsure.pop(uid_of(owner), None)

    async def delete(self, owner: Obj, pod: Obj) -> bool:
        """Deletes the pod. False for one that was replaced meanwhile: it is left alone until the watch shows it."""
        meta = pod["metadata"]
        try:
            await self._client.delete("Pod", meta["name"], meta["namespace"], uid=meta["uid"])
        except ApiError as error:
            if error.code == 409:
                return False
            if error.code != 404:
                self._events.event(owner, "FailedDelete", cause=error.message)
                raise
        self._owned.deleted(pod)
        if self._tells:
            self._events.event(owner, "SuccessfulDelete", pod=name_of(pod))
        return True

    async def claim(self, owner: Obj, fits: Callable[[Obj], bool]) -> list[Obj]:
        """The owner's pods, after those that do not fit it any more were let go and strays that do were taken.

        A pod fits when its labels match the owner's selector and `fits` is true of it.
        """
        selector: Obj = spec_of(owner).get("selector") or {}
        kept = []
        for pod in self._owned.of(owner):
            if self._owned.is_going(pod) or (matches(selector, labels_of(pod)) and fits(pod)):
                kept.append(pod)
            else:
                await self._release(pod, owner)
        wanted = [
            pod
            for pod in self._owned.strays(owner["metadata"]["namespace"])
            if matches(selector, labels_of(pod)) and fits(pod)
        ]
        if wanted and await self._is_there(owner):
            for pod in wanted:
                adopted = await self._adopt(pod, owner)
                if adopted is not None:
                    kept.append(adopted)
        return kept

    async def _is_there(self, owner: Obj) -> bool:
        """Looks past the watch: an owner that is gone must not take pods that somebody wanted to keep."""
        meta = owner["metadata"]
        try:
            found = await self._client.get(self._kind, meta["name"], meta["namespace"])
        except ApiError as error:
            if error.code == 404:
                return False
            raise
        return uid_of(found) == uid_of(owner) and not is_deleting(found)

    async def _release(self, pod: Obj, owner: Obj) -> None:
        references = [
            o for o in pod["metadata"].get("ownerReferences") or [] if o.get("uid") != uid_of(owner)
        ]
        await self._own(pod, references)

    async def _adopt(self, pod: Obj, owner: Obj) -> Obj | None:
        references = pod["metadata"].get("ownerReferences") or []
        adopted = await self._own(pod, [*references, owner_reference(owner, self._kind)])
        if adopted is not None:
            self._owned.wrote(adopted)
        return adopted

    async def _own(self, pod: Obj, references: list[Obj]) -> Obj | None:
        """Writes the pod's owners, unless it has changed meanwhile."""
        meta = pod["metadata"]
        patch: dict[str, Any] = {
            "metadata": {
                "uid": meta["uid"],
                "resourceVersion": meta["resourceVersion"],
                "ownerReferences": references or None,
            }
        }
        try:
            return await self._client.patch("Pod", meta["name"], patch, meta["namespace"])
        except ApiError as error:
            if error.code not in (404, 409):
                raise
            return None


def is_closing(error: ApiError) -> bool:
    """Whether the namespace is being deleted: nothing is created there, and that is no failure."""
    causes = (error.body.get("details") or {}).get("causes") or []
    return any(cause.get("reason") == "NamespaceTerminating" for cause in causes)
