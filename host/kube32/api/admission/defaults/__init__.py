"""What clients may leave out: the defaults of kube-apiserver, where Kube32 has the field, and Kube32's own."""

from collections.abc import Callable
from typing import Any

from kube32.api.admission.defaults import network, objects, pods, workloads
from kube32.api.admission.defaults.pods import qos_class
from kube32.contract import Resource

__all__ = ["default", "qos_class"]

Object = dict[str, Any]
_FILLERS: dict[str, Callable[[Object], None]] = {
    "Pod": pods.pod,
    "Deployment": workloads.deployment,
    "DaemonSet": workloads.daemon_set,
    "Job": workloads.job,
    "Service": network.service,
    "Ingress": network.ingress,
    "Secret": objects.secret,
    "Namespace": objects.namespace,
    "PersistentVolumeClaim": objects.claim,
    "RoleBinding": objects.binding,
    "ClusterRoleBinding": objects.binding,
    "Checkpoint": objects.checkpoint,
    "Module": objects.module,
    "Event": objects.event,
}


def default(resource: Resource, obj: Object) -> None:
    """Fills in an object, in place, that check_fields has decoded. Doing it again changes nothing."""
    filler = _FILLERS.get(resource.kind)
    if filler is not None:
        filler(obj)
