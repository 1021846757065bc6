"""Calls: results, traps in words, deadlines, interruption, the start function, entry points."""

import threading
import time
from typing import Any

import pytest

from kube32.wasm import HttpCall, PodExit, Trap

TRAPS = {
    "unreachable": "(unreachable)",
    "out of bounds memory access": "(drop (i32.load (i32.const -4)))",
    "out of bounds table access": "(drop (table.get $t (i32.const 9)))",
    "integer divide by zero": "(drop (i32.div_s (i32.const 1) (i32.const 0)))",
    "integer overflow": "(drop (i32.div_s (i32.const 0x80000000) (i32.const -1)))",
    "invalid conversion to integer": "(drop (i32.trunc_f32_s (f32.const nan)))",
    "indirect call to an empty table entry": "(call_indirect (i32.const 1))",
    "indirect call with the wrong function type": "(call_indirect (param i32) (i32.const 0) (i32.const 0))",
    "call stack exhausted": "(call $deep)",
}


@pytest.mark.parametrize("message", TRAPS)
def test_a_trap_says_what_happened_and_leaves_the_instance_callable(lab: Any, message: str) -> None:
    wat = f"""(module (memory (export "memory") 1) (table $t 2 funcref) (elem (i32.const 0) $nothing)
      (func $nothing) (func $deep (call $deep))
      (func (export "k32_tick") {TRAPS[message]})
      (func (export "k32_handle") (result i32) (i32.const 5)))"""
    pod = lab.start(wat)
    with pytest.raises(Trap) as caught:
        pod.call("k32_tick", timeout_ms=60_000)
    assert (caught.value.export, caught.value.kind, caught.value.message) == ("k32_tick", "trap", message)
    assert pod.call("k32_handle", timeout_ms=60_000) == 5


LOOP = """(module (memory (export "memory") 1) (func (export "k32_tick") (loop $l (br $l)))
  (func (export "k32_handle") (result i32) (i32.const -3)))"""


def test_a_call_past_its_deadline_ends(lab: Any) -> None:
    pod = lab.start(LOOP)
    begun = time.monotonic()
    with pytest.raises(Trap, match="ran longer than 30 ms") as caught:
        pod.call("k32_tick", timeout_ms=30)
    assert caught.value.kind == "deadline"
    assert time.monotonic() - begun >= 0.03
    assert pod.call("k32_handle", timeout_ms=30) == -3


def test_a_call_meets_the_deadline_while_it_loops_in_host_calls(lab: Any) -> None:
    wat = """(module (import "env" "k32_log" (func $log (param i32 i32))) (memory (export "memory") 1)
      (func (export "k32_tick") (loop $l (call $log (i32.const 0) (i32.const 4)) (br $l))))"""
    written = []
    pod = lab.start(wat, services=lab.services(log=lambda line: written.append(len(line))))
    with pytest.raises(Trap) as caught:
        pod.call("k32_tick", timeout_ms=30)
    assert caught.value.kind == "deadline"
    assert written


def test_interrupt_ends_the_running_call_and_every_later_one(lab: Any) -> None:
    pod = lab.start(LOOP)
    threading.Timer(0.03, pod.interrupt).start()
    with pytest.raises(Trap) as caught:
        pod.call("k32_tick", timeout_ms=None)
    assert caught.value.kind == "interrupted"
    with pytest.raises(Trap) as caught:
        pod.call("k32_handle", timeout_ms=None)
    assert caught.value.kind == "interrupted"


def test_one_pods_interruption_does_not_touch_another(lab: Any) -> None:
    stopped, other = lab.start(LOOP), lab.start(LOOP)
    ended: dict[str, str] = {}

    def run(name: str, pod: Any) -> None:
        try:
            pod.call("k32_tick", timeout_ms=150)
        except Trap as trap:
            ended[name] = trap.kind

    threads = [threading.Thread(target=run, args=a) for a in (("stopped", stopped), ("other", other))]
    for thread in threads:
        thread.start()
    stopped.interrupt()
    for thread in threads:
        thread.join()
    assert ended == {"stopped": "interrupted", "other": "deadline"}


ENTRY = """(module (import "env" "k32_sleep_ms" (func $sleep (param i32)))
  (import "env" "k32_exit" (func $exit (param i32))) (memory (export "memory") 1)
  (func (export "{name}") {result} {body}))"""


def test_an_entry_point_sleeps_until_it_is_interrupted(lab: Any) -> None:
    pod = lab.start(ENTRY.format(name="_start", result="", body="(call $sleep (i32.const 60000))"))
    threading.Timer(0.03, pod.interrupt).start()
    with pytest.raises(Trap) as caught:
        pod.call("_start", timeout_ms=None)
    assert caught.value.kind == "interrupted"


def test_k32_exit_ends_an_entry_point_with_its_code(lab: Any) -> None:
    pod = lab.start(
        ENTRY.format(name="app_main", result="", body="(call $exit (i32.const -7)) (unreachable)")
    )
    with pytest.raises(PodExit) as caught:
        pod.call("app_main", timeout_ms=None)
    assert caught.value.code == -7


