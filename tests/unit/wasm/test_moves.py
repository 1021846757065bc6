"""Generated pods: after moves the next 1,000 calls answer as those of a pod that never moved."""

from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kube32.formats.k32s import decode

PAGE = 65536
CALLS = 1000

INIT = {
    "global.set i32": "(global.set $i (i32.const 77))",
    "global.set i64": "(global.set $l (i64.const 0x123456789abcdef0))",
    "global.set f32 NaN": "(global.set $f (f32.reinterpret_i32 (i32.const 0x7fa01234)))",
    "global.set f64 NaN": "(global.set $d (f64.reinterpret_i64 (i64.const 0x7ff4000000000001)))",
    "global.set funcref": "(global.set $r (ref.func $third))",
    "global.set null": "(global.set $r (ref.null func))",
    "table.grow": "(drop (table.grow $t (ref.func $second) (i32.const 5)))",
    "table.set": "(table.set $t (i32.const 0) (ref.func $third))",
    "table.set null": "(table.set $t (i32.const 2) (ref.null func))",
    "table.copy": "(table.copy $t $u (i32.const 1) (i32.const 0) (i32.const 1))",
    "table.fill": "(table.fill $u (i32.const 0) (ref.func $first) (i32.const 2))",
    "table.init": "(table.init $t $passive (i32.const 0) (i32.const 0) (i32.const 1))",
    "memory.grow": "(drop (memory.grow (i32.const 1)))",
    "memory.init": "(memory.init $bytes (i32.const 200) (i32.const 0) (i32.const 8))",
    "store": "(i64.store (i32.const 600) (i64.const 0x0102030405060708))",
}

STEP = {
    "memory.size": "(call $mix (memory.size))",
    "memory.grow": "(call $mix (memory.grow (i32.eqz (i32.and (global.get $i) (i32.const 63)))))",
    "table.size": "(call $mix (table.size $t))",
    "table.grow": """(if (i32.eqz (i32.and (global.get $i) (i32.const 127)))
       (then (call $mix (table.grow $t (ref.func $first) (i32.const 1)))))""",
    "table.set": "(table.set $t (call $slot) (ref.func $second))",
    "table.set null": "(table.set $t (call $slot) (ref.null func))",
    "table to global": "(global.set $r (table.get $t (call $slot)))",
    "global to table": "(table.set $u (i32.const 0) (global.get $r))",
    "call table": "(call $through (table.get $t (call $slot)))",
    "call other table": "(call $through (table.get $u (i32.const 0)))",
    "call global": "(call $through (global.get $r))",
    "i64": "(global.set $l (i64.mul (global.get $l) (i64.const 6364136223846793005))) "
    "(call $mix (i32.wrap_i64 (i64.shr_u (global.get $l) (i64.const 33))))",
    "f32": "(call $mix (i32.reinterpret_f32 (global.get $f))) "
    "(global.set $f (f32.add (f32.convert_i32_s (global.get $i)) (f32.const 0.5)))",
    "f64": "(call $mix (i32.wrap_i64 (i64.reinterpret_f64 (global.get $d)))) "
    "(global.set $d (f64.neg (global.get $d)))",
    "store": "(i32.store (i32.and (global.get $i) (i32.const 0xffc)) (global.get $i))",
    "load": "(call $mix (i32.load (i32.and (global.get $i) (i32.const 0xffc))))",
    "memory.copy": "(memory.copy (i32.const 300) (i32.const 200) (i32.const 40))",
    "memory.init": "(memory.init $bytes (i32.const 400) (i32.const 1) (i32.const 4))",
    "table.init": "(table.init $t $passive (i32.const 0) (i32.const 0) (i32.const 1))",
}


def module(init: list[str], step: list[str]) -> str:
    return f"""(module (memory (export "memory") 1 6)
      (data (i32.const 200) "initialised data") (data $bytes "\\01\\02\\03\\04\\05\\06\\07\\08")
      (global $i (mut i32) (i32.const 1)) (global $l (mut i64) (i64.const 1))
      (global $f (mut f32) (f32.const 1)) (global $d (mut f64) (f64.const 1))
      (global $r (mut funcref) (ref.func $first))
      (table $t 3 40 funcref) (table $u 2 2 funcref)
      (elem (table $t) (i32.const 0) func $first $second $third) (elem $passive func $second)
      (elem declare func $first)
      (func $first (result i32) (i32.const 101)) (func $second (result i32) (i32.const 202))
      (func $third (result i32) (global.get $i))
      (func $mix (param $x i32)
        (global.set $i (i32.xor (global.get $i) (local.get $x)))
        (global.set $i (i32.add (i32.mul (global.get $i) (i32.const 0x9e3779b1)) (i32.const 7))))
      (func $slot (result i32) (i32.rem_u (global.get $i) (table.size $t)))
      (func $through (param $f funcref)
        (if (ref.is_null (local.get $f)) (then (call $mix (i32.const 3))) (else
          (table.set $u (i32.const 1) (local.get $f))
          (call $mix (call_indirect $u (result i32) (i32.const 1))))))
      (func (export "k32_init") {" ".join(INIT[a] for a in init)})
      (func (export "k32_tick") (result i32) (call $mix (i32.const 1)) {" ".join(STEP[a] for a in step)}
        (global.get $i)))"""


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    init=st.lists(st.sampled_from(sorted(INIT)), max_size=8),
    step=st.lists(st.sampled_from(sorted(STEP)), min_size=1, max_size=8),
    before=st.lists(st.integers(0, 40), min_size=2, max_size=2),
    limits=st.lists(st.sampled_from([6 * PAGE, 7 * PAGE, None]), min_size=2, max_size=2),
)
def test_a_pod_that_moved_answers_as_one_that_did_not(
    lab: Any, freeze: Any, init: list[str], step: list[str], before: list[int], limits: list[int | None]
) -> None:
    wat = module(init, step)
    stayed, moved = lab.start(wat), lab.start(wat)
    for pod in (stayed, moved):
        pod.call("k32_init", timeout_ms=None)
    for count, limit in zip(before, limits, strict=True):
        for _ in range(count):
            assert stayed.call("k32_tick", timeout_ms=None) == moved.call("k32_tick", timeout_ms=None)
        assert moved.blockers() == []
        moved = lab.restored(freeze(moved), wat, memory_limit=limit)
    answers = [[pod.call("k32_tick", timeout_ms=None) for _ in range(CALLS)] for pod in (stayed, moved)]
    assert answers[0] == answers[1]
    kept, carried = decode(freeze(stayed)), decode(freeze(moved))
    assert (kept.memory, kept.globals, kept.tables) == (carried.memory, carried.globals, carried.tables)


SMALL_STEP = sorted(set(STEP) - {"memory.grow"})


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    step=st.lists(st.sampled_from(SMALL_STEP), min_size=1, max_size=8),
    sizes=st.lists(st.integers(4096, PAGE), min_size=2, max_size=3).map(sorted),
)
def test_a_pod_below_a_page_moves_to_any_larger_limit(
    lab: Any, freeze: Any, step: list[str], sizes: list[int]
) -> None:
    wat = module([], step)
    stayed, moved = lab.start(wat, memory_limit=sizes[0]), lab.start(wat, memory_limit=sizes[0])
    for limit in sizes[1:]:
        moved = lab.restored(freeze(moved), wat, memory_limit=limit)
        for _ in range(50):
            assert stayed.call("k32_tick", timeout_ms=None) == moved.call("k32_tick", timeout_ms=None)
