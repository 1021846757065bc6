# --- ConfigMap, Secret, Module, Checkpoint ---


def configmap_data(obj: dict[str, Any], _now: float) -> int:
    """DATA: keys of data and of binaryData."""
    return len(mapping(obj, "data")) + len(mapping(obj, "binaryData"))


def secret_data(obj: dict[str, Any], _now: float) -> int:
    """DATA: keys."""
    return len(mapping(obj, "data"))


def status_size(obj: dict[str, Any], _now: float) -> str:
    """SIZE of a Module's or Checkpoint's data, empty while it has none."""
    size = mapping(obj, "status").get("sizeBytes")
    return human_bytes(size) if isinstance(size, int) else ""


def module_digest(obj: dict[str, Any], _now: float) -> str:
    """The first digits of a Module's digest."""
    return string(mapping(obj, "status").get("sha256"))[:_DIGEST_SHOWN]


def module_exports(obj: dict[str, Any], _now: float) -> str:
    """Exports of the pod ABI."""
    exports = mapping(obj, "status").get("exports")
    return ",".join(str(e) for e in exports) if isinstance(exports, list) else ""
