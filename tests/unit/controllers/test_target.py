"""Targets that admission would not let through, but an older object may still have."""

import pytest
from tests.unit.controllers.test_scheduling import node, pod

from kube32.controllers.checkpoint.failure import StepFailed
from kube32.controllers.checkpoint.target import pick_target


def test_a_target_by_name_and_by_selector_at_once_is_refused() -> None:
    with pytest.raises(StepFailed, match=r"spec\.target has both nodeName and nodeSelector"):
        pick_target(pod(on="a"), {"nodeName": "b", "nodeSelector": {"zone": "b"}}, [node("a"), node("b")], [])


def test_an_empty_target_leaves_the_choice_to_the_scheduler() -> None:
    nodes = [node("a"), node("b")]
    assert pick_target(pod(on="a"), {"nodeName": "", "nodeSelector": {}}, nodes, []) == "b"
