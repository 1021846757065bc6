"""Host functions about the pod and its node: log, clocks, randomness, environment."""

import os
from collections.abc import Callable

from kube32.contract import ABI, Limits
from kube32.wasm.host import HostServices
from kube32.wasm.memory import EFAULT, PodMemory

_ENOENT = ABI.errors["K32_ENOENT"]


class NodeFunctions:
    """k32_log to k32_env. k32_log and k32_random give nothing: with a bad pointer they do nothing."""

    def __init__(self, services: HostServices, memory: PodMemory, limits: Limits, instance_id: int) -> None:
        self._services = services
        self._memory = memory
        self._line_bytes = limits.pod_log_line_bytes
        self._random_bytes = limits.pod_random_bytes
        self._instance_id = instance_id
        self._env = {name.encode(): value.encode() for name, value in services.env.items()}
        self._longest_name = max(map(len, self._env), default=0)

    def functions(self) -> dict[str, Callable[..., int | None]]:
        """By ABI name."""
        return {
            "k32_log": self._log,
            "k32_time_ms": self._services.clock.now_ms,
            "k32_unix_ms": self._services.unix_ms,
            "k32_random": self._random,
            "k32_instance_id": lambda: self._instance_id,
            "k32_env": self._get_env,
        }

    def _log(self, pointer: int, length: int) -> None:
        if self._memory.holds(pointer, length):
            # What is cut off is not even read.
            line = self._memory.read(pointer, min(length, self._line_bytes))
            self._services.log(line.decode("utf-8", "replace").removesuffix("\n").removesuffix("\r"))

    def _random(self, pointer: int, length: int) -> None:
        if not self._memory.holds(pointer, length):
            return
        end = pointer + length
        while pointer < end:
            piece = os.urandom(min(end - pointer, self._random_bytes))
            self._memory.write(pointer, piece)
            pointer += len(piece)

    def _get_env(self, name: int, name_length: int, buffer: int, capacity: int) -> int:
        if not (self._memory.holds(name, name_length) and self._memory.holds(buffer, capacity)):
            return EFAULT
        # A name longer than any is not even read.
        value = self._env.get(self._memory.read(name, min(name_length, self._longest_name + 1)))
        return _ENOENT if value is None else self._memory.copy_out(value, buffer, capacity)
