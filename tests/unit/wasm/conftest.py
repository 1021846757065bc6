"""Pods from WAT text, with services that remember what the pod did."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import wasmtime

from kube32.contract import LIMITS, Limits
from kube32.formats.k32s import Snapshot, encode
from kube32.wasm import ChannelHub, Engine, FileTable, HostServices, Instance, LoadedModule, Mount, PodClock


@dataclass
class Lab:
    """Starts pods on one engine; closes them at the end of the test."""

    engine: Engine
    limits: Limits = field(default_factory=lambda: LIMITS)
    hub: ChannelHub = field(default_factory=lambda: ChannelHub(LIMITS))
    logs: list[str] = field(default_factory=list)
    published: list[tuple[str, bytes]] = field(default_factory=list)
    pods: list[Instance] = field(default_factory=list)

    def services(
        self, *, name: str = "pod", mounts: list[Mount] | None = None, **changes: Any
    ) -> HostServices:
        services = HostServices(
            log=self.logs.append,
            clock=PodClock(),
            unix_ms=lambda: 0,
            env={},
            channels=self.hub.attach("default", name),
            files=FileTable(self.limits, mounts or []),
            publish=self._publish,
        )
        for key, value in changes.items():
            setattr(services, key, value)
        return services

    def start(
        self,
        wat: str,
        *,
        memory_limit: int | None = None,
        restore: bool = False,
        services: HostServices | None = None,
        limits: Limits | None = None,
    ) -> Instance:
        module = self.engine.load(bytes(wasmtime.wat2wasm(wat)))
        return self.instance(module, memory_limit, restore=restore, services=services, limits=limits)

    def instance(
        self,
        module: LoadedModule,
        memory_limit: int | None,
        *,
        restore: bool = False,
        services: HostServices | None = None,
        limits: Limits | None = None,
    ) -> Instance:
        instance = Instance.start(
            module,
            limits=limits or self.limits,
            memory_limit=memory_limit,
            services=services or self.services(name=f"pod-{len(self.pods)}"),
            restore=restore,
        )
        self.pods.append(instance)
        return instance

    def restored(
        self, data: bytes, wat: str, *, memory_limit: int | None = None, piece: int = 4096
    ) -> Instance:
        instance = self.start(wat, memory_limit=memory_limit, restore=True)
        reader = instance.restorer()
        for at in range(0, len(data), piece):
            reader.feed(data[at : at + piece])
        instance.services.clock.freeze()
        instance.apply(reader.finish())
        return instance

    def _publish(self, topic: str, payload: bytes) -> int:
        self.published.append((topic, payload))
        return 1


def frozen(instance: Instance, unix_ms: int = 0) -> bytes:
    """The snapshot's bytes of a pod between two calls."""
    instance.services.clock.freeze()
    return bytes(encode(capture(instance, unix_ms)))


def capture(instance: Instance, unix_ms: int = 0) -> Snapshot:
    return instance.capture(unix_ms, [])


@pytest.fixture(scope="session")
def engine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Engine]:
    engine = Engine(LIMITS, Path(tmp_path_factory.mktemp("compiled")))
    yield engine
    engine.close()


@pytest.fixture
def lab(engine: Engine) -> Iterator[Lab]:
    lab = Lab(engine)
    yield lab
    for pod in lab.pods:
        pod.close()


@pytest.fixture
def freeze() -> Any:
    return frozen
