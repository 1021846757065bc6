"""Probes of one container: HTTP requests to the pod's own k32_handle, judged by thresholds, as the kubelet does.

A probe is a call like any other: it waits its turn, is not made while the pod is frozen, and one that takes too
long has failed without ending the call that made it wait. Counts go on over a freeze.

A container that was restored has started already, on another node: neither its startup probe nor the initial
delays of the others are waited for again, so that a move does not keep it out of its Services for longer.
"""

import asyncio
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

from kube32.contract import NAMES, text
from kube32.kubelet.calls import NotDelivered
from kube32.kubelet.pod_thread import PodThread
from kube32.kubelet.values import Obj
from kube32.wasm import HttpCall

_WORDS = {"startupProbe": "Startup", "livenessProbe": "Liveness", "readinessProbe": "Readiness"}
_LEAST_S = 0.01
_HTTP_PORT = 80


@dataclass(frozen=True, slots=True)
class Outcome:
    """What one probe found: True, False, or None when it could not be made. `errored`: by its own fault."""

    good: bool | None
    why: str = ""
    errored: bool = False


@dataclass(slots=True)
class Hooks:
    """What a prober tells. `unhealthy` and `errored` get the kind's word and the cause."""

    ready: Callable[[bool], None]
    started: Callable[[], None]
    unhealthy: Callable[[str, str], None]
    errored: Callable[[str, str], None]
    kill: Callable[[str], None]


class Prober:
    """Probes one run of a container until `stop`. `host` is the pod's address, as a Host header says it."""

    def __init__(self, container: Obj, thread: PodThread, hooks: Hooks, *, host: str, restored: bool) -> None:
        self._container = container
        self._thread = thread
        self._hooks = hooks
        self._host = host
        self._restored = restored
        self._begun = asyncio.get_running_loop().time()
        self._tasks: list[asyncio.Task[None]] = []

    @staticmethod
    def needed(container: Obj, kind: str) -> bool:
        """Whether the container has a probe of the kind."""
        return container.get(kind) is not None

    def start(self) -> None:
        """Begins: startup first, then liveness and readiness side by side."""
        self._tasks.append(asyncio.create_task(self._run()))

    def stop(self) -> None:
        """The run is over, or is being ended."""
        for task in self._tasks:
            task.cancel()
        self._tasks.clear()

    async def _run(self) -> None:
        probe = None if self._restored else self._container.get("startupProbe")
        if probe is not None and not await self._starts(probe):
            return
        self._hooks.started()
        if (live := self._container.get("livenessProbe")) is not None:
            self._tasks.append(asyncio.create_task(self._live(live)))
        if (ready := self._container.get("readinessProbe")) is not None:
            self._tasks.append(asyncio.create_task(self._ready(ready)))

    async def _starts(self, probe: Obj) -> bool:
        """Waits for the first success; False when there were too many failures before, which ends the run."""
        failures = 0
        async with aclosing(self._outcomes("startupProbe", probe)) as outcomes:
            async for good in outcomes:
                if good:
                    return True
                failures += 1
                if failures >= _threshold(probe, "failureThreshold", 3):
                    break
        self._hooks.kill("startup")
        return False

    async def _live(self, probe: Obj) -> None:
        failures = 0
        async with aclosing(self._outcomes("livenessProbe", probe)) as outcomes:
            async for good in outcomes:
                failures = 0 if good else failures + 1
                if failures >= _threshold(probe, "failureThreshold", 3):
                    break
        self._hooks.kill("liveness")

    async def _ready(self, probe: Obj) -> None:
        successes = failures = 0
        is_ready = False
        async with aclosing(self._outcomes("readinessProbe", probe)) as outcomes:
            async for good in outcomes:
                successes, failures = (successes + 1, 0) if good else (0, failures + 1)
                if not is_ready and successes >= _threshold(probe, "successThreshold", 1):
                    is_ready = True
                    self._hooks.ready(True)
                elif is_ready and failures >= _threshold(probe, "failureThreshold", 3):
                    is_ready = False
                    self._hooks.ready(False)

    async def _outcomes(self, kind: str, probe: Obj) -> AsyncGenerator[bool, None]:
        """Probes once in a period, for ever; what could not be made does not count. Failures are told."""
        loop = asyncio.get_running_loop()
        if not self._restored:
            delay_s = float(probe.get("initialDelaySeconds") or 0)
            await asyncio.sleep(max(self._begun + delay_s - loop.time(), 0.0))
        period_s = float(max(int(probe.get("periodSeconds") or 10), 1))
        while True:
            begun = loop.time()
            outcome = await self._probe(probe)
            if outcome.errored:
                self._hooks.errored(_WORDS[kind], outcome.why)
            elif outcome.good is False:
                self._hooks.unhealthy(_WORDS[kind], outcome.why)
            if outcome.good is not None:
                yield outcome.good
            await asyncio.sleep(max(begun + period_s - loop.time(), 0.0))

    async def _probe(self, probe: Obj) -> Outcome:
        if self._thread.ended or self._thread.frozen:
            return Outcome(None)
        wanted = probe.get("httpGet") or probe.get("tcpSocket") or {}
        port = port_of(self._container, wanted.get("port"))
        if port is None:
            return Outcome(None, text("probes", "port", port=wanted.get("port")), errored=True)
        if probe.get("tcpSocket") is not None:
            return self._connects()
        return await self._get(http_call(wanted, self._host, port), _timeout_s(probe))

    def _connects(self) -> Outcome:
        """A pod has no ports of its own: it takes connections when it takes requests."""
        try:
            self._thread.check()
        except NotDelivered as refused:
            # A full queue of requests is a port that is open.
            return Outcome(True) if refused.kind == "busy" else _refused(refused)
        return Outcome(True)

    async def _get(self, call: HttpCall, timeout_s: float) -> Outcome:
        try:
            done = self._thread.submit(call)
            async with asyncio.timeout(timeout_s):
                answered = await done
        except TimeoutError:
            if self._thread.frozen:
                return Outcome(None)
            host = next(v for k, v in call.headers if k.lower() == "host")
            return Outcome(False, text("probes", "timeout", host=host, path=call.path))
        except NotDelivered as refused:
            return _refused(refused)
        status = answered.response_status
        if 200 <= status < 400:
            return Outcome(True)
        return Outcome(False, text("probes", "status", status=status))


