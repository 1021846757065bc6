"""Validation of whole objects, one entry for creates and one for updates; ApiFailure 422 names every
fault.
"""

from collections.abc import Callable
from typing import Any

from kube32.api.admission import kinds
from kube32.api.admission.meta import check_metadata
from kube32.api.admission.modules import check_modules
from kube32.api.admission.pod import check_pod, check_pod_update
from kube32.api.admission.problems import Problems, check_schema
from kube32.contract import Resource

Object = dict[str, Any]
_CHECKS: dict[str, Callable[[Object, Problems], None]] = {
    "Pod": check_pod,
    "Node": kinds.check_node,
    "Event": kinds.check_event,
    "ConfigMap": kinds.check_configmap,
    "Secret": kinds.check_secret,
    "Lease": kinds.check_lease,
    "Module": kinds.check_module,
    "Checkpoint": kinds.check_checkpoint,
}
# What only a new object needs: it costs time and cannot change afterwards.
_CREATE_CHECKS: dict[str, Callable[[Object, Problems], None]] = {"Pod": check_modules}
_UPDATE_CHECKS: dict[str, Callable[[Object, Object, Problems], None]] = {
    "Pod": check_pod_update,
    "ConfigMap": kinds.check_configmap_update,
    "Secret": kinds.check_secret_update,
    "Checkpoint": kinds.check_checkpoint_update,
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
