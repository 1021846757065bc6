"""Host functions of events: the one being handled (k32_event, else -2), and k32_publish."""

from collections.abc import Callable

from kube32.contract import ABI, Limits
from kube32.wasm.abi.state import CallState, utf8
from kube32.wasm.host import HostServices
from kube32.wasm.memory import EFAULT, PodMemory

_ENOENT = ABI.errors["K32_ENOENT"]
_EINVAL = ABI.errors["K32_EINVAL"]


class EventFunctions:
    """k32_event_topic, k32_event_payload, k32_publish."""

    def __init__(self, services: HostServices, state: CallState, memory: PodMemory, limits: Limits) -> None:
        self._services = services
        self._state = state
        self._memory = memory
        self._topic_bytes = limits.pod_topic_bytes
        self._payload_bytes = limits.pod_payload_bytes

    def functions(self) -> dict[str, Callable[..., int | None]]:
        """By ABI name."""
        return {
            "k32_event_topic": self._topic,
            "k32_event_payload": self._payload,
            "k32_publish": self._publish,
        }

    def _topic(self, buffer: int, capacity: int) -> int:
        event = self._state.event
        return self._copy_out(event.topic.encode() if event else None, buffer, capacity)

    def _payload(self, buffer: int, capacity: int) -> int:
        event = self._state.event
        return self._copy_out(event.payload if event else None, buffer, capacity)

    def _copy_out(self, value: bytes | None, buffer: int, capacity: int) -> int:
        if not self._memory.holds(buffer, capacity):
            return EFAULT
        return _ENOENT if value is None else self._memory.copy_out(value, buffer, capacity)

    def _publish(self, topic: int, topic_length: int, payload: int, payload_length: int) -> int:
        """-22 for an empty, too long or not UTF-8 topic or a too long payload; else what the node says."""
        if not (self._memory.holds(topic, topic_length) and self._memory.holds(payload, payload_length)):
            return EFAULT
        if not 0 < topic_length <= self._topic_bytes or payload_length > self._payload_bytes:
            return _EINVAL
        name = utf8(self._memory.read(topic, topic_length))
        if name is None:
            return _EINVAL
        return self._services.publish(name, self._memory.read(payload, payload_length))
