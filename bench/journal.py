"""Durable writes: how many a second beside SQLite and etcd, how long a boot takes, what flash bears.

All on one file system and in turns, so that what slows the disk slows all of them. `python -m bench journal`.
"""

import asyncio
import json
import shutil
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

import uvloop

from bench.cluster import BenchCluster
from bench.harness import OUTPUT, Report
from bench.rivals import Etcd, in_threads, sqlite_writes
from kube32.contract import LIMITS
from kube32.formats.k32l import Geometry, stored_bytes
from kube32.store import Journal, Store
from kube32.store.flash import FileFlash
from kube32.store.flash_log import FlashLog, Write
from kube32.store.flash_memory import MemoryFlash
from kube32.store.journal import open_log

ROUNDS = 5
WRITERS = 32
ONE, MANY = 1500, 6400
HTTP_ONE, HTTP_MANY = 400, 1600
PREFIX = "/registry/configmaps/default/"
SECTORS = LIMITS.journal_bytes // Geometry(1).sector_bytes
# 100 writes a minute are a busy board.
HOUR = 6000


def config(name: str, turn: int) -> dict[str, Any]:
    """A ConfigMap of about 1 KiB as the API server stores it."""
    metadata = {
        "name": name,
        "namespace": "default",
        "uid": "0" * 36,
        "creationTimestamp": "2026-01-01T00:00:00Z",
    }
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": metadata,
        "data": {"v": f"{turn:08}" + "x" * 850},
    }


VALUE = json.dumps(config("c0", 0)).encode()


class OurStore:
    """A store on a journal file."""

    def __init__(self, folder: Path) -> None:
        self._path = folder / "journal.img"
        self._path.unlink(missing_ok=True)
        self.journal = Journal(open_log(FileFlash.open(self._path, Geometry(SECTORS)), LIMITS), LIMITS)
        self.store = Store(LIMITS, journal=self.journal)
        self.journal.start()
        self._turn = 0

    def threads(self, writers: int, each: int) -> float:
        """Seconds for threads that write `each` objects."""
        self._turn += 1
        base = self._turn * 100_000

        def work(number: int) -> None:
            for turn in range(each):
                name = f"c{number}-{turn % 30}"
                self.store.put(PREFIX + name, config(name, base + turn))

        return in_threads(work, writers)

    async def tasks(self, writers: int, each: int) -> float:
        """Seconds for tasks of one event loop that write `each` objects."""
        self._turn += 1
        base = self._turn * 100_000

        async def work(number: int) -> None:
            for turn in range(each):
                name = f"c{number}-{turn % 30}"
                self.store.put(PREFIX + name, config(name, base + turn))
                await self.store.settle()

        begun = time.perf_counter()
        await asyncio.gather(*(work(n) for n in range(writers)))
        return time.perf_counter() - begun


def run() -> Path:
    """Measures, prints the table, and gives the JSON's path."""
    report = Report("journal", "Durable writes of 1 KiB")
    OUTPUT.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=OUTPUT) as name:
        folder = Path(name)
        _writes(report, folder)
        _recovery(report, folder)
    _wear(report)
    return report.finish()


