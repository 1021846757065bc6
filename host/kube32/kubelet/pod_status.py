"""A pod's status as a kubelet reports it: container statuses, phase, conditions, QoS class. Pure functions
over records.
"""

from dataclasses import dataclass, field
from typing import Any

from kube32.contract import text
from kube32.kubelet.calls import Exit
from kube32.kubelet.values import Obj, now_rfc3339, rfc3339, spec, status

POLICY_DEFAULT = "Always"


@dataclass(slots=True)
class ContainerRecord:
    """What the kubelet knows of one container. `started_at` is RFC 3339, None while it does not run."""

    name: str
    image: str
    restart_count: int = 0
    waiting: tuple[str, str] | None = None
    started_at: str | None = None
    terminated: Obj | None = None
    last_terminated: Obj | None = None
    container_id: str = ""
    image_id: str = ""
    frozen: bool = False
    # Set while a startup probe has not passed, or a readiness probe has not, or no longer.
    starting: bool = False
    unready: bool = False
    init: bool = False

    @property
    def ready(self) -> bool:
        """Whether the container counts as ready; an init container when it has ended well."""
        if self.init:
            return self.terminated is not None and self.terminated["exitCode"] == 0
        return self.running and not self.starting and not self.unready

    @property
    def running(self) -> bool:
        """Whether calls may be made."""
        return self.started_at is not None

    def wait(self, reason: str, message: str = "") -> None:
        """The container waits; an earlier end becomes lastState."""
        self._remember()
        self.waiting, self.started_at, self.terminated, self.frozen = (reason, message), None, None, False

    def run(self) -> None:
        """The container runs from now on."""
        self._remember()
        self.waiting, self.terminated, self.started_at = None, None, now_rfc3339()

    def skip(self) -> None:
        """An init container of a pod that is restored: it ran where the pod began."""
        if self.terminated is None:
            now = now_rfc3339()
            ended = {
                "reason": text("reasons", "completed"),
                "exitCode": 0,
                "startedAt": now,
                "finishedAt": now,
            }
            self.waiting, self.terminated = None, ended

    def end(self, exit_: Exit) -> None:
        """The run is over."""
        self._remember()
        self.terminated = {
            "reason": exit_.reason,
            "exitCode": exit_.code,
            "startedAt": self.started_at or rfc3339(exit_.at),
            "finishedAt": rfc3339(exit_.at),
            "containerID": self.container_id,
        }
        if exit_.message:
            self.terminated["message"] = exit_.message
        self.waiting, self.started_at, self.frozen = None, None, False

    def _remember(self) -> None:
        if self.terminated is not None:
            self.last_terminated = self.terminated

    def status(self) -> Obj:
        """The entry of status.containerStatuses."""
        state: Obj
        if self.started_at is not None:
            state = {"running": {"startedAt": self.started_at}}
        elif self.terminated is not None:
            state = {"terminated": self.terminated}
        else:
            reason, message = self.waiting or (text("reasons", "container_creating"), "")
            state = {"waiting": {"reason": reason} | ({"message": message} if message else {})}
        found: Obj = {
            "name": self.name,
            "image": self.image,
            "imageID": self.image_id,
            "ready": self.ready and not self.frozen,
            "started": self.running and not self.starting,
            "restartCount": self.restart_count,
            "state": state,
            "lastState": {"terminated": self.last_terminated} if self.last_terminated else {},
        }
        if self.container_id:
            found["containerID"] = self.container_id
        return found


@dataclass(slots=True)
class PodRecord:
    """What the kubelet knows of one pod, beside its object."""

    containers: list[ContainerRecord]
    init_containers: list[ContainerRecord] = field(default_factory=list)
    reason: str = ""
    message: str = ""
    start_time: str = field(default_factory=now_rfc3339)
    sandbox: bool = False
    failed: bool = False

    @property
    def uninitialized(self) -> list[str]:
        """Init containers that have not ended well."""
        return [c.name for c in self.init_containers if not c.ready]

    @property
    def frozen(self) -> bool:
        """Whether any container is reported as frozen."""
        return any(c.frozen for c in self.containers)


def phase(record: PodRecord, policy: str) -> str:
    """The pod's phase, as the kubelet's getPhase decides it; `failed` stands above all."""
    if record.failed:
        return "Failed"
    if record.uninitialized:
        broken = any(
            c.terminated is not None and c.terminated["exitCode"] != 0 for c in record.init_containers
        )
        return "Failed" if broken and policy == "Never" else "Pending"
    containers = record.containers
    if any(not c.running and c.terminated is None and c.last_terminated is None for c in containers):
        return "Pending"
    if policy == "Always" or any(c.running or c.waiting is not None for c in containers):
        return "Running"
    failures = [c for c in containers if c.terminated is not None and c.terminated["exitCode"] != 0]
    if not failures:
        return "Succeeded"
    return "Failed" if policy == "Never" else "Running"


