"""Small readers of Pods and Nodes, which are plain JSON objects."""

from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

from kube32.contract import LIMITS, NAMES

Obj = dict[str, Any]
_FINISHED = ("Succeeded", "Failed")


def spec_of(obj: Obj) -> Obj:
    """The spec, empty when there is none."""
    return obj.get("spec") or {}


def status_of(obj: Obj) -> Obj:
    """The status, empty when there is none."""
    return obj.get("status") or {}


def name_of(obj: Obj) -> str:
    """metadata.name."""
    return str(obj["metadata"]["name"])


def uid_of(obj: Obj) -> str:
    """metadata.uid, "" when there is none."""
    return str(obj["metadata"].get("uid", ""))


def annotation(obj: Obj, name: str) -> str | None:
    """The annotation's value, None when it is not there."""
    value = (obj["metadata"].get("annotations") or {}).get(name)
    return None if value is None else str(value)


def condition(obj: Obj, kind: str) -> Obj | None:
    """The condition of a type."""
    return next((c for c in status_of(obj).get("conditions") or [] if c.get("type") == kind), None)


def is_true(obj: Obj, kind: str) -> bool:
    """Whether the condition of a type is True."""
    found = condition(obj, kind)
    return found is not None and found.get("status") == "True"


def is_deleting(obj: Obj) -> bool:
    """Whether the object waits for its finalizers or its grace period."""
    return bool(obj["metadata"].get("deletionTimestamp"))


def is_finished(pod: Obj) -> bool:
    """Whether the pod's containers have ended for good."""
    return status_of(pod).get("phase") in _FINISHED


def node_of(pod: Obj) -> str:
    """The node that the pod is bound to, "" when it is bound to none."""
    return str(spec_of(pod).get("nodeName") or "")


def containers(pod: Obj, *, init: bool = False) -> list[Obj]:
    """The pod's containers, with `init` the init containers too."""
    spec = spec_of(pod)
    return [*((spec.get("initContainers") or []) if init else []), *(spec.get("containers") or [])]


def volume_claims(pod: Obj) -> Iterator[str]:
    """What the pod uses of a node's own storage: the names of claims, and of kube32.io/sd volumes."""
    for volume in spec_of(pod).get("volumes") or []:
        name = str(volume.get("name", ""))
        claim = volume.get("persistentVolumeClaim")
        driver = volume.get("csi") or volume.get("flexVolume") or {}
        if claim is not None:
            yield str(claim.get("claimName") or name)
        elif volume.get("ephemeral") is not None:
            yield f"{name_of(pod)}-{name}"
        elif driver.get("driver") == NAMES.volume_driver_sd:
            yield name


def now_rfc3339() -> str:
    """The wall clock as Kubernetes writes it."""
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def seconds_since(stamp: str) -> float | None:
    """Seconds of wall clock since a Kubernetes time; None when it is none, or when a clock was unset."""
    try:
        then = datetime.fromisoformat(stamp)
    except ValueError:
        return None
    now, least = datetime.now(UTC), LIMITS.wall_clock_min_s
    if then.tzinfo is None or then.timestamp() < least or now.timestamp() < least:
        return None
    return (now - then).total_seconds()
