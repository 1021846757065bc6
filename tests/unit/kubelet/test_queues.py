"""Ticks and held events as plain records: missed ticks become one, the snapshot's list is sealed once."""

from hypothesis import given
from hypothesis import strategies as st

from kube32.contract import LIMITS
from kube32.formats.k32s import HeldEvent
from kube32.kubelet.queues import EventQueue, Ticks


def event(number: int) -> HeldEvent:
    """An event that can be told from others."""
    return HeldEvent("t", bytes([number]))


@given(st.integers(10, 5000), st.floats(0, 1000))
def test_missed_ticks_become_one_and_keep_the_beat(interval_ms: int, late_s: float) -> None:
    ticks = Ticks(interval_ms)
    ticks.start(0.0)
    due = interval_ms / 1000
    assert not ticks.due(due * 0.99) and ticks.due(due)
    now = due + late_s
    ticks.ticked(now)
    wait = ticks.wait_s(now)
    assert wait is not None and 0 <= wait <= due * 1.001


def test_without_an_interval_nothing_is_due() -> None:
    ticks = Ticks(None)
    ticks.start(0.0)
    assert not ticks.due(1e9) and ticks.wait_s(1e9) is None


@given(st.integers(0, 64), st.integers(0, 20), st.integers(0, 20))
def test_no_event_is_lost_or_told_twice(waiting: int, before_seal: int, after_seal: int) -> None:
    """What waited, what was taken while frozen, what the snapshot carries and what is late add up."""
    queue = EventQueue([], LIMITS)
    taken = [event(n) for n in range(waiting) if queue.add(event(n), held=False)]
    queue.unseal()
    for number in range(before_seal):
        if queue.add(event(100 + number), held=True):
            taken.append(event(100 + number))
    sealed = queue.seal()
    for number in range(after_seal):
        if queue.add(event(200 + number), held=True):
            taken.append(event(200 + number))
    assert queue.seal() == sealed and len(sealed) <= LIMITS.pod_held_events
    assert sealed + queue.late() == taken
    assert len(taken) <= max(waiting, LIMITS.pod_held_events)
    assert queue.dropped == waiting + before_seal + after_seal - len(taken)
    queue.thaw()
    assert [queue.pop() for _ in range(len(queue))] == taken and not queue.come_first
