"""What pods and pod templates may leave out."""

from typing import Any

from kube32.api.admission.defaults.values import fill
from kube32.contract import LIMITS, NAMES

Object = dict[str, Any]
_EVICTING_TAINTS = (NAMES.taint_not_ready, NAMES.taint_unreachable)
_FILE_MODE = 0o644
_FILE_VOLUMES = ("configMap", "secret", "downwardAPI", "projected")
_QOS_RESOURCES = ("cpu", "memory")


def pod(obj: Object) -> None:
    """A Pod."""
    spec: Object = obj.setdefault("spec", {})
    pod_spec(spec)
    admitted(spec)
    for container in containers_of(spec):
        _requests(container)
    _tolerations(spec)
    status = obj.setdefault("status", {})
    status.setdefault("phase", "Pending")
    status["qosClass"] = qos_class(obj)


def admitted(spec: Object) -> None:
    """What Kubernetes' admission gives a new pod, and what its spec may not be changed in afterwards."""
    fill(
        spec,
        enableServiceLinks=True,
        serviceAccountName=spec.get("serviceAccount") or NAMES.service_account,
        priority=0,
        preemptionPolicy="PreemptLowerPriority",
    )
    spec["serviceAccount"] = spec["serviceAccountName"]


def template(obj: Object) -> None:
    """A pod template: what a pod gets only when it is created is left out, as in Kubernetes."""
    spec: Object = obj.setdefault("spec", {})
    pod_spec(spec)
    account = spec.get("serviceAccountName") or spec.get("serviceAccount")
    if account:
        spec["serviceAccountName"] = spec["serviceAccount"] = account


def containers_of(spec: Object) -> list[Object]:
    """The init containers and the containers."""
    return [*(spec.get("initContainers") or ()), *(spec.get("containers") or ())]


def pod_spec(spec: Object) -> None:
    """What a pod and a template have in common."""
    fill(
        spec,
        restartPolicy="Always",
        terminationGracePeriodSeconds=LIMITS.pod_termination_grace_s,
        dnsPolicy="ClusterFirst",
        schedulerName=NAMES.scheduler_name,
    )
    spec.setdefault("securityContext", {})
    for container in containers_of(spec):
        _container(container)
    for volume in spec.get("volumes", ()):
        _volume(volume)


def _container(container: Object) -> None:
    fill(
        container,
        imagePullPolicy="IfNotPresent",
        terminationMessagePath="/dev/termination-log",
        terminationMessagePolicy="File",
    )
    container.setdefault("resources", {})
    for port in container.get("ports", ()):
        fill(port, protocol="TCP")
    for env in container.get("env", ()):
        reference = (env.get("valueFrom") or {}).get("fieldRef")
        if reference is not None:
            fill(reference, apiVersion="v1")
    for probe in ("livenessProbe", "readinessProbe", "startupProbe"):
        if probe in container:
            _probe(container[probe])


def _requests(container: Object) -> None:
    """What limits name and requests do not is requested."""
    resources: Object = container["resources"]
    if resources.get("limits"):
        requests = resources.setdefault("requests", {})
        for name, value in resources["limits"].items():
            requests.setdefault(name, value)


def _probe(probe: Object) -> None:
    for key, value in (
        ("timeoutSeconds", 1),
        ("periodSeconds", 10),
        ("successThreshold", 1),
        ("failureThreshold", 3),
    ):
        probe[key] = probe.get(key) or value
    if "httpGet" in probe:
        fill(probe["httpGet"], path="/", scheme="HTTP")
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
    _field_items(volume.get("downwardAPI"))
    for source in (volume.get("projected") or {}).get("sources") or ():
        _field_items(source.get("downwardAPI"))
        if "serviceAccountToken" in source:
            source["serviceAccountToken"].setdefault("expirationSeconds", LIMITS.token_seconds)
    claim = (volume.get("ephemeral") or {}).get("volumeClaimTemplate")
    if claim is not None:
        fill(claim.setdefault("spec", {}), volumeMode="Filesystem")


def _field_items(source: Object | None) -> None:
    for item in (source or {}).get("items") or ():
        if "fieldRef" in item:
            fill(item["fieldRef"], apiVersion="v1")


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
    resources = [c.get("resources") or {} for c in containers_of(pod.get("spec") or {})]
    requests, limits = ([_of_qos(r, part) for r in resources] for part in ("requests", "limits"))
    if not any(requests) and not any(limits):
        return "BestEffort"
    guaranteed = all(len(cap) == len(_QOS_RESOURCES) for cap in limits) and requests == limits
    return "Guaranteed" if guaranteed else "Burstable"


def _of_qos(resources: Object, part: str) -> Object:
    return {k: v for k, v in (resources.get(part) or {}).items() if k in _QOS_RESOURCES}
