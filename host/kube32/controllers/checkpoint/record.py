"""The Checkpoint object as the controller writes it: its status, its finalizer, its end."""

import asyncio
import random
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

from kube32.client.api import ApiClient, ApiError
from kube32.client.informer import Key, key_of
from kube32.contract import NAMES
from kube32.controllers.checkpoint.failure import CheckpointGone
from kube32.controllers.objects import Obj, is_deleting, spec_of, status_of, uid_of

T = TypeVar("T")
FINAL = ("Saved", "Completed", "Failed")
_TRIES = 8
_RETRY_FIRST_S = 0.05
_RETRY_MAX_S = 5.0


def phase_of(checkpoint: Obj) -> str:
    """status.phase, Pending when there is none yet."""
    return str(status_of(checkpoint).get("phase") or "Pending")


async def persevere(call: Callable[[], Awaitable[T]]) -> T:
    """Makes a call again, with growing delays, while the server cannot be reached or is at fault itself."""
    delay_s = _RETRY_FIRST_S
    for attempt in range(1, _TRIES + 1):
        try:
            return await call()
        except ApiError as error:
            if attempt == _TRIES or (error.code < 500 and error.code != 429):
                raise
            delay_s = max(delay_s, error.retry_after_s)
        except OSError:
            if attempt == _TRIES:
                raise
        await asyncio.sleep(delay_s * random.uniform(0.5, 1))
        delay_s = min(delay_s * 2, _RETRY_MAX_S)
    raise AssertionError("the last attempt returns or raises")


class CheckpointRecord:
    """One Checkpoint. Its writes raise CheckpointGone when it, by uid, is not there any more."""

    def __init__(self, client: ApiClient, checkpoint: Obj) -> None:
        self._client = client
        self.obj = checkpoint
        self.key: Key = key_of(checkpoint)
        self.uid = uid_of(checkpoint)
        self.deleted = asyncio.Event()
        if is_deleting(checkpoint):
            self.deleted.set()

    @property
    def name(self) -> str:
        """The Checkpoint's name."""
        return self.key[1]

    @property
    def namespace(self) -> str:
        """Its namespace, which is the pod's."""
        return self.key[0]

    @property
    def pod_name(self) -> str:
        """The pod that it is about."""
        return str(spec_of(self.obj).get("podName") or "")

    @property
    def is_move(self) -> bool:
        """Whether the pod is to move; else its state is saved."""
        return spec_of(self.obj).get("action") == "Move"

    @property
    def status(self) -> Obj:
        """The status as last written or seen."""
        return status_of(self.obj)

    async def write(self, **fields: Any) -> None:
        """Changes fields of the status; None removes one."""
        await self._patch({"status": fields}, "status")

    async def hold(self) -> None:
        """Puts the finalizer on: the Checkpoint stays while a pod may be frozen for it."""
        await self._change_finalizers(lambda found: [*found, NAMES.finalizer_checkpoint])

    async def release(self) -> None:
        """Takes the finalizer off."""
        try:
            await self._change_finalizers(lambda found: [f for f in found if f != NAMES.finalizer_checkpoint])
        except CheckpointGone:
            return

    @property
    def held(self) -> bool:
        """Whether the finalizer is on."""
        return NAMES.finalizer_checkpoint in (self.obj["metadata"].get("finalizers") or [])

    async def _change_finalizers(self, change: Callable[[list[str]], list[str]]) -> None:
        holds = change([]) != []
        while self.held != holds:
            meta = self.obj["metadata"]
            finalizers = change(list(meta.get("finalizers") or []))
            try:
                await self._patch(
                    {
                        "metadata": {
                            "resourceVersion": meta["resourceVersion"],
                            "finalizers": finalizers or None,
                        }
                    }
                )
            except ApiError as error:
                if error.code != 409:
                    raise
                await self.refresh()

    async def refresh(self) -> None:
        """Reads the object again."""
        found = await self._call(lambda: self._client.get("Checkpoint", self.name, self.namespace))
        if uid_of(found) != self.uid:
            raise CheckpointGone(self.name)
        self.obj = found

    async def _patch(self, patch: Obj, subresource: str = "") -> None:
        body = {**patch, "metadata": {**patch.get("metadata", {}), "uid": self.uid}}
        self.obj = await self._call(
            lambda: self._client.patch(
                "Checkpoint", self.name, body, self.namespace, subresource=subresource, type="merge"
            )
        )

    async def _call(self, call: Callable[[], Awaitable[Obj]]) -> Obj:
        try:
            return await persevere(call)
        except ApiError as error:
            if error.code == 404:
                raise CheckpointGone(self.name) from None
            raise
