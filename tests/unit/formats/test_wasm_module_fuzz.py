"""Hostile modules: any bytes end in a description or in ModuleRefused, and wasmtime agrees."""

import re
import tracemalloc

import pytest
import wasmtime
from hypothesis import given, settings
from hypothesis import strategies as st

from kube32.formats.wasm_module import ModuleRefused, parse_module

PREAMBLE = b"\0asm\1\0\0\0"
RICH = bytes(
    wasmtime.wat2wasm("""(module
        (import "env" "k32_log" (func $log (param i32 i32)))
        (import "env" "k32_time_ms" (func $time (result i64)))
        (table $a 4 10 funcref) (table $b 2 funcref)
        (memory (export "memory") 1 4)
        (global $g (mut i32) (i32.const -7)) (global i64 (i64.const 9999999999))
        (global (mut f32) (f32.const 1.5)) (global (mut f64) (f64.const 2.5))
        (global (mut funcref) (ref.func $f)) (global (mut funcref) (ref.null func))
        (export "k32_handle" (func $f)) (export "k32_tick" (func $q))
        (export "t" (table $b)) (export "g" (global $g))
        (start $s)
        (elem (i32.const 1) $f $q) (elem (table $b) (i32.const 0) func $log)
        (elem declare func $s) (elem func $f $q)
        (elem (i32.const 0) funcref (ref.null func) (ref.func $f)) (elem funcref (ref.func $s))
        (elem (table $b) (i32.const 0) funcref (ref.func $s)) (elem declare funcref (ref.func $q))
        (func $f (call $log (i32.const 0) (i32.const 2))
            (memory.init 1 (i32.const 0) (i32.const 0) (i32.const 0)))
        (func $q (result i32) (global.get $g))
        (func $s)
        (data (i32.const 16) "hello") (data "passive"))""")
)
CODE = next(s for s in parse_module(RICH).sections if s.id == 10)
SWITCHED_OFF = (
    *("threads", "tail_call", "relaxed_simd", "simd", "multi_memory", "memory64", "exceptions"),
    *(
        "function_references",
        "gc",
        "wide_arithmetic",
        "custom_page_sizes",
        "stack_switching",
        "component_model",
    ),
)


@pytest.fixture(scope="module")
def strict() -> wasmtime.Engine:
    config = wasmtime.Config()
    for feature in SWITCHED_OFF:
        setattr(config, f"wasm_{feature}", False)
    return wasmtime.Engine(config)


def refusal(module: bytes) -> str | None:
    try:
        parse_module(module)
    except ModuleRefused as refused:
        return refused.cause
    return None


@st.composite
def a_mutation(draw: st.DrawFn) -> bytes:
    """The rich module with one to three bytes changed, dropped or put in."""
    module = bytearray(RICH)
    for _ in range(draw(st.integers(1, 3))):
        at = draw(st.integers(len(PREAMBLE), len(module) - 1))
        byte = draw(st.integers(0, 255) | st.sampled_from([0, 1, 0x7F, 0x80, 0xFF, 0x70, 0x6F]))
        how = draw(st.sampled_from(["change", "change", "drop", "insert"]))
        if how == "change":
            module[at] = byte
        elif how == "drop":
            del module[at]
        else:
            module.insert(at, byte)
    return bytes(module)


@settings(deadline=None, max_examples=400)
@given(st.binary(max_size=200))
def test_any_bytes_end_in_a_refusal(content: bytes) -> None:
    assert refusal(content) is not None
    assert refusal(PREAMBLE + content) is not None


@settings(deadline=None, max_examples=600)
@given(st.lists(st.tuples(st.integers(0, 13), st.binary(max_size=40)), max_size=6))
def test_any_sections_end_in_a_refusal(parts: list[tuple[int, bytes]]) -> None:
    body = b"".join(bytes([number, len(content)]) + content for number, content in parts)
    assert refusal(PREAMBLE + body) is not None


@settings(deadline=None, max_examples=800)
@given(module=a_mutation())
def test_the_verdict_on_sections_is_wasmtimes(strict: wasmtime.Engine, module: bytes) -> None:
    cause = refusal(module)
    try:
        wasmtime.Module.validate(strict, module)
    except wasmtime.WasmtimeError as fault:
        if cause is None:
            # Only what stands in function bodies is left to the engine.
            found = re.search(r"offset 0x([0-9a-f]+)", str(fault))
            assert found is not None
            assert CODE.payload_offset <= int(found[1], 16) <= CODE.payload_offset + CODE.size + 2
        return
    # A valid module is refused for the pod ABI's sake alone, never as malformed or cut.
    assert cause is None or not re.search(r"section .* (at byte|is cut)", cause)


@pytest.mark.parametrize("number", [1, 2, 3, 4, 5, 6, 7, 9, 10, 11])
def test_a_count_of_four_billion_takes_no_memory(number: int) -> None:
    lie = PREAMBLE + bytes([number]) + b"\x06\xff\xff\xff\xff\x0f\0"
    tracemalloc.start()
    try:
        assert refusal(lie) is not None
        assert tracemalloc.get_traced_memory()[1] < 65536
    finally:
        tracemalloc.stop()


def test_a_module_full_of_entries_takes_memory_in_proportion() -> None:
    count = 65536
    types = b"\1\x04\1\x60\0\0"
    functions = b"\3" + b"\x83\x80\x04" + b"\x80\x80\x04" + bytes(count)
    tracemalloc.start()
    try:
        assert "0 have a body" in str(refusal(PREAMBLE + types + functions))
        assert tracemalloc.get_traced_memory()[1] < 4 * 1024 * 1024
    finally:
        tracemalloc.stop()
