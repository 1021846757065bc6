"""A node's engine: wasmtime with exactly our feature set, canonical NaNs, deadlines; compiles once."""

import threading
from pathlib import Path
from weakref import WeakValueDictionary

import wasmtime

from kube32.contract import Limits, text
from kube32.formats.wasm_module import ModuleInfo, ModuleRefused, parse_module
from kube32.wasm.cache import CompiledCache
from kube32.wasm.native import FuncTypes
from kube32.wasm.rewrite import REWRITE_VERSION, Hidden, hidden_exports, rewrite
from kube32.wasm.ticker import Ticker
from kube32.wasm.validate import validate

# Proposals outside of our feature set (decisions, "Modules"). Without GC support there is no externref
# either.
_OFF = (
    "wasm_threads",
    "shared_memory",
    "wasm_tail_call",
    "wasm_relaxed_simd",
    "wasm_simd",
    "wasm_multi_memory",
    "wasm_memory64",
    "wasm_exceptions",
    "wasm_function_references",
    "wasm_gc",
    "gc_support",
    "wasm_wide_arithmetic",
    "wasm_stack_switching",
    "wasm_component_model",
)
_ON = ("wasm_reference_types", "wasm_bulk_memory", "wasm_multi_value")


class Engine:
    """Loads modules. Thread-safe. `cache_dir` keeps compiled modules over restarts; None keeps none."""

    def __init__(self, limits: Limits, cache_dir: Path | None = None) -> None:
        self.limits = limits
        self.func_types = FuncTypes()
        self._strict = wasmtime.Engine(_config())
        self.native = wasmtime.Engine(_running(limits))
        self.ticker = Ticker(self.native.increment_epoch)
        settings = f"rewrite {REWRITE_VERSION}, stack {limits.pod_stack_bytes}"
        self._cache = CompiledCache(cache_dir, limits.module_cache_files, settings)
        self._loaded: WeakValueDictionary[str, LoadedModule] = WeakValueDictionary()
        self._lock = threading.Lock()

    def load(self, wasm: bytes) -> "LoadedModule":
        """Validates a module. ModuleRefused says what is wrong with it. Takes time: not for an event loop."""
        info = parse_module(wasm, self.limits)
        with self._lock:
            loaded = self._loaded.get(info.digest)
        if loaded is not None:
            return loaded
        validate(self._strict, wasm, info)
        with self._lock:
            return self._loaded.setdefault(info.digest, LoadedModule(self, bytes(wasm), info))

    def close(self) -> None:
        """Ends the ticker. No call may be in progress."""
        self.ticker.close()

    def compile(self, wasm: bytes, info: ModuleInfo, hidden: Hidden, sub_page: bool) -> wasmtime.Module:
        """The module in machine code, from the cache when it has it."""
        key = f"{info.digest}-{'byte' if sub_page else 'page'}"
        compiled = self._cache.get(key)
        if compiled is not None:
            try:
                return wasmtime.Module.deserialize(self.native, compiled)
            except wasmtime.WasmtimeError:
                pass  # made for another machine: made again below
        try:
            module = wasmtime.Module(self.native, rewrite(wasm, info, hidden, sub_page))
        except wasmtime.WasmtimeError as fault:
            what = " ".join(str(fault).split())
            raise ModuleRefused(text("module_refusals", "invalid", what=what)) from None
        self._cache.put(key, bytes(module.serialize()))
        return module


class LoadedModule:
    """A valid module. It is compiled when it is first started, once for limits of pages and once for smaller
    ones.
    """

    def __init__(self, engine: Engine, wasm: bytes, info: ModuleInfo) -> None:
        self.engine = engine
        self.info = info
        self.digest = info.digest
        self.kind = info.kind
        self.hidden = hidden_exports(info)
        self._wasm = wasm
        self._compiled: dict[bool, wasmtime.Module] = {}
        self._lock = threading.Lock()

    def compiled(self, sub_page: bool) -> wasmtime.Module:
        """Machine code for a memory with pages of 64 KiB, or of one byte."""
        with self._lock:
            if sub_page not in self._compiled:
                self._compiled[sub_page] = self.engine.compile(self._wasm, self.info, self.hidden, sub_page)
            return self._compiled[sub_page]


def _config() -> wasmtime.Config:
    config = wasmtime.Config()
    for name in _OFF:
        setattr(config, name, False)
    for name in _ON:
        setattr(config, name, True)
    config.wasm_custom_page_sizes = False
    return config


def _running(limits: Limits) -> wasmtime.Config:
    """The configuration that runs what `rewrite` made of valid modules."""
    config = _config()
    config.wasm_custom_page_sizes = True
    config.cranelift_nan_canonicalization = True
    config.epoch_interruption = True
    config.max_wasm_stack = limits.pod_stack_bytes
    # The whole address space of a memory is reserved: its base is fixed, so that host functions may keep it.
    config.memory_may_move = False
    return config
