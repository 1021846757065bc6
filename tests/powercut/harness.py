"""Cuts the power everywhere in random workloads over a FlashLog and looks at what is there afterwards."""

import copy
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from random import Random

from kube32.formats.k32l import Geometry
from kube32.store.flash_log import FlashLog, LogFull, Write
from kube32.store.flash_memory import MemoryFlash, PowerCut
from kube32.store.ring_room import RingRoom

# Sectors, bytes of a sector, bytes of a page, the largest record.
SHAPES = (
    (10, 512, 64, 120),
    (12, 512, 64, 200),
    (16, 512, 64, 200),
    (16, 512, 64, 1100),
    (12, 1024, 256, 300),
    (16, 1024, 256, 900),
    (16, 4096, 256, 5000),
)
_BLOCK = 20
_GIVEN_AT_ONCE = 6
_MOST_BOOTS_CUT = 3
State = dict[bytes, tuple[bytes, int]]


class Broken(AssertionError):
    """The log did not keep its word; str() says in which workload and how."""


@dataclass(slots=True)
class Tally:
    """How many places were cut, and in how many workloads."""

    points: int = 0
    workloads: int = 0
    seconds: float = 0.0
    modes: Counter[str] = field(default_factory=Counter)


def run(seeds: Iterator[int], points: int, seconds: float) -> Tally:
    """Workloads until `points` places were cut, or the time is up. Broken names the seed."""
    tally, begun = Tally(), time.monotonic()
    for seed in seeds:
        if tally.points >= points or time.monotonic() - begun > seconds:
            break
        workload = Workload(seed)
        try:
            tally.points += workload.run()
        except Exception as error:
            raise Broken(f"workload {seed} ({workload.name}): {type(error).__name__}: {error}") from error
        tally.workloads += 1
        tally.modes[workload.flash.mode] += 1
    tally.seconds = time.monotonic() - begun
    return tally


