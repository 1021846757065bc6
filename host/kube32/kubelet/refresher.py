"""Renews the configMap, secret, downwardAPI and projected volumes of a running container.

Every `volume_refresh_ms` (jittered) it looks whether a volume would come out differently. What cannot be read now
stays as it is, and what is immutable is read once. Mounts with a subPath are not renewed, as in Kubernetes.
"""

import asyncio
import logging
import random
import shutil

from kube32.client.api import ApiError
from kube32.contract import Limits
from kube32.kubelet.config import ConfigError, ConfigSource, Keys
from kube32.kubelet.pod_context import PodContext
from kube32.kubelet.projections import Projected, Projections, write

_LOG = logging.getLogger(__name__)


class Refresher:
    """Renews what one run of a container has mounted, until `stop`."""

    def __init__(
        self,
        context: PodContext,
        projections: Projections,
        mounted: list[Projected],
        limits: Limits,
        fixed: dict[tuple[str, str], Keys],
    ) -> None:
        self._context = context
        self._projections = projections
        self._mounted = mounted
        self._fixed = fixed
        self._period_s = limits.volume_refresh_ms / 1000
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Begins, if there is anything to renew."""
        if self._mounted:
            self._task = asyncio.create_task(self._run())

    def stop(self) -> None:
        """The run is over."""
        if self._task is not None:
            self._task.cancel()

    async def _run(self) -> None:
        while True:
            await asyncio.sleep(self._period_s * random.uniform(0.8, 1.2))
            # One source for the round: volumes of the same Secret read it once.
            source = ConfigSource(self._context.node.client, self._context.key[0], self._fixed)
            for projected in self._mounted:
                try:
                    await self._renew(projected, source)
                except (ConfigError, ApiError, OSError, TimeoutError) as error:
                    _LOG.info(
                        "volume %s of pod %s/%s: %s", projected.volume["name"], *self._context.key, error
                    )
            self._fixed = source.fixed

    async def _renew(self, projected: Projected, source: ConfigSource) -> None:
        files = await self._projections.files(self._context.pod, projected.volume, source)
        if files == projected.files:
            return
        projected.number += 1
        before = projected.mount.source
        fresh = projected.directory.with_name(f"{projected.directory.name}.{projected.number % 2}")
        await write(fresh, files)
        projected.mount.source, projected.files = fresh, files
        if before != fresh:
            await asyncio.to_thread(shutil.rmtree, before, True)
