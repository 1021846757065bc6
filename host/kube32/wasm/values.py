"""Globals and tables of an instance with exact bits: no float is converted, a function is its index in the
module.
"""

import ctypes
from array import array
from collections.abc import Mapping, Sequence
from typing import Any

from wasmtime import _ffi as ffi

from kube32.contract import K32S
from kube32.wasm.native import NativeInstance, NativeTrap, error_text

_HOLDING = ctypes.PyDLL(ffi.filename)
_Pointer = ctypes.c_void_p
_KINDS = {
    "i32": ffi.WASMTIME_I32.value,
    "i64": ffi.WASMTIME_I64.value,
    "f32": ffi.WASMTIME_F32.value,
    "f64": ffi.WASMTIME_F64.value,
    "funcref": ffi.WASMTIME_FUNCREF.value,
}
_MASK = {"i32": 0xFFFFFFFF, "f32": 0xFFFFFFFF, "i64": 0xFFFFFFFFFFFFFFFF, "f64": 0xFFFFFFFFFFFFFFFF}
_NARROW = ("i32", "f32")


def _declare(name: str, result: Any, *arguments: Any) -> Any:
    function = _HOLDING[name]
    function.restype = result
    function.argtypes = list(arguments)
    return function


_global_get = _declare("wasmtime_global_get", None, _Pointer, _Pointer, _Pointer)
_global_set = _declare("wasmtime_global_set", _Pointer, _Pointer, _Pointer, _Pointer)
_table_size = _declare("wasmtime_table_size", ctypes.c_uint64, _Pointer, _Pointer)
_table_get = _declare("wasmtime_table_get", ctypes.c_bool, _Pointer, _Pointer, ctypes.c_uint64, _Pointer)
_table_set = _declare("wasmtime_table_set", _Pointer, _Pointer, _Pointer, ctypes.c_uint64, _Pointer)
_table_grow = _declare(
    "wasmtime_table_grow", _Pointer, _Pointer, _Pointer, ctypes.c_uint64, _Pointer, _Pointer
)
_func_to_raw = _declare("wasmtime_func_to_raw", _Pointer, _Pointer, _Pointer)


class ForeignFunction(Exception):
    """A reference to a function that has no index in the module."""


class Functions:
    """The functions of a module that references can lead to, by index and by what a reference holds."""

    def __init__(self, native: NativeInstance, items: Mapping[int, Any]) -> None:
        self._native = native
        self._items = dict(items)
        self._indexes: dict[int, int] = {}
        for index in sorted(self._items, reverse=True):
            self._indexes[self._raw(self._items[index])] = index

    def index(self, function: Any) -> int:
        """The index behind a reference (the contract's null for null); ForeignFunction when it is not the
        module's.
        """
        if not function.store_id:
            return K32S.null_funcref
        try:
            return self._indexes[self._raw(function)]
        except KeyError:
            raise ForeignFunction from None

    def value(self, index: int) -> Any:
        """A value that refers to the function `index`, or to none."""
        value = ffi.wasmtime_val_t()
        value.kind = _KINDS["funcref"]
        if index == K32S.null_funcref:
            value.of.funcref.store_id = 0
        else:
            value.of.funcref = self._items[index]
        return value

    def _raw(self, function: Any) -> int:
        raw: int = _func_to_raw(self._native.context, ctypes.byref(function))
        return raw


def read_global(native: NativeInstance, item: Any, value_type: str, functions: Functions) -> int:
    """A global's bits: raw for numbers, the function's index for funcref."""
    value = ffi.wasmtime_val_t()
    _global_get(native.context, ctypes.byref(item), ctypes.byref(value))
    if value_type == "funcref":
        return functions.index(value.of.funcref)
    bits: int = value.of.i32 if value_type in _NARROW else value.of.i64
    return bits & _MASK[value_type]


def write_global(native: NativeInstance, item: Any, value_type: str, bits: int, functions: Functions) -> None:
    """The reverse of `read_global`."""
    if value_type == "funcref":
        value = functions.value(bits)
    else:
        value = ffi.wasmtime_val_t()
        value.kind = _KINDS[value_type]
        if value_type in _NARROW:
            value.of.i32 = bits
        else:
            value.of.i64 = bits
    _check(_global_set(native.context, ctypes.byref(item), ctypes.byref(value)))


def read_table(native: NativeInstance, item: Any, functions: Functions) -> "array[int]":
    """A table's entries as function indexes. ForeignFunction carries the entry's number."""
    value = ffi.wasmtime_val_t()
    context, table, out = native.context, ctypes.byref(item), ctypes.byref(value)
    entries = array("I")
    for index in range(_table_size(context, table)):
        _table_get(context, table, index, out)
        try:
            entries.append(functions.index(value.of.funcref))
        except ForeignFunction:
            raise ForeignFunction(index) from None
    return entries


def write_table(native: NativeInstance, item: Any, entries: Sequence[int], functions: Functions) -> None:
    """Grows the table to the entries' number and writes them all."""
    context, table = native.context, ctypes.byref(item)
    size = _table_size(context, table)
    if len(entries) > size:
        before = ctypes.c_uint64()
        null = functions.value(K32S.null_funcref)
        _check(_table_grow(context, table, len(entries) - size, ctypes.byref(null), ctypes.byref(before)))
    for index, function in enumerate(entries):
        value = functions.value(function)
        _check(_table_set(context, table, index, ctypes.byref(value)))


def _check(error: int | None) -> None:
    if error:
        raise NativeTrap(None, error_text(error))
