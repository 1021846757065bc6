"""A day of a board's cluster leaves its flash years of life (user-demand B4), and boots stay short (D6)."""

import tracemalloc
from random import Random
from typing import Any

import pytest

from kube32.contract import NAMES, limits_for
from kube32.formats.k32l import Geometry, stored_bytes
from kube32.store import Journal, Store
from kube32.store.flash_log import FlashLog, Write
from kube32.store.flash_memory import MemoryFlash
from kube32.store.journal import open_log

BOARD = limits_for("board")
DAY_S = 86_400
NODES, PODS = 3, 10
Obj = dict[str, Any]


class Day:
    """24 hours of three nodes, ten pods that are saved every 10 s, a Deployment, and one pod that crashes."""

    def __init__(self) -> None:
        self.now = 0.0
        self.flash = MemoryFlash(Geometry(BOARD.journal_bytes // 4096))
        self.journal = Journal(open_log(self.flash, BOARD), BOARD, lambda: self.now)
        self.store = Store(BOARD, journal=self.journal)

    def write(self, key: str, obj: Obj, *, agent: bool = True) -> None:
        self.store.put_extended(f"/registry/{key}", obj, agent=agent)

    def obj(self, name: str, status: Obj, **metadata: Any) -> Obj:
        """As large as real ones: a pod's or node's status has about 2 KiB."""
        return {
            "metadata": {"name": name, "uid": name, "creationTimestamp": "2026-01-01T00:00:00Z", **metadata},
            "spec": {"filler": "s" * 900},
            "status": {"filler": "t" * 900, **status},
        }

    def set_up(self) -> None:
        for n in range(NODES):
            self.write(f"nodes/n{n}", self.node(n))
        for n in range(PODS):
            self.write(f"pods/default/p{n}", self.obj(f"p{n}", {"phase": "Running"}), agent=False)
        self.write("deployments/default/d", self.obj("d", {"replicas": 3}), agent=False)
        self.write("pods/default/crashing", self.obj("crashing", {"restarts": 0}), agent=False)

    def node(self, number: int) -> Obj:
        condition = {"type": "Ready", "status": "True", "lastHeartbeatTime": str(self.now)}
        return self.obj(f"n{number}", {"conditions": [condition], "usage": str(self.now)})

    def turn(self, seconds: float) -> None:
        """Time goes by, and what is due is flushed."""
        self.now += seconds
        self.journal.flush_due()

    def tick(self, beat: int) -> None:
        """What comes every ten seconds: heartbeats (more often than kubelets send them), leases, checkpoints."""
        self.now = float(beat)
        for n in range(NODES):
            self.write(f"leases/kube-node-lease/n{n}", self.obj(f"n{n}", {"renewed": beat}))
            self.write(f"nodes/n{n}", self.node(n))
        for n in range(PODS):
            self.checkpoint(f"p{n}-{beat}")
        self.turn(1)

    def checkpoint(self, name: str) -> None:
        labels = {NAMES.label_trigger: "periodic"}
        key = f"/registry/checkpoints/default/{name}"
        for phase in ("Pending", "Saving", "Saved"):
            self.store.put_extended(key, self.obj(name, {"phase": phase}, labels=labels), agent=True)
        self.store.delete(key, agent=True)

    def crashing(self, count: int, state: str) -> None:
        """What the kubelet says of a container that is in CrashLoopBackOff, or on its way to it."""
        status = {"phase": "Running", "containerStatuses": [{"restartCount": count, "state": state}]}
        self.write("pods/default/crashing", self.obj("crashing", status))

    def crash(self, count: int) -> None:
        """A restart as every five minutes, the longest back-off: it runs, ends, waits; and its Events."""
        for state in ("running", "terminated", "waiting"):
            self.crashing(count, state)
            self.write(f"events/default/crash-{count}-{state}", self.obj("crash", {"count": count}))
            self.turn(1)

    def run(self) -> None:
        self.set_up()
        for beat in range(10, DAY_S, 10):
            self.tick(beat)
            if beat % 300 == 0:
                self.crash(beat // 300)
            if beat % 3600 == 0:  # a user every hour, and a rollout's status
                self.write("configmaps/default/c", self.obj("c", {"n": beat}), agent=False)
                for replicas in range(4):
                    self.write("deployments/default/d", self.obj("d", {"replicas": replicas}))
                    self.turn(1)
        self.now = float(DAY_S)


def test_a_busy_day_leaves_ten_years_of_life() -> None:
    day = Day()
    day.run()
    facts = day.journal.stats()
    assert facts["uptimeSeconds"] == DAY_S
    assert float(facts["projectedLifeYears"]) >= 10
    # Not only on average: the most worn sector too.
    assert max(day.flash.erases) * 365 * 10 < 100_000


def test_periodic_checkpoints_leases_and_events_program_nothing() -> None:
    day = Day()
    day.set_up()
    day.now += 1
    day.journal.flush_due()
    programmed = day.flash.programmed_bytes
    for _ in range(5):
        day.now += 10
        day.checkpoint(f"p-{day.now}")
        day.write("leases/kube-node-lease/n0", day.obj("n0", {"renewed": day.now}))
        day.write(f"events/default/e{day.now}", day.obj("e", {}))
        day.journal.flush_due()
    assert day.flash.programmed_bytes == programmed


def test_a_pod_that_waits_in_its_back_off_programs_nothing() -> None:
    day = Day()
    day.set_up()
    day.turn(1)
    day.crash(1)
    programmed = day.flash.programmed_bytes
    for beat in range(30):
        day.crashing(1, "waiting")  # told again, as after a lost connection
        day.write(f"events/default/back-off-{beat}", day.obj("crash", {"count": beat}))
        day.turn(10)
    assert day.flash.programmed_bytes == programmed


def history(flash: MemoryFlash, keys: int, value_bytes: int, updates: int) -> None:
    """`updates` writes to `keys` keys after each has been made."""
    log = open_log(flash, BOARD)
    random = Random(1)
    for number in range(keys + updates):
        key = b"/registry/configmaps/default/c%d" % (number if number < keys else random.randrange(keys))
        log.commit([Write(key, b"{" + b" " * value_bytes + b"}", 1)])


FULL = BOARD.journal_live_bytes // stored_bytes(34, 1002)


@pytest.mark.parametrize(
    ("keys", "value_bytes", "updates"),
    [(40, 600, 20_000), (4_000, 40, 1_000), (FULL, 1_000, 1_000)],
    ids=["40 keys, 20,000 updates", "4,000 keys", "full"],
)
def test_a_boot_is_bounded_by_the_size_not_by_the_history(keys: int, value_bytes: int, updates: int) -> None:
    geometry = Geometry(BOARD.journal_bytes // 4096)
    flash = MemoryFlash(geometry)
    history(flash, keys, value_bytes, updates)
    flash.read_bytes, programmed = 0, flash.programmed_bytes
    tracemalloc.start()
    log: FlashLog = open_log(flash, BOARD)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert len(log.take_recovered()) == keys
    assert flash.read_bytes <= 2 * geometry.size
    assert flash.programmed_bytes - programmed <= 4 * geometry.sector_bytes
    assert peak <= 8 * geometry.size
