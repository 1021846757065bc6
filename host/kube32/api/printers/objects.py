"""Cells of the other kinds: configuration, claims, access, modules, checkpoints and metrics."""

from decimal import Decimal

from kube32.api.printers.base import Cell, Object, Printer, mapping, maps, number, string, strings
from kube32.formats import quantity

_DIGEST_SHOWN = 12
_MODES = (
    ("ReadWriteOnce", "RWO"),
    ("ReadOnlyMany", "ROX"),
    ("ReadWriteMany", "RWX"),
    ("ReadWriteOncePod", "RWOP"),
)


def configmap_data(obj: Object, _now: float) -> int:
    """DATA: keys of data and of binaryData."""
    return len(mapping(obj, "data")) + len(mapping(obj, "binaryData"))


def secret_data(obj: Object, _now: float) -> int:
    """DATA: keys."""
    return len(mapping(obj, "data"))


def serviceaccount_secrets(obj: Object, _now: float) -> int:
    """SECRETS."""
    return len(maps(obj, "secrets"))


def pvc_status(obj: Object, _now: float) -> str:
    """STATUS."""
    if mapping(obj, "metadata").get("deletionTimestamp") is not None:
        return "Terminating"
    return string(mapping(obj, "status").get("phase"))


def pvc_capacity(obj: Object, _now: float) -> str:
    """CAPACITY of a claim that has its volume."""
    if not mapping(obj, "spec").get("volumeName"):
        return ""
    return string(mapping(obj, "status", "capacity").get("storage"), "0")


def pvc_access_modes(obj: Object, _now: float) -> str:
    """ACCESS MODES of a claim that has its volume."""
    if not mapping(obj, "spec").get("volumeName"):
        return ""
    held = strings(mapping(obj, "status"), "accessModes")
    return ",".join(short for mode, short in _MODES if mode in held)


def pvc_volume_mode(obj: Object, _now: float) -> str:
    """VOLUMEMODE."""
    return string(mapping(obj, "spec").get("volumeMode"), "<unset>")


def binding_role(obj: Object, _now: float) -> str:
    """ROLE: "ClusterRole/view"."""
    role = mapping(obj, "roleRef")
    return f"{string(role.get('kind'))}/{string(role.get('name'))}"


def _subjects(kind: str) -> Printer:
    def cell(obj: Object, _now: float) -> Cell:
        return ", ".join(_subject(s) for s in maps(obj, "subjects") if s.get("kind") == kind)

    return cell


def _subject(subject: Object) -> str:
    name = string(subject.get("name"))
    if subject.get("kind") != "ServiceAccount":
        return name
    namespace = string(subject.get("namespace"))
    return f"{namespace}/{name}" if namespace else name


def _usage(name: str) -> Printer:
    def cell(obj: Object, _now: float) -> Cell:
        """A node's usage, or the sum of a pod's containers, as a quantity."""
        parts = [mapping(c, "usage") for c in maps(obj, "containers")] or [mapping(obj, "usage")]
        written = [value for value in (part.get(name) for part in parts) if isinstance(value, str)]
        if len(written) == 1:
            return written[0]
        try:
            total = sum((quantity.parse(value) for value in written), Decimal(0))
        except ValueError:
            return ""
        suffix = "Ki" if any(value.endswith("i") for value in written) else ""
        scaled = total / 1024 if suffix else total
        return quantity.canonical(f"{scaled:f}{suffix}")

    return cell


def status_size(obj: Object, _now: float) -> str:
    """SIZE of a Module's or Checkpoint's data, empty while it has none."""
    size = mapping(obj, "status").get("sizeBytes")
    return quantity.human_bytes(number(size)) if isinstance(size, int) else ""


def module_digest(obj: Object, _now: float) -> str:
    """The first digits of a Module's digest."""
    return string(mapping(obj, "status").get("sha256"))[:_DIGEST_SHOWN]


def module_exports(obj: Object, _now: float) -> str:
    """Exports of the pod ABI."""
    exports = mapping(obj, "status").get("exports")
    return ",".join(str(e) for e in exports) if isinstance(exports, list) else ""


PRINTERS: dict[str, Printer] = {
    "configmap_data": configmap_data,
    "secret_data": secret_data,
    "serviceaccount_secrets": serviceaccount_secrets,
    "pvc_status": pvc_status,
    "pvc_capacity": pvc_capacity,
    "pvc_access_modes": pvc_access_modes,
    "pvc_volume_mode": pvc_volume_mode,
    "binding_role": binding_role,
    "binding_users": _subjects("User"),
    "binding_groups": _subjects("Group"),
    "binding_serviceaccounts": _subjects("ServiceAccount"),
    "metrics_cpu": _usage("cpu"),
    "metrics_memory": _usage("memory"),
    "status_size": status_size,
    "module_digest": module_digest,
    "module_exports": module_exports,
}
