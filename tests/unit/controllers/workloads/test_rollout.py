"""The sizes of a Deployment's revisions, step by step: Kubernetes' bounds hold, whatever gets ready when."""

from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from tests.unit.controllers.peers import Obj
from tests.unit.controllers.workloads.world import deployment

from kube32.controllers.workloads.deployments import rollout
from kube32.controllers.workloads.deployments.history import Revision


def rolling(replicas: int, surge: Any = "25%", unavailable: Any = "25%") -> Obj:
    pace = {"maxSurge": surge, "maxUnavailable": unavailable}
    return deployment(replicas=replicas, strategy={"type": "RollingUpdate", "rollingUpdate": pace})


def revision(name: str, replicas: int, number: int, wanted: int, surge: int) -> Revision:
    return Revision(name, number, {}, f"2026-01-0{number}", "", replicas, wanted, wanted + surge)


@pytest.mark.parametrize(
    ("replicas", "surge", "unavailable", "expected"),
    [
        (4, "25%", "25%", (1, 1)),
        (3, "25%", "25%", (1, 0)),
        (10, "25%", "25%", (3, 2)),
        (1, "25%", "25%", (1, 0)),
        (5, 0, "10%", (0, 1)),
        (5, 2, 0, (2, 0)),
        (2, 0, 9, (0, 2)),
        (0, 3, 3, (0, 0)),
    ],
)
def test_surge_rounds_up_and_unavailable_down(
    replicas: int, surge: Any, unavailable: Any, expected: tuple[int, int]
) -> None:
    assert rollout.bounds(rolling(replicas, surge, unavailable)) == expected


def test_a_deployment_that_grows_in_its_rollout_grows_in_proportion() -> None:
    """10 replicas with surge 3, of which 8 are old and 5 new, become 15: 18 pods, shared as before."""
    old, new = revision("old", 8, 1, 10, 3), revision("new", 5, 2, 10, 3)
    wanted = rolling(15, 3, 2)
    assert rollout.was_scaled(wanted, [old, new])
    rollout.scale(wanted, new, [old], {"old": 8, "new": 0})
    assert (old.replicas, new.replicas) == (11, 7)
    assert not rollout.was_scaled(wanted, [old, new])


def test_old_revisions_go_when_the_new_one_serves_all_while_the_size_is_the_same() -> None:
    old, new = revision("old", 2, 1, 3, 1), revision("new", 3, 2, 3, 1)
    rollout.scale(rolling(3), new, [old], {"old": 0, "new": 3})
    assert (old.replicas, new.replicas) == (0, 3)


def test_broken_old_pods_go_before_those_that_serve() -> None:
    broken, serving, new = (
        revision("broken", 2, 2, 4, 1),
        revision("serving", 3, 1, 4, 1),
        revision("new", 0, 3, 4, 1),
    )
    rollout.roll(rolling(4, 1, 1), new, [broken, serving], {"serving": 3})
    assert (new.replicas, broken.replicas, serving.replicas) == (0, 0, 3)


shares = st.one_of(st.integers(0, 4), st.integers(0, 100).map(lambda p: f"{p}%"))


@given(replicas=st.integers(0, 8), surge=shares, unavailable=shares, data=st.data())
def test_every_rollout_ends_and_keeps_to_its_bounds(
    replicas: int, surge: Any, unavailable: Any, data: st.DataObject
) -> None:
    wanted = rolling(replicas, surge, unavailable)
    most_more, most_less = rollout.bounds(wanted)
    old = revision("old", replicas, 1, replicas, most_more)
    new = Revision("new", 2, {}, "2026-01-02")
    available = {"old": replicas, "new": 0}
    for _ in range(200):
        rollout.roll(wanted, new, [old], available)
        assert old.replicas + new.replicas <= replicas + most_more
        available["old"] = min(available["old"], old.replicas)
        assert sum(available.values()) >= replicas - most_less
        if (old.replicas, new.replicas) == (0, replicas):
            break
        available["new"] = data.draw(st.integers(available["new"], new.replicas), "ready")
        if data.draw(st.booleans(), "all"):
            available["new"] = new.replicas
    else:
        available["new"] = new.replicas
    for _ in range(50):
        rollout.roll(wanted, new, [old], available)
        available = {"old": min(available["old"], old.replicas), "new": new.replicas}
    assert (old.replicas, new.replicas) == (0, replicas)


@given(
    sizes=st.lists(st.integers(1, 6), min_size=2, max_size=4),
    before=st.integers(1, 12),
    after=st.integers(0, 20),
    surge=st.integers(0, 4),
)
def test_scaling_gives_out_exactly_what_is_allowed(
    sizes: list[int], before: int, after: int, surge: int
) -> None:
    assume(sum(sizes) <= before + surge)
    revisions = [revision(str(n), size, n + 1, before, surge) for n, size in enumerate(sizes)]
    wanted = rolling(after, surge, 1)
    rollout.scale(wanted, revisions[-1], revisions[:-1], {})
    assert all(r.replicas >= 0 for r in revisions)
    allowed = after + surge if after else 0
    total = sum(r.replicas for r in revisions)
    assert total == allowed or (revisions[-1].replicas == after == 0)
