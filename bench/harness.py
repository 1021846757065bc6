"""Shared by the bench scripts: timing loops, medians, a table on the terminal and build/bench/<name>.json."""

import asyncio
import json
import math
import os
import platform
import statistics
import sys
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

OUTPUT = Path(__file__).resolve().parent.parent / "build" / "bench"


@dataclass(frozen=True, slots=True)
class Timing:
    """Seconds for one call: of each round the mean, over the rounds median, least and most."""

    median: float
    least: float
    most: float
    calls: int
    samples: tuple[float, ...] = ()

    @property
    def rate(self) -> float:
        """Calls per second at the median."""
        return 1 / self.median if self.median else 0.0


@dataclass(slots=True)
class Result:
    """One figure. `aim` is what it should reach: at most it, or at least it where `more_is_better`."""

    what: str
    value: float
    unit: str
    aim: float | None = None
    more_is_better: bool = False
    note: str = ""
    samples: list[float] = field(default_factory=list)

    @property
    def reached(self) -> bool | None:
        """Whether the aim is reached; None without one."""
        if self.aim is None:
            return None
        return self.value >= self.aim if self.more_is_better else self.value <= self.aim


def time_calls(fn: Callable[[], object], *, seconds: float = 1.0, rounds: int = 5) -> Timing:
    """Calls `fn` for about `seconds` in all, in `rounds` rounds of as many calls each."""
    started = time.perf_counter()
    fn()
    once = time.perf_counter() - started
    calls = _calls_per_round(once, seconds, rounds)
    samples = []
    for _ in range(rounds):
        started = time.perf_counter()
        for _ in range(calls):
            fn()
        samples.append((time.perf_counter() - started) / calls)
    return _timing(samples, calls)


def time_in_turn(
    fns: Sequence[Callable[[], object]], *, seconds: float = 1.0, rounds: int = 5
) -> list[Timing]:
    """As `time_calls` for several functions, `seconds` for each.

    Their rounds take turns, so that what slows the machine slows all of them.
    """
    counts = []
    for fn in fns:
        fn()
        started = time.perf_counter()
        fn()
        counts.append(_calls_per_round(time.perf_counter() - started, seconds, rounds))
    samples: list[list[float]] = [[] for _ in fns]
    for _ in range(rounds):
        for fn, count, taken in zip(fns, counts, samples, strict=True):
            started = time.perf_counter()
            for _ in range(count):
                fn()
            taken.append((time.perf_counter() - started) / count)
    return [_timing(taken, count) for taken, count in zip(samples, counts, strict=True)]


async def time_awaits(
    fn: Callable[[], Awaitable[object]], *, seconds: float = 1.0, rounds: int = 5, at_once: int = 1
) -> Timing:
    """As `time_calls`, in `at_once` loops that await `fn`; a call's time is the round's through all calls."""

    async def loop(count: int) -> None:
        for _ in range(count):
            await fn()

    started = time.perf_counter()
    await fn()
    once = time.perf_counter() - started
    each = max(1, _calls_per_round(once, seconds, rounds) // at_once)
    samples = []
    for _ in range(rounds):
        started = time.perf_counter()
        await asyncio.gather(*(loop(each) for _ in range(at_once)))
        samples.append((time.perf_counter() - started) / (each * at_once))
    return _timing(samples, each * at_once)


def _calls_per_round(once: float, seconds: float, rounds: int) -> int:
    return max(1, int(seconds / rounds / max(once, 1e-7)))


def _timing(samples: list[float], calls: int) -> Timing:
    return Timing(statistics.median(samples), min(samples), max(samples), calls, tuple(samples))


def ratios(first: Timing, second: Timing) -> list[float]:
    """How many times faster `first` is than `second`, round by round of the same `time_in_turn`."""
    return [b / a for a, b in zip(first.samples, second.samples, strict=True)]


def percentile(samples: Sequence[float], share: float) -> float:
    """The least sample that at least `share` (0 to 1) of all do not exceed."""
    ordered = sorted(samples)
    return ordered[max(0, math.ceil(share * len(ordered)) - 1)]


def resident_bytes(pid: int | None = None) -> int:
    """Resident memory of a process (this one without `pid`), 0 where /proc does not tell."""
    try:
        pages = int(Path(f"/proc/{pid or os.getpid()}/statm").read_text().split()[1])
    except (OSError, IndexError, ValueError):
        return 0
    return pages * os.sysconf("SC_PAGE_SIZE")


class Report:
    """The figures of one bench script."""

    def __init__(self, name: str, title: str) -> None:
        self.name = name
        self.title = title
        self.results: list[Result] = []

    def add(
        self,
        what: str,
        value: float,
        unit: str,
        *,
        aim: float | None = None,
        more_is_better: bool = False,
        note: str = "",
        samples: Sequence[float] = (),
    ) -> Result:
        """Adds a figure; `samples` (in the same unit) go to the JSON only."""
        result = Result(what, value, unit, aim, more_is_better, note, list(samples))
        self.results.append(result)
        return result

    def finish(self) -> Path:
        """Prints the table and writes the JSON; gives the file's path."""
        Console(width=None if sys.stdout.isatty() else 120).print(self._table())
        OUTPUT.mkdir(parents=True, exist_ok=True)
        path = OUTPUT / f"{self.name}.json"
        path.write_text(json.dumps(self._document(), indent=2) + "\n", encoding="utf-8")
        return path

    def _document(self) -> dict[str, Any]:
        return {
            "name": self.name,
            "title": self.title,
            "time": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
            "machine": {
                "python": platform.python_version(),
                "system": f"{platform.system()} {platform.machine()}",
                "cpus": os.cpu_count(),
                "load": [round(load, 2) for load in os.getloadavg()] if hasattr(os, "getloadavg") else [],
            },
            "results": [{**asdict(result), "reached": result.reached} for result in self.results],
        }

    def _table(self) -> Table:
        table = Table(title=self.title, title_justify="left")
        table.add_column("what")
        table.add_column("value", justify="right")
        table.add_column("unit")
        table.add_column("aim", justify="right")
        table.add_column("note")
        for result in self.results:
            table.add_row(
                result.what,
                number(result.value),
                result.unit,
                _aim(result),
                result.note,
                style=_style(result),
            )
        return table


def number(value: float) -> str:
    """Three significant digits, thousands set apart: 0.0123, 1.23, 12,300."""
    if value == 0 or abs(value) >= 100:
        return f"{value:,.0f}"
    return f"{value:.3g}"


def _aim(result: Result) -> str:
    if result.aim is None:
        return ""
    return f"{'>=' if result.more_is_better else '<='} {number(result.aim)}"


def _style(result: Result) -> str | None:
    return {None: None, True: "green", False: "red"}[result.reached]
