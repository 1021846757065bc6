"""What a node pays: pods that come and go leave nothing behind, an idle node ticks not at all."""

import gc
import os
from pathlib import Path
from typing import Any

import wasmtime

from kube32.wasm import Instance, Mount

CYCLES = 1000
WAT = """(module (import "env" "k32_log" (func $log (param i32 i32)))
  (import "env" "k32_fs_open" (func $open (param i32 i32 i32) (result i32)))
  (memory (export "memory") 16) (data (i32.const 0) "/tmp/file")
  (table 10 funcref) (elem (i32.const 0) func $log)
  (func (export "k32_init")
    (call $log (i32.const 0) (i32.const 9)) (i32.store (i32.const 1000000) (i32.const 1))
    (drop (call $open (i32.const 0) (i32.const 9) (i32.const 7)))))"""
EXPORTED = WAT.replace("(table", '(func (export "k32_tick")) (table')


def resident() -> int:
    """Resident memory in bytes."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def descriptors() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


def test_a_thousand_pods_leave_no_memory_and_no_descriptors(lab: Any, tmp_path: Path) -> None:
    module = lab.engine.load(bytes(wasmtime.wat2wasm(EXPORTED)))
    mounts = [Mount("/tmp", tmp_path, read_only=False, quota=1000)]

    def cycle(restore: bool) -> None:
        services = lab.services(mounts=mounts, log=lambda line: None)
        pod = Instance.start(module, limits=lab.limits, memory_limit=None, services=services, restore=restore)
        if not restore:
            pod.call("k32_init", timeout_ms=1000)
        pod.capture(0, [])
        pod.close()

    for _ in range(50):
        cycle(False)
    gc.collect()
    memory, files = resident(), descriptors()
    for number in range(CYCLES):
        cycle(restore=number % 5 == 0)
    gc.collect()
    assert resident() - memory < 8 << 20
    assert descriptors() <= files


def test_a_pod_that_writes_its_log_in_a_loop_takes_no_memory(lab: Any) -> None:
    wat = """(module (import "env" "k32_log" (func $log (param i32 i32))) (memory (export "memory") 1)
      (func (export "k32_tick") (local $n i32) (local.set $n (i32.const 20000))
        (loop $l (call $log (i32.const 0) (i32.const 65536))
          (br_if $l (local.tee $n (i32.sub (local.get $n) (i32.const 1)))))))"""
    pod = lab.start(wat, services=lab.services(log=lambda line: None))
    pod.call("k32_tick", timeout_ms=None)
    memory = resident()
    pod.call("k32_tick", timeout_ms=None)
    assert resident() - memory < 1 << 20