def test_main_gives_its_exit_code(lab: Any) -> None:
    pod = lab.start(
        ENTRY.format(name="main", result="(result i32)", body="(call $sleep (i32.const -1)) (i32.const 3)")
    )
    assert pod.call("main", timeout_ms=None) == 3


def test_a_request_pod_goes_on_after_k32_exit_and_k32_sleep_ms(lab: Any) -> None:
    body = "(call $sleep (i32.const 60000)) (call $exit (i32.const 1)) (i32.const 11)"
    pod = lab.start(ENTRY.format(name="k32_tick", result="(result i32)", body=body))
    assert pod.call("k32_tick", timeout_ms=5000) == 11


def test_the_start_function_runs_once_at_a_fresh_start_with_host_functions(lab: Any) -> None:
    wat = """(module (import "env" "k32_log" (func $log (param i32 i32))) (memory (export "memory") 1)
      (data (i32.const 0) "begun") (start $s) (func $s (call $log (i32.const 0) (i32.const 5)))
      (func (export "k32_tick")))"""
    lab.start(wat)
    assert lab.logs == ["begun"]
    lab.start(wat, restore=True)
    assert lab.logs == ["begun"]


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ('(data (i32.const 65535) "ab")', "out of bounds memory access"),
        ("(table 1 funcref) (elem (i32.const 1) $s)", "out of bounds table access"),
        ("(start $s)", "unreachable"),
    ],
)
def test_a_failed_start_is_a_trap(lab: Any, fields: str, message: str) -> None:
    wat = f"""(module (memory (export "memory") 1 2) (func $s unreachable) {fields}
      (func (export "k32_tick")))"""
    with pytest.raises(Trap, match=message) as caught:
        lab.start(wat, memory_limit=2 * 65536)
    assert caught.value.export == "(start)"


def test_a_failing_host_function_ends_the_call_and_not_the_node(lab: Any) -> None:
    wat = """(module (import "env" "k32_unix_ms" (func $t (result i64))) (memory (export "memory") 1)
      (func (export "k32_tick") (drop (call $t))))"""

    def broken() -> int:
        raise OSError("no clock")

    pod = lab.start(wat, services=lab.services(unix_ms=broken))
    with pytest.raises(Trap, match="the node failed in k32_unix_ms: OSError: no clock") as caught:
        pod.call("k32_tick", timeout_ms=None)
    assert caught.value.kind == "fault"


def test_a_call_of_an_export_that_is_not_there_is_an_error(lab: Any) -> None:
    pod = lab.start(LOOP)
    assert pod.has("k32_handle") and not pod.has("k32_init") and not pod.has("memory")
    with pytest.raises(KeyError):
        pod.call("k32_init", timeout_ms=None)


def test_the_request_is_gone_after_its_call(lab: Any) -> None:
    wat = """(module (import "env" "k32_req_body_len" (func $len (result i32))) (memory (export "memory") 1)
      (func (export "k32_handle") (result i32) (call $len)))"""
    pod = lab.start(wat)
    assert pod.call("k32_handle", timeout_ms=None, request=HttpCall("GET", "/", body=b"four")) == 4
    assert pod.call("k32_handle", timeout_ms=None) == -2


def test_the_ticker_stands_still_while_no_call_runs(lab: Any) -> None:
    pod = lab.start(LOOP)
    with pytest.raises(Trap):
        pod.call("k32_tick", timeout_ms=5)
    ticker = lab.engine.ticker
    wait_until = time.monotonic() + 5
    while not ticker._parked and time.monotonic() < wait_until:
        time.sleep(0.005)
    assert ticker._parked


@pytest.mark.parametrize(
    ("code", "bits"),
    [
        ("(i32.reinterpret_f32 (f32.div (f32.const 0) (f32.const 0)))", 0x7FC00000),
        (
            "(i32.reinterpret_f32 (f32.add (f32.reinterpret_i32 (i32.const 0xffa00001)) (f32.const 1)))",
            0x7FC00000,
        ),
        ("(i32.reinterpret_f32 (f32.neg (f32.reinterpret_i32 (i32.const 0x7fa00001))))", 0xFFA00001),
        ("(i32.reinterpret_f32 (f32.abs (f32.reinterpret_i32 (i32.const 0xffa00001))))", 0x7FA00001),
        (
            "(i32.wrap_i64 (i64.shr_u (i64.reinterpret_f64 (f64.sqrt (f64.const -1))) (i64.const 32)))",
            0x7FF80000,
        ),
    ],
)
def test_arithmetic_nans_are_canonical_and_moved_bits_stay(lab: Any, code: str, bits: int) -> None:
    wat = f"""(module (memory (export "memory") 1) (func (export "k32_tick") (result i32) {code}))"""
    assert lab.start(wat).call("k32_tick", timeout_ms=None) & 0xFFFFFFFF == bits
