"""The pod's clock: never backward, still while frozen (decisions, "Freezing and moving"; user-demand A10)."""

import time

import pytest

from kube32.wasm import PodClock


def test_a_frozen_clock_stands_still_and_goes_on_from_there() -> None:
    clock = PodClock()
    clock.set(1000)
    clock.freeze()
    still = clock.now_ms()
    time.sleep(0.01)
    assert clock.now_ms() == still >= 1000
    clock.freeze()
    assert clock.now_ms() == still
    clock.thaw()
    clock.thaw()
    time.sleep(0.005)
    assert clock.now_ms() >= still + 5


def test_a_clock_that_is_set_while_frozen_stays_frozen() -> None:
    clock = PodClock()
    clock.freeze()
    clock.set(77)
    time.sleep(0.003)
    assert clock.now_ms() == 77


def test_a_wall_clock_that_jumps_moves_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = PodClock()
    before = clock.now_ms()
    monkeypatch.setattr(time, "time", lambda: 0.0)
    monkeypatch.setattr(time, "time_ns", lambda: 0)
    assert before <= clock.now_ms() < before + 60_000


def test_the_clock_never_runs_backward() -> None:
    clock = PodClock()
    last = 0
    for step in range(2000):
        if step % 3 == 0:
            clock.freeze()
        elif step % 3 == 1:
            clock.thaw()
        now = clock.now_ms()
        assert now >= last
        last = now
