"""Logs: a ring of lines per run, the previous run's kept, what is asked by kubectl, a pod that writes in a
loop.
"""

import asyncio
import time
from typing import Any

import pytest

from kube32.contract import LIMITS, Limits
from kube32.kubelet.logs import ContainerLog, LogQuery

LOGS_IN_A_LOOP = """
(module (import "env" "k32_log" (func $log (param i32 i32))) (memory (export "memory") 1)
  (data (i32.const 0) "again")
  (func (export "k32_handle") (local i32)
    (loop (call $log (i32.const 0) (i32.const 5))
      (local.set 0 (i32.add (local.get 0) (i32.const 1)))
      (br_if 0 (i32.lt_u (local.get 0) (i32.const 500))))))
"""
LOGS_AND_TRAPS = """
(module (import "env" "k32_log" (func $log (param i32 i32))) (memory (export "memory") 1)
  (data (i32.const 0) "hello")
  (func (export "k32_init") (call $log (i32.const 0) (i32.const 5)))
  (func (export "k32_handle") (call $log (i32.const 0) (i32.const 4)) unreachable))
"""


@pytest.fixture
def limits() -> Limits:
    return LIMITS.replace(pod_log_ring_bytes=2000, pod_log_lines_per_s=10, pod_log_burst_lines=20)


async def read(log: ContainerLog, **query: Any) -> bytes:
    """All that a reader gets."""
    return b"".join([piece async for piece in log.read(LogQuery(**query))])


async def test_the_ring_keeps_the_newest_lines(limits: Limits) -> None:
    log = ContainerLog(LIMITS.replace(pod_log_ring_bytes=400))
    for number in range(100):
        log.write(f"line {number}")
    lines = (await read(log)).splitlines()
    assert lines[-1] == b"line 99" and 5 <= len(lines) <= 12


async def test_what_a_loop_writes_too_much_is_dropped_and_counted(limits: Limits) -> None:
    log = ContainerLog(limits)
    for _ in range(70):
        log.write("x")
    log.close()
    lines = (await read(log)).splitlines()
    assert lines[-1] == b"50 log lines dropped: more than 10 a second"


async def test_tail_since_limit_and_timestamps(limits: Limits) -> None:
    log = ContainerLog(limits)
    for number in range(3):
        log.write(f"line {number}")
    assert await read(log, tail_lines=1) == b"line 2\n"
    assert await read(log, tail_lines=0) == b""
    assert await read(log, limit_bytes=9) == b"line 0\nli"
    assert await read(log, since_unix_ns=time.time_ns() + 1_000_000_000) == b""
    stamp, line = (await read(log, timestamps=True, tail_lines=1)).split(b" ", 1)
    assert stamp.endswith(b"Z") and len(stamp) == 30 and line == b"line 2\n"


async def test_a_follower_gets_later_lines_and_ends_with_the_run(limits: Limits) -> None:
    log = ContainerLog(limits)
    log.write("first")
    follower = asyncio.create_task(read(log, follow=True))
    await asyncio.sleep(0.01)
    await asyncio.to_thread(log.write, "second\nthird")
    await asyncio.sleep(0.01)
    log.close()
    assert await asyncio.wait_for(follower, 10) == b"first\nsecond\nthird\n"


async def test_long_lines_are_cut_and_empty_lines_fill_the_ring_too() -> None:
    log = ContainerLog(LIMITS.replace(pod_log_ring_bytes=3000))
    log.write("x" * 5000)
    assert len(await read(log)) == LIMITS.pod_log_line_bytes + 1
    for _ in range(500):
        log.write("")
    assert len(log.lines()) <= 3000 // 32


async def test_the_log_endpoint_answers_the_previous_run_after_a_trap(bench: Any, tools: Any) -> None:
    node = await bench.node()
    await bench.running("bad", LOGS_AND_TRAPS)
    path = "/containerLogs/default/bad/main"
    assert (await node.get(path)).body == b"hello\n"
    reply = await node.get(f"{path}?previous=true")
    assert reply.status == 400
    assert reply.json["message"] == 'previous terminated container "main" in pod "bad" not found'
    await node.ask("bad")
    await tools.until(lambda: tools.status(bench.cluster.pod("bad"))["restartCount"] == 1)
    await bench.until_ready("bad")
    assert (await node.get(f"{path}?previous=true")).body == b"hello\nhell\n"
    assert (await node.get(path)).body == b"hello\n"


async def test_the_log_of_a_container_that_waits_says_why(bench: Any) -> None:
    node = await bench.node()
    bench.pod("none", container={"image": "nginx"})
    await bench.until_waiting("none", "InvalidImageName")
    reply = await node.get("/containerLogs/default/none/main")
    assert reply.status == 400
    assert reply.json["message"] == 'container "main" in pod "none" is waiting to start: InvalidImageName'


async def test_the_log_of_a_run_before_the_node_restarted_is_gone(bench: Any) -> None:
    await bench.node()
    ends = '(module (memory (export "memory") 1) (func (export "main") (result i32) (i32.const 0)))'
    bench.pod("job", ends, spec={"restartPolicy": "Never"})
    await bench.until_phase("job", "Succeeded")
    await bench.stop("one")
    node = await bench.node()
    reply = await node.get("/containerLogs/default/job/main")
    assert reply.status == 400
    assert reply.json["message"].startswith("unable to retrieve container logs for wasm://")


@pytest.mark.parametrize(
    "query", ["tailLines=x", "tailLines=-1", "sinceSeconds=0", "sinceTime=never", "limitBytes=0"]
)
async def test_a_bad_log_parameter_is_a_400(bench: Any, query: str) -> None:
    node = await bench.node()
    await bench.running("echo")
    assert (await node.get(f"/containerLogs/default/echo/main?{query}")).status == 400


async def test_a_pod_that_logs_in_a_loop_answers_and_its_log_stays_small(bench: Any) -> None:
    node = await bench.node()
    await bench.running("loud", LOGS_IN_A_LOOP)
    assert (await node.ask("loud")).status == 200
    await asyncio.sleep(0.2)
    await node.ask("loud")
    body = (await node.get("/containerLogs/default/loud/main")).body
    assert len(body) < 2000 and b"log lines dropped" in body
