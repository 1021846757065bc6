"""Validation of whole objects, one entry for creates and one for updates; ApiFailure 422 names every
fault.
"""

from collections.abc import Callable
from typing import Any

from kube32.api.admission.kinds import access, claims, network, objects, workloads
from kube32.api.admission.meta import check_metadata
from kube32.api.admission.modules import check_modules, check_template_modules
from kube32.api.admission.pod import check_pod, check_pod_update
from kube32.api.admission.problems import Problems, check_schema
from kube32.contract import Resource

Object = dict[str, Any]
Check = Callable[[Object, Problems], None]


def _check_new_owner(obj: Object, problems: Problems) -> None:
    check_template_modules(None, obj, problems)


_CHECKS: dict[str, Check] = {
    "Pod": check_pod,
    "Node": objects.check_node,
    "Event": objects.check_event,
    "ConfigMap": objects.check_configmap,
    "Secret": objects.check_secret,
    "Lease": objects.check_lease,
    "Module": objects.check_module,
    "Checkpoint": objects.check_checkpoint,
    "Deployment": workloads.check_deployment,
    "DaemonSet": workloads.check_daemon_set,
    "Job": workloads.check_job,
    "Service": network.check_service,
    "Ingress": network.check_ingress,
    "IngressClass": network.check_ingress_class,
    "PersistentVolumeClaim": claims.check_claim,
    "Role": access.check_role,
    "ClusterRole": access.check_cluster_role,
    "RoleBinding": access.check_role_binding,
    "ClusterRoleBinding": access.check_cluster_role_binding,
}
# What only a new object needs: it costs time or cannot change afterwards.
_CREATE_CHECKS: dict[str, Check] = {
    "Pod": check_modules,
    "Deployment": _check_new_owner,
    "DaemonSet": _check_new_owner,
    "Job": _check_new_owner,
    "Ingress": network.check_new_ingress,
}
_UPDATE_CHECKS: dict[str, Callable[[Object, Object, Problems], None]] = {
    "Pod": check_pod_update,
    "ConfigMap": objects.check_configmap_update,
    "Secret": objects.check_secret_update,
    "Checkpoint": objects.check_checkpoint_update,
    "Deployment": workloads.check_deployment_update,
    "DaemonSet": workloads.check_deployment_update,
    "Job": workloads.check_job_update,
    "Service": network.check_service_update,
    "IngressClass": network.check_ingress_class_update,
    "PersistentVolumeClaim": claims.check_claim_update,
    "RoleBinding": access.check_binding_update,
    "ClusterRoleBinding": access.check_binding_update,
}


def validate_create(resource: Resource, obj: Object) -> None:
    """Refuses a new object that cannot be; the object has been decoded and defaulted."""
    problems = Problems()
    _check(resource, obj, problems)
    created = _CREATE_CHECKS.get(resource.kind)
    if created is not None:
        created(obj, problems)
    _raise(resource, obj, problems)


def validate_update(resource: Resource, old: Object, new: Object) -> None:
    """Refuses a changed object that cannot be, or a change that is not allowed."""
    problems = Problems()
    _check(resource, new, problems)
    changed = _UPDATE_CHECKS.get(resource.kind)
    if changed is not None:
        changed(old, new, problems)
    _raise(resource, new, problems)


def _check(resource: Resource, obj: Object, problems: Problems) -> None:
    check_metadata(resource, obj, problems)
    check_schema(resource, obj, problems)
    check = _CHECKS.get(resource.kind)
    if check is not None:
        check(obj, problems)


def _raise(resource: Resource, obj: Object, problems: Problems) -> None:
    failure = problems.failure(resource, (obj.get("metadata") or {}).get("name", ""))
    if failure is not None:
        raise failure
