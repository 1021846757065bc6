"""What the machine is, for a Node's status.nodeInfo. Where the system has no such id, one is derived from names."""

import platform
import sys
import uuid
from importlib.metadata import version
from pathlib import Path

from kube32 import __version__

_ARCHITECTURES = {"x86_64": "amd64", "AMD64": "amd64", "aarch64": "arm64", "armv7l": "arm", "i686": "386"}
_SYSTEMS = {"darwin": "darwin", "win32": "windows"}


def node_info(node: str) -> dict[str, str]:
    """status.nodeInfo: no field is empty, but for that of the proxy, which there is none of."""
    machine = _read("/etc/machine-id") or _derived(platform.node() or node).hex
    return {
        "machineID": machine,
        # The firmware's is often for root alone.
        "systemUUID": _read("/sys/class/dmi/id/product_uuid") or str(_derived(machine)),
        "bootID": _read("/proc/sys/kernel/random/boot_id") or str(_derived(f"{machine}.boot")),
        "kernelVersion": platform.release(),
        "osImage": _os_image(),
        "containerRuntimeVersion": f"wasmtime://{version('wasmtime')}",
        "kubeletVersion": f"v{__version__}",
        "kubeProxyVersion": "",
        "operatingSystem": _SYSTEMS.get(sys.platform, "linux"),
        "architecture": _ARCHITECTURES.get(platform.machine(), platform.machine()),
    }


def _derived(name: str) -> uuid.UUID:
    return uuid.uuid5(uuid.NAMESPACE_DNS, name)


def _os_image() -> str:
    try:
        return platform.freedesktop_os_release().get("PRETTY_NAME", platform.system())
    except OSError:
        return f"{platform.system()} {platform.release()}"


def _read(path: str) -> str:
    try:
        return Path(path).read_text(encoding="ascii").strip()
    except (OSError, ValueError):
        return ""
