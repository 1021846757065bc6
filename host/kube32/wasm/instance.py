"""A running pod: a module with memory, host functions and state; calls, deadlines, capture, restore."""

import secrets
import threading
import time
from functools import partial
from typing import Any

from wasmtime import TrapCode

from kube32.contract import ABI, Limits, text
from kube32.formats.k32s import Expectation, HeldEvent, Reader, Snapshot
from kube32.wasm.abi import CallState, Interrupted, callback, host_functions
from kube32.wasm.engine import LoadedModule
from kube32.wasm.host import HostServices, HttpCall, PodExit, Trap
from kube32.wasm.memory import PodMemory
from kube32.wasm.native import NEVER, NativeInstance, NativeTrap, new_trap
from kube32.wasm.plan import plan_memory
from kube32.wasm.rewrite import data_end
from kube32.wasm.state import InstanceState

START = "(start)"
"""The name that a Trap gives to instantiation and to the module's start function."""

_LOOK_TICKS = 10
"""How often, in ms, a running call looks whether it was interrupted. A nearer deadline is met to the ms."""

_NS_PER_MS = 1_000_000
_TRAPS = {
    TrapCode.STACK_OVERFLOW.value: "stack",
    TrapCode.MEMORY_OUT_OF_BOUNDS.value: "memory_bounds",
    TrapCode.TABLE_OUT_OF_BOUNDS.value: "table_bounds",
    TrapCode.INDIRECT_CALL_TO_NULL.value: "null_element",
    TrapCode.BAD_SIGNATURE.value: "signature",
    TrapCode.INTEGER_OVERFLOW.value: "integer_overflow",
    TrapCode.INTEGER_DIVISION_BY_ZERO.value: "divide_by_zero",
    TrapCode.BAD_CONVERSION_TO_INTEGER.value: "conversion",
    TrapCode.UNREACHABLE.value: "unreachable",
}


