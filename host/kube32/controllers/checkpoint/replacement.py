"""The one write that replaces a pod: same name, new uid, another node ("Moves", step 3)."""

from collections.abc import Callable

from kube32.client.api import ApiClient, ApiError
from kube32.client.informer import Informer, version_of
from kube32.contract import NAMES, resource_of, text
from kube32.controllers.checkpoint.failure import StepFailed, failed
from kube32.controllers.checkpoint.record import persevere
from kube32.controllers.objects import Obj, annotation, is_deleting, node_of, uid_of

_TRIES = 20


class Replacements:
    """Replaces pods with preconditions, so that a pod that changed hands meanwhile is left alone."""

    def __init__(self, client: ApiClient, pods: Informer) -> None:
        self._client = client
        self._pods = pods

    def newest(self, pod: Obj) -> Obj:
        """The same pod, as new as this process knows it."""
        meta = pod["metadata"]
        seen = self._pods.get(meta["namespace"], meta["name"])
        newer = seen is not None and uid_of(seen) == uid_of(pod) and version_of(seen) > version_of(pod)
        return seen if newer and seen is not None else pod

    async def replace(
        self,
        pod: Obj,
        *,
        node: str,
        annotations: dict[str, str | None],
        still: Callable[[Obj], bool] = lambda _: True,
    ) -> Obj | None:
        """The new pod. None when `still` turned False of the pod in the meantime.

        StepFailed when the pod is gone, being deleted or replaced by others, or when the write is refused.
        """
        meta, bound = pod["metadata"], node_of(pod)
        current, cause = self.newest(pod), ""
        for _ in range(_TRIES):
            if uid_of(current) != uid_of(pod):
                if _is_ours(current, node, annotations):
                    return current  # an answer that was lost on its way
                raise failed("pod_replaced", pod=meta["name"])
            if is_deleting(current):
                raise failed("pod_deleting", pod=meta["name"])
            if node_of(current) != bound:
                raise failed("pod_replaced", pod=meta["name"])
            if not still(current):
                return None
            try:
                return await self._write(current, node, annotations)
            except OSError as error:
                cause = str(error)
            except ApiError as error:
                if error.code == 404:
                    raise failed("pod_deleted", pod=meta["name"]) from None
                if error.code != 409 and error.code < 500:
                    raise failed("replacement", cause=error.message) from None
                cause = error.message
            current = await self._read(current)
        raise failed("replacement", cause=cause)

    async def _read(self, pod: Obj) -> Obj:
        meta = pod["metadata"]
        try:
            return await persevere(lambda: self._client.get("Pod", meta["name"], meta["namespace"]))
        except ApiError as error:
            if error.code == 404:
                raise failed("pod_deleted", pod=meta["name"]) from None
            raise StepFailed(text("failures", "replacement", cause=error.message)) from None

    async def _write(self, pod: Obj, node: str, annotations: dict[str, str | None]) -> Obj:
        meta = pod["metadata"]
        body = {
            "apiVersion": resource_of("Checkpoint").api_version,
            "kind": "PodReplacement",
            "preconditions": {"uid": uid_of(pod), "resourceVersion": meta["resourceVersion"]},
            "nodeName": node,
            "annotations": annotations,
        }
        return await self._client.create(
            "Pod", body, meta["namespace"], subresource="replacement", name=meta["name"]
        )

    async def drop_restore_from(self, pod: Obj) -> None:
        """Removes restore-from: a later restart of the container starts it afresh."""
        meta = pod["metadata"]
        patch = {"metadata": {"uid": uid_of(pod), "annotations": {NAMES.ann_restore_from: None}}}
        try:
            await persevere(lambda: self._client.patch("Pod", meta["name"], patch, meta["namespace"]))
        except ApiError as error:
            if error.code not in (404, 409):
                raise


def _is_ours(pod: Obj, node: str, annotations: dict[str, str | None]) -> bool:
    return node_of(pod) == node and all(annotation(pod, name) == value for name, value in annotations.items())
