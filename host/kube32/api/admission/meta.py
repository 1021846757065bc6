"""Validation of metadata: names, labels, annotations, finalizers, owner references."""

from typing import Any

from kube32.api.admission import names
from kube32.api.admission.problems import Problems
from kube32.contract import LIMITS, Resource, text
from kube32.contract.rbac import GROUP as RBAC

_STANDARD_FINALIZERS = ("foregroundDeletion", "kubernetes", "orphan")
# Names that are used as labels of DNS.
_NAMED = {"Namespace": names.label, "Service": names.service}


def check_metadata(resource: Resource, obj: dict[str, Any], problems: Problems) -> None:
    """All of an object's metadata."""
    meta: dict[str, Any] = obj.get("metadata") or {}
    _check_name(resource, meta.get("name", ""), problems)
    check_labels(meta.get("labels") or {}, "metadata.labels", problems)
    check_annotation_keys(meta.get("annotations") or {}, "metadata.annotations", problems)
    _check_owners(meta.get("ownerReferences") or [], problems)
    for index, finalizer in enumerate(meta.get("finalizers") or ()):
        path = f"metadata.finalizers[{index}]"
        broken = names.qualified_name(finalizer)
        if not broken and "/" not in finalizer and finalizer not in _STANDARD_FINALIZERS:
            broken = [text("validation", "finalizer")]
        problems.invalids(path, finalizer, broken)


def _check_owners(references: list[dict[str, Any]], problems: Problems) -> None:
    """One controller at most, and Events own nothing: garbage collection has no answer to either."""
    path = "metadata.ownerReferences"
    controllers = [str(r.get("name", "")) for r in references if r.get("controller")]
    if len(controllers) > 1:
        why = text("validation", "owner_controllers", first=controllers[0], second=controllers[1])
        problems.invalids(path, references, [why])
    for index, reference in enumerate(references):
        if (reference.get("apiVersion"), reference.get("kind")) == ("v1", "Event"):
            problems.invalids(f"{path}[{index}]", "/v1, Kind=Event", [text("validation", "owner_banned")])


def _check_name(resource: Resource, name: str, problems: Problems) -> None:
    if not name:
        problems.required("metadata.name", text("validation", "name_required"))
        return
    if resource.group == RBAC:
        problems.invalids("metadata.name", name, names.path_segment(name))
        return
    problems.invalids("metadata.name", name, _NAMED.get(resource.builtin, names.subdomain)(name))


def check_labels(labels: dict[str, str], path: str, problems: Problems) -> None:
    """Keys and values of labels, or of a selector by equality."""
    for key, value in labels.items():
        problems.invalids(path, key, names.qualified_name(key))
        problems.invalids(path, value, names.label_value(value))


def check_annotation_keys(annotations: dict[str, str], path: str, problems: Problems) -> None:
    """Keys of annotations, and the size of all together."""
    size = 0
    for key, value in annotations.items():
        size += len(key) + len(value)
        problems.invalids(path, key, names.qualified_name(key.lower()))
    if size > LIMITS.annotations_bytes:
        problems.too_long(path, LIMITS.annotations_bytes)
