"""A pod with kube32.io/restore-from starts from the Checkpoint's snapshot, once; a failed restore ends it."""

import asyncio
from typing import Any

import pytest

from kube32.client.transport import TransportError
from kube32.contract import LIMITS
from kube32.formats.k32s import decode

RESTORE_FROM = "kube32.io/restore-from"
TRAPS_WHEN_RESTORED = """(module (memory (export "memory") 1) (func (export "k32_handle"))
  (func (export "k32_restored") unreachable))"""


async def moved(bench: Any, name: str = "echo") -> bytes:
    """Moves a running pod from node one to node two; the snapshot."""
    reply = await bench.nodes["one"].checkpoint(name, "?leave=frozen")
    assert reply.status == 200
    bench.cluster.data["Checkpoint", "move-1"] = reply.body
    bench.cluster.replace_pod(name, "two", **{RESTORE_FROM: "move-1"})
    return bytes(reply.body)


async def test_a_moved_pod_goes_on_with_its_state(bench: Any, tools: Any) -> None:
    one, two = await bench.node(), await bench.node("two")
    await bench.running("echo")
    await one.ask("echo")
    body = await moved(bench)
    await bench.until_ready("echo")
    # Calls go on counting; k32_restored was called once and k32_init was not.
    assert (await two.ask("echo")).body == b"201"
    assert (await one.ask("echo")).status == 404
    logs = await two.get("/containerLogs/default/echo/main")
    assert logs.body == b"restored\n"
    again = decode((await two.checkpoint("echo")).body, limits=LIMITS)
    before = decode(body, limits=LIMITS)
    assert again.channels == before.channels
    assert again.pod_time_ms >= before.pod_time_ms


async def test_a_restored_pod_is_reported_running_in_its_first_status(bench: Any, tools: Any) -> None:
    await bench.node()
    await bench.node("two")
    await bench.running("echo")
    await moved(bench)
    uid = bench.cluster.pod("echo")["metadata"]["uid"]
    start = len(bench.cluster.requests)
    await bench.until_ready("echo")
    writes = [r for r in bench.cluster.requests[start:] if r[0] == "PATCH" and r[1] == "pods/echo/status"]
    assert bench.cluster.pod("echo")["metadata"]["uid"] == uid
    # One write by the target; the source's report of the freeze may come in between and is refused.
    assert 1 <= len(writes) <= 2


async def test_a_container_that_ran_here_is_not_restored_again(bench: Any, tools: Any) -> None:
    await bench.node()
    await bench.node("two")
    await bench.running("echo")
    await moved(bench)
    await bench.until_ready("echo")
    await bench.stop("two")
    two = await bench.node("two")
    await tools.until(lambda: tools.status(bench.cluster.pod("echo"))["restartCount"] == 1)
    await bench.until_ready("echo")
    assert (await two.ask("echo")).body == b"100"


async def test_a_restore_reads_the_data_once(bench: Any) -> None:
    await bench.node()
    await bench.node("two")
    await bench.running("echo")
    await moved(bench)
    await bench.until_ready("echo")
    assert bench.cluster.requests.count(("GET", "checkpoints/move-1/data")) == 1


@pytest.mark.parametrize(
    ("damage", "cause"),
    [
        (
            lambda b: b[:-1] + bytes([b[-1] ^ 1]),
            "the snapshot's trailer does not match its contents (damaged in transfer or storage)",
        ),
        (lambda b: b[:-40], "the stream ends before the trailer"),
        (lambda b: b"K32X" + b[4:], "the snapshot does not begin with K32S"),
        (lambda b: None, "checkpoint move-1 has no data"),
    ],
)
async def test_a_refused_snapshot_ends_the_pod_with_the_cause(
    bench: Any, tools: Any, damage: Any, cause: str
) -> None:
    one, two = await bench.node(), await bench.node("two")
    await bench.running("echo")
    body = damage((await one.checkpoint("echo", "?leave=frozen")).body)
    if body is not None:
        bench.cluster.data["Checkpoint", "move-1"] = body
    bench.cluster.replace_pod("echo", "two", **{RESTORE_FROM: "move-1"})
    pod = await bench.until_phase("echo", "Failed")
    ended = tools.status(pod)["state"]["terminated"]
    assert ended["reason"] == "RestoreError" and ended["exitCode"] == LIMITS.pod_exit_restore
    assert ended["message"] == f"cannot restore the snapshot: {cause}"
    await tools.until(lambda: bench.cluster.events("RestoreError"))
    assert tools.status(pod)["restartCount"] == 0
    assert (await two.ask("echo")).status == 503


