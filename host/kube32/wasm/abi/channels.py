"""Host functions of channels (kube32_channel_*)."""

from collections.abc import Callable

from kube32.contract import ABI, Limits
from kube32.wasm.abi.state import utf8
from kube32.wasm.channels import ChannelTable
from kube32.wasm.memory import EFAULT, PodMemory

_EINVAL = ABI.errors["K32_EINVAL"]


class ChannelFunctions:
    """kube32_channel_open, send, recv, close."""

    def __init__(self, channels: ChannelTable, memory: PodMemory, limits: Limits) -> None:
        self._channels = channels
        self._memory = memory
        self._name_bytes = limits.pod_channel_name_bytes
        self._message_bytes = limits.pod_channel_message_bytes

    def functions(self) -> dict[str, Callable[..., int | None]]:
        """By ABI name."""
        return {
            "kube32_channel_open": self._open,
            "kube32_channel_send": self._send,
            "kube32_channel_recv": self._receive,
            "kube32_channel_close": self._channels.close,
        }

    def _open(self, name: int, name_length: int) -> int:
        if not self._memory.holds(name, name_length):
            return EFAULT
        if name_length > self._name_bytes:
            return _EINVAL
        shown = utf8(self._memory.read(name, name_length))
        return _EINVAL if shown is None else self._channels.open(shown)

    def _send(self, handle: int, pointer: int, length: int) -> int:
        if not self._memory.holds(pointer, length):
            return EFAULT
        # One byte more than a message may have: the table refuses it after it has looked at the handle.
        return self._channels.send(handle, self._memory.read(pointer, min(length, self._message_bytes + 1)))

    def _receive(self, handle: int, buffer: int, capacity: int) -> int:
        """A message longer than the buffer stays queued: the pod can come with a larger one."""
        if not self._memory.holds(buffer, capacity):
            return EFAULT
        message = self._channels.peek(handle)
        if isinstance(message, int):
            return message
        length = self._memory.copy_out(message, buffer, capacity)
        if 0 < length <= capacity:
            self._channels.drop(handle)
        return length
