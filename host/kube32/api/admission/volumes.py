"""Validation of a pod's volumes: one source each, and paths that stay inside."""

from collections.abc import Iterable
from typing import Any

from kube32.api.admission import names
from kube32.api.admission.problems import Problems
from kube32.contract import LIMITS, text
from kube32.formats import quantity

Object = dict[str, Any]
# What a volume needs beyond its schema; a key that is missing here needs nothing.
_NAMED_BY = {"configMap": "name", "secret": "secretName"}
_PROJECTED = ("secret", "configMap", "downwardAPI", "serviceAccountToken")
_HIGHEST_MODE = 0o777
_FILE_FIELDS = (
    "metadata.name",
    "metadata.namespace",
    "metadata.uid",
    "metadata.labels",
    "metadata.annotations",
)


def check_volumes(volumes: list[Object], problems: Problems) -> list[str]:
    """The volumes of a pod; gives their names."""
    seen: list[str] = []
    for index, volume in enumerate(volumes):
        path = f"spec.volumes[{index}]"
        name = volume.get("name", "")
        if name:
            problems.invalids(f"{path}.name", name, names.label(name))
        if name in seen:
            problems.duplicate(f"{path}.name", name)
        seen.append(name)
        _check_source(volume, path, problems)
    return seen


def _check_source(volume: Object, path: str, problems: Problems) -> None:
    sources = [key for key in volume if key != "name"]
    if not sources:
        problems.required(path, text("validation", "volume_type_none"))
        return
    for extra in sources[1:]:
        problems.forbidden(f"{path}.{extra}", text("validation", "volume_type_many"))
    kind = sources[0]
    source: Object = volume[kind]
    needed = _NAMED_BY.get(kind)
    if needed and not source.get(needed):
        problems.required(f"{path}.{kind}.{needed}")
    _check_mode(source.get("defaultMode"), f"{path}.{kind}.defaultMode", problems)
    _check_items(source, kind, f"{path}.{kind}", problems)
    if kind == "emptyDir" and source.get("sizeLimit") and quantity.parse(source["sizeLimit"]) < 0:
        problems.invalid(
            f"{path}.emptyDir.sizeLimit", source["sizeLimit"], text("validation", "not_negative")
        )
    if kind == "persistentVolumeClaim" and source.get("claimName"):
        problems.invalids(
            f"{path}.{kind}.claimName", source["claimName"], names.subdomain(source["claimName"])
        )
    if kind == "projected":
        _check_projected(source, f"{path}.projected", problems)


def _check_mode(mode: int | None, path: str, problems: Problems) -> None:
    if mode is not None and not 0 <= mode <= _HIGHEST_MODE:
        problems.invalid(path, mode, text("validation", "file_mode"))


def _check_items(source: Object, kind: str, path: str, problems: Problems) -> None:
    for index, item in enumerate(source.get("items") or ()):
        at = f"{path}.items[{index}]"
        if item.get("path"):
            check_inner_path(item["path"], f"{at}.path", problems)
        _check_mode(item.get("mode"), f"{at}.mode", problems)
        if kind == "downwardAPI":
            _check_field(item, at, problems)


def _check_field(item: Object, path: str, problems: Problems) -> None:
    """A file with a field of the pod."""
    field, resource = item.get("fieldRef"), item.get("resourceFieldRef")
    if field is not None and resource is not None:
        problems.invalid(path, "resource", text("validation", "item_field_both"))
    elif field is None and resource is None:
        problems.required(path, text("validation", "item_field_none"))
    elif field is not None:
        name = field.get("fieldPath", "")
        known = name in _FILE_FIELDS or names.is_subscript(name)
        if name and not known:
            problems.unsupported(f"{path}.fieldRef.fieldPath", name, _FILE_FIELDS)
    elif resource is not None:
        if not resource.get("containerName"):
            problems.required(f"{path}.resourceFieldRef.containerName")
        check_resource_field(resource, f"{path}.resourceFieldRef", problems)


def check_resource_field(reference: Object, path: str, problems: Problems) -> None:
    """A container's request or limit."""
    name = reference.get("resource", "")
    if name and name not in RESOURCE_FIELDS:
        problems.unsupported(f"{path}.resource", name, RESOURCE_FIELDS)


RESOURCE_FIELDS = tuple(
    f"{part}.{name}" for part in ("limits", "requests") for name in ("cpu", "ephemeral-storage", "memory")
)


def _check_projected(projected: Object, path: str, problems: Problems) -> None:
    """Each source is one thing, and no two write the same file."""
    files: list[str] = []
    for index, source in enumerate(projected.get("sources") or ()):
        at = f"{path}.sources[{index}]"
        kinds = [kind for kind in source if source[kind] is not None]
        if not kinds:
            problems.required(at, text("validation", "projection_none"))
            continue
        for extra in kinds[1:]:
            problems.forbidden(f"{at}.{extra}", text("validation", "volume_type_many"))
        kind = kinds[0]
        if kind not in _PROJECTED:
            problems.forbidden(f"{at}.{kind}", text("validation", "projection_none"))
            continue
        _check_projection(source[kind], kind, f"{at}.{kind}", problems)
        files += _check_files(source[kind], kind, f"{at}.{kind}", files, problems)


def _check_projection(source: Object, kind: str, path: str, problems: Problems) -> None:
    if kind in ("secret", "configMap") and not source.get("name"):
        problems.required(f"{path}.name")
    _check_items(source, kind, path, problems)
    if kind != "serviceAccountToken":
        return
    if source.get("path"):
        check_inner_path(source["path"], f"{path}.path", problems)
    if source.get("expirationSeconds", LIMITS.token_min_seconds) < LIMITS.token_min_seconds:
        message = text("validation", "token_seconds")
        problems.invalid(f"{path}.expirationSeconds", source["expirationSeconds"], message)


def _check_files(source: Object, kind: str, path: str, known: Iterable[str], problems: Problems) -> list[str]:
    """The paths that a source names, those that other sources name are faults."""
    if kind == "serviceAccountToken":
        named = {f"{path}.path": source.get("path", "")}
    else:
        named = {
            f"{path}.items[{i}].path": item.get("path", "")
            for i, item in enumerate(source.get("items") or ())
        }
    found: list[str] = []
    for at, value in named.items():
        if value and (value in known or value in found):
            problems.invalid(at, value, text("validation", "path_conflict"))
        found.append(value)
    return found


def check_inner_path(value: str, path: str, problems: Problems) -> None:
    """A path inside a volume: relative, without "..", so that it never leaves the volume."""
    if value.startswith("/"):
        problems.invalid(path, value, text("validation", "relative_path"))
    if ".." in value.split("/"):
        problems.invalid(path, value, text("validation", "path_climbs"))
