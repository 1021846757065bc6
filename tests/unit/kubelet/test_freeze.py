"""Freezing, snapshots and thawing at the kubelet's endpoints, as the specification has them."""

import asyncio
import hashlib
from pathlib import Path
from typing import Any

import pytest

from kube32.contract import LIMITS, Limits
from kube32.formats.k32s import decode

SLEEPY = """
(module (import "env" "k32_time_ms" (func $time (result i64)))
  (memory (export "memory") 1) (global $n (mut i32) (i32.const 0))
  (func (export "k32_handle") (local i64) (local.set 0 (i64.add (call $time) (i64.const 400)))
    (loop (br_if 0 (i64.lt_u (call $time) (local.get 0))))))
"""
TRAPS_LATE = SLEEPY.replace("(local.get 0))))", "(local.get 0)))) unreachable")
OPENS = """
(module (import "env" "k32_fs_open" (func $open (param i32 i32 i32) (result i32)))
  (memory (export "memory") 1) (data (i32.const 0) "/tmp/state") (data $d "x")
  (func (export "k32_handle") (drop (call $open (i32.const 0) (i32.const 10) (i32.const 6))) (data.drop $d)))
"""
BIG = '(module (memory (export "memory") 160) (func (export "k32_handle")))'


@pytest.fixture
def limits() -> Limits:
    return LIMITS.replace(pod_frozen_ready_ms=50, snapshot_read_stall_ms=300)


async def test_a_checkpoint_is_the_snapshot_with_its_headers_and_the_pod_goes_on(bench: Any) -> None:
    node = await bench.node()
    pod = await bench.running("echo")
    await node.ask("echo")
    reply = await node.checkpoint("echo")
    assert reply.status == 200
    assert reply.headers["Content-Type"] == "application/octet-stream"
    assert reply.headers["Content-Length"] == str(len(reply.body))
    digest = pod["metadata"]["annotations"]["kube32.io/wasm-sha256"]
    assert reply.headers["X-Kube32-Image-Sha256"] == digest
    assert reply.headers["X-Kube32-Snapshot-Sha256"] == reply.body[-32:].hex()
    assert hashlib.sha256(reply.body[:-32]).digest() == reply.body[-32:]
    snapshot = decode(reply.body, limits=LIMITS)
    assert reply.headers["X-Kube32-Pod-Time-Ms"] == str(snapshot.pod_time_ms)
    assert snapshot.image_sha256.hex() == digest
    assert [c.name for c in snapshot.channels] == ["news"]
    assert (await node.ask("echo")).body == b"200"


async def test_a_frozen_pod_answers_503_and_is_reported_not_ready(bench: Any, tools: Any) -> None:
    node = await bench.node()
    pod = await bench.running("echo")
    assert (await node.checkpoint("echo", "?leave=frozen")).status == 200
    reply = await node.ask("echo")
    assert reply.status == 503
    assert reply.headers["Retry-After"] == "1"
    assert reply.headers["X-Kube32-Frozen"] == pod["metadata"]["uid"]
    await tools.until(lambda: tools.condition(bench.cluster.pod("echo"), "Ready")["status"] == "False")
    status = bench.cluster.pod("echo")["status"]
    assert tools.condition(bench.cluster.pod("echo"), "Ready")["reason"] == "Frozen"
    assert status["phase"] == "Running" and not status["containerStatuses"][0]["ready"]
    assert (await node.thaw("echo")).json == {"thawed": True}
    await bench.until_ready("echo")
    assert (await node.ask("echo")).status == 200


async def test_the_same_frozen_pod_gives_the_same_bytes(bench: Any) -> None:
    node = await bench.node()
    await bench.running("echo")
    first = await node.checkpoint("echo", "?leave=frozen")
    await asyncio.sleep(0.02)
    again = await node.checkpoint("echo", "?leave=running")
    third = await node.checkpoint("echo", "?leave=frozen")
    assert first.body == again.body == third.body


async def test_leave_running_never_thaws_a_freeze_that_it_did_not_make(bench: Any) -> None:
    node = await bench.node()
    await bench.running("echo")
    await node.checkpoint("echo", "?leave=frozen")
    await node.checkpoint("echo", "?leave=running")
    assert (await node.ask("echo")).status == 503


async def test_thawing_a_pod_that_is_not_frozen_is_a_404(bench: Any) -> None:
    node = await bench.node()
    await bench.running("echo")
    reply = await node.thaw("echo")
    assert reply.status == 404 and reply.json["reason"] == "NotFound"
    assert reply.json["message"] == "pod default/echo is not frozen"


