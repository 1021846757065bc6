"""All host functions by name, and the callbacks that wasmtime calls."""

from collections.abc import Callable
from typing import Any

from kube32.contract import Limits
from kube32.wasm.abi.channels import ChannelFunctions
from kube32.wasm.abi.entry import EntryFunctions
from kube32.wasm.abi.events import EventFunctions
from kube32.wasm.abi.files import FileFunctions
from kube32.wasm.abi.http import HttpFunctions
from kube32.wasm.abi.node import NodeFunctions
from kube32.wasm.abi.state import CallState
from kube32.wasm.host import HostServices
from kube32.wasm.memory import PodMemory
from kube32.wasm.native import HostCallback

HostFunction = Callable[..., int | None]


def host_functions(
    services: HostServices,
    state: CallState,
    memory: PodMemory,
    limits: Limits,
    *,
    instance_id: int,
    sleep: Callable[[float], bool] | None,
) -> dict[str, HostFunction]:
    """Every host function of the contract. They get unsigned arguments and may give negative results."""
    return {
        **NodeFunctions(services, memory, limits, instance_id).functions(),
        **HttpFunctions(state, memory, limits).functions(),
        **EventFunctions(services, state, memory, limits).functions(),
        **ChannelFunctions(services.channels, memory, limits).functions(),
        **FileFunctions(services.files, memory, limits).functions(),
        **EntryFunctions(state, limits, sleep).functions(),
    }


def callback(
    function: HostFunction, params: int, gives: bool, on_fault: Callable[[BaseException], int]
) -> HostCallback:
    """Reads arguments from the slots, calls, writes the result. Whatever is raised becomes the trap of
    `on_fault`.

    One closure for each number of parameters: a general one costs twice as much, and pods call these in
    loops.
    """
    make = _GIVING[params] if gives else _SILENT[params]
    return make(function, on_fault)


def _giving0(function: HostFunction, on_fault: Callable[[BaseException], int]) -> HostCallback:
    def run(_env: int | None, _caller: int | None, slots: Any, _count: int) -> int:
        try:
            slots[0] = function()
        except BaseException as fault:
            return on_fault(fault)
        return 0

    return run


def _giving1(function: HostFunction, on_fault: Callable[[BaseException], int]) -> HostCallback:
    def run(_env: int | None, _caller: int | None, slots: Any, _count: int) -> int:
        try:
            slots[0] = function(slots[0])
        except BaseException as fault:
            return on_fault(fault)
        return 0

    return run


def _giving2(function: HostFunction, on_fault: Callable[[BaseException], int]) -> HostCallback:
    def run(_env: int | None, _caller: int | None, slots: Any, _count: int) -> int:
        try:
            slots[0] = function(slots[0], slots[4])
        except BaseException as fault:
            return on_fault(fault)
        return 0

    return run


def _giving3(function: HostFunction, on_fault: Callable[[BaseException], int]) -> HostCallback:
    def run(_env: int | None, _caller: int | None, slots: Any, _count: int) -> int:
        try:
            slots[0] = function(slots[0], slots[4], slots[8])
        except BaseException as fault:
            return on_fault(fault)
        return 0

    return run


def _giving4(function: HostFunction, on_fault: Callable[[BaseException], int]) -> HostCallback:
    def run(_env: int | None, _caller: int | None, slots: Any, _count: int) -> int:
        try:
            slots[0] = function(slots[0], slots[4], slots[8], slots[12])
        except BaseException as fault:
            return on_fault(fault)
        return 0

    return run


def _silent1(function: HostFunction, on_fault: Callable[[BaseException], int]) -> HostCallback:
    def run(_env: int | None, _caller: int | None, slots: Any, _count: int) -> int:
        try:
            function(slots[0])
        except BaseException as fault:
            return on_fault(fault)
        return 0

    return run


def _silent2(function: HostFunction, on_fault: Callable[[BaseException], int]) -> HostCallback:
    def run(_env: int | None, _caller: int | None, slots: Any, _count: int) -> int:
        try:
            function(slots[0], slots[4])
        except BaseException as fault:
            return on_fault(fault)
        return 0

    return run


_GIVING = (_giving0, _giving1, _giving2, _giving3, _giving4)
_SILENT = {1: _silent1, 2: _silent2}
