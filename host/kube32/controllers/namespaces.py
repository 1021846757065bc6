"""Namespaces: the initial ones are created, and one that is being deleted is emptied, then let go.

As in Kubernetes pods go first, conditions say what a namespace waits for, and a kind that goes meanwhile (its
definition was deleted too) holds nothing up.
"""

import asyncio
import logging

from kube32.client.api import ApiClient, ApiError
from kube32.client.informer import Informer
from kube32.contract import NAMES, Resource
from kube32.controllers.namespace_state import Remaining, conditions
from kube32.controllers.objects import Obj, is_deleting, name_of, spec_of, status_of, uid_of
from kube32.controllers.served import ServedKinds

_LOG = logging.getLogger(__name__)
_RETRY_FIRST_S = 0.1
_RETRY_MAX_S = 15.0


class Namespaces:
    """Empties and finalizes Terminating namespaces; `nudge` makes one look again at once."""

    def __init__(self, client: ApiClient, namespaces: Informer, kinds: ServedKinds) -> None:
        self._client = client
        self._namespaces = namespaces
        self._kinds = kinds
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._nudges: dict[str, asyncio.Event] = {}
        namespaces.subscribe(self._on_namespace)

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
        name, uid = name_of(namespace), uid_of(namespace)
        if kind != "DELETED" and is_deleting(namespace) and uid not in self._tasks:
            self._nudges[name] = asyncio.Event()
            task = asyncio.get_running_loop().create_task(
                self._terminate(name, uid), name=f"namespace {name}"
            )
            self._tasks[uid] = task
            task.add_done_callback(lambda _: self._tasks.pop(uid, None))
        elif kind == "DELETED":
            self._nudges.pop(name, None)

    def nudge(self, namespace: str) -> None:
        """Something in the namespace has gone: if it waits for that, it looks again."""
        nudge = self._nudges.get(namespace)
        if nudge is not None:
            nudge.set()

    async def _terminate(self, name: str, uid: str) -> None:
        delay_s = _RETRY_FIRST_S
        nudge = self._nudges[name]
        while True:
            nudge.clear()
            try:
                if await self._step(name, uid):
                    return
            except (ApiError, OSError) as error:
                _LOG.info("namespace %s: %s", name, str(error) or type(error).__name__)
            except Exception:
                _LOG.exception("namespace %s", name)
            try:
                async with asyncio.timeout(delay_s):
                    await nudge.wait()
            except TimeoutError:
                delay_s = min(delay_s * 2, _RETRY_MAX_S)

    async def _step(self, name: str, uid: str) -> bool:
        """Deletes what is there and says what is left; whether the namespace is done with."""
        namespace = await self._find(name)
        if namespace is None or uid_of(namespace) != uid:
            return True
        if NAMES.finalizer_namespace not in (spec_of(namespace).get("finalizers") or ()):
            return True  # what it waits for now is somebody else's
        await self._kinds.refresh()
        remaining = await self._empty(name)
        remaining.discovery = self._kinds.failure
        await self._report(namespace, remaining)
        return remaining.nothing and await self._finalize(name)

    async def _find(self, name: str) -> Obj | None:
        try:
            return await self._client.get("Namespace", name)
        except ApiError as error:
            if error.code == 404:
                return None
            raise

    async def _empty(self, name: str) -> Remaining:
        """Deletes what is there, pods before all else: what was left."""
        remaining = Remaining()
        content = [r for r in self._kinds.with_verbs("list", "delete") if r.namespaced]
        first = [r for r in content if r.kind == "Pod" and not r.group]
        for kinds in (first, [r for r in content if r not in first]):
            for resource in kinds:
                await self._delete_all(resource, name, remaining)
                await asyncio.sleep(0)
            if not remaining.nothing:
                break
        return remaining

    async def _delete_all(self, resource: Resource, namespace: str, remaining: Remaining) -> None:
        try:
            if not (await self._client.list(resource, namespace, metadata_only=True)).items:
                return
            await self._delete(resource, namespace)
            left = (await self._client.list(resource, namespace, metadata_only=True)).items
        except ApiError as error:
            if error.code != 404:  # 404: the kind itself has gone, and all of its objects
                remaining.failures.append(str(error))
            return
        remaining.add(resource, left)

    async def _delete(self, resource: Resource, namespace: str) -> None:
        if "deletecollection" in resource.verbs:
            await self._client.delete_collection(resource, namespace, propagation="Background")
            return
        for obj in (await self._client.list(resource, namespace, metadata_only=True)).items:
            try:
                await self._client.delete(resource, name_of(obj), namespace, propagation="Background")
            except ApiError as error:
                if error.code != 404:
                    raise

    async def _report(self, namespace: Obj, remaining: Remaining) -> None:
        """Conditions say why the namespace is still there. One that goes at once needs none."""
        before = status_of(namespace).get("conditions") or []
        if remaining.nothing and not before:
            return
        wanted = conditions(before, remaining)
        if wanted == before:
            return
        patch = {
            "metadata": {"uid": namespace["metadata"]["uid"]},
            "status": {"phase": "Terminating", "conditions": wanted},
        }
        try:
            await self._client.patch("Namespace", name_of(namespace), patch, subresource="status")
        except ApiError as error:
            if error.code not in (404, 409):
                raise

    async def _finalize(self, name: str) -> bool:
        """Removes our finalizer; whether the namespace is gone or waits for somebody else's."""
        namespace = await self._find(name)
        if namespace is None:
            return True
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
        tasks, self._tasks = list(self._tasks.values()), {}
        for task in tasks:
            task.cancel()
