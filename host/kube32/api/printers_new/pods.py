# --- Pod ---


def pod_ready(obj: dict[str, Any], _now: float) -> str:
    """READY: containers that are ready and run, of all."""
    total = len(maps(mapping(obj, "spec"), "containers"))
    return f"{sum(_runs(c) for c in _counted(obj))}/{total}"


def _runs(container: dict[str, Any]) -> bool:
    state = mapping(container, "state")
    return (
        not (_waiting(state) or "terminated" in state) and bool(container.get("ready")) and "running" in state
    )


def _waiting(state: dict[str, Any]) -> str:
    return string(mapping(state, "waiting").get("reason"))


def _counted(obj: dict[str, Any]) -> list[dict[str, Any]]:
    """The statuses that count: none while init containers still run."""
    status = mapping(obj, "status")
    initializing = _init_reason(obj) is not None and not has_condition(status, "Initialized")
    return [] if initializing else maps(status, "containerStatuses")


def has_condition(status: dict[str, Any], kind: str) -> bool:
    return any(c.get("type") == kind and c.get("status") == "True" for c in maps(status, "conditions"))


def pod_status(obj: dict[str, Any], _now: float) -> str:
    """STATUS: the phase, or what says more: the reason of a container, Init:..., Terminating, Unknown."""
    status = mapping(obj, "status")
    reason = string(status.get("reason"), string(status.get("phase")))
    if any(
        c.get("reason") == "SchedulingGated"
        for c in maps(status, "conditions")
        if c.get("type") == "PodScheduled"
    ):
        reason = "SchedulingGated"
    reason = _init_reason(obj) or reason
    counted = _counted(obj)
    for container in reversed(counted):
        reason = _container_reason(container) or reason
    if reason == "Completed" and any(_runs(c) for c in counted):
        reason = "Running" if has_condition(status, "Ready") else "NotReady"
    if mapping(obj, "metadata").get("deletionTimestamp") is not None:
        if status.get("reason") == "NodeLost":
            return "Unknown"
        if status.get("phase") not in ("Succeeded", "Failed"):
            return "Terminating"
    return reason


def _container_reason(container: dict[str, Any]) -> str:
    state = mapping(container, "state")
    if _waiting(state):
        return _waiting(state)
    return _ended(mapping(state, "terminated")) if "terminated" in state else ""


def _ended(terminated: dict[str, Any]) -> str:
    if string(terminated.get("reason")):
        return string(terminated.get("reason"))
    if number(terminated.get("signal")):
        return f"Signal:{terminated['signal']}"
    return f"ExitCode:{number(terminated.get('exitCode'))}"


def _init_reason(obj: dict[str, Any]) -> str | None:
    """The reason of the first init container that is not done; None when all are."""
    total = len(maps(mapping(obj, "spec"), "initContainers"))
    for index, container in enumerate(maps(mapping(obj, "status"), "initContainerStatuses")):
        state = mapping(container, "state")
        terminated = state.get("terminated")
        if isinstance(terminated, dict):
            if number(terminated.get("exitCode")) == 0:
                continue
            return f"Init:{_ended(terminated)}"
        if _waiting(state) not in ("", "PodInitializing"):
            return f"Init:{_waiting(state)}"
        return f"Init:{index}/{total}"
    return None


def pod_restarts(obj: dict[str, Any], now: float) -> str:
    """RESTARTS: "2 (5m ago)". The column's type is integer, the cell a string, as a kube-apiserver has it."""
    status = mapping(obj, "status")
    statuses = _counted(obj) or maps(status, "initContainerStatuses")
    restarts = sum(number(c.get("restartCount")) for c in statuses)
    ended = [mapping(c, "lastState", "terminated").get("finishedAt") for c in statuses]
    last = max((s for s in map(seconds, ended) if s is not None), default=None)
    if not restarts or last is None or now < LIMITS.wall_clock_min_s:
        return str(restarts)
    return f"{restarts} ({duration.human(now - last)} ago)"


def pod_ip(obj: dict[str, Any], _now: float) -> str:
    """IP of the pod, the first of podIPs as in Kubernetes."""
    status = mapping(obj, "status")
    ips = maps(status, "podIPs")
    return string(ips[0].get("ip") if ips else status.get("podIP"), NONE)


def pod_node(obj: dict[str, Any], _now: float) -> str:
    """NODE that the pod is bound to."""
    return string(mapping(obj, "spec").get("nodeName"), NONE)


def pod_nominated_node(obj: dict[str, Any], _now: float) -> str:
    """NOMINATED NODE."""
    return string(mapping(obj, "status").get("nominatedNodeName"), NONE)


def pod_readiness_gates(obj: dict[str, Any], _now: float) -> str:
    """READINESS GATES: those that are True, of all."""
    gates = maps(mapping(obj, "spec"), "readinessGates")
    if not gates:
        return NONE
    status = mapping(obj, "status")
    return f"{sum(has_condition(status, str(g.get('conditionType'))) for g in gates)}/{len(gates)}"
