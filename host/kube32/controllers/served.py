"""Which kinds the API serves now, custom ones too: read from discovery, and again when definitions change."""

import asyncio
import logging
from collections.abc import Callable

from kube32.client.api import ApiClient, ApiError
from kube32.client.discovery import served
from kube32.client.informer import Informer
from kube32.contract import Resource
from kube32.controllers.objects import Obj

_LOG = logging.getLogger(__name__)
# Definitions that are applied together make one look.
_SETTLE_S = 0.1
_RETRY_S = 2.0
# A look that no watch asked for, as Kubernetes' controllers take it.
_REFRESH_S = 30.0


class ServedKinds:
    """The kinds, each once. `definitions` watches CustomResourceDefinitions, None where they are not offered."""

    def __init__(self, client: ApiClient, definitions: Informer | None = None) -> None:
        self.resources: tuple[Resource, ...] = ()
        self.failure = ""
        self.known = asyncio.Event()
        self._client = client
        self._definitions = definitions
        self._listeners: list[Callable[[], None]] = []
        self._changed = asyncio.Event()
        if definitions is not None:
            definitions.subscribe(self._on_definition, replay=False)

    def subscribe(self, listener: Callable[[], None]) -> None:
        """Calls `listener` whenever other kinds are served than before, or definitions changed."""
        self._listeners.append(listener)

    def with_verbs(self, *verbs: str) -> list[Resource]:
        """The kinds that have all the verbs."""
        return [r for r in self.resources if set(verbs) <= set(r.verbs)]

    def of_owner(self, api_version: str, kind: str) -> Resource | None:
        """The kind that an owner reference names; the versions of a kind are one kind."""
        group = api_version.rpartition("/")[0]
        return next((r for r in self.resources if (r.group, r.kind) == (group, kind)), None)

    def is_defined(self, resource: Resource) -> bool:
        """Whether a kind that is not served (now) has a definition still."""
        name = f"{resource.plural}.{resource.group}"
        return self._definitions is not None and self._definitions.get("", name) is not None

    def _on_definition(self, kind: str, definition: Obj, old: Obj | None) -> None:
        self._changed.set()

    async def refresh(self) -> None:
        """Looks now. A failure keeps what was known and stands in `failure`."""
        try:
            found = tuple(await served(self._client))
        except (ApiError, OSError, ValueError) as error:
            self.failure = str(error) or type(error).__name__
            _LOG.info("discovery: %s", self.failure)
            return
        self.failure = ""
        self.known.set()
        if found != self.resources:
            self.resources = found
            self._tell()

    def _tell(self) -> None:
        for listener in self._listeners:
            listener()

    async def run(self) -> None:
        """Keeps `resources` true until cancelled."""
        while True:
            await self.refresh()
            try:
                async with asyncio.timeout(_RETRY_S if self.failure else _REFRESH_S):
                    await self._changed.wait()
            except TimeoutError:
                continue
            await asyncio.sleep(_SETTLE_S)
            self._changed.clear()
            await self.refresh()
            self._tell()