async def test_thawing_looks_first_whether_the_pod_is_still_here(bench: Any) -> None:
    node = await bench.node()
    await bench.running("echo")
    await node.checkpoint("echo", "?leave=frozen")
    # Replaced, and the watch has not told it yet.
    bench.cluster.silence()
    bench.cluster.replace_pod("echo", "two")
    assert (await node.thaw("echo")).status == 404
    assert (await node.ask("echo")).status == 503


async def test_a_freeze_waits_for_the_current_call(bench: Any, tools: Any) -> None:
    node = await bench.node()
    await bench.running("slow", SLEEPY)
    call = asyncio.create_task(node.ask("slow"))
    await running_call(node, tools, "slow")
    reply = await node.checkpoint("slow", "?leave=frozen")
    assert reply.status == 200
    async with asyncio.timeout(10):  # a frozen pod would never answer it
        assert (await call).status == 200


async def test_a_call_that_outlasts_the_timeout_is_a_504_and_the_pod_goes_on(bench: Any, tools: Any) -> None:
    node = await bench.node()
    await bench.running("slow", SLEEPY)
    call = asyncio.create_task(node.ask("slow"))
    await running_call(node, tools, "slow")
    waiting = asyncio.create_task(node.ask("slow"))
    reply = await node.checkpoint("slow", "?leave=frozen&timeoutMs=20")
    assert reply.status == 504
    assert reply.json["reason"] == "Timeout"
    assert reply.json["blockers"] == ["call k32_handle still running after 20 ms"]
    assert (await call).status == (await waiting).status == 200


async def test_waiting_requests_get_their_503_at_the_freeze(bench: Any, tools: Any) -> None:
    node = await bench.node()
    await bench.running("slow", SLEEPY)
    first = asyncio.create_task(node.ask("slow"))
    await running_call(node, tools, "slow")
    waiting = [asyncio.create_task(node.ask("slow")) for _ in range(3)]
    thread = node.kubelet.registry.worker("default", "slow").containers[0].thread
    await tools.until(lambda: len(thread._backlog._requests) == 3)
    assert (await node.checkpoint("slow", "?leave=frozen")).status == 200
    assert (await first).status == 200
    for reply in await asyncio.gather(*waiting):
        assert reply.status == 503 and "X-Kube32-Frozen" in reply.headers


async def test_a_trap_while_a_freeze_waits_is_a_blocker(bench: Any, tools: Any) -> None:
    node = await bench.node()
    await bench.running("bad", TRAPS_LATE)
    call = asyncio.create_task(node.ask("bad"))
    await running_call(node, tools, "bad")
    reply = await node.checkpoint("bad", "?leave=frozen")
    assert reply.status == 409
    assert reply.json["blockers"] == ["container restarted during the freeze"]
    assert (await call).status == 502
    await bench.until_ready("bad")


async def test_every_blocker_on_the_node_is_named_and_the_pod_goes_on(bench: Any) -> None:
    node = await bench.node()
    fields = {"volumeMounts": [{"name": "tmp", "mountPath": "/tmp"}]}
    await bench.running("files", OPENS, container=fields, spec={"volumes": [{"name": "tmp", "emptyDir": {}}]})
    await node.ask("files")
    reply = await node.checkpoint("files", "?leave=frozen")
    assert reply.status == 409 and reply.json["reason"] == "NotMovable"
    assert reply.json["blockers"] == ["open file /tmp/state (descriptor 1)", "dropped data segment 1"]
    assert (await node.ask("files")).status == 200


async def test_an_entry_point_is_a_blocker(bench: Any) -> None:
    node = await bench.node()
    await bench.running(
        "spin", '(module (memory (export "memory") 1) (func (export "_start") (loop (br 0))))'
    )
    reply = await node.checkpoint("spin")
    assert reply.status == 409
    assert reply.json["blockers"] == ["entry point _start runs on its own thread"]


async def test_a_spec_that_names_another_module_than_the_running_one_is_a_blocker(
    bench: Any, tools: Any
) -> None:
    node = await bench.node()
    pod = await bench.running("echo")
    running = pod["metadata"]["annotations"]["kube32.io/wasm-sha256"]
    bench.cluster.put(
        "Pod", tools.merge(pod, {"metadata": {"annotations": {"kube32.io/wasm-sha256": "0" * 64}}}), "default"
    )
    worker = node.kubelet.registry.worker("default", "echo")
    await tools.until(lambda: worker.containers[0].blockers())
    reply = await node.checkpoint("echo")
    assert reply.json["blockers"] == [f"the pod runs module {running}, its spec names {'0' * 64}"]


async def test_a_container_that_does_not_run_is_a_blocker(bench: Any) -> None:
    node = await bench.node()
    bench.pod("none", container={"image": "docker.io/nginx"})
    await bench.until_waiting("none", "InvalidImageName")
    reply = await node.checkpoint("none")
    assert reply.status == 409 and reply.json["blockers"] == ["container main is not running"]


