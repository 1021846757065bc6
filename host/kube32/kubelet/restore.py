"""Restores a container from a Checkpoint's data, streamed from the API server straight into the new
instance's memory.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from urllib.parse import quote

from kube32.client.api import ApiClient, ApiError
from kube32.client.transport import ClientResponse
from kube32.contract import Limits, resource_of, text
from kube32.formats.k32s import HeldEvent, SnapshotRefused
from kube32.kubelet.values import Obj, spec
from kube32.wasm import Instance

NOT_FOUND = 404


class RestoreFailed(Exception):
    """The snapshot is missing or refused; str() is the cause. The container is not started again."""


class SnapshotFetch:
    """The GET of a Checkpoint's data, under way while the module is made ready."""

    def __init__(self, client: ApiClient, namespace: str, checkpoint: str, limits: Limits) -> None:
        path = resource_of("Checkpoint").object_path(namespace, quote(checkpoint, safe=""), "data")
        self._checkpoint = checkpoint
        self._stall_s = limits.snapshot_read_stall_ms / 1000
        self._client = client
        self._answer: asyncio.Task[ClientResponse] = asyncio.create_task(
            client.raw("GET", path, timeout_s=None)
        )

    async def fill(self, instance: Instance) -> list[HeldEvent]:
        """Writes the snapshot into the instance; the held events that it carries. RestoreFailed, OSError."""
        async with asyncio.timeout(self._stall_s):
            response = await self._answer
        if response.status == NOT_FOUND:
            raise RestoreFailed(text("refusals", "no_data", name=self._checkpoint))
        try:
            await self._client.check(response)
        except ApiError as error:
            raise RestoreFailed(error.message) from None
        reader = instance.restorer()
        try:
            chunks = response.chunks()
            while (chunk := await self._next(chunks)) is not None:
                reader.feed(chunk)
            snapshot = reader.finish()
            instance.apply(snapshot)
        except SnapshotRefused as refused:
            raise RestoreFailed(str(refused)) from None
        return snapshot.events

    async def _next(self, chunks: AsyncIterator[bytes]) -> bytes | None:
        async with asyncio.timeout(self._stall_s):
            return await anext(chunks, None)

    async def close(self) -> None:
        """Ends the GET, wherever it is."""
        if not self._answer.done():
            self._answer.cancel()
        try:
            response = await self._answer
        except (asyncio.CancelledError, Exception):
            return
        await response.close()


@asynccontextmanager
async def fetching(
    client: ApiClient, namespace: str, checkpoint: str, limits: Limits
) -> AsyncIterator[SnapshotFetch]:
    """A SnapshotFetch that is closed at the end."""
    fetch = SnapshotFetch(client, namespace, checkpoint, limits)
    try:
        yield fetch
    finally:
        await fetch.close()


async def restores_container(
    client: ApiClient, pod: Obj, container: str, namespace: str, checkpoint: str
) -> bool:
    """Whether the Checkpoint is this container's; a pod's only container needs no look-up."""
    if len(spec(pod).get("containers") or []) == 1:
        return True
    try:
        found = await client.get("Checkpoint", checkpoint, namespace)
    except ApiError as error:
        raise RestoreFailed(error.message) from None
    return str(spec(found).get("containerName", "")) == container