async def test_a_snapshot_of_another_module_is_refused(bench: Any, tools: Any) -> None:
    one = await bench.node()
    await bench.node("two")
    await bench.running("echo")
    bench.cluster.data["Checkpoint", "other"] = (await one.checkpoint("echo")).body
    bench.pod("bad", TRAPS_WHEN_RESTORED, node="two", annotations={RESTORE_FROM: "other"})
    message = tools.status(await bench.until_phase("bad", "Failed"))["state"]["terminated"]["message"]
    assert message.startswith("cannot restore the snapshot: the snapshot was taken from module ")


async def test_a_trap_in_k32_restored_is_a_failed_restore(bench: Any, tools: Any) -> None:
    await bench.node()
    await bench.node("two")
    await bench.running("bad", TRAPS_WHEN_RESTORED)
    await moved(bench, "bad")
    ended = tools.status(await bench.until_phase("bad", "Failed"))["state"]["terminated"]
    assert ended["reason"] == "RestoreError"
    assert ended["message"] == "cannot restore the snapshot: k32_restored failed: unreachable"


async def test_a_broken_connection_is_tried_again_into_a_new_instance(bench: Any, monkeypatch: Any) -> None:
    one, two = await bench.node(), await bench.node("two")
    await bench.running("echo")
    await one.ask("echo")
    send, broken = bench.cluster._send, []

    async def cut_once(method: str, path: str, query: Any, body: Any) -> Any:
        answer = await send(method, path, query, body)
        if path.endswith("/data") and not broken:
            broken.append(path)
            whole = answer.chunks()

            async def cut() -> Any:
                yield await anext(whole)
                raise TransportError("cut")

            answer.chunks = cut
        return answer

    monkeypatch.setattr(bench.cluster, "_send", cut_once)
    await moved(bench)
    await bench.until_ready("echo")
    assert broken and (await two.ask("echo")).body == b"201"


async def test_a_request_that_meets_a_pod_on_its_way_may_be_delivered_again(
    bench: Any, monkeypatch: Any
) -> None:
    await bench.node()
    two = await bench.node("two")
    await bench.running("echo")
    send, gate = bench.cluster._send, asyncio.Event()

    async def slow(method: str, path: str, query: Any, body: Any) -> Any:
        if path.endswith("/data"):
            await gate.wait()
        return await send(method, path, query, body)

    monkeypatch.setattr(bench.cluster, "_send", slow)
    await moved(bench)
    uid = bench.cluster.pod("echo")["metadata"]["uid"]
    await asyncio.sleep(0.02)
    reply = await two.ask("echo")
    assert reply.status == 503 and reply.headers["X-Kube32-Frozen"] == uid
    gate.set()
    await bench.until_ready("echo")
    assert (await two.ask("echo")).body == b"101"


async def test_a_pod_moves_there_and_back_many_times(bench: Any, tools: Any) -> None:
    await bench.node()
    await bench.node("two")
    await bench.running("echo")
    for turn in range(6):
        source, target = ("one", "two") if turn % 2 == 0 else ("two", "one")
        await bench.nodes[source].ask("echo")
        reply = await bench.nodes[source].checkpoint("echo", "?leave=frozen")
        bench.cluster.data["Checkpoint", f"move-{turn}"] = reply.body
        bench.cluster.replace_pod("echo", target, **{RESTORE_FROM: f"move-{turn}"})
        await bench.until_ready("echo")
    assert (await bench.nodes["one"].ask("echo")).body == b"706"
