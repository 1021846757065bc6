"""Annotations that pin a pod's containers to modules by their digest (decisions, "Modules").

kube32.io/wasm-sha256 is the first container's, and that of every other with the same image;
sha256.kube32.io/<container> is that of a container with another image.
"""

from collections.abc import Mapping
from typing import Any

from kube32.contract import NAMES

_FIRST: str = NAMES.ann_wasm_sha256
_OTHER: str = NAMES.container_sha256_prefix


def is_pin(annotation: str) -> bool:
    """Whether an annotation pins a module."""
    return annotation == _FIRST or annotation.startswith(_OTHER)


def pins(annotations: Mapping[str, Any]) -> dict[str, Any]:
    """The annotations that pin modules."""
    return {name: value for name, value in annotations.items() if is_pin(name)}


def pin_of(pod: Mapping[str, Any], container: Mapping[str, Any]) -> str:
    """The name of the annotation that pins a container's module."""
    containers = (pod.get("spec") or {}).get("containers") or [{}]
    same = container.get("image") == containers[0].get("image")
    return _FIRST if same else f"{_OTHER}{container.get('name', '')}"