class Workload:
    """Writes and deletes of a few keys; near the end, each commit is also cut at every operation."""

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self.random = random = Random(seed)
        sectors, sector_bytes, page_bytes, self.record_bytes = random.choice(SHAPES)
        self.flash = MemoryFlash(Geometry(sectors, sector_bytes, page_bytes), seed=seed)
        self.flash.mode = "block" if random.random() < 0.25 else "flash"
        self.live_bytes = RingRoom(self.flash.geometry, self.record_bytes).capacity
        self.keys = random.choice((3, 8, 20, 60))
        self.name = f"{self.flash.geometry}, mode {self.flash.mode}, {self.keys} keys"
        self.state: State = {}
        self.log = self.open()
        self.revision = self.log.next_revision
        self.points = 0

    def open(self) -> FlashLog:
        """A boot."""
        return FlashLog.open(
            self.flash,
            live_bytes=self.live_bytes,
            record_bytes=self.record_bytes,
            revision_block=_BLOCK,
        )

    def run(self) -> int:
        """The whole workload; how many places were cut."""
        steps = self.random.randrange(40, 160)
        cut_from = steps - self.random.randrange(3, 12)
        for step in range(steps):
            if self.revision > self.log.reserved - _GIVEN_AT_ONCE:
                self.log.commit([], self.revision + _BLOCK)
            writes = self.writes()
            reserve = self.revision + _BLOCK if self.revision > self.log.reserved - _BLOCK // 2 else None
            if step >= cut_from:
                self.cut_everywhere(step, writes, reserve)
            try:
                self.log.commit(writes, reserve)
            except LogFull as error:
                assert "would live" in str(error), error
                continue
            apply(self.state, writes)
            if self.random.random() < 0.05:
                self.log = self.open()
                assert state_of(self.log) == self.state, "a restart without a cut changed something"
                self.revision = max(self.revision, self.log.next_revision)
        return self.points

    def writes(self) -> list[Write]:
        """What one commit brings: up to four keys, a fifth of them deleted."""
        random = self.random
        found: dict[bytes, Write] = {}
        for _ in range(random.choice((1, 1, 1, 2, 4))):
            key = b"/registry/k%d" % random.randrange(self.keys)
            if key not in found:
                room = self.record_bytes - 44 - len(str(self.revision))
                value = b"%d-" % self.revision + b"v" * random.randrange(room)
                found[key] = Write(key, None if random.random() < 0.2 else value, self.revision)
                self.revision += 1
        return list(found.values())

    def cut_everywhere(self, step: int, writes: list[Write], reserve: int | None) -> None:
        """Cuts a commit in each of its operations; the workload then goes on as if nothing had been."""
        saved, log, number = self.flash.save(), self.log, 0
        while True:
            number += 1
            self.flash.load(saved, hash((self.seed, step, number)))
            self.flash.cut_after(number)
            trial = fork(log)
            try:
                trial.commit(writes, reserve)
            except PowerCut:
                self.points += 1
                self.look(writes)
                continue
            except LogFull:
                pass
            break
        self.flash.load(saved, self.seed)

    def look(self, writes: list[Write]) -> None:
        """Boots, some of them cut too, until one ends; then all must be as it was promised."""
        random, boots = self.flash.random, 0
        shown: State | None = None
        while True:
            self.flash.reboot()
            if boots < _MOST_BOOTS_CUT and random.random() < 0.4:
                self.flash.cut_after(random.randrange(1, 8))
            boots += 1
            try:
                log = self.open()
            except PowerCut:
                continue
            found = state_of(log)
            self.judge(found, writes, log)
            assert shown in (None, found), f"boot {boots} shows something else than the boot before"
            shown = found
            self.flash.cut_after(0)
            if random.random() >= 0.25:
                break
        if random.random() < 0.6:
            self.go_on(log, dict(shown))

    def judge(self, found: State, writes: list[Write], log: FlashLog) -> None:
        """What was acknowledged is there, and of the rest each write whole or not at all."""
        expected = dict(self.state)
        for write in writes:
            new = None if write.value is None else (write.value, write.revision)
            if found.get(write.key) == new:
                apply(expected, [write])
        assert found == expected, f"lost or half there: {difference(found, expected)}"
        assert not log.report.faults, f"a mere cut is said to be damage: {log.report.faults}"
        assert log.next_revision >= self.revision, f"{log.next_revision} is given out again"

    def go_on(self, log: FlashLog, expected: State) -> None:
        """The log takes more, and the next boot has that too."""
        revision = log.next_revision
        for number in range(3):
            write = Write(b"/registry/k%d" % self.flash.random.randrange(5), b"later%d" % number, revision)
            revision += 1
            try:
                log.commit([write])
            except LogFull as error:
                assert "would live" in str(error), error
                continue
            apply(expected, [write])
        self.flash.reboot()
        found = state_of(self.open())
        assert found == expected, f"after more commits: {difference(found, expected)}"


def fork(log: FlashLog) -> FlashLog:
    """A log that goes its own way over the same flash."""
    twin = copy.copy(log)
    for name, value in vars(log).items():
        if isinstance(value, dict):
            inner = {k: list(v) if isinstance(v, list) else v for k, v in value.items()}
            setattr(twin, name, Counter(inner) if isinstance(value, Counter) else inner)
    twin.report = copy.deepcopy(log.report)
    return twin


def state_of(log: FlashLog) -> State:
    """The objects that a boot has found."""
    return {w.key: (w.value, w.revision) for w in log.take_recovered() if w.value is not None}


def apply(state: State, writes: list[Write]) -> None:
    """What acknowledged writes make of a state."""
    for write in writes:
        if write.value is None:
            state.pop(write.key, None)
        else:
            state[write.key] = write.value, write.revision


def difference(found: State, expected: State) -> list[tuple[bytes, int | None, int | None]]:
    """Key, revision found, revision expected, where they differ."""
    return [
        (key, found.get(key, (b"", None))[1], expected.get(key, (b"", None))[1])
        for key in sorted(found.keys() | expected.keys())
        if found.get(key) != expected.get(key)
    ]
