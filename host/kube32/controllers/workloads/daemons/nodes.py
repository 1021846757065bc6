"""Which nodes take a DaemonSet's pod, and what its pods have beside the template to get and stay there. Pure."""

import copy

from kube32.contract import NAMES
from kube32.controllers.node_match import matches_required_affinity, matches_selector, tolerated
from kube32.controllers.objects import Obj, name_of, node_of, spec_of

_NODE_NAME = "metadata.name"
_HARD = ("NoSchedule", "NoExecute")


class Places:
    """The DaemonSet's template as the node matchers want it."""

    def __init__(self, daemon_set: Obj) -> None:
        template = spec_of(daemon_set).get("template") or {}
        spec = dict(template.get("spec") or {})
        spec["tolerations"] = _tolerations(spec)
        self._pod: Obj = {"metadata": template.get("metadata") or {}, "spec": spec}

    def runs_on(self, node: Obj) -> bool:
        """Whether the node should have a pod."""
        return self._suits(node) and self._tolerates(node, _HARD)

    def stays_on(self, node: Obj) -> bool:
        """Whether a pod that is there may stay: a NoSchedule taint does not drive it away."""
        return self._suits(node) and self._tolerates(node, ("NoExecute",))

    def _suits(self, node: Obj) -> bool:
        spec = self._pod["spec"]
        if spec.get("nodeName") not in (None, "", name_of(node)):
            return False
        return matches_selector(node, spec.get("nodeSelector")) and matches_required_affinity(node, self._pod)

    def _tolerates(self, node: Obj, effects: tuple[str, ...]) -> bool:
        taints = spec_of(node).get("taints") or []
        return all(tolerated(self._pod, t) for t in taints if t.get("effect") in effects)


def _tolerations(spec: Obj) -> list[Obj]:
    """The template's tolerations, and those that Kubernetes adds for every daemon."""
    found: list[Obj] = copy.deepcopy(spec.get("tolerations") or [])
    added = dict(NAMES.daemon_tolerations)
    if spec.get("hostNetwork"):
        added[NAMES.taint_network_unavailable] = "NoSchedule"
    for key, effect in added.items():
        row = {"key": key, "operator": "Exists", "effect": effect}
        if row not in found:
            found.append(row)
    return found


def bind_to(pod: Obj, node: str) -> None:
    """Changes a pod of the template, in place, so that the scheduler binds it to the node and nowhere else."""
    spec = pod["spec"]
    spec["tolerations"] = _tolerations(spec)
    affinity = spec.setdefault("affinity", {}).setdefault("nodeAffinity", {})
    term = {"matchFields": [{"key": _NODE_NAME, "operator": "In", "values": [node]}]}
    affinity["requiredDuringSchedulingIgnoredDuringExecution"] = {"nodeSelectorTerms": [term]}


def target_of(pod: Obj) -> str:
    """The node that a daemon's pod is on, or is for."""
    if node_of(pod):
        return node_of(pod)
    affinity = (spec_of(pod).get("affinity") or {}).get("nodeAffinity") or {}
    required = affinity.get("requiredDuringSchedulingIgnoredDuringExecution") or {}
    for term in required.get("nodeSelectorTerms") or []:
        for field in term.get("matchFields") or []:
            if field.get("key") == _NODE_NAME and field.get("values"):
                return str(field["values"][0])
    return ""
