"""Writes one pod's status: at once when it changes, one write at a time, later changes in the next write;
tries again.
"""

import asyncio
import logging
import random
from collections.abc import Callable

from kube32.client.api import ApiClient, ApiError
from kube32.kubelet.values import Obj, key_of, uid_of

_LOG = logging.getLogger(__name__)
_RETRY_FIRST_S = 0.2
_RETRY_MAX_S = 5.0
CONFLICT = 409
# The pod is gone, bound elsewhere, or another one of the same name: its status is no longer this kubelet's.
_NOT_OURS = frozenset({403, 404, CONFLICT, 422})


class StatusWriter:
    """`build` gives the status to report now; `observe` is told the object that a write brought back.

    `version` gives the resourceVersion that `build` was made of, when others write conditions that it must not
    undo, else "".
    """

    def __init__(
        self,
        client: ApiClient,
        pod: Obj,
        build: Callable[[], Obj],
        observe: Callable[[Obj], None],
        version: Callable[[], str] = lambda: "",
    ) -> None:
        self._client = client
        self._namespace, self._name = key_of(pod)
        self._uid = uid_of(pod)
        self._build = build
        self._observe = observe
        self._version = version
        self._task: asyncio.Task[None] | None = None
        self._changed = False
        self._closed = False
        self._sent: Obj | None = None
        self.clean = asyncio.Event()
        self.clean.set()

    def changed(self) -> None:
        """The status may differ: write it, now or after the write that runs."""
        if self._closed:
            return
        self._changed = True
        if self._task is None or self._task.done():
            self.clean.clear()
            self._task = asyncio.create_task(self._write())

    def overwritten(self) -> None:
        """Somebody else changed the status on the server: it is written again, as it is."""
        self._sent = None
        self.changed()

    async def close(self) -> None:
        """Nothing is written from now on."""
        self._closed = True
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    async def _write(self) -> None:
        delay_s = _RETRY_FIRST_S
        try:
            while self._changed:
                self._changed = False
                if await self._send():
                    delay_s = _RETRY_FIRST_S
                    continue
                self._changed = True
                await asyncio.sleep(delay_s * random.uniform(0.5, 1))
                delay_s = min(delay_s * 2, _RETRY_MAX_S)
        finally:
            self.clean.set()

    async def _send(self) -> bool:
        status = self._build()
        if status == self._sent:
            return True
        version = self._version()
        precondition = {"uid": self._uid} | ({"resourceVersion": version} if version else {})
        patch = {"metadata": precondition, "status": status}
        # A write without an answer may have been made: what the server has is not known until the next one.
        self._sent, before = None, self._sent
        try:
            pod = await self._client.patch("Pod", self._name, patch, self._namespace, subresource="status")
        except ApiError as error:
            conflict = bool(version) and error.code == CONFLICT
            if error.code not in _NOT_OURS or (conflict and await self._reread()):
                return False
            _LOG.info("status of pod %s/%s: %s", self._namespace, self._name, error)
            self._sent = before
            return True
        except OSError as error:
            _LOG.info("status of pod %s/%s: %s", self._namespace, self._name, error)
            return False
        self._sent = status
        self._observe(pod)
        return True

    async def _reread(self) -> bool:
        """Somebody changed the pod meanwhile: takes what it is now. False when it is another one, or gone."""
        try:
            pod = await self._client.get("Pod", self._name, self._namespace)
        except (ApiError, OSError):
            return False
        self._observe(pod)
        return uid_of(pod) == self._uid
