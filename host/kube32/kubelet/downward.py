"""The downward API: what fieldRef and resourceFieldRef name, of a pod and of its node."""

import json
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from kube32.contract import text
from kube32.formats.quantity import parse as parse_quantity
from kube32.kubelet.values import Obj, key_of, metadata, spec, uid_of

_SUBSCRIPT = re.compile(r"metadata\.(labels|annotations)\['([^']+)'\]")


class ConfigError(Exception):
    """Something that the container's spec names is not there; the message is the waiting message."""


@dataclass(frozen=True, slots=True)
class NodeFacts:
    """What a pod is told of its node: the address, and the resources that pods without limits share."""

    ip: str
    allocatable: Mapping[str, str] = field(default_factory=dict)


def field_value(pod: Obj, path: str, node: NodeFacts) -> str:
    """What a fieldRef names, ConfigError for a path that the kubelet does not know."""
    meta = metadata(pod)
    namespace, name = key_of(pod)
    simple = {
        "metadata.name": name,
        "metadata.namespace": namespace,
        "metadata.uid": uid_of(pod),
        "spec.nodeName": str(spec(pod).get("nodeName", "")),
        "spec.serviceAccountName": str(spec(pod).get("serviceAccountName", "")),
        "status.hostIP": node.ip,
        "status.hostIPs": node.ip,
        "status.podIP": node.ip,
        "status.podIPs": node.ip,
    }
    if path in simple:
        return simple[path]
    if match := _SUBSCRIPT.fullmatch(path):
        return str((meta.get(match.group(1)) or {}).get(match.group(2), ""))
    if path in ("metadata.labels", "metadata.annotations"):
        entries = meta.get(path.removeprefix("metadata.")) or {}
        return "\n".join(f"{k}={json.dumps(str(v), ensure_ascii=False)}" for k, v in sorted(entries.items()))
    raise ConfigError(text("statuses", "field_unknown", path=path))


def resource_value(pod: Obj, reference: Obj, container: Obj | None, node: NodeFacts) -> str:
    """What a resourceFieldRef names: a container's limit or request divided by the divisor, rounded up.

    A limit that is not set is what the node has for pods. ConfigError for what is no such thing.
    """
    name = reference.get("containerName")
    if name or container is None:
        everything = [*(spec(pod).get("containers") or []), *(spec(pod).get("initContainers") or [])]
        container = next((c for c in everything if c.get("name") == name), None)
    part, _, resource = str(reference.get("resource", "")).partition(".")
    if container is None or part not in ("limits", "requests") or not resource:
        raise ConfigError(text("statuses", "field_unknown", path=reference.get("resource", "")))
    resources = container.get("resources") or {}
    otherwise = node.allocatable.get(resource, "0") if part == "limits" else "0"
    amount = (resources.get(part) or {}).get(resource, otherwise)
    divisor = str(reference.get("divisor") or "1")
    try:
        value, by = parse_quantity(str(amount)), parse_quantity("1" if divisor == "0" else divisor)
        return str(math.ceil(value / by))
    except (ValueError, ZeroDivisionError):
        raise ConfigError(text("statuses", "field_unknown", path=reference.get("resource", ""))) from None
