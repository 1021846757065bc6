"""wasmtime through ctypes: a store with one instance, its memory, calls without conversion, traps.

Calls cost 2.5 us and host functions 1.2 us this way, against 36 us and 18 us through wasmtime's Python
classes. Only this file and `values.py` touch the C interface.
"""

import ctypes
from collections.abc import Callable, Sequence
from typing import Any

import wasmtime
from wasmtime import _ffi as ffi

NEVER = 1 << 62
"""Epoch ticks that do not pass."""

_Pointer = ctypes.c_void_p
_Size = ctypes.c_size_t

# The short functions keep the interpreter lock (PyDLL): handing it on costs more than they take.
_HOLDING = ctypes.PyDLL(ffi.filename)


def _declare(library: Any, name: str, result: Any, *arguments: Any) -> Any:
    function = library[name]
    function.restype = result
    function.argtypes = list(arguments)
    return function


_call_unchecked = _declare(
    ffi.dll, "wasmtime_func_call_unchecked", _Pointer, _Pointer, _Pointer, _Pointer, _Size, _Pointer
)
_instance_new = _declare(
    ffi.dll, "wasmtime_instance_new", _Pointer, _Pointer, _Pointer, _Pointer, _Size, _Pointer, _Pointer
)
_export_get = _declare(
    _HOLDING,
    "wasmtime_instance_export_get",
    ctypes.c_bool,
    _Pointer,
    _Pointer,
    ctypes.c_char_p,
    _Size,
    _Pointer,
)
_func_new = _declare(
    _HOLDING, "wasmtime_func_new_unchecked", None, _Pointer, _Pointer, _Pointer, _Pointer, _Pointer, _Pointer
)
_memory_data = _declare(_HOLDING, "wasmtime_memory_data", _Pointer, _Pointer, _Pointer)
_memory_data_size = _declare(_HOLDING, "wasmtime_memory_data_size", _Size, _Pointer, _Pointer)
_memory_grow = _declare(
    ffi.dll, "wasmtime_memory_grow", _Pointer, _Pointer, _Pointer, ctypes.c_uint64, _Pointer
)
_set_epoch_deadline = _declare(
    _HOLDING, "wasmtime_context_set_epoch_deadline", None, _Pointer, ctypes.c_uint64
)
_set_epoch_callback = _declare(
    _HOLDING, "wasmtime_store_epoch_deadline_callback", None, _Pointer, _Pointer, _Pointer, _Pointer
)
_trap_new = _declare(_HOLDING, "wasmtime_trap_new", _Pointer, ctypes.c_char_p, _Size)
_trap_code = _declare(_HOLDING, "wasmtime_trap_code", ctypes.c_bool, _Pointer, _Pointer)
_trap_message = _declare(_HOLDING, "wasm_trap_message", None, _Pointer, _Pointer)
_trap_delete = _declare(_HOLDING, "wasm_trap_delete", None, _Pointer)
_error_new = _declare(_HOLDING, "wasmtime_error_new", _Pointer, ctypes.c_char_p)
_error_message = _declare(_HOLDING, "wasmtime_error_message", None, _Pointer, _Pointer)
_error_delete = _declare(_HOLDING, "wasmtime_error_delete", None, _Pointer)

# Slots of arguments and results are 16 bytes wide; an i32 is in the lowest 4 of them, the rest is undefined.
I32_SLOT = 4
_CALLBACK_I32 = ctypes.CFUNCTYPE(_Size, _Pointer, _Pointer, ctypes.POINTER(ctypes.c_uint32), _Size)
_CALLBACK_I64 = ctypes.CFUNCTYPE(_Size, _Pointer, _Pointer, ctypes.POINTER(ctypes.c_uint64), _Size)
_CALLBACK_EPOCH = ctypes.CFUNCTYPE(
    _Size, _Pointer, _Pointer, ctypes.POINTER(ctypes.c_uint64), ctypes.POINTER(ctypes.c_uint8)
)

HostCallback = Callable[[int | None, int | None, Any, int], int]
"""(environment, caller, slots, count) -> a trap's address, or 0."""


