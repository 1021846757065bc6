"""Termination messages: what a pod writes to terminationMessagePath, or the end of its log when it failed."""

from typing import Any

import pytest

from kube32.contract import LIMITS

# Logs "why", writes "bye" to the file, then ends with a code or a trap.
ENDS = """(module
  (import "env" "k32_log" (func $log (param i32 i32)))
  (import "env" "k32_fs_open" (func $open (param i32 i32 i32) (result i32)))
  (import "env" "k32_fs_write" (func $write (param i32 i32 i32) (result i32)))
  (memory (export "memory") 1)
  (data (i32.const 0) "/dev/termination-logbyewhy")
  (func (export "main") (result i32)
    (call $log (i32.const 23) (i32.const 3))
    {write}
    {end}))"""
WRITES = "(drop (call $write (call $open (i32.const 0) (i32.const 20) (i32.const 6)) (i32.const 20) (i32.const 3)))"
FALLBACK = {"terminationMessagePolicy": "FallbackToLogsOnError"}


@pytest.mark.parametrize(
    ("write", "end", "policy", "message"),
    [
        (WRITES, "(i32.const 0)", {}, "bye"),
        (WRITES, "unreachable", FALLBACK, "bye"),
        ("", "(i32.const 3)", FALLBACK, "why"),
        ("", "unreachable", FALLBACK, "why\ncall main trapped: unreachable"),
        ("", "unreachable", {}, "call main trapped: unreachable"),
        ("", "(i32.const 0)", FALLBACK, None),
    ],
)
async def test_a_container_says_why_it_ended(
    bench: Any, tools: Any, write: str, end: str, policy: dict[str, Any], message: str | None
) -> None:
    await bench.node()
    container = {"terminationMessagePath": "/dev/termination-log", **policy}
    wat = ENDS.format(write=write, end=end)
    bench.pod("job", wat, container=container, spec={"restartPolicy": "Never"})
    await tools.until(lambda: bench.cluster.pod("job")["status"].get("phase") in ("Succeeded", "Failed"))
    ended = tools.status(bench.cluster.pod("job"))["state"]["terminated"]
    assert ended.get("message") == message


async def test_the_file_takes_a_few_kilobytes_and_no_more(bench: Any, tools: Any) -> None:
    await bench.node()
    much = f"""(drop (call $write (call $open (i32.const 0) (i32.const 20) (i32.const 6))
      (i32.const 20) (i32.const {LIMITS.pod_last_words_bytes + 1})))"""
    container = {"terminationMessagePath": "/dev/termination-log"}
    wat = ENDS.format(write=much, end="(i32.const 4)")
    bench.pod("job", wat, container=container, spec={"restartPolicy": "Never"})
    await bench.until_phase("job", "Failed")
    ended = tools.status(bench.cluster.pod("job"))["state"]["terminated"]
    assert (ended["exitCode"], ended["message"]) == (4, "exit code 4")
