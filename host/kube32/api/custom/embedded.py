"""What an object inside an object must have (x-kubernetes-embedded-resource)."""

from collections.abc import Iterator
from typing import Any

from kube32.api.admission import names
from kube32.api.admission.problems import shown

_MIXED = "may have mixed case, but should otherwise match: "


def check_embedded(value: dict[str, Any]) -> Iterator[tuple[str, str, str]]:
    """Field, cause and message of each fault of an embedded object's apiVersion, kind and metadata."""
    for name in ("apiVersion", "kind"):
        found = value.get(name)
        if name not in value:
            yield name, "FieldValueRequired", "Required value: must not be empty"
        elif not isinstance(found, str):
            yield name, "FieldValueInvalid", f"Invalid value: {shown(found)}: must be a string"
        elif not found:
            yield name, "FieldValueInvalid", 'Invalid value: "": must not be empty'
    kind = value.get("kind")
    if isinstance(kind, str) and kind:
        for broken in names.label(kind.lower()):
            yield "kind", "FieldValueInvalid", f"Invalid value: {shown(kind)}: {_MIXED}{broken}"
    api_version = value.get("apiVersion")
    if isinstance(api_version, str) and api_version.count("/") > 1:
        said = f"unexpected GroupVersion string: {api_version}"
        yield "apiVersion", "FieldValueInvalid", f"Invalid value: {shown(api_version)}: {said}"
    metadata = value.get("metadata")
    if metadata is not None and not isinstance(metadata, dict):
        yield "metadata", "FieldValueInvalid", f"Invalid value: {shown(metadata)}: must be an object"
