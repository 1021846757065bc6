"""The node's own object: registers it, reports capacity, addresses and conditions, and puts it back when
it is deleted.
"""

import asyncio
import logging
import random
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path

from kube32.client.api import ApiClient, ApiError
from kube32.contract import NAMES, Limits, text
from kube32.kubelet.node_info import node_info
from kube32.kubelet.values import Obj, annotation, metadata, now_rfc3339, status

_LOG = logging.getLogger(__name__)
_RETRY_FIRST_S = 0.25
_RETRY_MAX_S = 10.0
NOT_FOUND = 404
CONFLICT = 409


@dataclass(slots=True)
class NodeOptions:
    """What a node offers. `resources` are further resources by name, `storage` the node's own storage for
    claims.
    """

    memory_bytes: int
    cpu_millis: int
    pods: int
    resources: dict[str, str] = field(default_factory=dict)
    capabilities: tuple[str, ...] = ()
    storage: Path | None = None
    labels: dict[str, str] = field(default_factory=dict)
    annotations: dict[str, str] = field(default_factory=dict)
    node_ip: str = "127.0.0.1"

    def capacity(self) -> dict[str, str]:
        """The Node's status.capacity, all of which pods may have."""
        millis = self.cpu_millis
        return {
            "cpu": f"{millis}m" if millis % 1000 else str(millis // 1000),
            "memory": _binary(self.memory_bytes),
            "pods": str(self.pods),
            **self.resources,
        }


class NodeStatus:
    """Keeps the Node object of this kubelet. `memory_used` gives bytes of linear memory in use on the
    node.
    """

    def __init__(
        self,
        client: ApiClient,
        name: str,
        limits: Limits,
        options: NodeOptions,
        *,
        port: int,
        interp_mops: float,
        memory_used: Callable[[], int],
        images: Callable[[], Awaitable[list[Obj]]],
    ) -> None:
        self._client = client
        self._name = name
        self._limits = limits
        self._options = options
        self._port = port
        self._interp_mops = interp_mops
        self._memory_used = memory_used
        self._list_images = images
        self._images: list[Obj] = []
        self._info = node_info(name)
        self._sent: Obj | None = None
        self._sent_at = 0.0
        self._again = False
        self._changes: dict[str, str] = {}
        self.registered = asyncio.Event()
        self.node: Obj = {}

    async def run(self) -> None:
        """Registers the node and keeps it true, until cancelled."""
        delay_s = _RETRY_FIRST_S
        while True:
            try:
                await self._refresh()
                delay_s = _RETRY_FIRST_S
                pause_s = self._limits.node_status_ms / 1000
            except (ApiError, OSError) as error:
                _LOG.info("status of node %s: %s", self._name, str(error) or type(error).__name__)
                pause_s, delay_s = delay_s, min(delay_s * 2, _RETRY_MAX_S)
            except Exception:
                _LOG.exception("status of node %s", self._name)
                pause_s = _RETRY_MAX_S
            await asyncio.sleep(pause_s * random.uniform(0.8, 1.0))

    def send_again(self) -> None:
        """The server may have lost what it was told last: the next report brings all of it."""
        self._again = True

    async def _refresh(self) -> None:
        self._images = await self._list_images()
        try:
            self.node = await self._client.get("Node", self._name)
        except ApiError as error:
            if error.code != NOT_FOUND:
                raise
            self.node = await self._create()
            self._sent = None
        if self._again or not self.registered.is_set():
            self._again, self._sent = False, None
            await self._take_over()
        await self._report()
        self.registered.set()

    async def _create(self) -> Obj:
        try:
            return await self._client.create(
                "Node",
                {
                    "apiVersion": "v1",
                    "kind": "Node",
                    "metadata": {
                        "name": self._name,
                        "labels": self._labels(),
                        "annotations": self._annotations(),
                    },
                    "spec": {},
                    "status": self._status({}),
                },
            )
        except ApiError as error:
            if error.code != CONFLICT:
                raise
            return await self._client.get("Node", self._name)

    async def _take_over(self) -> None:
        """Brings an older object of this node up to date; a worker that had left is no longer cordoned."""
        wanted: dict[str, str | None] = {**self._annotations()}
        patch: Obj = {"metadata": {"labels": self._labels(), "annotations": wanted}}
        meta = metadata(self.node)
        for stale in (NAMES.ann_left, NAMES.ann_capabilities):
            if annotation(self.node, stale) is not None:
                wanted.setdefault(stale, None)
        if NAMES.ann_left in wanted:
            patch["spec"] = {"unschedulable": None}
        labels, annotations = meta.get("labels") or {}, meta.get("annotations") or {}
        same = labels.items() >= self._labels().items() and annotations.items() >= wanted.items()
        if not same:
            self.node = await self._client.patch("Node", self._name, patch)

    async def _report(self) -> None:
        """Sends the status when it differs from what was sent, or after the idle time."""
        now = asyncio.get_running_loop().time()
        wanted = self._status(status(self.node))
        idle = now - self._sent_at >= self._limits.node_status_idle_ms / 1000
        if _without_heartbeats(wanted) == self._sent and not idle:
            return
        self.node = await self._client.patch("Node", self._name, {"status": wanted}, subresource="status")
        self._sent, self._sent_at = _without_heartbeats(wanted), now

    def _labels(self) -> dict[str, str]:
        return {
            "kubernetes.io/hostname": self._name,
            "kubernetes.io/os": self._info["operatingSystem"],
            "kubernetes.io/arch": self._info["architecture"],
            **self._options.labels,
        }

    def _annotations(self) -> dict[str, str]:
        found = {NAMES.ann_interp_mops: f"{self._interp_mops:.1f}", **self._options.annotations}
        if self._options.capabilities:
            found[NAMES.ann_capabilities] = ",".join(self._options.capabilities)
        found[NAMES.ann_storage] = "true" if self._options.storage is not None else "false"
        return found

    def _status(self, before: Obj) -> Obj:
        options = self._options
        return {
            "capacity": options.capacity(),
            "allocatable": options.capacity(),
            "addresses": [
                {"type": "InternalIP", "address": options.node_ip},
                {"type": "Hostname", "address": self._name},
            ],
            "daemonEndpoints": {"kubeletEndpoint": {"Port": self._port}},
            "images": self._images,
            "nodeInfo": self._info,
            "conditions": self._conditions(before),
        }

    def _conditions(self, before: Obj) -> list[Obj]:
        free = self._options.memory_bytes - self._memory_used()
        pressure = free < self._limits.node_memory_pressure_bytes
        wanted = {
            "MemoryPressure": ("Memory", pressure),
            "DiskPressure": ("DiskSpace", False),
            "PIDPressure": ("PID", False),
        }
        found = [_pressure(kind, what, on) for kind, (what, on) in wanted.items()]
        found.append(_condition("Ready", True, "KubeletReady", text("statuses", "node_ready")))
        old = {str(c.get("type")): c for c in before.get("conditions") or []}
        now = now_rfc3339()
        for condition in found:
            last = old.pop(condition["type"], {})
            same = last.get("status") == condition["status"]
            condition["lastTransitionTime"] = (last.get("lastTransitionTime") if same else None) or now
            condition["lastHeartbeatTime"] = now
        return [*found, *old.values()]


def _pressure(kind: str, what: str, on: bool) -> Obj:
    name = {
        "Memory": "sufficient memory available",
        "DiskSpace": "no disk pressure",
        "PID": "sufficient PID available",
    }
    if on:
        return _condition(
            kind, True, f"KubeletHasInsufficient{what}", f"kubelet has insufficient {what.lower()} available"
        )
    reason = "KubeletHasNoDiskPressure" if what == "DiskSpace" else f"KubeletHasSufficient{what}"
    return _condition(kind, False, reason, f"kubelet has {name[what]}")


def _condition(kind: str, on: bool, reason: str, message: str) -> Obj:
    return {"type": kind, "status": "True" if on else "False", "reason": reason, "message": message}


def _without_heartbeats(node_status: Obj) -> Obj:
    conditions = [{k: v for k, v in c.items() if k != "lastHeartbeatTime"} for c in node_status["conditions"]]
    return {**node_status, "conditions": conditions}


def _binary(number: int) -> str:
    return f"{number // 1024}Ki" if number % 1024 == 0 else str(number)