class Instance:
    """A module in a container. One thread at a time; only `interrupt` may come from another.

    Make it with `start`. After a Trap the instance can be called again, with half-done state, as the module
    left it.
    """

    def __init__(
        self, module: LoadedModule, limits: Limits, memory_limit: int | None, services: HostServices
    ) -> None:
        self.module = module
        self.services = services
        self.instance_id = secrets.randbits(63) or 1
        self._limits = limits
        self._plan = plan_memory(module.info, memory_limit, limits)
        self._call_state = CallState()
        self._interrupted = threading.Event()
        self._deadline_ns: int | None = None
        self._fault: tuple[str, BaseException] | None = None
        self._ticker = module.engine.ticker
        self._exports: dict[str, tuple[Any, bool]] = {}
        self._native = NativeInstance(
            module.engine.native, self._plan.limit_bytes, limits.pod_table_elements, self._on_epoch
        )
        pod_memory = PodMemory()
        imports = self._imports(pod_memory)
        try:
            self._native.instantiate(module.compiled(self._plan.sub_page), imports)
        except NativeTrap as trap:
            raise self._trap(START, trap, None) from None
        self._memory = self._native.memory(self._native.export(ABI.memory_export))
        if self._plan.sub_page:
            self._memory.grow(self._plan.limit_bytes - data_end(module.info))
        pod_memory.attach(self._memory)
        self._state = InstanceState(module, self._native, self._memory, self._plan)

    @classmethod
    def start(
        cls,
        module: LoadedModule,
        *,
        limits: Limits,
        memory_limit: int | None,
        services: HostServices,
        restore: bool = False,
    ) -> "Instance":
        """A new instance, its start function run unless it is to be restored. Compiles when the cache has
        nothing.

        `memory_limit` is in bytes. Raises ModuleRefused when the module needs more, Trap when a segment does
        not fit the module's own memory or table, or the start function fails. The pod's clock is the caller's
        to set.
        """
        instance = cls(module, limits, memory_limit, services)
        if not restore and module.hidden.start is not None:
            function = instance._native.export(module.hidden.name("s", 0))
            try:
                instance._run(START, function, limits.pod_call_timeout_ms)
            except BaseException:
                instance.close()
                raise
        return instance

    @property
    def memory_bytes(self) -> int:
        """The size of linear memory now."""
        self._memory.refresh()
        return self._memory.size

    def has(self, export: str) -> bool:
        """Whether the module has an export of the pod ABI."""
        return export in self.module.info.abi_exports

    def call(
        self,
        export: str,
        *,
        timeout_ms: int | None,
        request: HttpCall | None = None,
        event: HeldEvent | None = None,
    ) -> int | None:
        """Calls an export of the pod ABI that `has`: its i32 result, None when it has none.

        `timeout_ms` None: no deadline. The response is in `request` afterwards. Raises Trap, PodExit,
        KeyError.
        """
        known = self._exports.get(export)
        if known is None:
            known = self._exports[export] = self._abi_export(export)
        function, gives = known
        state = self._call_state
        state.request, state.event = request, event
        try:
            result = self._run(export, function, timeout_ms)
        finally:
            state.request = state.event = None
        if not gives:
            return None
        return result - 0x100000000 if result & 0x80000000 else result

    def interrupt(self) -> None:
        """Ends the call that runs, within 10 ms or when its host function returns, and every later one. Any
        thread.
        """
        self._interrupted.set()

    def blockers(self) -> list[str]:
        """Why the pod cannot move, as far as the instance knows: open files, dropped segments. No side
        effects.
        """
        self._native.set_deadline(NEVER)
        return [*self.services.files.blockers(), *self._state.blockers(self._native.call)]

    def capture(self, unix_ms: int, events: list[HeldEvent]) -> Snapshot:
        """The state of the frozen pod. The same frozen pod gives the same snapshot each time.

        Its memory is the pod's own: it may be read until the pod is called again, also after `close`.
        """
        return self._state.capture(self.services, unix_ms, events)

    def expectation(self) -> Expectation:
        """What a snapshot must be to be restored here."""
        return self._state.expectation()

    def restorer(self) -> Reader:
        """A reader that writes memory into this instance as it is fed. After a refusal the instance is of no
        use.
        """
        return Reader(
            limits=self._limits,
            expect=self._state.expectation(),
            memory_sink=self._state.write_memory,
            on_header=self._state.begin_memory,
        )

    def apply(self, snapshot: Snapshot) -> None:
        """Sets globals, tables, clock and channels from what `restorer` read; the clock runs or stands as
        before.
        """
        self._state.apply(snapshot, self.services)

    def close(self) -> None:
        """Gives everything back, open files and channels too. Nothing may be called afterwards."""
        self.services.files.close_all()
        self.services.channels.detach()
        self._exports.clear()
        self._memory.close()
        self._native.close()

    def _abi_export(self, name: str) -> tuple[Any, bool]:
        """The function of an ABI export, and whether it gives a result."""
        if not self.has(name):
            raise KeyError(name)
        info = self.module.info
        return self._native.export(name), bool(info.type_of(info.exports[name].index).result_codes)

    def _run(self, export: str, function: Any, timeout_ms: int | None) -> int:
        """Calls a function under a deadline."""
        if self._interrupted.is_set():
            raise Trap(export, "interrupted", text("traps", "interrupted"))
        ticks = _LOOK_TICKS
        self._deadline_ns = None
        if timeout_ms is not None:
            self._deadline_ns = time.monotonic_ns() + timeout_ms * _NS_PER_MS
            ticks = min(timeout_ms, _LOOK_TICKS)
        self._native.set_deadline(ticks)
        self._ticker.enter(self)
        try:
            return self._native.call(function)
        except NativeTrap as trap:
            raise self._trap(export, trap, timeout_ms) from None
        finally:
            self._ticker.leave(self)

    def _on_epoch(self) -> int:
        """A call runs for some ms: how many more until the next look; 0 ends it."""
        if self._interrupted.is_set():
            return 0
        if self._deadline_ns is None:
            return _LOOK_TICKS
        left_ns = self._deadline_ns - time.monotonic_ns()
        if left_ns <= 0:
            return 0
        return min(_LOOK_TICKS, 1 + left_ns // _NS_PER_MS)

    def _sleep(self, seconds: float) -> bool:
        """k32_sleep_ms of an entry-point pod: whether it was interrupted. Sleeping needs no ticks."""
        self._ticker.leave(self)
        try:
            return self._interrupted.wait(seconds)
        finally:
            self._ticker.enter(self)

    def _imports(self, memory: PodMemory) -> list[Any]:
        """The host functions in the order in which the module imports them."""
        entry_point = self.module.info.entry_point is not None
        functions = host_functions(
            self.services,
            self._call_state,
            memory,
            self._limits,
            instance_id=self.instance_id,
            sleep=self._sleep if entry_point else None,
        )
        types = self.module.engine.func_types
        imports = []
        for declared in self.module.info.imports:
            abi = ABI.functions[declared.name]
            run = callback(
                functions[declared.name],
                len(abi.params),
                abi.result != "none",
                partial(self._on_fault, declared.name),
            )
            imports.append(self._native.host_function(types.address(abi.signature), run, abi.result == "i64"))
        return imports

    def _on_fault(self, function: str, fault: BaseException) -> int:
        """A host function raised: the call ends with a trap, and the node goes on."""
        self._fault = (function, fault)
        return new_trap()

    def _trap(self, export: str, trap: NativeTrap, timeout_ms: int | None) -> Exception:
        """What a failed call raises."""
        fault, self._fault = self._fault, None
        if fault is not None:
            return self._faulted(export, *fault)
        if trap.code in _TRAPS:
            return Trap(export, "trap", text("traps", _TRAPS[trap.code]))
        if self._interrupted.is_set():
            return Trap(export, "interrupted", text("traps", "interrupted"))
        if self._deadline_ns is not None and time.monotonic_ns() >= self._deadline_ns:
            return Trap(export, "deadline", text("traps", "deadline", ms=timeout_ms))
        return Trap(export, "trap", text("traps", "other", cause=" ".join(trap.message.split())))

    def _faulted(self, export: str, function: str, fault: BaseException) -> Exception:
        code, self._call_state.exit_code = self._call_state.exit_code, None
        if code is not None:
            return PodExit(code)
        if isinstance(fault, Interrupted):
            return Trap(export, "interrupted", text("traps", "interrupted"))
        if not isinstance(fault, Exception):
            raise fault
        cause = f"{type(fault).__name__}: {fault}"
        return Trap(export, "fault", text("traps", "fault", function=function, cause=cause))
