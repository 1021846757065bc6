"""Capture and restore: exact bits, functions by index, the same bytes each time ("Snapshot format")."""

from typing import Any

import pytest

from kube32.formats.k32s import Channel, SnapshotRefused, decode
from kube32.wasm import Instance

PAGE = 65536
NULL = 0xFFFFFFFF

STATEFUL = """(module
  (import "env" "k32_log" (func $log (param i32 i32)))
  (import "env" "kube32_channel_open" (func $open (param i32 i32) (result i32)))
  (memory (export "memory") 1 8)
  (data (i32.const 100) "fresh") (data (i32.const 0) "north")
  (global $i (mut i32) (i32.const 1)) (global $fixed i32 (i32.const 9))
  (global $l (mut i64) (i64.const 2)) (global $f (mut f32) (f32.const 0)) (global $d (mut f64) (f64.const 0))
  (global $r (mut funcref) (ref.func $b))
  (table $t 3 10 funcref) (table $u 1 funcref)
  (elem (table $t) (i32.const 0) func $a $b) (elem declare func $hidden $log)
  (func $a (result i32) (i32.const 10)) (func $b (result i32) (i32.const 20))
  (func $hidden (result i32) (i32.const 30))
  (func (export "k32_init")
    (global.set $i (i32.const -2)) (global.set $l (i64.const -3))
    (global.set $f (f32.reinterpret_i32 (i32.const 0x7fa00001)))
    (global.set $d (f64.reinterpret_i64 (i64.const 0xfff4000000000005)))
    (global.set $r (ref.func $hidden))
    (drop (table.grow $t (ref.func $log) (i32.const 2)))
    (table.set $t (i32.const 1) (ref.null func))
    (table.set $u (i32.const 0) (ref.func $hidden))
    (drop (memory.grow (i32.const 2)))
    (i32.store (i32.const 100) (i32.const 0)) (i32.store8 (i32.const 104) (i32.const 0))
    (i32.store (i32.const 196600) (i32.const 0x1234))
    (drop (call $open (i32.const 0) (i32.const 5))))
  (func (export "k32_tick") (result i32)
    (table.set $u (i32.const 0) (global.get $r))
    (i32.add (call_indirect $u (result i32) (i32.const 0)) (global.get $i))))"""


@pytest.fixture
def pod(lab: Any) -> Instance:
    instance: Instance = lab.start(STATEFUL, memory_limit=4 * PAGE)
    instance.call("k32_init", timeout_ms=None)
    return instance


def test_a_snapshot_holds_every_hidden_part_with_exact_bits(pod: Instance, freeze: Any) -> None:
    snapshot = decode(freeze(pod))
    assert [(g.index, g.type, g.bits) for g in snapshot.globals] == [
        (0, "i32", 0xFFFFFFFE),
        (2, "i64", 0xFFFFFFFFFFFFFFFD),
        (3, "f32", 0x7FA00001),
        (4, "f64", 0xFFF4000000000005),
        (5, "funcref", 4),
    ]
    assert [(t.index, list(t.entries)) for t in snapshot.tables] == [(0, [2, NULL, NULL, 0, 0]), (1, [4])]
    assert snapshot.channels == [Channel(1, "north")]
    assert (snapshot.memory_pages, snapshot.memory_bytes) == (3, 3 * PAGE)
    assert bytes(snapshot.memory[196600:196604]) == b"\x34\x12\0\0"


def test_the_same_frozen_pod_gives_the_same_bytes_each_time(pod: Instance, freeze: Any) -> None:
    assert freeze(pod, 77) == freeze(pod, 77)
    assert pod.blockers() == []
    assert freeze(pod, 77) == freeze(pod, 77)


@pytest.mark.parametrize("piece", [1000, 1 << 20])
def test_a_restored_pod_captured_before_any_call_is_the_snapshot(
    lab: Any, pod: Instance, freeze: Any, piece: int
) -> None:
    data = freeze(pod, 55)
    restored = lab.restored(data, STATEFUL, memory_limit=4 * PAGE, piece=piece)
    assert freeze(restored, 55) == data
    assert lab.logs == []
    assert restored.call("k32_tick", timeout_ms=None) == pod.call("k32_tick", timeout_ms=None) == 28