def _writes(report: Report, folder: Path) -> None:
    """Writes a second, all makes in turn."""
    ours = OurStore(folder)
    loop = asyncio.Runner(loop_factory=uvloop.new_event_loop)  # that of kube32-sim
    version = Etcd.installed()
    makes: dict[tuple[str, int], Callable[[], float]] = {
        ("store", 1): lambda: ONE / ours.threads(1, ONE),
        ("store, threads", WRITERS): lambda: MANY / ours.threads(WRITERS, MANY // WRITERS),
        ("store, tasks", WRITERS): lambda: MANY / loop.run(ours.tasks(WRITERS, MANY // WRITERS)),
        ("sqlite", 1): lambda: ONE / sqlite_writes(folder, 1, ONE, VALUE),
        ("sqlite, threads", WRITERS): lambda: MANY / sqlite_writes(folder, WRITERS, MANY // WRITERS, VALUE),
    }
    etcd = Etcd(folder) if version else None
    if etcd is not None:
        etcd.__enter__()
        makes["etcd", 1] = lambda: ONE / etcd.writes(1, 1, ONE, VALUE)
        makes["etcd, 4 processes", WRITERS] = lambda: MANY / etcd.writes(4, 8, MANY // WRITERS, VALUE)
    rates: dict[tuple[str, int], list[float]] = {make: [] for make in makes}
    try:
        for _ in range(ROUNDS):
            for make, measure in makes.items():
                rates[make].append(measure())
    finally:
        if etcd is not None:
            etcd.__exit__(None, None, None)
        loop.run(ours.store.close())
        loop.close()
    http = asyncio.run(_http())
    rates |= http
    for (make, writers), samples in rates.items():
        report.add(
            f"{make}, {writers} writer{'s' if writers > 1 else ''}",
            statistics.median(samples),
            "writes/s",
            more_is_better=True,
            samples=samples,
        )
    many = max(
        (("store, threads", WRITERS), ("store, tasks", WRITERS)), key=lambda m: statistics.median(rates[m])
    )
    _ratio(report, "store to sqlite, 1 writer", rates["store", 1], rates["sqlite", 1], 1)
    theirs = rates["sqlite, threads", WRITERS]
    _ratio(report, f"store to sqlite, {WRITERS} writers each", rates[many], theirs, 5)
    best = max(rates["sqlite", 1], theirs, key=statistics.median)
    _ratio(report, f"store, {WRITERS} writers, to sqlite at its best", rates[many], best, 5)
    for writers in (1, WRITERS):
        durable, memory = rates["HTTP", writers], rates["HTTP, not durable", writers]
        _ratio(report, f"HTTP, {writers} at a time, durable to not durable", durable, memory, None)
    if version:
        theirs = rates["etcd, 4 processes", WRITERS]
        _ratio(report, f"store to etcd, {WRITERS} writers", rates[many], theirs, 2, version)
        _ratio(report, f"HTTP to etcd, {WRITERS} writers", rates["HTTP", WRITERS], theirs, 2, version)


def _ratio(
    report: Report, what: str, ours: list[float], theirs: list[float], aim: float | None, note: str = ""
) -> None:
    samples = [a / b for a, b in zip(ours, theirs, strict=False)]
    report.add(
        what, statistics.median(samples), "x", aim=aim, more_is_better=True, note=note, samples=samples
    )


class Sim:
    """POST and PUT of ConfigMaps to a kube32-sim by one client process."""

    def __init__(self, cluster: BenchCluster, *arguments: str) -> None:
        self._cluster = cluster
        self._arguments = arguments
        self._made: set[str] = set()
        self._turn = 0

    async def start(self) -> None:
        """Until its node is Ready."""
        control = self._cluster.sim("control", "--listen", "127.0.0.1:0", *self._arguments)
        await control.until_ready()
        self._client = self._cluster.client()

    async def writes(self, writers: int, each: int) -> float:
        """Writes a second."""

        async def work(number: int) -> None:
            for turn in range(each):
                self._turn += 1
                name = f"h{number}-{turn % 30}"
                obj = config(name, self._turn) | {"metadata": {"name": name, "namespace": "default"}}
                if name in self._made:
                    await self._client.update("ConfigMap", obj)
                else:
                    self._made.add(name)
                    await self._client.create("ConfigMap", obj, "default")

        begun = time.perf_counter()
        await asyncio.gather(*(work(number) for number in range(writers)))
        return writers * each / (time.perf_counter() - begun)

    async def close(self) -> None:
        """Gives the connections up."""
        await self._client.transport.close()


async def _http() -> dict[tuple[str, int], list[float]]:
    """Writes a second through HTTP, durable ones and ones to memory in turn."""
    rates: dict[tuple[str, int], list[float]] = {}
    with BenchCluster() as durable, BenchCluster() as memory:
        sims = {"HTTP": Sim(durable, "--enable-flash"), "HTTP, not durable": Sim(memory)}
        for sim in sims.values():
            await sim.start()
        for _ in range(ROUNDS):
            for name, sim in sims.items():
                for writers, count in ((1, HTTP_ONE), (WRITERS, HTTP_MANY)):
                    rates.setdefault((name, writers), []).append(await sim.writes(writers, count // writers))
        for sim in sims.values():
            await sim.close()
    return rates


def _recovery(report: Report, folder: Path) -> None:
    """A boot from a 4 MiB journal whose every sector is used and whose live capacity is full."""
    path = folder / "full.img"
    flash = FileFlash.open(path, Geometry(SECTORS))
    log = open_log(flash, LIMITS)
    _fill(log, LIMITS.journal_live_bytes, log.next_revision)
    flash.close()
    saved = folder / "saved.img"
    shutil.copyfile(path, saved)
    samples = []
    for _ in range(7):
        shutil.copyfile(saved, path)
        begun = time.perf_counter()
        flash = FileFlash.open(path, Geometry(SECTORS))
        journal = Journal(open_log(flash, LIMITS), LIMITS)
        Store(LIMITS, journal=journal)
        samples.append((time.perf_counter() - begun) * 1000)
        flash.close()
    report.add("recovery of a full 4 MiB journal", statistics.median(samples), "ms", aim=100, samples=samples)


def _fill(log: FlashLog, live_bytes: int, revision: int) -> list[bytes]:
    """Writes objects of 1 KiB up to a share of the capacity, then over them until the ring has come around."""
    size = stored_bytes(len(PREFIX) + 5, len(VALUE))
    keys = [f"{PREFIX}{number:05}".encode() for number in range(live_bytes // size)]
    for key in keys:
        log.commit([Write(key, VALUE, revision)], None)
    random = Random(1)
    while log.head < SECTORS * 2:
        log.commit([Write(random.choice(keys), VALUE, revision)])
    return keys


def _wear(report: Report) -> None:
    """An hour of updates at 80 % of the live capacity, spread evenly and with a few hot keys."""
    for what, hot in (("any key", 1.0), ("9 of 10 to a tenth of the keys", 0.1)):
        flash = MemoryFlash(Geometry(SECTORS))
        log = open_log(flash, LIMITS)
        revision = log.next_revision
        keys = _fill(log, LIMITS.journal_live_bytes * 8 // 10, revision)
        random = Random(2)
        programmed, accepted = log.programmed_bytes, log.accepted_bytes
        erases = list(flash.erases)
        updates = 10 * HOUR
        few = keys[: max(1, int(len(keys) * hot))]
        for _ in range(updates):
            key = random.choice(few if random.random() < 0.9 else keys)
            log.commit([Write(key, VALUE, revision)])
        amplification = (log.programmed_bytes - programmed) / (log.accepted_bytes - accepted)
        note = f"{updates} updates to {what}, 80 % full"
        report.add("bytes programmed for each accepted", amplification, "", aim=2, note=note)
        worn = [now - then for now, then in zip(flash.erases, erases, strict=True)]
        report.add("most worn sector to the mean", max(worn) / statistics.mean(worn), "", aim=1.1, note=note)
