"""Validation of a pod's volumes: one source each, and paths that stay inside."""

from typing import Any

from kube32.api.admission import names
from kube32.api.admission.problems import Problems
from kube32.contract import text

Object = dict[str, Any]
# What a volume needs beyond its schema; a key that is missing here needs nothing.
_NAMED_BY = {"configMap": "name", "secret": "secretName"}


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
    for index, item in enumerate(source.get("items") or ()):
        if item.get("path"):
            check_inner_path(item["path"], f"{path}.{kind}.items[{index}].path", problems)


def check_inner_path(value: str, path: str, problems: Problems) -> None:
    """A path inside a volume: relative, without "..", so that it never leaves the volume."""
    if value.startswith("/"):
        problems.invalid(path, value, text("validation", "relative_path"))
    if ".." in value.split("/"):
        problems.invalid(path, value, text("validation", "path_climbs"))
