"""Nodes whose wall clock is unset or jumps: nothing ends, expires or grows 56 years old (user demand, A10, B1)."""

import re
import time
from collections.abc import Iterator

import pytest

from tests.conftest import SimCluster
from tests.e2e.clocks import Clocks, make_clocks
from tests.e2e.world import RESTORE_FROM, WITNESS, Watch, World, not_ready

# 2020-01-01 in ms: an earlier wall clock was never set.
SET_MS = 1_577_836_800_000
KINDS = "nodes,pods,checkpoints.kube32.io,modules.kube32.io,events,leases,namespaces,configmaps"
DAY_S, HOUR_S = 86400, 3600


@pytest.fixture(scope="module")
def clocks(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Clocks]:
    """Of a control plane and two workers."""
    folder = tmp_path_factory.mktemp("clocks")
    return {name: make_clocks(folder, name) for name in ("control", "node-a", "node-b")}


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory, clocks: dict[str, Clocks]) -> Iterator[World]:
    """A control plane that was switched on without a clock, as was node-b; node-a knows the time."""
    cluster = SimCluster(tmp_path_factory.mktemp("unset"))
    try:
        for name in ("control", "node-b"):
            clocks[name].unset()
        with clocks["control"].used():
            cluster.control_plane()
        for name in ("node-a", "node-b"):
            with clocks[name].used():
                cluster.worker(name)
        yield World(cluster)
    finally:
        cluster.close()


def shown(world: World) -> str:
    """Everything that kubectl prints of ages."""
    cluster = world.cluster
    tables = cluster.kubectl("get", KINDS, "-A", "-o", "wide")
    return tables + cluster.kubectl("events", "-A") + cluster.kubectl("describe", "nodes,pods,ckpt")


def oldest(output: str) -> list[str]:
    """Ages of a day and more, and negative ones."""
    return re.findall(r"(?<![\w.-])(?:\d+[dy](?:\d+[hd])?|-\d+[smhdy])(?![\w.-])", output)


def test_a_cluster_starts_without_a_clock_and_shows_no_age(world: World) -> None:
    cluster = world.cluster
    world.deploy("aged", WITNESS, "node-a")
    world.ready("aged")
    world.checkpoint("aged")
    nodes = {n["metadata"]["name"]: n for n in world.json("GET", "/api/v1/nodes")["items"]}
    for node in nodes.values():
        assert {c["type"]: c["status"] for c in node["status"]["conditions"]}["Ready"] == "True"
    assert nodes["control"]["metadata"].get("creationTimestamp") is None
    output = shown(world)
    assert oldest(output) == []
    row = cluster.kubectl("get", "pod", "aged", "--no-headers").split()
    assert row[:4] == ["aged", "1/1", "Running", "0"] and row[-1] == "<unknown>"


def test_a_pod_never_reads_a_wrong_wall_clock_and_its_own_never_goes_back(
    world: World, clocks: dict[str, Clocks]
) -> None:
    world.deploy("hand", WITNESS, "node-a", annotations={"kube32.io/tick-interval": "20ms"})
    world.ready("hand")
    seen = [world.seen("hand")]
    assert abs(seen[-1].unix_ms - time.time() * 1000) < 60_000
    for target in ("node-b", "node-a", "control", "node-a"):
        world.moved("hand", target)
        seen.append(world.seen("hand"))
        if target == "node-a":
            assert abs(seen[-1].unix_ms - time.time() * 1000) < 60_000
        else:
            assert seen[-1].unix_ms == 0
    clocks["node-a"].set(wall_ahead_s=-HOUR_S)
    seen.append(world.seen("hand"))
    clocks["node-a"].set(wall_ahead_s=DAY_S)
    seen.append(world.seen("hand"))
    assert abs(seen[-1].unix_ms - (time.time() + DAY_S) * 1000) < 60_000
    clocks["node-a"].set(wall_ahead_s=0)
    times = [s.time_ms for s in seen]
    assert times == sorted(times) and times[-1] < 60_000
    assert seen[-1].tick_times == sorted(seen[-1].tick_times)
    world.delete("hand")


def test_a_checkpoint_an_hour_old_goes_on_where_it_was(world: World, clocks: dict[str, Clocks]) -> None:
    world.deploy("slept", WITNESS, "node-a")
    world.ready("slept")
    before = world.seen("slept")
    checkpoint = world.checkpoint("slept")
    clocks["node-a"].set(wall_ahead_s=HOUR_S)
    try:
        annotations = {RESTORE_FROM: checkpoint["metadata"]["name"]}
        started = time.monotonic()
        world.pod_of("slept", "awake", "node-a", annotations=annotations)
        world.ready("awake")
        after = world.seen("awake")
    finally:
        clocks["node-a"].set(wall_ahead_s=0)
    saved_at = checkpoint["status"]["podTimeMs"]
    assert saved_at <= after.time_ms <= saved_at + (time.monotonic() - started) * 1000 + 1
    assert after.unix_ms - before.unix_ms >= HOUR_S * 1000
    assert after.ticks - before.ticks <= 2
    world.delete("slept", "awake")


def test_when_the_clock_is_set_and_jumps_nothing_is_lost_moved_or_called_old(
    world: World, clocks: dict[str, Clocks]
) -> None:
    cluster = world.cluster
    world.deploy("calm", WITNESS, "node-b")
    uid = world.ready("calm")["metadata"]["uid"]
    requests = world.seen("calm").requests
    finished = world.checkpoint("calm")["metadata"]["name"]
    watch = Watch(cluster, "/api/v1/nodes?watch=true")
    for ahead_s in (0, -HOUR_S, DAY_S):
        for name in ("control", "node-b"):
            clocks[name].set(wall_ahead_s=ahead_s)
        before = leases(world)
        cluster.until("a renewal", lambda before=before: leases(world) != before, 15)
        requests += 1
        assert world.seen("calm").requests == requests
    cluster.until(
        "a renewal of every node", lambda: all(leases(world)[n] != v for n, v in before.items()), 15
    )
    assert watch.open and len(watch.events) >= 3
    watch.close()
    assert not_ready(watch.events) == []
    pod = world.pod("calm")
    assert pod["metadata"]["uid"] == uid and pod["spec"]["nodeName"] == "node-b"
    assert pod["status"]["containerStatuses"][0]["restartCount"] == 0
    assert world.json("GET", f"/apis/kube32.io/v1/namespaces/default/checkpoints/{finished}")
    cluster.kubectl("create", "configmap", "young")
    for name in ("control", "node-b"):
        clocks[name].set(wall_ahead_s=0)
    assert [age for age in oldest(shown(world)) if "y" in age] == []
    assert "56y" not in shown(world)
    # Both nodes still verify each other's certificates, also over connections made anew.
    world.moved("calm", "node-a")
    assert world.seen("calm").requests == requests + 1


def leases(world: World) -> dict[str, str]:
    """resourceVersion of each node's Lease."""
    items = world.json("GET", "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases")["items"]
    return {item["metadata"]["name"]: item["metadata"]["resourceVersion"] for item in items}
