"""Where a moving pod goes: spec.target.nodeName, or the scheduler's choice with its nodeSelector added.

Never the node it runs on, never one that is cordoned or not Ready ("Moves", step 1).
"""

from collections.abc import Iterable, Sequence

from kube32.contract import text
from kube32.controllers.checkpoint.failure import StepFailed, failed
from kube32.controllers.load import Load
from kube32.controllers.objects import Obj, is_true, name_of, node_of
from kube32.controllers.scheduling import choose, is_cordoned


def check_source(pod: Obj, nodes: Sequence[Obj]) -> None:
    """The node that the pod runs on must answer. StepFailed when it is gone or not Ready."""
    source = next((n for n in nodes if name_of(n) == node_of(pod)), None)
    if source is None or not is_true(source, "Ready"):
        raise failed("node_not_ready", node=node_of(pod))


def pick_target(pod: Obj, target: Obj, nodes: Sequence[Obj], pods: Load | Iterable[Obj]) -> str:
    """The target's name. `target` is spec.target. StepFailed with the reason when there is none."""
    named, selector = target.get("nodeName"), target.get("nodeSelector")
    if named and selector:
        raise failed("target_both")
    candidates = [_named(pod, str(named), nodes)] if named else nodes
    placement = choose(
        pod, candidates, pods, extra_selector=selector, exclude=(node_of(pod),), allow_cordoned=False
    )
    if placement.node is None:
        raise StepFailed(text("failures", "no_target", cause=placement.reason))
    return placement.node


def _named(pod: Obj, name: str, nodes: Sequence[Obj]) -> Obj:
    if name == node_of(pod):
        raise failed("target_same", pod=name_of(pod), node=name)
    node = next((n for n in nodes if name_of(n) == name), None)
    if node is None:
        raise failed("target_missing", node=name)
    if is_cordoned(node):
        raise failed("target_cordoned", node=name)
    if not is_true(node, "Ready"):
        raise failed("node_not_ready", node=name)
    return node
