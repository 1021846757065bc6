"""Wasm pods: modules, the engine, the pod ABI, capture and restore. One Instance is used by one thread at a
time.
"""

from kube32.formats.wasm_module import ModuleRefused
from kube32.wasm.channels import ChannelHub, ChannelTable
from kube32.wasm.engine import Engine, LoadedModule
from kube32.wasm.files import FileTable, Mount
from kube32.wasm.host import HostServices, HttpCall, PodClock, PodExit, Trap
from kube32.wasm.instance import Instance
from kube32.wasm.speed import interp_mops

__all__ = [
    "ChannelHub",
    "ChannelTable",
    "Engine",
    "FileTable",
    "HostServices",
    "HttpCall",
    "Instance",
    "LoadedModule",
    "ModuleRefused",
    "Mount",
    "PodClock",
    "PodExit",
    "Trap",
    "interp_mops",
]
