"""The node's interpreter speed for kube32.io/interp-mops: a fixed module, the same bytes everywhere, for a
fixed time.
"""

import base64
import time
from typing import Any, cast

from kube32.contract.data import load
from kube32.wasm.channels import ChannelHub
from kube32.wasm.engine import Engine
from kube32.wasm.files import FileTable
from kube32.wasm.host import HostServices, PodClock
from kube32.wasm.instance import Instance


def kernel() -> bytes:
    """The fixed module."""
    return base64.b64decode(_contract()["module"])


def interp_mops(engine: Engine, ms: float) -> float:
    """Million WebAssembly instructions per second, measured for `ms` (contract: interp_mops_ms). Blocks."""
    contract = _contract()
    export: str = contract["export"]
    instance = _instance(engine)
    try:
        instance.call(export, timeout_ms=None)
        calls = 0
        begun = time.perf_counter()
        while (passed := time.perf_counter() - begun) * 1000 < ms:
            instance.call(export, timeout_ms=None)
            calls += 1
    finally:
        instance.close()
    return calls * int(contract["iterations"]) * int(contract["instructions"]) / (passed * 1_000_000)


def _contract() -> dict[str, Any]:
    return cast(dict[str, Any], load("speed.yaml"))


def _instance(engine: Engine) -> Instance:
    limits = engine.limits
    services = HostServices(
        log=lambda line: None,
        clock=PodClock(),
        unix_ms=lambda: 0,
        env={},
        channels=ChannelHub(limits).attach("", ""),
        files=FileTable(limits),
        publish=lambda topic, payload: 0,
    )
    return Instance.start(engine.load(kernel()), limits=limits, memory_limit=None, services=services)