def qos_class(pod: Obj) -> str:
    """BestEffort, Burstable or Guaranteed, by the containers' cpu and memory."""
    guaranteed, anything = True, False
    for container in spec(pod).get("containers") or []:
        resources = container.get("resources") or {}
        limits, requests = resources.get("limits") or {}, resources.get("requests") or {}
        for name in ("cpu", "memory"):
            anything = anything or name in limits or name in requests
            if name not in limits or requests.get(name, limits[name]) != limits[name]:
                guaranteed = False
    if not anything:
        return "BestEffort"
    return "Guaranteed" if guaranteed else "Burstable"


def build(pod: Obj, record: PodRecord, node_ip: str) -> Obj:
    """The whole status to report, conditions of others kept, transition times kept where nothing changed."""
    policy = str(spec(pod).get("restartPolicy") or POLICY_DEFAULT)
    now_phase = phase(record, policy)
    found = {
        "phase": now_phase,
        "conditions": _conditions(pod, record, now_phase),
        "hostIP": node_ip,
        "hostIPs": [{"ip": node_ip}],
        "podIP": node_ip,
        "podIPs": [{"ip": node_ip}],
        "startTime": status(pod).get("startTime") or record.start_time,
        "containerStatuses": [c.status() for c in record.containers],
        "qosClass": status(pod).get("qosClass") or qos_class(pod),
    }
    if record.init_containers:
        found["initContainerStatuses"] = [c.status() for c in record.init_containers]
    for name, value in (("reason", record.reason), ("message", record.message)):
        if value:
            found[name] = value
    return found


def _conditions(pod: Obj, record: PodRecord, now_phase: str) -> list[Obj]:
    ready, reason, message = _readiness(record, now_phase)
    gated = _gates(pod) if ready else ""
    sandbox = record.sandbox and now_phase not in ("Succeeded", "Failed")
    mine: dict[str, Obj] = {
        "PodReadyToStartContainers": _condition(sandbox),
        "Initialized": _initialized(record, now_phase),
        "Ready": _condition(False, text("reasons", "gates_not_ready"), gated)
        if gated
        else _condition(ready, reason, message),
        "ContainersReady": _condition(ready, reason, message),
        "PodScheduled": _condition(True),
    }
    before = {str(c.get("type")): c for c in status(pod).get("conditions") or []}
    now = now_rfc3339()
    for kind, condition in mine.items():
        old = before.pop(kind, {})
        same = old.get("status") == condition["status"]
        condition["type"] = kind
        condition["lastTransitionTime"] = (old.get("lastTransitionTime") if same else None) or now
        condition["lastProbeTime"] = None
    return [*mine.values(), *before.values()]


def _condition(state: bool, reason: str = "", message: str = "") -> dict[str, Any]:
    found: dict[str, Any] = {"status": "True" if state else "False"}
    if reason:
        found |= {"reason": reason}
    if message:
        found |= {"message": message}
    return found


def gates_of(pod: Obj) -> list[str]:
    """The conditions that the pod's spec asks for beside those of its containers."""
    return [str(gate.get("conditionType", "")) for gate in spec(pod).get("readinessGates") or []]


def _gates(pod: Obj) -> str:
    """What keeps the pod's readiness gates from being passed, "" when nothing does."""
    found = {str(c.get("type")): str(c.get("status")) for c in status(pod).get("conditions") or []}
    faults = []
    for gate in gates_of(pod):
        if gate not in found:
            faults.append(text("statuses", "gate_missing", gate=gate))
        elif found[gate] != "True":
            faults.append(text("statuses", "gate_false", gate=gate, status=found[gate]))
    return ", ".join(faults)


def _initialized(record: PodRecord, now_phase: str) -> dict[str, Any]:
    missing = record.uninitialized
    if now_phase == "Succeeded":
        return _condition(True, text("reasons", "pod_completed"))
    if not missing:
        return _condition(True)
    message = text("statuses", "not_initialized", containers=" ".join(missing))
    return _condition(False, text("reasons", "not_initialized"), message)


def _readiness(record: PodRecord, now_phase: str) -> tuple[bool, str, str]:
    if now_phase == "Succeeded":
        return False, text("reasons", "pod_completed"), ""
    if now_phase == "Failed":
        return False, text("reasons", "pod_failed"), ""
    unready = [c.name for c in record.containers if not c.ready]
    if unready:
        message = text("statuses", "containers_not_ready", containers=" ".join(unready))
        return False, text("reasons", "containers_not_ready"), message
    if record.frozen:
        return False, text("reasons", "frozen"), text("statuses", "frozen")
    return True, "", ""
