"""Namespaces: the initial ones are created, and one that is being deleted is emptied, then let go."""

import asyncio
import logging

from kube32.client.api import ApiClient, ApiError
from kube32.client.informer import Informer
from kube32.contract import NAMES, RESOURCES, Resource
from kube32.controllers.objects import Obj, is_deleting, name_of, spec_of, uid_of

_LOG = logging.getLogger(__name__)
_RETRY_FIRST_S = 0.5
_RETRY_MAX_S = 15.0
_CONTENT = tuple(r for r in RESOURCES if r.namespaced and {"list", "delete"} <= set(r.verbs))


class Namespaces:
    """Empties and finalizes Terminating namespaces. Deletions seen by `pods` make it look again at once."""

    def __init__(self, client: ApiClient, namespaces: Informer, pods: Informer) -> None:
        self._client = client
        self._namespaces = namespaces
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._nudges: dict[str, asyncio.Event] = {}
        namespaces.subscribe(self._on_namespace)
        pods.subscribe(self._on_pod)

    async def create_initial(self) -> None:
        """Creates the namespaces that every cluster has."""
        for name in NAMES.init_namespaces:
            try:
                body = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}
                await self._client.create("Namespace", body)
            except ApiError as error:
                if error.code != 409:
                    raise

    def _on_namespace(self, kind: str, namespace: Obj, old: Obj | None) -> None:
        name = name_of(namespace)
        if kind != "DELETED" and is_deleting(namespace) and name not in self._tasks:
            self._nudges[name] = asyncio.Event()
            task = asyncio.get_running_loop().create_task(self._terminate(name), name=f"namespace {name}")
            self._tasks[name] = task
            task.add_done_callback(lambda _: self._forget(name))

    def _forget(self, name: str) -> None:
        self._tasks.pop(name, None)
        self._nudges.pop(name, None)

    def _on_pod(self, kind: str, pod: Obj, old: Obj | None) -> None:
        nudge = self._nudges.get(pod["metadata"].get("namespace", ""))
        if kind == "DELETED" and nudge is not None:
            nudge.set()

    async def _terminate(self, name: str) -> None:
        delay_s = _RETRY_FIRST_S
        while True:
            nudge = self._nudges[name]
            nudge.clear()
            try:
                if await self._empty(name) and await self._finalize(name):
                    return
            except (ApiError, OSError) as error:
                _LOG.info("namespace %s: %s", name, str(error) or type(error).__name__)
            try:
                async with asyncio.timeout(delay_s):
                    await nudge.wait()
            except TimeoutError:
                delay_s = min(delay_s * 2, _RETRY_MAX_S)

    async def _empty(self, name: str) -> bool:
        """Deletes what is there; whether nothing was left."""
        left = 0
        for resource in _CONTENT:
            for obj in (await self._client.list(resource.kind, name)).items:
                left += not await self._delete(resource, obj, name)
        return left == 0

    async def _delete(self, resource: Resource, obj: Obj, namespace: str) -> bool:
        """Whether the object is gone; one with finalizers or a grace period is not, yet."""
        if not is_deleting(obj):
            try:
                answer = await self._client.delete(resource.kind, name_of(obj), namespace, uid=uid_of(obj))
            except ApiError as error:
                return error.code == 404
            return not (answer.get("metadata") or {}).get("deletionTimestamp")
        return False

    async def _finalize(self, name: str) -> bool:
        """Removes our finalizer; whether the namespace is gone or waits for somebody else's."""
        try:
            namespace = await self._client.get("Namespace", name)
        except ApiError as error:
            if error.code == 404:
                return True
            raise
        finalizers = [f for f in spec_of(namespace).get("finalizers") or [] if f != NAMES.finalizer_namespace]
        body = {**namespace, "spec": {**spec_of(namespace), "finalizers": finalizers}}
        try:
            await self._client.update("Namespace", body, subresource="finalize")
        except ApiError as error:
            if error.code not in (404, 409):
                raise
            return error.code == 404
        return True

    def stop(self) -> None:
        """Cancels the work on namespaces; it begins anew at the next start."""
        for task in list(self._tasks.values()):
            task.cancel()
