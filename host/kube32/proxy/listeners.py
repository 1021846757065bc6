"""All listeners of one node: opens and closes NodePorts as the route table says, and the Ingress if asked."""

import asyncio
import logging
import os
from pathlib import Path

from kube32.contract import Limits, text
from kube32.proxy.forward import Forwarder
from kube32.proxy.matching import match
from kube32.proxy.pods import Pods
from kube32.proxy.serving import Listener
from kube32.proxy.table import RouteTable, ServicePort, TableError, parse

_LOG = logging.getLogger(__name__)


class Listeners:
    """Follows the route table. `ingress` is the address of the Ingress listener, None for none.

    `start` raises OSError when that address is taken. A NodePort that another process has (another node on the
    same machine, say) is tried again every `node_port_retry_ms`.
    """

    def __init__(
        self,
        node: str,
        *,
        local: Pods,
        remote: Pods,
        limits: Limits,
        file: Path,
        host: str,
        ingress: tuple[str, int] | None = None,
    ) -> None:
        self.table = RouteTable()
        self.ingress: Listener | None = None
        self._limits = limits
        self._file = file
        self._host = host
        self._forwarder = Forwarder(node, local, remote, lambda: self.table, limits)
        self._open: dict[int, Listener] = {}
        self._refused: set[int] = set()
        self._changed = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        if ingress is not None:
            self.ingress = Listener(
                *ingress, lambda host, path: match(self.table, host, path), self._forwarder, limits
            )

    async def start(self) -> None:
        """Takes up the last table that was seen, and listens."""
        self._load()
        if self.ingress is not None:
            await self.ingress.start()
        self._task = asyncio.create_task(self._follow())

    async def stop(self) -> None:
        """Closes everything."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
        listeners = [*self._open.values(), *([self.ingress] if self.ingress is not None else [])]
        self._open.clear()
        await asyncio.gather(*(listener.stop() for listener in listeners))

    async def replace(self, data: bytes) -> None:
        """Takes a new table; TableError leaves the old one."""
        self.table = parse(data)
        self._forwarder.forget(self.table)
        self._changed.set()
        await asyncio.to_thread(self._save, data)

    def _load(self) -> None:
        try:
            self.table = parse(self._file.read_bytes())
        except FileNotFoundError:
            return
        except (OSError, TableError) as error:
            _LOG.warning("%s: %s; the control plane sends another one", self._file, error)
            return
        self._changed.set()

    def _save(self, data: bytes) -> None:
        # Lost at a power cut it is sent again: a whole file matters, not the newest one.
        part = self._file.with_name(f"{self._file.name}.{os.getpid()}.part")
        try:
            part.write_bytes(data)
            part.replace(self._file)
        except OSError as error:
            _LOG.warning("%s: %s", self._file, error)

    async def _follow(self) -> None:
        while True:
            self._changed.clear()
            wanted = self.table.node_ports()
            for port in [p for p in self._open if p not in wanted]:
                await self._open.pop(port).stop()
            missing = [p for p in wanted if p not in self._open]
            for port in missing:
                await self._listen(port)
            self._refused &= set(wanted)
            timeout_s = self._limits.node_port_retry_ms / 1000 if self._refused else None
            try:
                # Not wait_for: before Python 3.12 that may swallow the cancellation of `stop`.
                async with asyncio.timeout(timeout_s):
                    await self._changed.wait()
            except TimeoutError:
                continue

    async def _listen(self, port: int) -> None:
        def choose(host: str, path: str) -> tuple[str, str, int] | None:
            found: ServicePort | None = self.table.node_ports().get(port)
            return None if found is None else found.key

        listener = Listener(self._host, port, choose, self._forwarder, self._limits)
        try:
            await listener.start()
        except OSError as error:
            if port not in self._refused:
                _LOG.info(
                    "%s", text("routes", "port_taken", host=self._host, port=port, cause=error.strerror)
                )
            self._refused.add(port)
            return
        self._refused.discard(port)
        self._open[port] = listener
