"""Nothing acknowledged is lost, wherever the power is cut (issue C, "What must be shown"; user-demand D1, D4).

KUBE32_POWERCUT_POINTS is how many places to cut (default 200,000), KUBE32_POWERCUT_SEED the first workload's seed.
"""

import itertools
import multiprocessing
import os
from concurrent.futures import ProcessPoolExecutor

from tests.powercut.harness import Tally, run

POINTS = int(os.environ.get("KUBE32_POWERCUT_POINTS", "200000"))
SEED = int(os.environ.get("KUBE32_POWERCUT_SEED", "0"))
# Only a machine many times slower than those that the tests are meant for meets this.
SECONDS = max(900.0, POINTS / 100)


def share(first: int, step: int, points: int) -> Tally:
    """One process's part of the workloads."""
    return run(itertools.count(first, step), points, SECONDS)


def test_every_operation_can_be_the_last() -> None:
    workers = os.cpu_count() or 1
    with ProcessPoolExecutor(workers, multiprocessing.get_context("spawn")) as pool:
        shares = [
            pool.submit(share, SEED + number, workers, -(-POINTS // workers)) for number in range(workers)
        ]
        tallies = [future.result() for future in shares]
    points = sum(tally.points for tally in tallies)
    modes = sum((tally.modes for tally in tallies), start=type(tallies[0].modes)())
    print(
        f"{points} places cut in {sum(t.workloads for t in tallies)} workloads ({dict(modes)}) from seed {SEED}"
    )
    assert points >= POINTS, f"only {points} places could be cut in {SECONDS:.0f} s"
    assert modes["flash"] and modes["block"]
