"""A cluster that is left alone costs next to nothing, and one whose control plane is away goes on (user demand,
B8, B9).
"""

import os
import signal
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.conftest import SimCluster
from tests.e2e.world import HAS_PROC, TICK, WITNESS, Obj, Seen, Watch, World, resident_memory

pytestmark = pytest.mark.skipif(not HAS_PROC, reason="what a process costs is read from /proc")

PODS = 10
WATCHERS = 10
QUIET_S = 12.0
AWAY_S = 10.0
# A share of one core, far above what is needed (below 0.01): the machine may be busy otherwise.
MOST_CPU = 0.10
MOST_MEMORY = 120 << 20


@dataclass(frozen=True, slots=True)
class Cost:
    """What a process holds and has used so far."""

    threads: int
    files: int
    memory: int
    cpu_s: float

    @classmethod
    def of(cls, pid: int) -> "Cost":
        """Read from /proc."""
        stat = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        ticks = os.sysconf("SC_CLK_TCK")
        return cls(
            threads=len(list(Path(f"/proc/{pid}/task").iterdir())),
            files=len(list(Path(f"/proc/{pid}/fd").iterdir())),
            memory=resident_memory(pid),
            cpu_s=(int(stat[11]) + int(stat[12])) / ticks,
        )


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    """A control plane and two workers with ten pods that tick every second."""
    cluster = SimCluster(tmp_path_factory.mktemp("idle"))
    try:
        cluster.control_plane()
        for node in ("node-a", "node-b"):
            cluster.worker(node)
        found = World(cluster)
        for number in range(PODS):
            found.deploy(f"idle-{number}", WITNESS, ("node-a", "node-b")[number % 2], module="idle")
        for number in range(PODS):
            found.ready(f"idle-{number}")
        yield found
    finally:
        cluster.close()


def test_a_quiet_cluster_takes_little_and_not_more_and_more(world: World) -> None:
    processes = world.cluster.processes
    watchers = [Watch(world.cluster, "/api/v1/pods?watch=true") for _ in range(WATCHERS)]
    time.sleep(2)
    begun = time.monotonic()
    before = {name: Cost.of(process.popen.pid) for name, process in processes.items()}
    time.sleep(QUIET_S)
    after = {name: Cost.of(process.popen.pid) for name, process in processes.items()}
    passed_s = time.monotonic() - begun
    for watcher in watchers:
        watcher.close()
    for name in processes:
        first, last = before[name], after[name]
        share = (last.cpu_s - first.cpu_s) / passed_s
        grown = last.memory - first.memory
        print(
            f"{name}: {share:.2%} of a core, {last.memory >> 20} MiB (+{grown >> 10} KiB), {last.threads} threads"
        )
        # A pool may take its next thread, and a connection for a Lease may come and go.
        assert last.threads <= first.threads + 1
        assert last.files <= first.files + 2
        assert grown < 2 << 20
        assert last.memory < MOST_MEMORY
        assert share < MOST_CPU


def test_pods_run_on_while_the_control_plane_is_away_and_are_the_same_afterwards(world: World) -> None:
    guarded = {TICK: "50ms", "kube32.io/checkpoint-interval": "1h"}
    world.deploy("away-plain", WITNESS, "node-a", annotations={TICK: "50ms"})
    world.deploy("away-guarded", WITNESS, "node-b", annotations=guarded)
    pods = ["away-plain", "away-guarded", *(f"idle-{number}" for number in range(PODS))]
    before = {name: (world.ready(name), world.seen(name)) for name in pods}
    nodes = {n["metadata"]["name"]: ready_since(n) for n in world.json("GET", "/api/v1/nodes")["items"]}
    control = world.cluster.processes["control"].popen
    workers = [world.cluster.processes[name].popen.pid for name in ("node-a", "node-b")]
    control.send_signal(signal.SIGSTOP)
    try:
        used = [Cost.of(pid) for pid in workers]
        time.sleep(AWAY_S)
        spent = [Cost.of(pid).cpu_s - cost.cpu_s for pid, cost in zip(workers, used, strict=True)]
    finally:
        control.send_signal(signal.SIGCONT)
    # They retry with a pause, not in a loop.
    assert max(spent) < MOST_CPU * AWAY_S
    world.cluster.until("an API server again", lambda: world.cluster.http("GET", "/readyz")[0] == 200)
    for name, (pod, seen) in before.items():
        now = world.ready(name)
        assert now["metadata"]["uid"] == pod["metadata"]["uid"]
        assert now["status"]["containerStatuses"][0]["restartCount"] == 0
        later = world.cluster.until(f"an answer of {name}", lambda name=name: answer(world, name))
        assert (later.requests, later.instance, later.calls) == (
            seen.requests + 1,
            seen.instance,
            seen.calls + "H",
        )
    plain = world.seen("away-plain")
    assert plain.ticks - before["away-plain"][1].ticks > AWAY_S * 1000 / 50 / 2
    later = {n["metadata"]["name"]: ready_since(n) for n in world.json("GET", "/api/v1/nodes")["items"]}
    assert later == nodes


def answer(world: World, name: str) -> Seen | None:
    """What a witness says, None while it is frozen."""
    status, _, body = world.cluster.http("GET", f"/api/v1/namespaces/default/pods/{name}/proxy/")
    return Seen.read(body) if status == 200 else None


def ready_since(node: Obj) -> tuple[str, str]:
    """Status and time of the Ready condition."""
    ready = next(c for c in node["status"]["conditions"] if c["type"] == "Ready")
    return ready["status"], ready["lastTransitionTime"]
