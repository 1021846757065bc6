"""Which modules are taken: exactly our feature set; a module that lies is refused and never ends the node."""

from typing import Any

import pytest
import wasmtime
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kube32.contract import ABI
from kube32.wasm import ModuleRefused, Trap

POD = '(memory (export "memory") 1) (func (export "k32_tick"))'
TAKEN = {
    "mutable global exported": '(global (export "g") (mut i32) (i32.const 0))',
    "sign extension": "(func (result i32) (i32.extend8_s (i32.const 200)))",
    "saturating": "(func (result i32) (i32.trunc_sat_f64_u (f64.const 1e300)))",
    "multi-value": "(func (result i32 i64) (block (result i32 i64) (i32.const 1) (i64.const 2)))",
    "bulk memory": "(func (memory.fill (i32.const 0) (i32.const 0) (i32.const 0)))",
    "several tables": "(table 1 funcref) (table 1 funcref) (func (drop (table.size 1)))",
    "typed select": "(func (drop (select (result funcref) (ref.null func) (ref.null func) (i32.const 0))))",
    "funcref local": "(func (local funcref) (drop (ref.is_null (local.get 0))))",
    "other table": "(table 1 funcref) (table 1 funcref) (func (call_indirect 1 (i32.const 0)))",
}
REFUSED = {
    "externref local": "(func (local externref))",
    "externref parameter": "(func (param externref))",
    "ref.null extern": "(func (drop (ref.null extern)))",
    "externref select": "(func (drop (select (result externref) (unreachable) (unreachable) (i32.const 0))))",
    "SIMD": "(func (drop (v128.const i32x4 0 0 0 0)))",
    "relaxed SIMD": "(func (param v128))",
    "atomics": "(func (drop (i32.atomic.load (i32.const 0))))",
    "shared memory": "(memory 1 1 shared)",
    "tail call": "(func $f (return_call $f))",
    "exceptions": "(tag)",
    "throw": "(func (throw_ref (unreachable)))",
    "GC": "(type (struct))",
    "i31": "(func (drop (ref.i31 (i32.const 1))))",
    "memory64": "(memory i64 1)",
    "multi-memory": "(memory 1)",
    "extended-const": "(global i32 (i32.add (i32.const 1) (i32.const 2)))",
    "call_ref": "(type $t (func)) (func (call_ref $t (ref.null $t)))",
    "wide arithmetic": "(func (drop (drop (i64.mul_wide_s (i64.const 1) (i64.const 2)))))",
    "custom page size": "(memory 1 (pagesize 1))",
    "non-nullable reference": "(func (param (ref func)))",
    "table with an initial value": "(table 1 1 funcref (ref.null func))",
}


@pytest.mark.parametrize("feature", TAKEN)
def test_the_feature_set_is_taken(lab: Any, feature: str) -> None:
    lab.start(f"(module {POD} {TAKEN[feature]})").call("k32_tick", timeout_ms=None)
    lab.start(f"(module {POD} {TAKEN[feature]})", memory_limit=1000).call("k32_tick", timeout_ms=None)


@pytest.mark.parametrize("feature", REFUSED)
def test_what_is_outside_is_refused(lab: Any, feature: str) -> None:
    with pytest.raises(ModuleRefused):
        lab.start(f"(module {POD} {REFUSED[feature]})")


BODIES = {
    "local": b"\x01\x01\x63\x70\x0b",
    "block": b"\x00\x02\x63\x70\xd0\x70\x0b\x1a\x0b",
    "loop": b"\x00\x03\x63\x70\xd0\x70\x0b\x1a\x0b",
    "select": b"\x00\xd0\x70\xd0\x70\x41\x00\x1c\x01\x63\x70\x1a\x0b",
}


def with_body(body: bytes) -> bytes:
    """A pod whose second function has this body."""
    head = b"\0asm\1\0\0\0\x01\x04\x01\x60\x00\x00\x03\x03\x02\x00\x00\x05\x03\x01\x00\x01"
    exports = b"\x07\x15\x02\x06memory\x02\x00\x08k32_tick\x00\x00"
    code = b"\x02\x02\x00\x0b" + bytes([len(body)]) + body
    return head + exports + b"\x0a" + bytes([len(code)]) + code


@pytest.mark.parametrize("place", BODIES)
def test_a_long_form_of_funcref_is_refused_although_the_engine_takes_it(lab: Any, place: str) -> None:
    with pytest.raises(ModuleRefused, match="typed function references"):
        lab.engine.load(with_body(BODIES[place]))


def test_the_bytes_of_the_long_form_may_stand_elsewhere(lab: Any) -> None:
    body = b"\x00\x41\xe3\xf0\x00\x1a\x43\x63\x70\x63\x70\x1a\x0b"
    assert lab.engine.load(with_body(body)).kind == "request"


def test_padded_numbers_are_valid(lab: Any) -> None:
    body = b"\x00\x41\x81\x80\x80\x80\x00\x1a\x0b"
    assert lab.engine.load(with_body(body)).kind == "request"


def test_every_import_of_the_abi_can_be_made(lab: Any) -> None:
    imports = "".join(
        f'(import "env" "{n}" (func {"".join(f"(param {t})" for _, t in f.params)}'
        f" {'' if f.result == 'none' else f'(result {f.result})'}))"
        for n, f in ABI.functions.items()
    )
    pod = lab.start(f'(module {imports} {imports} (memory (export "memory") 1) (func (export "k32_tick")))')
    pod.call("k32_tick", timeout_ms=None)


WHOLE = bytes(
    wasmtime.wat2wasm(
        """(module (import "env" "k32_log" (func $log (param i32 i32)))
      (import "env" "k32_time_ms" (func (result i64))) (memory (export "memory") 1 2)
      (table 3 8 funcref) (elem (i32.const 1) func $f $log) (elem $p func $f) (elem declare func $f)
      (global $g (mut i64) (i64.const -5)) (global (mut funcref) (ref.func $f))
      (data (i32.const 8) "data") (data $d "passive") (start $s)
      (func $s (call $log (i32.const 8) (i32.const 4)))
      (func $f (param i32) (result i32) (local i64 f32) (block (br_table 0 0 (local.get 0)))
        (select (memory.grow (i32.const 0)) (memory.size) (local.get 0)))
      (func (export "k32_tick") (memory.init $d (i32.const 0) (i32.const 0) (i32.const 3)) (data.drop $d)
        (elem.drop $p) (drop (call_indirect (param i32) (result i32) (i32.const 1) (i32.const 1)))
        (loop $l (br_if $l (i32.const 0))))
      (func (export "k32_handle") (result i32) (i32.trunc_sat_f32_s (f32.const nan))))"""
    )
)


@settings(max_examples=400, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    changes=st.lists(st.tuples(st.integers(8, len(WHOLE) - 1), st.integers(0, 255)), min_size=1, max_size=4),
    cut=st.one_of(st.none(), st.integers(0, len(WHOLE))),
    limit=st.sampled_from([None, 65536, 3000]),
)
def test_a_module_that_lies_is_refused_or_runs_within_its_bounds(
    lab: Any, changes: list[tuple[int, int]], cut: int | None, limit: int | None
) -> None:
    wasm = bytearray(WHOLE)
    for at, value in changes:
        wasm[at] = value
    try:
        module = lab.engine.load(bytes(wasm[:cut]))
        pod = lab.instance(module, limit)
    except (ModuleRefused, Trap):
        return
    for export in module.info.abi_exports:
        try:
            pod.call(export, timeout_ms=20)
        except Trap as trap:
            assert trap.kind in ("trap", "deadline")
    pod.blockers()
    pod.capture(0, [])
