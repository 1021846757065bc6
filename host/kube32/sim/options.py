"""What kube32-sim was told on its command line, checked; a fault names the flag, the value and the rule."""

import ipaddress
import os
import re
import socket
from dataclasses import dataclass, field
from pathlib import Path

from kube32.contract import LIMITS
from kube32.formats.quantity import parse as parse_quantity

NODE_NAME = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")


class StartError(Exception):
    """Something that the user can mend; the message is one line, the exit code is 2."""


@dataclass(slots=True)
class NodeFlags:
    """The resources that a simulated node is given by flag."""

    memory: str = ""
    cpu: str = ""
    pods: int = 0
    resources: list[str] = field(default_factory=list)
    capabilities: list[str] = field(default_factory=list)
    i2c: int = 0
    storage: Path | None = None
    labels: list[str] = field(default_factory=list)


@dataclass(slots=True)
class SimOptions:
    """All options of one kube32-sim process."""

    name: str
    profile: str
    data_dir: Path
    ready_file: Path | None
    node: NodeFlags
    node_ip: str
    kubelet_port: int
    host: str = ""
    port: int = 0
    advertise: list[str] = field(default_factory=list)
    kubeconfig: Path | None = None
    ingress: tuple[str, int] | None = None
    enable_flash: bool = False
    console: Path | None = None


def default_name() -> str:
    """The host's name as a node name, "kube32" when it is not usable as one."""
    name = socket.gethostname().lower().split(".")[0]
    return name if check_name_or_none(name) else "kube32"


def check_name_or_none(name: str) -> str | None:
    """`name` when it can name a node: a DNS subdomain that fits a certificate's common name."""
    return name if len(name) <= LIMITS.node_name_chars and NODE_NAME.fullmatch(name) else None


def check_name(name: str) -> str:
    """A node's name; StartError when it is none."""
    if check_name_or_none(name) is None:
        raise StartError(
            f'--name "{name}": a node name has lower-case letters, digits, "-" and ".", '
            f"at most {LIMITS.node_name_chars}"
        )
    return name


def default_data_dir(name: str) -> Path:
    """~/.kube32/NAME."""
    return Path.home() / ".kube32" / name


def parse_listen(value: str, flag: str = "--listen", example: str = "127.0.0.1:6443") -> tuple[str, int]:
    """HOST:PORT, [IPv6]:PORT or :PORT; StartError names the flag."""
    host, colon, port = value.rpartition(":")
    if not colon or not port.isascii() or not port.isdigit() or int(port) > 65535:
        raise StartError(f'{flag} "{value}": give HOST:PORT, such as {example}')
    return host.strip("[]") or "0.0.0.0", int(port)


def pairs(flag: str, values: list[str]) -> dict[str, str]:
    """KEY=VALUE arguments as a dict."""
    found: dict[str, str] = {}
    for value in values:
        key, equals, rest = value.partition("=")
        if not equals or not key:
            raise StartError(f'{flag} "{value}": give KEY=VALUE')
        found[key] = rest
    return found


def quantity(flag: str, value: str, unit: int = 1) -> int:
    """A Kubernetes quantity such as 512Mi or 500m, times `unit`, as a whole number above zero."""
    try:
        amount = int(parse_quantity(value) * unit)
    except ValueError:
        amount = 0
    if amount <= 0:
        raise StartError(f'{flag} "{value}": give a quantity above zero, such as 2, 500m or 512Mi')
    return amount


def check_ip(flag: str, value: str) -> str:
    """An IP address."""
    try:
        return str(ipaddress.ip_address(value))
    except ValueError:
        raise StartError(f'{flag} "{value}": give an IP address') from None


def check_host(flag: str, value: str) -> str:
    """A DNS name or an IP address."""
    return value if NODE_NAME.fullmatch(value.lower()) else check_ip(flag, value)


def prepare_data_dir(path: Path) -> None:
    """Makes the data directory, mode 0700; StartError when it cannot be written."""
    try:
        path.mkdir(parents=True, exist_ok=True, mode=0o700)
    except OSError as error:
        raise StartError(f"--data-dir {path}: {error.strerror}; choose another directory") from None
    if not path.is_dir() or not os.access(path, os.W_OK | os.X_OK):
        raise StartError(f"--data-dir {path}: cannot be written; choose another directory")
