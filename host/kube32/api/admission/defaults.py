"""What clients may leave out: the defaults of kube-apiserver, where Kube32 has the field, and Checkpoint's
own.
"""

import base64
from typing import Any

from kube32.contract import LIMITS, NAMES, Resource

Object = dict[str, Any]
_EVICTING_TAINTS = (NAMES.taint_not_ready, NAMES.taint_unreachable)
_NAME_LABEL = "kubernetes.io/metadata.name"
_FILE_MODE = 0o644
_FILE_VOLUMES = ("configMap", "secret", "downwardAPI", "projected")
_QOS_RESOURCES = ("cpu", "memory")


def default(resource: Resource, obj: Object) -> None:
    """Fills in an object, in place, that check_fields has decoded. Doing it again changes nothing."""
    filler = _FILLERS.get(resource.kind)
    if filler is not None:
        filler(obj)


def _pod(obj: Object) -> None:
    spec: Object = obj.setdefault("spec", {})
    _set(
        spec,
        restartPolicy="Always",
        terminationGracePeriodSeconds=LIMITS.pod_termination_grace_s,
        dnsPolicy="ClusterFirst",
        schedulerName=NAMES.scheduler_name,
        enableServiceLinks=True,
    )
    spec.setdefault("securityContext", {})
    for container in spec.get("containers", ()):
        _container(container)
    for volume in spec.get("volumes", ()):
        _volume(volume)
    _tolerations(spec)
    status = obj.setdefault("status", {})
    status.setdefault("phase", "Pending")
    status["qosClass"] = qos_class(obj)


def _set(target: Object, **values: Any) -> None:
    """Sets what is not there; an empty text counts as not there."""
    for key, value in values.items():
        if target.get(key) in (None, ""):
            target[key] = value


def _container(container: Object) -> None:
    _set(
        container,
        imagePullPolicy="IfNotPresent",
        terminationMessagePath="/dev/termination-log",
        terminationMessagePolicy="File",
    )
    resources: Object = container.setdefault("resources", {})
    if resources.get("limits"):
        requests = resources.setdefault("requests", {})
        for name, value in resources["limits"].items():
            requests.setdefault(name, value)
    for port in container.get("ports", ()):
        _set(port, protocol="TCP")
    for env in container.get("env", ()):
        reference = (env.get("valueFrom") or {}).get("fieldRef")
        if reference is not None:
            _set(reference, apiVersion="v1")
    for probe in ("livenessProbe", "readinessProbe", "startupProbe"):
        if probe in container:
            _probe(container[probe])


def _probe(probe: Object) -> None:
    for key, value in (
        ("timeoutSeconds", 1),
        ("periodSeconds", 10),
        ("successThreshold", 1),
        ("failureThreshold", 3),
    ):
        probe[key] = probe.get(key) or value
    if "httpGet" in probe:
        _set(probe["httpGet"], path="/", scheme="HTTP")
    if "grpc" in probe:
        probe["grpc"].setdefault("service", "")


def _volume(volume: Object) -> None:
    if set(volume) <= {"name"}:
        volume["emptyDir"] = {}
    for kind in _FILE_VOLUMES:
        if kind in volume:
            volume[kind].setdefault("defaultMode", _FILE_MODE)
    if "hostPath" in volume:
        volume["hostPath"].setdefault("type", "")


def _tolerations(spec: Object) -> None:
    """A pod stays for a while on a node that is not ready or not reachable, as DefaultTolerationSeconds has
    it.
    """
    tolerations: list[Object] = spec.get("tolerations", [])
    missing = [key for key in _EVICTING_TAINTS if not any(_tolerates(t, key) for t in tolerations)]
    if missing:
        spec["tolerations"] = tolerations + [
            {
                "key": key,
                "operator": "Exists",
                "effect": "NoExecute",
                "tolerationSeconds": LIMITS.pod_not_ready_toleration_s,
            }
            for key in missing
        ]


def _tolerates(toleration: Object, key: str) -> bool:
    named = toleration.get("key") in (key, None, "")
    return named and toleration.get("effect") in ("NoExecute", None, "")


def qos_class(pod: Object) -> str:
    """Guaranteed, Burstable or BestEffort, from the containers' cpu and memory."""
    containers: list[Object] = pod.get("spec", {}).get("containers", [])
    resources = [c.get("resources") or {} for c in containers]
    requests = [
        {k: v for k, v in (r.get("requests") or {}).items() if k in _QOS_RESOURCES} for r in resources
    ]
    limits = [{k: v for k, v in (r.get("limits") or {}).items() if k in _QOS_RESOURCES} for r in resources]
    if not any(requests) and not any(limits):
        return "BestEffort"
    guaranteed = all(len(cap) == len(_QOS_RESOURCES) for cap in limits) and requests == limits
    return "Guaranteed" if guaranteed else "Burstable"


def _of_qos(resources: Object, part: str) -> Object:
    return {k: v for k, v in (resources.get(part) or {}).items() if k in _QOS_RESOURCES}


def _secret(obj: Object) -> None:
    _set(obj, type="Opaque")
    written = obj.pop("stringData", None)
    if written:
        data = obj.setdefault("data", {})
        for key, value in written.items():
            data[key] = base64.b64encode(value.encode("utf-8", "surrogatepass")).decode("ascii")


def _namespace(obj: Object) -> None:
    meta: Object = obj.setdefault("metadata", {})
    if meta.get("name"):
        meta.setdefault("labels", {})[_NAME_LABEL] = meta["name"]
    spec: Object = obj.setdefault("spec", {})
    status: Object = obj.setdefault("status", {})
    if not meta.get("deletionTimestamp"):
        spec.setdefault("finalizers", [NAMES.finalizer_namespace])
    status.setdefault("phase", "Active")


def _checkpoint(obj: Object) -> None:
    _set(obj.setdefault("spec", {}), action="Save")
    obj.setdefault("status", {}).setdefault("phase", "Pending")


def _module(obj: Object) -> None:
    obj.setdefault("spec", {})


def _event(obj: Object) -> None:
    obj.setdefault("source", {})


_FILLERS = {
    "Pod": _pod,
    "Secret": _secret,
    "Namespace": _namespace,
    "Checkpoint": _checkpoint,
    "Module": _module,
    "Event": _event,
}
