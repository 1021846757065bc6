"""A node that cannot renew its Lease stops its pods with periodic checkpoints before it can be declared
lost.
"""

import asyncio
from typing import Any

import pytest

from kube32.contract import LIMITS, Limits
from kube32.kubelet.lease import LeaseThread

GUARDED = {"kube32.io/checkpoint-interval": "10s"}
LOOPS = '(module (memory (export "memory") 1) (func (export "k32_handle") (loop (br 0))))'


@pytest.fixture
def limits() -> Limits:
    return LIMITS.replace(node_lease_renew_ms=50, node_fence_ms=300, node_lost_ms=1500)


def test_a_node_fences_itself_before_it_can_be_declared_lost() -> None:
    for name in ("node_fence_ms", "node_lost_ms", "node_lease_duration_s", "node_lease_renew_ms"):
        assert LIMITS[name] > 0
    assert LIMITS.node_lease_renew_ms < LIMITS.node_fence_ms < LIMITS.node_lost_ms
    assert LIMITS.node_lost_ms <= LIMITS.node_lease_duration_s * 1000


async def test_a_guarded_pod_stops_without_a_lease_and_others_go_on(bench: Any, tools: Any) -> None:
    node = await bench.node()
    await bench.running("safe", annotations=GUARDED)
    await bench.running("free")
    bench.cluster.cut_leases = True
    thread = node.kubelet.registry.worker("default", "safe").containers[0].thread
    await tools.until(lambda: thread.frozen)
    assert (await node.ask("safe")).status == 503
    assert (await node.ask("free")).status == 200
    bench.cluster.cut_leases = False
    # Still bound here: it goes on with its state.
    await tools.until(lambda: not thread.frozen)
    assert (await node.ask("safe")).body == b"100"


async def test_a_fenced_pod_that_was_replaced_meanwhile_is_stopped(bench: Any, tools: Any) -> None:
    node = await bench.node()
    await bench.running("safe", annotations=GUARDED)
    bench.cluster.cut_leases = True
    worker = node.kubelet.registry.worker("default", "safe")
    await tools.until(lambda: worker.fenced)
    bench.cluster.silence()
    bench.cluster.replace_pod("safe", "two")
    bench.cluster.cut_leases = False
    await tools.until(lambda: node.kubelet.registry.worker("default", "safe") is None)
    assert (await node.ask("safe")).status == 404
    assert worker.containers[0].thread is None


async def test_a_call_that_still_runs_when_the_node_may_be_lost_soon_is_ended(bench: Any, tools: Any) -> None:
    node = await bench.node()
    await bench.running("slow", LOOPS, annotations=GUARDED)
    call = asyncio.create_task(node.ask("slow"))
    thread = node.kubelet.registry.worker("default", "slow").containers[0].thread
    await tools.until(lambda: thread.running_call)
    bench.cluster.cut_leases = True
    assert (await call).status in (502, 503)
    # It starts again only when the node knows that it is alive.
    worker = node.kubelet.registry.worker("default", "slow")
    await tools.until(lambda: worker.containers[0].thread not in (None, thread))
    assert not worker.containers[0].thread.begun
    bench.cluster.cut_leases = False
    await tools.until(lambda: worker.containers[0].thread.begun)


async def test_the_first_call_after_a_pause_looks_at_the_lease_before(bench: Any, tools: Any) -> None:
    """The boot clock jumps (the machine slept) while timers saw nothing: no call is made."""
    node = await bench.node()
    await bench.running("safe", annotations=GUARDED)
    lease = node.kubelet._lease
    thread = node.kubelet.registry.worker("default", "safe").containers[0].thread
    bench.cluster.cut_leases = True
    clock = lease._boottime
    lease._boottime = lambda: clock() + 3600
    reply = await node.ask("safe")
    assert reply.status == 503 and "X-Kube32-Frozen" in reply.headers
    assert thread.fenced


async def test_a_fence_does_not_end_the_freeze_of_a_move(bench: Any, tools: Any) -> None:
    node = await bench.node()
    await bench.running("safe", annotations=GUARDED)
    await node.checkpoint("safe", "?leave=frozen")
    worker = node.kubelet.registry.worker("default", "safe")
    bench.cluster.cut_leases = True
    await tools.until(lambda: worker.fenced)
    bench.cluster.cut_leases = False
    await tools.until(lambda: not worker.fenced)
    assert (await node.ask("safe")).status == 503
    await node.thaw("safe")
    assert (await node.ask("safe")).status == 200


async def test_a_lease_counts_from_when_its_renewal_was_sent(bench: Any, tools: Any) -> None:
    now = [100.0]
    renewed = asyncio.Event()
    loop = asyncio.get_running_loop()
    lease = LeaseThread(
        "n",
        lambda: bench.cluster,
        LIMITS,
        on_stale=lambda overdue: None,
        on_renewed=lambda: loop.call_soon_threadsafe(renewed.set) and None,
        boottime=lambda: now[0],
    )
    assert not lease.fresh()
    lease.start()
    await asyncio.wait_for(renewed.wait(), 10)
    assert lease.last_renewed == 100.0 and lease.fresh()
    now[0] += LIMITS.node_fence_ms / 1000
    assert not lease.fresh()
    await asyncio.to_thread(lease.stop)
    spec = bench.cluster.objects["Lease"]["kube-node-lease", "n"]["spec"]
    assert spec["holderIdentity"] == "n" and spec["leaseDurationSeconds"] == LIMITS.node_lease_duration_s