def _refused(refused: NotDelivered) -> Outcome:
    """A frozen or ended pod is neither good nor bad; a busy one, or one without a handler, is bad."""
    if refused.kind in ("frozen", "not_running", "not_delivered"):
        return Outcome(None)
    return Outcome(False, refused.cause or text("probes", refused.kind))


def port_of(container: Obj, port: Any) -> int | None:
    """The number of a port given by number or by the name of one of the container's; None for no such port."""
    if isinstance(port, str):
        for row in container.get("ports") or []:
            if row.get("name") == port:
                return int(row.get("containerPort") or 0)
        return int(port) if port.isascii() and port.isdigit() else None
    return _HTTP_PORT if port is None else int(port)


def http_call(wanted: Obj, host: str, port: int) -> HttpCall:
    """The request of an httpGet action, for the pod at the address `host`."""
    target = str(wanted.get("path") or "/")
    path, _, query = target.partition("?")
    host = str(wanted.get("host") or host)
    headers = [
        ("Host", host if port == _HTTP_PORT else f"{host}:{port}"),
        ("User-Agent", NAMES.agent_probe),
        ("Accept", "*/*"),
    ]
    for row in wanted.get("httpHeaders") or []:
        name, value = str(row.get("name", "")), str(row.get("value", ""))
        headers = [h for h in headers if h[0].lower() != name.lower()] + [(name, value)]
    path = quote(path if path.startswith("/") else f"/{path}", safe="/%:@!$&'()*+,;=~-._")
    return HttpCall(method="GET", path=path, query=query, headers=headers, body=b"")


def _threshold(probe: Obj, name: str, default: int) -> int:
    value: Any = probe.get(name)
    return max(int(value or default), 1)


def _timeout_s(probe: Obj) -> float:
    return max(float(probe.get("timeoutSeconds") or 1), _LEAST_S)
