# --- Node ---


def node_status(obj: dict[str, Any], _now: float) -> str:
    """STATUS: Ready, NotReady or Unknown, and SchedulingDisabled when cordoned."""
    ready = next((c for c in maps(mapping(obj, "status"), "conditions") if c.get("type") == "Ready"), None)
    shown = "Unknown" if ready is None else "Ready" if ready.get("status") == "True" else "NotReady"
    return f"{shown},SchedulingDisabled" if mapping(obj, "spec").get("unschedulable") is True else shown


def node_roles(obj: dict[str, Any], _now: float) -> str:
    """ROLES, from labels."""
    return ",".join(sorted(set(_roles(mapping(obj, "metadata", "labels"))))) or NONE


def _roles(labels: dict[str, Any]) -> Iterator[str]:
    for key, value in labels.items():
        if key.startswith(_ROLE_PREFIX) and len(key) > len(_ROLE_PREFIX):
            yield key[len(_ROLE_PREFIX) :]
        elif key == _ROLE_LABEL and value:
            yield str(value)


def _address(obj: dict[str, Any], kind: str) -> str:
    for address in maps(mapping(obj, "status"), "addresses"):
        if address.get("type") == kind:
            return string(address.get("address"))
    return NONE


def node_internal_ip(obj: dict[str, Any], _now: float) -> str:
    """INTERNAL-IP."""
    return _address(obj, "InternalIP")


def node_external_ip(obj: dict[str, Any], _now: float) -> str:
    """EXTERNAL-IP."""
    return _address(obj, "ExternalIP")


def _node_info(key: str) -> Printer:
    def cell(obj: dict[str, Any], _now: float) -> Cell:
        return string(mapping(obj, "status", "nodeInfo").get(key), UNKNOWN)

    return cell