def test_many_moves_change_nothing(lab: Any, pod: Instance, freeze: Any) -> None:
    data = freeze(pod)
    for hop in range(20):
        restored = lab.restored(data, STATEFUL, memory_limit=(4 + hop % 2) * PAGE)
        assert freeze(restored) == data


SMALL = """(module (memory (export "memory") {declared})
  (data (i32.const 4000) "old") (data (i32.const 20) "x")
  (func (export "k32_init")
    (i32.store8 (i32.const 20) (i32.const 65)) (i32.store8 (i32.const 4001) (i32.const 66)))
  (func (export "k32_tick") (result i32) (i32.load8_u (i32.const 20)))
  (func (export "k32_handle") (result i32) (memory.size)))"""


@pytest.mark.parametrize("larger", [8192, PAGE, 3 * PAGE])
@pytest.mark.parametrize("declared", ["1", "1 1"])
def test_restored_under_a_larger_limit_the_rest_is_zero(
    lab: Any, freeze: Any, larger: int, declared: str
) -> None:
    wat = SMALL.format(declared=declared)
    source = lab.start(wat, memory_limit=4096)
    source.call("k32_init", timeout_ms=None)
    data = freeze(source)
    assert decode(data).memory_bytes == 4096
    restored = lab.restored(data, wat, memory_limit=larger)
    memory = bytes(restored.capture(0, []).memory)
    assert memory[:4096] == bytes(source.capture(0, []).memory)
    assert len(memory) == min(larger, PAGE) and not any(memory[4096:])
    assert restored.call("k32_tick", timeout_ms=None) == 65
    assert restored.call("k32_handle", timeout_ms=None) == 1


def test_data_of_a_fresh_start_beyond_the_snapshot_is_zeroed(lab: Any, freeze: Any) -> None:
    """A pod below a page has no segment past its limit; the rest of the page must be zero all the same."""
    wat = """(module (memory (export "memory") 0) (func (export "k32_tick")))"""
    data = freeze(lab.start(wat, memory_limit=100))
    restored = lab.restored(data, wat, memory_limit=PAGE)
    assert restored.memory_bytes == PAGE
    assert not any(restored.capture(0, []).memory)


def test_a_smaller_limit_refuses_before_memory_is_written(lab: Any, pod: Instance, freeze: Any) -> None:
    reader = lab.start(STATEFUL, memory_limit=2 * PAGE, restore=True).restorer()
    with pytest.raises(
        SnapshotRefused, match="the pod's memory limit gives 131072 bytes, the snapshot holds 196608"
    ):
        reader.feed(freeze(pod)[:68])


def test_another_modules_snapshot_is_refused(lab: Any, pod: Instance, freeze: Any) -> None:
    reader = lab.start(SMALL.format(declared="1"), restore=True).restorer()
    with pytest.raises(SnapshotRefused, match="was taken from module"):
        reader.feed(freeze(pod))


def test_a_page_that_the_modules_maximum_forbids_is_refused(lab: Any, freeze: Any) -> None:
    wat = """(module (memory (export "memory") 0 0) (func (export "k32_tick")))"""
    data = freeze(lab.start(wat, memory_limit=100))
    reader = lab.start(wat, memory_limit=PAGE, restore=True).restorer()
    with pytest.raises(SnapshotRefused, match="does not match the module's maximum of 0"):
        reader.feed(data)


def test_a_function_that_no_reference_can_lead_to_is_refused(lab: Any, pod: Instance, freeze: Any) -> None:
    data = bytearray(freeze(pod))
    at = data.index((4).to_bytes(8, "little"), 68 + 3 * PAGE)
    data[at] = 6
    reader = lab.start(STATEFUL, memory_limit=4 * PAGE, restore=True).restorer()
    with pytest.raises(SnapshotRefused):
        reader.feed(bytes(data))