class NativeTrap(Exception):
    """A call or an instantiation failed. `code` is wasmtime's trap code, None for another error."""

    def __init__(self, code: int | None, message: str) -> None:
        super().__init__(message)
        self.code = code
        self.message = message


class FuncTypes:
    """wasmtime's function types by signature, made once for each engine."""

    def __init__(self) -> None:
        self._types: dict[tuple[tuple[str, ...], tuple[str, ...]], Any] = {}
        self._values = {"i32": wasmtime.ValType.i32, "i64": wasmtime.ValType.i64}

    def address(self, signature: tuple[tuple[str, ...], tuple[str, ...]]) -> Any:
        """The type of a host function of the pod ABI."""
        if signature not in self._types:
            params, results = ([self._values[t]() for t in types] for types in signature)
            self._types[signature] = wasmtime.FuncType(params, results)
        return ctypes.cast(self._types[signature].ptr(), _Pointer)


def new_trap() -> int:
    """A trap for a host function to return; wasmtime owns it then."""
    trap: int = _trap_new(b"host", 4)
    return trap


class NativeInstance:
    """One wasmtime store with one instance in it. Not thread-safe.

    `memory_bytes` and `table_elements` are the most that a memory and a table may grow to. `on_epoch` is
    called when the epoch deadline has come: it gives the ticks to go on, or 0 to end the call.
    """

    def __init__(
        self, engine: wasmtime.Engine, memory_bytes: int, table_elements: int, on_epoch: Callable[[], int]
    ) -> None:
        self._store = wasmtime.Store(engine)
        self._store.set_limits(memory_size=memory_bytes, table_elements=table_elements, instances=1)
        self.context: int = ctypes.cast(self._store._context(), _Pointer).value or 0
        self._instance = ffi.wasmtime_instance_t()
        self._callbacks: list[Any] = []
        self._trap = _Pointer()
        self._trap_address = ctypes.addressof(self._trap)
        self._slots = (ctypes.c_uint32 * I32_SLOT)()
        self._slots_address = ctypes.addressof(self._slots)
        self._install_epoch(on_epoch)
        _set_epoch_deadline(self.context, NEVER)

    def host_function(self, type_address: Any, callback: HostCallback, wide: bool) -> Any:
        """A function for the module to import. `wide`: its slots are read and written as 64 bits."""
        pointer = (_CALLBACK_I64 if wide else _CALLBACK_I32)(callback)
        self._callbacks.append(pointer)
        function = ffi.wasmtime_func_t()
        address = ctypes.cast(pointer, _Pointer)
        _func_new(self.context, type_address, address, None, None, ctypes.byref(function))
        return function

    def instantiate(self, module: wasmtime.Module, imports: Sequence[Any]) -> None:
        """Makes the instance; NativeTrap when a segment does not fit or a limit is met."""
        externs = (ffi.wasmtime_extern_t * max(1, len(imports)))()
        for slot, function in zip(externs, imports, strict=False):
            slot.kind = ffi.WASMTIME_EXTERN_FUNC.value
            slot.of.func = function
        error = _instance_new(
            self.context,
            ctypes.cast(module.ptr(), _Pointer),
            ctypes.byref(externs),
            len(imports),
            ctypes.byref(self._instance),
            self._trap_address,
        )
        self._raise(error)

    def export(self, name: str) -> Any:
        """The item of an export (a structure of the C interface), None when there is none of that name."""
        extern = ffi.wasmtime_extern_t()
        raw = name.encode()
        instance = ctypes.byref(self._instance)
        if not _export_get(self.context, instance, raw, len(raw), ctypes.byref(extern)):
            return None
        kind = extern.kind
        if kind == ffi.WASMTIME_EXTERN_FUNC.value:
            return extern.of.func
        if kind == ffi.WASMTIME_EXTERN_GLOBAL.value:
            return extern.of.global_
        if kind == ffi.WASMTIME_EXTERN_TABLE.value:
            return extern.of.table
        return extern.of.memory

    def set_deadline(self, ticks: int) -> None:
        """The next call meets `on_epoch` after this many ticks of the engine's epoch."""
        _set_epoch_deadline(self.context, ticks)

    def call(self, function: Any) -> int:
        """Calls a function without parameters; its i32 result, anything when it has none."""
        error = _call_unchecked(
            self.context, ctypes.byref(function), self._slots_address, 1, self._trap_address
        )
        if error or self._trap.value:
            self._raise(error)
        return self._slots[0]

    def memory(self, item: Any) -> "Memory":
        """The memory behind an exported item."""
        return Memory(self._store, self.context, item)

    def close(self) -> None:
        """Gives everything back. Views of the memory that are still in use keep the store until they go."""
        self._callbacks.clear()
        del self._store
        self.context = 0

    def _install_epoch(self, on_epoch: Callable[[], int]) -> None:
        def callback(_context: int, _data: int, ticks: Any, _kind: Any) -> int:
            try:
                go_on = on_epoch()
                if go_on:
                    ticks[0] = go_on
                    return 0
            except BaseException:  # nothing may pass through the engine: the call ends instead
                pass
            end: int = _error_new(b"interrupted")
            return end

        pointer = _CALLBACK_EPOCH(callback)
        self._callbacks.append(pointer)
        store = ctypes.cast(self._store.ptr(), _Pointer)
        _set_epoch_callback(store, ctypes.cast(pointer, _Pointer), None, None)

    def _raise(self, error: int | None) -> None:
        if error:
            raise NativeTrap(None, error_text(error))
        if self._trap.value:
            address, self._trap.value = self._trap.value, None
            raise _trap_text(address)


