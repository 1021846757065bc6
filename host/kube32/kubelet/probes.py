"""Probes of one container: HTTP requests to the pod's own k32_handle, judged by thresholds, as the kubelet does.

A probe is a call like any other: it waits its turn, is not made while the pod is frozen, and one that takes too
long has failed without ending the call that made it wait. A container that was restored has started already, so
its startup probe is not repeated.
"""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

from kube32.contract import NAMES, text
from kube32.kubelet.calls import NotDelivered
from kube32.kubelet.pod_thread import PodThread
from kube32.kubelet.values import Obj
from kube32.wasm import HttpCall

_KINDS = ("startupProbe", "livenessProbe", "readinessProbe")
_WORDS = {"startupProbe": "Startup", "livenessProbe": "Liveness", "readinessProbe": "Readiness"}
_LEAST_S = 0.01


@dataclass(frozen=True, slots=True)
class Outcome:
    """What one probe found: True, False, or None when it could not be made (the pod is frozen)."""

    good: bool | None
    why: str = ""


@dataclass(slots=True)
class Hooks:
    """What a prober tells. `unhealthy` gets the kind's word and the cause."""

    ready: Callable[[bool], None]
    started: Callable[[], None]
    unhealthy: Callable[[str, str], None]
    kill: Callable[[str, str], None]


class Prober:
    """Probes one run of a container until `stop`."""

    def __init__(self, container: Obj, thread: PodThread, hooks: Hooks, *, restored: bool) -> None:
        self._container = container
        self._thread = thread
        self._hooks = hooks
        self._restored = restored
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
        if probe is not None and not await self._until_started(probe):
            return
        self._hooks.started()
        for kind, judge in (("livenessProbe", self._live), ("readinessProbe", self._ready)):
            if self.needed(self._container, kind):
                self._tasks.append(asyncio.create_task(judge(self._container[kind])))

    async def _until_started(self, probe: Obj) -> bool:
        failures = 0
        await asyncio.sleep(int(probe.get("initialDelaySeconds") or 0))
        while True:
            outcome = await self._probe(probe)
            if outcome.good:
                return True
            if outcome.good is False:
                failures += 1
                self._hooks.unhealthy(_WORDS["startupProbe"], outcome.why)
                if failures >= _threshold(probe, "failureThreshold", 3):
                    self._hooks.kill("startup", outcome.why)
                    return False
            await asyncio.sleep(_period_s(probe))

    async def _live(self, probe: Obj) -> None:
        failures = 0
        await asyncio.sleep(int(probe.get("initialDelaySeconds") or 0))
        while True:
            outcome = await self._probe(probe)
            if outcome.good:
                failures = 0
            elif outcome.good is False:
                failures += 1
                self._hooks.unhealthy(_WORDS["livenessProbe"], outcome.why)
                if failures >= _threshold(probe, "failureThreshold", 3):
                    self._hooks.kill("liveness", outcome.why)
                    return
            await asyncio.sleep(_period_s(probe))

    async def _ready(self, probe: Obj) -> None:
        successes = failures = 0
        is_ready = False
        await asyncio.sleep(int(probe.get("initialDelaySeconds") or 0))
        while True:
            outcome = await self._probe(probe)
            if outcome.good:
                successes, failures = successes + 1, 0
                if not is_ready and successes >= _threshold(probe, "successThreshold", 1):
                    is_ready = True
                    self._hooks.ready(True)
            elif outcome.good is False:
                failures, successes = failures + 1, 0
                self._hooks.unhealthy(_WORDS["readinessProbe"], outcome.why)
                if is_ready and failures >= _threshold(probe, "failureThreshold", 3):
                    is_ready = False
                    self._hooks.ready(False)
            await asyncio.sleep(_period_s(probe))

    async def _probe(self, probe: Obj) -> Outcome:
        if self._thread.ended or self._thread.frozen:
            return Outcome(None)
        if probe.get("tcpSocket") is not None:
            # A pod has no ports: it takes connections as long as it runs.
            return Outcome(True)
        wanted = probe.get("httpGet") or {}
        timeout_s = max(float(probe.get("timeoutSeconds") or 1), _LEAST_S)
        call = http_call(wanted)
        try:
            done = self._thread.submit(call)
        except NotDelivered as refused:
            return _refused(refused)
        try:
            async with asyncio.timeout(timeout_s):
                answered = await done
        except TimeoutError:
            if self._thread.frozen:
                return Outcome(None)
            return Outcome(False, text("probes", "timeout", path=call.path, seconds=f"{timeout_s:g}"))
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


def http_call(wanted: Obj) -> HttpCall:
    """The request of an httpGet action."""
    target = str(wanted.get("path") or "/")
    path, _, query = target.partition("?")
    headers = [("User-Agent", NAMES.agent_probe), ("Accept", "*/*")]
    for row in wanted.get("httpHeaders") or []:
        name, value = str(row.get("name", "")), str(row.get("value", ""))
        headers = [h for h in headers if h[0].lower() != name.lower()] + [(name, value)]
    path = quote(path if path.startswith("/") else f"/{path}", safe="/%:@!$&'()*+,;=~-._")
    return HttpCall(method="GET", path=path, query=query, headers=headers, body=b"")


def _threshold(probe: Obj, name: str, default: int) -> int:
    value: Any = probe.get(name)
    return max(int(value or default), 1)


def _period_s(probe: Obj) -> float:
    return float(max(int(probe.get("periodSeconds") or 10), 1))