DROPS = """(module (memory (export "memory") 1) (table 2 funcref)
  (data $a "first") (data $empty "") (data $b "second") (elem $e func $f) (elem $g func $f) (func $f)
  (data (i32.const 0) "active")
  (func (export "k32_tick") (data.drop $b) (data.drop $empty) (elem.drop $e))
  (func (export "k32_handle") (memory.init $b (i32.const 0) (i32.const 0) (i32.const 6)))
  (func (export "k32_event") (result i32) (i32.load8_u (i32.const 0))))"""


@pytest.mark.parametrize("limit", [PAGE, 1000])
def test_dropped_segments_are_named_blockers(lab: Any, freeze: Any, limit: int) -> None:
    pod = lab.start(DROPS, memory_limit=limit)
    before = freeze(pod)
    assert pod.blockers() == []
    assert freeze(pod) == before
    pod.call("k32_handle", timeout_ms=None)
    pod.call("k32_tick", timeout_ms=None)
    assert pod.blockers() == ["dropped data segment 2", "dropped element segment 0"]
    assert pod.call("k32_event", timeout_ms=None) == ord("s")


def test_passive_segments_are_fresh_after_a_restore(lab: Any, freeze: Any) -> None:
    pod = lab.start(DROPS)
    restored = lab.restored(freeze(pod), DROPS)
    restored.call("k32_handle", timeout_ms=None)
    assert restored.call("k32_event", timeout_ms=None) == ord("s")


def test_a_snapshots_memory_stays_readable_after_the_pod_is_closed(lab: Any, freeze: Any) -> None:
    pod = lab.start(STATEFUL, memory_limit=4 * PAGE)
    memory = pod.capture(0, []).memory
    lab.pods.remove(pod)
    pod.close()
    del pod
    assert bytes(memory[100:105]) == b"fresh"
    assert memory.readonly


def test_an_own_export_named_like_a_hidden_one_does_no_harm(lab: Any, freeze: Any) -> None:
    wat = """(module (memory (export "memory") 1) (global $g (mut i32) (i32.const 5))
      (func (export "\\01k32.g0") (result i32) (i32.const 1))
      (func (export "k32_tick") (global.set $g (i32.const 8))))"""
    pod = lab.start(wat)
    pod.call("k32_tick", timeout_ms=None)
    assert decode(freeze(pod)).globals[0].bits == 8


def test_a_clock_goes_on_from_the_snapshot_and_never_backward(lab: Any, freeze: Any) -> None:
    wat = """(module (import "env" "k32_time_ms" (func $time (result i64))) (memory (export "memory") 1)
      (func (export "k32_tick") (result i32) (i32.wrap_i64 (call $time))))"""
    pod = lab.start(wat)
    pod.services.clock.set(123_456)
    data = freeze(pod, 99)
    assert 123_456 <= decode(data).pod_time_ms < 123_456 + 60_000
    restored = lab.restored(data, wat)
    assert restored.call("k32_tick", timeout_ms=None) == decode(data).pod_time_ms
    restored.services.clock.thaw()
    assert restored.call("k32_tick", timeout_ms=None) >= decode(data).pod_time_ms


def test_two_restores_of_one_snapshot_differ_in_randomness_and_instance_id(lab: Any, freeze: Any) -> None:
    wat = """(module (import "env" "k32_random" (func $random (param i32 i32)))
      (import "env" "k32_instance_id" (func $id (result i64))) (memory (export "memory") 1)
      (func (export "k32_tick")
        (call $random (i32.const 0) (i32.const 16)) (i64.store (i32.const 16) (call $id))))"""
    data = freeze(lab.start(wat))
    seen = []
    for _ in range(3):
        pod = lab.restored(data, wat)
        pod.call("k32_tick", timeout_ms=None)
        memory = pod.capture(0, []).memory
        assert int.from_bytes(memory[16:24], "little", signed=True) == pod.instance_id != 0
        seen.append((bytes(memory[:16]), pod.instance_id))
    assert len({r for r, _ in seen}) == len({i for _, i in seen}) == 3
