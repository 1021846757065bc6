"""Moves and restores as often as one likes: clock, ticks, randomness and room (user demand, A10 to A12, A16)."""

import itertools
import time

from kube32.contract import LIMITS
from tests.conftest import SimCluster
from tests.e2e.world import RESTORE_FROM, TICK, TICKS_KEPT, WITNESS, World

INTERVAL_MS = 10


def check_ticks(times: list[int], frozen_at: int) -> None:
    """After a freeze at `frozen_at` of the pod's clock the k-th tick comes no sooner than k intervals later."""
    assert times == sorted(times)
    later = [t for t in times if t > frozen_at]
    assert later, "no tick after the freeze"
    for number, moment in enumerate(later, 1):
        assert moment >= frozen_at + INTERVAL_MS * number - 1, (frozen_at, later)


def test_a_long_freeze_leaves_one_tick_due_and_not_a_burst(cluster: SimCluster) -> None:
    """120 intervals are missed, as in a freeze of 60 s of a pod that ticks every 500 ms."""
    world = World(cluster)
    world.deploy("a10-frozen", WITNESS, "node-a", annotations={TICK: f"{INTERVAL_MS}ms"})
    world.ready("a10-frozen")
    before = cluster.until("ticks", lambda: found if (found := world.seen("a10-frozen")).ticks > 3 else None)
    frozen_at, _ = world.freeze("node-a", "a10-frozen")
    time.sleep(120 * INTERVAL_MS / 1000)
    world.thaw("node-a", "a10-frozen")
    after = cluster.until(
        "ticks after the thaw",
        lambda: found if (found := world.seen("a10-frozen")).ticks > before.ticks + 9 else None,
    )
    assert after.ticks < TICKS_KEPT
    check_ticks(after.tick_times, frozen_at)
    world.delete("a10-frozen")


def test_time_and_ticks_go_on_after_a_late_restore_as_if_it_had_come_at_once(cluster: SimCluster) -> None:
    world = World(cluster)
    world.deploy("a10-late", WITNESS, "node-a", annotations={TICK: f"{INTERVAL_MS}ms"})
    world.ready("a10-late")
    world.seen("a10-late")
    saved = world.checkpoint("a10-late")
    time.sleep(120 * INTERVAL_MS / 1000)
    name = saved["metadata"]["name"]
    started = time.monotonic()
    world.pod_of(
        "a10-late", "a10-again", "node-b", annotations={TICK: f"{INTERVAL_MS}ms", RESTORE_FROM: name}
    )
    world.ready("a10-again")
    saved_at = saved["status"]["podTimeMs"]
    after = cluster.until(
        "ticks of the restored pod",
        lambda: (
            found if (found := world.seen("a10-again")).tick_times[-1] > saved_at + 5 * INTERVAL_MS else None
        ),
    )
    check_ticks(after.tick_times, saved_at)
    assert saved_at < after.time_ms <= saved_at + (time.monotonic() - started) * 1000 + 1
    assert abs(after.unix_ms - time.time() * 1000) < 5000
    world.delete("a10-late", "a10-again")


def test_restores_of_one_snapshot_share_what_was_saved_and_no_randomness(cluster: SimCluster) -> None:
    world = World(cluster)
    world.deploy("a11", WITNESS, "node-a")
    world.ready("a11")
    origin = world.seen("a11")
    name = world.checkpoint("a11")["metadata"]["name"]
    twins = {"a11-first": "node-a", "a11-second": "node-b", "a11-third": "node-b"}
    for twin, node in twins.items():
        world.pod_of("a11", twin, node, annotations={RESTORE_FROM: name})
    for twin in twins:
        world.ready(twin)
    seen = [origin, *(world.seen(twin) for twin in twins)]
    # What lies in memory is the same for all of them, what a pod seeds in k32_restored is not.
    assert len({s.kept for s in seen[1:]}) == 1
    for values in ([s.random for s in seen], [s.instance for s in seen], [s.reseeded for s in seen]):
        assert len(set(values)) == len(seen)
    assert {s.calls for s in seen[1:]} == {"IHRH"}
    world.delete("a11", *twins)


