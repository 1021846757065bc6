"""Round robin over a Service's Ready pods; another pod is asked only when nothing was delivered to the first."""

import asyncio
from collections.abc import Callable

from kube32.contract import Limits, text
from kube32.proxy.pods import NotDelivered, PodAnswer, PodRequest, Pods
from kube32.proxy.table import Endpoint, RouteTable, ServicePort


class NoAnswer(Exception):
    """No pod took the request within the time; str() is for the client. `retry` tells whether to try again."""

    def __init__(self, message: str, *, retry: bool) -> None:
        super().__init__(message)
        self.retry = retry


class Forwarder:
    """Sends requests to the pods of Services. `table` gives the route table of the moment."""

    def __init__(
        self, node: str, local: Pods, remote: Pods, table: Callable[[], RouteTable], limits: Limits
    ) -> None:
        self._node = node
        self._local = local
        self._remote = remote
        self._table = table
        self._limits = limits
        self._turns: dict[tuple[str, str, int], int] = {}

    def forget(self, table: RouteTable) -> None:
        """Drops the turns of ports that are gone."""
        keys = {p.key for p in table.ports}
        self._turns = {k: v for k, v in self._turns.items() if k in keys}

    async def send(self, namespace: str, service: str, port: int, request: PodRequest) -> PodAnswer:
        """The answer of one of the Service's pods.

        While a pod is frozen or moves, the request waits for it, `proxy_hold_ms` at most. NoAnswer, and
        TransportError or TimeoutError where a pod may have seen the request.
        """
        loop = asyncio.get_running_loop()
        until = loop.time() + self._limits.proxy_hold_ms / 1000
        while True:
            found = self._table().find(namespace, service, port)
            if found is None:
                raise NoAnswer(
                    text("routes", "no_port", service=service, namespace=namespace, port=port), retry=False
                )
            answer, soon = await self._try_each(found, request)
            if answer is not None:
                return answer
            if not (soon or found.waits) or loop.time() >= until:
                message = text("routes", "no_endpoints", service=service)
                raise NoAnswer(message, retry=soon or found.waits or bool(found.endpoints))
            await asyncio.sleep(self._limits.proxy_hold_retry_ms / 1000)

    async def _try_each(self, port: ServicePort, request: PodRequest) -> tuple[PodAnswer | None, bool]:
        """The first answer, and whether a pod that did not take the request may do so soon."""
        soon = False
        for endpoint in self._in_turn(port):
            pods = self._local if endpoint.node == self._node else self._remote
            try:
                return await pods.call(port.namespace, endpoint.pod, request), False
            except NotDelivered as refused:
                soon = soon or refused.soon
        return None, soon

    def _in_turn(self, port: ServicePort) -> list[Endpoint]:
        endpoints = port.endpoints
        if not endpoints:
            return []
        turn = self._turns.get(port.key, 0) % len(endpoints)
        self._turns[port.key] = turn + 1
        return [*endpoints[turn:], *endpoints[:turn]]
