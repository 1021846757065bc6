"""Runs the benches that are named, or all: `python -m bench [move|snapshot|api|scale|journal ...]`."""

import asyncio
import sys
import time
from collections.abc import Callable
from pathlib import Path

from bench import api, journal, move, scale, snapshot
from bench.cluster import BenchFailed

BENCHES: dict[str, Callable[[], Path]] = {
    "snapshot": snapshot.run,
    "move": lambda: asyncio.run(move.run()),
    "api": lambda: asyncio.run(api.run()),
    "journal": journal.run,
    "scale": lambda: asyncio.run(scale.run()),
}


def main(names: list[str]) -> int:
    """Exit code 1 when a bench could not be run, 2 for an unknown name. A missed aim is no failure."""
    unknown = [name for name in names if name not in BENCHES]
    if unknown:
        print(f"no bench named {', '.join(unknown)}; there are {', '.join(BENCHES)}", file=sys.stderr)
        return 2
    code = 0
    for name in names or list(BENCHES):
        begun = time.monotonic()
        try:
            path = BENCHES[name]()
        except BenchFailed as error:
            print(f"bench {name} failed: {error}", file=sys.stderr)
            code = 1
            continue
        print(f"{path}, {time.monotonic() - begun:.0f} s\n")
    return code


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