def test_k32_restored_comes_before_a_held_event_and_any_request(cluster: SimCluster) -> None:
    world = World(cluster)
    world.deploy("a11-busy", WITNESS, "node-a", annotations={"kube32.io/topics": "a11", TICK: "10ms"})
    world.ready("a11-busy")
    world.freeze("node-a", "a11-busy")
    topic = "/apis/kube32.io/v1/namespaces/default/topics/a11"
    for _ in range(3):
        assert cluster.http("POST", topic, b"x", {"Content-Type": "application/octet-stream"})[0] < 300
    world.moved("a11-busy", "node-b")
    assert world.seen("a11-busy").calls == "IREEEH"
    world.delete("a11-busy")


def test_a_pod_restored_again_and_again_over_three_nodes_loses_nothing(cluster: SimCluster) -> None:
    world = World(cluster)
    world.deploy("a12", WITNESS, "node-a", annotations={TICK: "20ms"})
    world.ready("a12")
    seen = [world.seen("a12")]
    hops = 24
    for hop in range(hops):
        world.moved("a12", ("node-b", "control", "node-a")[hop % 3])
        seen.append(world.seen("a12"))
    for earlier, later in itertools.pairwise(seen):
        assert later.requests == earlier.requests + 1
        assert later.time_ms >= earlier.time_ms and later.ticks >= earlier.ticks
        assert later.tick_times[: earlier.ticks] == earlier.tick_times
    assert seen[-1].calls == "IH" + "RH" * hops
    x = seen[0].kept
    for _ in range(hops):
        x ^= (x << 13) & 0xFFFFFFFFFFFFFFFF
        x ^= x >> 7
        x ^= (x << 17) & 0xFFFFFFFFFFFFFFFF
    assert seen[-1].kept == x
    assert len({s.instance for s in seen}) == hops + 1
    world.delete("a12")


def test_a_limit_below_the_data_segments_is_named_with_both_numbers(cluster: SimCluster) -> None:
    world = World(cluster)
    wat = """(module (memory (export "memory") 1)
      (data (i32.const 30000) "end") (func (export "k32_handle")))"""
    world.deploy("a16-small", wat, "node-a", memory="20000")

    def refused() -> str | None:
        statuses = world.pod("a16-small")["status"].get("containerStatuses") or [{}]
        return next(iter(statuses[0].get("state", {}).values()), {}).get("message")

    message = cluster.until("the refusal", refused)
    assert "data segment 0 ends at byte 30003, the memory limit is 20000 bytes" in message
    pages = """(module (memory (export "memory") 3) (func (export "k32_handle")))"""
    world.deploy("a16-pages", pages, "node-a", memory="100Ki")
    found = cluster.until(
        "the refusal", lambda: cluster.kubectl("get", "pod", "a16-pages", "-o", "jsonpath={..message}")
    )
    assert "declares 3 pages of memory, the memory limit of 102400 bytes gives 1" in found
    assert "OOM" not in message + found and "137" not in found
    world.delete("a16-small", "a16-pages")


def test_a_target_without_room_is_refused_before_the_freeze_in_the_schedulers_words(
    cluster: SimCluster,
) -> None:
    world = World(cluster)
    most = LIMITS.node_memory_bytes * 2 // 3
    small = '(module (memory (export "memory") 1 1) (func (export "k32_handle")))'
    world.deploy("a16-there", small, "node-b", memory=str(most))
    world.deploy("a16-here", small, "node-a", memory=str(most))
    for pod in ("a16-there", "a16-here"):
        ready = world.ready(pod)
    status = world.move("a16-here", "node-b")
    assert status["phase"] == "Failed"
    assert "0/1 nodes are available: 1 Insufficient memory" in status["message"]
    assert "takenAt" not in status and "podTimeMs" not in status
    assert world.pod("a16-here")["status"]["conditions"] == ready["status"]["conditions"]
    world.json("DELETE", "/api/v1/namespaces/default/pods/a16-there", {"gracePeriodSeconds": 0})
    world.moved("a16-here", "node-b")
    world.delete("a16-here")
