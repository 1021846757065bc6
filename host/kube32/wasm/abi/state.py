"""What the host functions of one instance share during a call."""

from dataclasses import dataclass

from kube32.formats.k32s import HeldEvent
from kube32.wasm.host import HttpCall


class Interrupted(Exception):
    """Ends the call from inside a host function: the node interrupts the pod, or it has called k32_exit."""


@dataclass(slots=True)
class CallState:
    """The request or event being handled, None outside of one, and the code that k32_exit was called with."""

    request: HttpCall | None = None
    event: HeldEvent | None = None
    exit_code: int | None = None


def utf8(raw: bytes) -> str | None:
    """Text from the pod; None when it is not UTF-8."""
    try:
        return raw.decode("utf-8")
    except UnicodeDecodeError:
        return None


def signed(value: int) -> int:
    """An i32 from its unsigned form."""
    return value - 0x100000000 if value & 0x80000000 else value