@pytest.mark.parametrize(
    ("query", "message"),
    [
        ("?leave=dead", "leave must be running or frozen, not dead"),
        ("?timeoutMs=0", "timeoutMs must be 1 to 60000, not 0"),
        ("?timeoutMs=60001", "timeoutMs must be 1 to 60000, not 60001"),
        ("?timeoutMs=ten", "timeoutMs must be 1 to 60000, not ten"),
        ("?timeoutMs=-5", "timeoutMs must be 1 to 60000, not -5"),
    ],
)
async def test_a_bad_parameter_is_a_400(bench: Any, query: str, message: str) -> None:
    node = await bench.node()
    await bench.running("echo")
    reply = await node.checkpoint("echo", query)
    assert reply.status == 400 and reply.json["message"] == message


async def test_a_pod_or_container_that_is_not_there_is_a_404(bench: Any) -> None:
    node = await bench.node()
    await bench.running("echo")
    reply = await node.checkpoint("nobody")
    assert reply.status == 404 and reply.json["reason"] == "NotFound"
    reply = await node.request("POST", "/checkpoint/default/echo/other")
    assert reply.status == 404
    assert reply.json["message"] == "pod default/echo has no container other"


async def test_ticks_stop_while_frozen_and_the_clock_stands_still(bench: Any) -> None:
    node = await bench.node()
    ticking = """(module (memory (export "memory") 1) (global $n (mut i32) (i32.const 0))
      (func (export "k32_tick") (global.set $n (i32.add (global.get $n) (i32.const 1)))))"""
    await bench.running("clock", ticking, annotations={"kube32.io/tick-interval": "20ms"})
    first = decode((await node.checkpoint("clock", "?leave=frozen")).body, limits=LIMITS)
    await asyncio.sleep(0.15)
    again = decode((await node.checkpoint("clock", "?leave=frozen")).body, limits=LIMITS)
    assert first.globals == again.globals and first.pod_time_ms == again.pod_time_ms
    await node.thaw("clock")
    later = decode((await node.checkpoint("clock")).body, limits=LIMITS)
    # Missed ticks become one, and it comes one interval after the thaw.
    assert later.globals[0].bits - first.globals[0].bits <= 1


async def test_a_save_that_takes_long_is_reported_and_a_stalled_reader_loses_it(
    bench: Any, tools: Any
) -> None:
    node = await bench.node()
    await bench.running("big", BIG, container={"resources": {"limits": {"memory": "10Mi"}}})
    _reader, writer = await asyncio.open_connection(
        "127.0.0.1", node.kubelet.port, ssl=bench._security.kubelet_client_ssl_context(), limit=1024
    )
    writer.write(b"POST /checkpoint/default/big/main HTTP/1.1\r\nHost: x\r\n\r\n")
    thread = node.kubelet.registry.worker("default", "big").containers[0].thread
    await tools.until(lambda: thread.frozen)
    await tools.until(lambda: tools.condition(bench.cluster.pod("big"), "Ready")["status"] == "False")
    await tools.until(lambda: not thread.frozen)
    await bench.until_ready("big")
    writer.close()


async def test_a_pod_stopped_while_its_snapshot_is_sent_gives_whole_bytes(bench: Any, tools: Any) -> None:
    node = await bench.node()
    await bench.running("big", BIG, container={"resources": {"limits": {"memory": "10Mi"}}})
    async with node.http.post(f"{node.url}/checkpoint/default/big/main?leave=frozen") as response:
        bench.cluster.replace_pod("big", "two")
        await tools.until(lambda: node.kubelet.registry.worker("default", "big") is None)
        body = await response.read()
    assert hashlib.sha256(body[:-32]).digest() == body[-32:]


async def running_call(node: Any, tools: Any, pod: str) -> None:
    """Waits until a call of the pod runs."""
    thread = node.kubelet.registry.worker("default", pod).containers[0].thread
    await tools.until(lambda: thread.running_call)


async def test_an_empty_dir_ends_with_its_pod(bench: Any, tools: Any, tmp_path: Path) -> None:
    node = await bench.node()
    fields = {"volumeMounts": [{"name": "tmp", "mountPath": "/tmp"}]}
    pod = await bench.running(
        "files", OPENS, container=fields, spec={"volumes": [{"name": "tmp", "emptyDir": {}}]}
    )
    await node.ask("files")
    file = tmp_path / "one" / "pods" / pod["metadata"]["uid"] / "volumes" / "tmp" / "state"
    assert file.exists()
    bench.cluster.remove("Pod", "files", "default")
    await tools.until(lambda: not file.parent.parent.parent.exists())
