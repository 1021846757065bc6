"""Memory limits of any size: an access past the last byte traps, to the byte (decisions, "Modules")."""

from typing import Any

import pytest

from kube32.wasm import ModuleRefused, Trap

BOUNDS = "out of bounds memory access"
PAGE = 65536

ACCESSES = {
    "i32.load8_u": ("(drop (i32.load8_u {at}))", 1),
    "i32.load16_s": ("(drop (i32.load16_s {at}))", 2),
    "i32.load": ("(drop (i32.load {at}))", 4),
    "f64.load": ("(drop (f64.load {at}))", 8),
    "i64.load offset": ("(drop (i64.load offset=100 (i32.sub {at} (i32.const 100))))", 8),
    "i32.store8": ("(i32.store8 {at} (i32.const 7))", 1),
    "i64.store": ("(i64.store {at} (i64.const 7))", 8),
    "memory.fill": ("(memory.fill {at} (i32.const 9) (i32.const 5))", 5),
    "memory.copy to": ("(memory.copy {at} (i32.const 0) (i32.const 6))", 6),
    "memory.copy from": ("(memory.copy (i32.const 0) {at} (i32.const 6))", 6),
    "memory.init": ("(memory.init $d {at} (i32.const 0) (i32.const 3))", 3),
}


@pytest.mark.parametrize("limit", [1000, 32768, 65535])
@pytest.mark.parametrize("access", ACCESSES)
def test_a_limit_below_a_page_traps_at_exactly_the_limit(lab: Any, limit: int, access: str) -> None:
    code, size = ACCESSES[access]
    wat = f"""(module (memory (export "memory") 1) (data $d "abc")
      (func (export "k32_tick") {code.format(at=f"(i32.const {limit - size})")})
      (func (export "k32_handle") {code.format(at=f"(i32.const {limit - size + 1})")}))"""
    pod = lab.start(wat, memory_limit=limit)
    assert pod.memory_bytes == limit
    pod.call("k32_tick", timeout_ms=None)
    with pytest.raises(Trap, match=BOUNDS):
        pod.call("k32_handle", timeout_ms=None)


SIZES = """(module (memory (export "memory") {declared}) (global $n (mut i32) (i32.const 0))
  (func (export "k32_init") (result i32) (memory.size))
  (func (export "k32_tick") (result i32) (memory.grow (i32.const 0)))
  (func (export "k32_event") (result i32) (memory.grow (i32.const 1)))
  (func (export "k32_handle") (result i32) (memory.grow (i32.const -1))))"""


@pytest.mark.parametrize("declared", ["0", "1", "0 1", "1 10", "0 0"])
def test_a_limit_below_a_page_counts_one_page_that_cannot_grow(lab: Any, declared: str) -> None:
    pod = lab.start(SIZES.format(declared=declared), memory_limit=4096)
    answers = [
        pod.call(e, timeout_ms=None) for e in ("k32_init", "k32_tick", "k32_event", "k32_handle", "k32_init")
    ]
    assert answers == [1, 1, -1, -1, 1]


@pytest.mark.parametrize(("limit", "pages"), [(PAGE, 1), (2 * PAGE - 1, 1), (2 * PAGE, 2), (3 * PAGE + 5, 3)])
def test_a_limit_of_pages_gives_whole_pages(lab: Any, limit: int, pages: int) -> None:
    pod = lab.start(SIZES.format(declared="0 100"), memory_limit=limit)
    assert pod.call("k32_init", timeout_ms=None) == 0
    grown = [pod.call("k32_event", timeout_ms=None) for _ in range(pages + 1)]
    assert grown == [*range(pages), -1]
    assert pod.memory_bytes == pages * PAGE


def test_a_huge_growth_is_refused_without_taking_memory(lab: Any) -> None:
    pod = lab.start(SIZES.format(declared="1"), memory_limit=None)
    assert pod.call("k32_handle", timeout_ms=None) == -1
    assert pod.memory_bytes == PAGE


def test_without_a_limit_the_modules_maximum_holds(lab: Any) -> None:
    pod = lab.start(SIZES.format(declared="1 2"))
    assert [pod.call("k32_event", timeout_ms=None) for _ in range(3)] == [1, -1, -1]


def test_without_a_limit_the_contracts_cap_holds(lab: Any) -> None:
    limits = lab.limits.replace(pod_memory_default_max_bytes=3 * PAGE)
    pod = lab.start(SIZES.format(declared="1 1000"), limits=limits)
    assert [pod.call("k32_event", timeout_ms=None) for _ in range(3)] == [1, 2, -1]


@pytest.mark.parametrize(("declared", "limit"), [("2", PAGE), ("2", 4096), ("3", 2 * PAGE + 1000)])
def test_a_declared_minimum_above_the_limit_is_refused(lab: Any, declared: str, limit: int) -> None:
    with pytest.raises(
        ModuleRefused, match=f"declares {declared} pages of memory, the memory limit of {limit} bytes"
    ):
        lab.start(SIZES.format(declared=declared), memory_limit=limit)


def test_data_segments_may_reach_the_limit_and_no_further(lab: Any) -> None:
    wat = """(module (memory (export "memory") 1) (data (i32.const 4090) "abcdef")
      (func (export "k32_tick") (result i32) (i32.load8_u (i32.const 4095))))"""
    assert lab.start(wat, memory_limit=4096).call("k32_tick", timeout_ms=None) == ord("f")
    with pytest.raises(
        ModuleRefused, match="data segment 0 ends at byte 4096, the memory limit is 4095 bytes"
    ):
        lab.start(wat, memory_limit=4095)


def test_one_module_runs_under_many_limits_at_once(lab: Any) -> None:
    pods = [
        lab.start(SIZES.format(declared="1"), memory_limit=limit) for limit in (100, 5000, PAGE, 9 * PAGE)
    ]
    assert [p.memory_bytes for p in pods] == [100, 5000, PAGE, PAGE]


def test_tables_grow_to_the_contracts_limit(lab: Any) -> None:
    limits = lab.limits.replace(pod_table_elements=20)
    wat = """(module (memory (export "memory") 1) (table 5 funcref)
      (func (export "k32_tick") (result i32) (table.grow (ref.null func) (i32.const 15)))
      (func (export "k32_handle") (result i32) (table.grow (ref.null func) (i32.const 1))))"""
    pod = lab.start(wat, limits=limits)
    assert pod.call("k32_tick", timeout_ms=None) == 5
    assert pod.call("k32_handle", timeout_ms=None) == -1
