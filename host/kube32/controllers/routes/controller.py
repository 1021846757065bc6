"""Sends the route table to every Ready node, and tells in each Ingress where it is reached."""

import asyncio
import hashlib
import logging
from collections.abc import Callable
from urllib.parse import quote

from kube32.client.api import ApiClient, ApiError
from kube32.client.informer import Informer
from kube32.contract import NAMES, Limits, resource_of
from kube32.controllers.objects import Obj, annotation, is_true, name_of, status_of
from kube32.controllers.routes.table import Cluster, make, served

_LOG = logging.getLogger(__name__)
_RETRY_FIRST_S = 1.0
_RETRY_MAX_S = 30.0
_PUSH_TIMEOUT_S = 10.0
# The kubelet has no listeners: nothing to send it.
_NOT_SERVED = 404


class RoutesController:
    """Keeps the nodes' listeners true. A node gets the table when it changes, when it comes back, and now and
    then.
    """

    def __init__(
        self,
        client: ApiClient,
        *,
        services: Informer,
        slices: Informer,
        ingresses: Informer,
        classes: Informer,
        pods: Informer,
        nodes: Informer,
        limits: Limits,
    ) -> None:
        self._client = client
        self._services = services
        self._slices = slices
        self._ingresses = ingresses
        self._classes = classes
        self._pods = pods
        self._nodes = nodes
        self._limits = limits
        self._changed = asyncio.Event()
        self._table = b""
        self._digest = ""
        self._senders: dict[str, _Sender] = {}

    async def run(self) -> None:
        """Follows the objects until cancelled."""
        ends = [
            self._services.subscribe(self._on_change),
            self._slices.subscribe(self._on_change),
            self._ingresses.subscribe(self._on_change),
            self._classes.subscribe(self._on_change),
            self._pods.subscribe(self._on_pod),
            self._nodes.subscribe(self._on_node),
        ]
        self._changed.set()
        try:
            while True:
                await self._changed.wait()
                await asyncio.sleep(self._limits.routes_settle_ms / 1000)
                self._changed.clear()
                self._rebuild()
                await self._tell_addresses()
        finally:
            for end in ends:
                end()
            for sender in self._senders.values():
                sender.stop()

    def _on_change(self, kind: str, obj: Obj, old: Obj | None) -> None:
        self._changed.set()

    def _on_pod(self, kind: str, pod: Obj, old: Obj | None) -> None:
        # Which endpoints are ready comes with the slices; of pods it matters whether one is on its way.
        restores = [annotation(p, NAMES.ann_restore_from) for p in (pod, old) if p is not None]
        if len(set(restores)) > 1:
            self._changed.set()

    def _on_node(self, kind: str, node: Obj, old: Obj | None) -> None:
        name = name_of(node)
        if kind == "DELETED" or not is_true(node, "Ready"):
            sender = self._senders.pop(name, None)
            if sender is not None:
                sender.stop()
                self._changed.set()
            return
        sender, life = self._senders.get(name), _life(node)
        if sender is None or sender.life != life:
            if sender is not None:
                sender.stop()
            self._senders[name] = _Sender(self._client, name, life, self._limits, lambda: self._table)
            self._changed.set()

    def _rebuild(self) -> None:
        table = make(
            Cluster(
                self._services.items.values(),
                self._slices.items.values(),
                self._ingresses.items.values(),
                self._classes.items.values(),
                self._pods.items,
            )
        )
        self._table = table
        self._digest = hashlib.sha256(table).hexdigest()
        for sender in self._senders.values():
            sender.offer(self._digest)

    async def _tell_addresses(self) -> None:
        """Writes status.loadBalancer of our Ingresses: the nodes that listen for them."""
        nodes = [n for n in self._nodes.items.values() if is_true(n, "Ready")]
        wanted = sorted(
            (a for n in nodes if (a := _address(annotation(n, NAMES.ann_ingress)))), key=lambda a: str(a)
        )
        for ingress in served(list(self._ingresses.items.values()), self._classes.items.values()):
            if ((status_of(ingress).get("loadBalancer") or {}).get("ingress") or []) == wanted:
                continue
            meta = ingress["metadata"]
            patch: Obj = {"metadata": {"uid": meta["uid"]}, "status": {"loadBalancer": {"ingress": wanted}}}
            try:
                await self._client.patch(
                    "Ingress", meta["name"], patch, meta["namespace"], subresource="status"
                )
            except (ApiError, OSError) as error:
                _LOG.info("status of ingress %s/%s: %s", meta["namespace"], meta["name"], error)


def _life(node: Obj) -> tuple[object, ...]:
    """What differs when the node's kubelet has started anew or listens elsewhere."""
    status = status_of(node)
    info = status.get("nodeInfo") or {}
    return (
        node["metadata"].get("uid"),
        info.get("bootID"),
        status.get("daemonEndpoints"),
        status.get("addresses"),
        annotation(node, NAMES.ann_ingress),
    )


def _address(listener: str | None) -> Obj | None:
    """ "127.0.0.1:8080" as an entry of status.loadBalancer.ingress."""
    if not listener:
        return None
    host, _, port = listener.rpartition(":")
    return (
        {"ip": host.strip("[]"), "ports": [{"port": int(port), "protocol": "TCP"}]}
        if port.isdigit()
        else None
    )


class _Sender:
    """Brings the table to one node: again after a failure with a growing delay, and every `routes_push_ms`."""

    def __init__(
        self,
        client: ApiClient,
        node: str,
        life: tuple[object, ...],
        limits: Limits,
        table: Callable[[], bytes],
    ) -> None:
        self.life = life
        self._client = client
        self._node = node
        self._table = table
        self._push_s = limits.routes_push_ms / 1000
        self._wanted = self._sent = ""
        self._offered = asyncio.Event()
        self._task = asyncio.get_running_loop().create_task(self._run(), name=f"routes to {node}")

    def offer(self, digest: str) -> None:
        """There is another table, or the same."""
        self._wanted = digest
        if digest != self._sent:
            self._offered.set()

    def stop(self) -> None:
        """The node is gone."""
        self._task.cancel()

    async def _run(self) -> None:
        await self._offered.wait()
        delay_s = 0.0
        while True:
            self._offered.clear()
            wanted = self._wanted
            if await self._push():
                self._sent, delay_s = wanted, 0.0
            else:
                delay_s = min(max(delay_s * 2, _RETRY_FIRST_S), _RETRY_MAX_S)
            if delay_s:
                await asyncio.sleep(delay_s)
                continue
            try:
                async with asyncio.timeout(self._push_s):
                    await self._offered.wait()
            except TimeoutError:
                continue

    async def _push(self) -> bool:
        path = f"{resource_of('Node').object_path('', quote(self._node, safe=''), 'proxy')}/routes"
        headers = {"Content-Type": "application/json"}
        try:
            answer = await self._client.raw(
                "PUT", path, headers=headers, body=self._table(), timeout_s=_PUSH_TIMEOUT_S
            )
            async with answer:
                if answer.status != _NOT_SERVED:
                    await self._client.check(answer)
        except (ApiError, OSError, TimeoutError) as error:
            _LOG.info("routes to node %s: %s", self._node, error)
            return False
        return True
