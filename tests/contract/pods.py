"""Pods on an engine of their own, and what the golden snapshots are made of."""

from dataclasses import dataclass, field
from pathlib import Path

from kube32.contract import LIMITS
from kube32.formats.k32s import HeldEvent, encode
from kube32.wasm import ChannelHub, Engine, FileTable, HostServices, Instance, PodClock

GOLDEN = Path(__file__).parent / "golden"
PAGE = 65536
UNIX_MS = 1_767_225_600_000


@dataclass
class Node:
    """An engine with its channels; starts and restores pods of a module."""

    engine: Engine = field(default_factory=lambda: Engine(LIMITS))
    channels: ChannelHub = field(default_factory=lambda: ChannelHub(LIMITS))
    pods: int = 0

    def start(self, wasm: bytes, memory: int, *, restore: bool = False) -> Instance:
        """A pod that has not been called yet; its clock stands at 0."""
        self.pods += 1
        clock = PodClock()
        clock.freeze()
        services = HostServices(
            log=lambda line: None,
            clock=clock,
            unix_ms=lambda: 0,
            env={},
            channels=self.channels.attach("default", f"pod-{self.pods}"),
            files=FileTable(LIMITS, []),
            publish=lambda topic, payload: 0,
        )
        module = self.engine.load(wasm)
        return Instance.start(module, limits=LIMITS, memory_limit=memory, services=services, restore=restore)

    def restore(self, wasm: bytes, memory: int, data: bytes) -> tuple[Instance, list[HeldEvent]]:
        """A pod from a snapshot, before any call, and the events that it held."""
        instance = self.start(wasm, memory, restore=True)
        reader = instance.restorer()
        for at in range(0, len(data), 1000):
            reader.feed(data[at : at + 1000])
        snapshot = reader.finish()
        instance.apply(snapshot)
        return instance, snapshot.events


def capture(pod: Instance, events: list[HeldEvent], unix_ms: int = UNIX_MS) -> bytes:
    """The pod's snapshot."""
    return bytes(encode(pod.capture(unix_ms, events)))


def call(pod: Instance, export: str) -> int | None:
    """One call without a deadline."""
    return pod.call(export, timeout_ms=None)