class Memory:
    """The linear memory of an instance. Its base never moves, since the engine reserves the address space.

    `view` covers `size` bytes; both are looked up again when an access reaches beyond what was known.
    """

    __slots__ = ("_context", "_item", "_store", "size", "view")

    def __init__(self, store: wasmtime.Store, context: int, item: Any) -> None:
        self._store = store
        self._context = context
        self._item = item
        self.size = 0
        self.view = memoryview(b"")
        self.refresh()

    def refresh(self) -> None:
        """Sees what the memory has become."""
        item = ctypes.byref(self._item)
        size = _memory_data_size(self._context, item)
        if size != self.size:
            array = (ctypes.c_char * size).from_address(_memory_data(self._context, item))
            # A view outlives the instance when a reader still holds it: the store goes with the last one.
            array.store = self._store
            self.view = memoryview(array).cast("B")
            self.size = size

    def holds(self, pointer: int, length: int) -> bool:
        """Whether the range is inside the memory as it is now. Both are unsigned; they cannot wrap around
        here.
        """
        if pointer + length <= self.size:
            return True
        self.refresh()
        return pointer + length <= self.size

    def grow(self, units: int) -> None:
        """Grows by pages, or by bytes where the page is one byte; NativeTrap past a limit."""
        before = ctypes.c_uint64()
        error = _memory_grow(self._context, ctypes.byref(self._item), units, ctypes.byref(before))
        if error:
            raise NativeTrap(None, error_text(error))
        self.refresh()

    def zero(self, start: int, end: int) -> None:
        """Fills a range that is inside the memory with zeros."""
        if end > start:
            ctypes.memset(_memory_data(self._context, ctypes.byref(self._item)) + start, 0, end - start)

    def close(self) -> None:
        """Lets go of the store."""
        self.view = memoryview(b"")
        self.size = 0
        del self._store


def error_text(error: int) -> str:
    """The message of an error of the C interface, which is freed."""
    vector = ffi.wasm_byte_vec_t()
    _error_message(error, ctypes.byref(vector))
    message: str = ffi.to_str(vector)
    ffi.wasm_byte_vec_delete(ctypes.byref(vector))
    _error_delete(error)
    return message


def _trap_text(trap: int) -> NativeTrap:
    code = ctypes.c_uint8()
    known = _trap_code(trap, ctypes.byref(code))
    vector = ffi.wasm_byte_vec_t()
    _trap_message(trap, ctypes.byref(vector))
    message: str = ffi.to_str(vector)
    ffi.wasm_byte_vec_delete(ctypes.byref(vector))
    _trap_delete(trap)
    return NativeTrap(code.value if known else None, message)
