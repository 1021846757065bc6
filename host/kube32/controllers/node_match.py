"""Whether a node suits a pod: selectors, node affinity, taints and tolerations, capabilities, storage."""

from collections.abc import Iterator, Mapping

from kube32.contract import NAMES
from kube32.controllers.objects import Obj, annotation, containers, name_of, spec_of, volume_claims

_HARD_EFFECTS = ("NoSchedule", "NoExecute")


def labels_of(node: Obj) -> dict[str, str]:
    """The node's labels."""
    return node["metadata"].get("labels") or {}


def matches_selector(node: Obj, selector: Mapping[str, str] | None) -> bool:
    """Whether the node has each of the labels."""
    labels = labels_of(node)
    return all(labels.get(key) == value for key, value in (selector or {}).items())


def matches_required_affinity(node: Obj, pod: Obj) -> bool:
    """Whether a required term of the pod's node affinity matches; without such terms every node does."""
    required = _node_affinity(pod).get("requiredDuringSchedulingIgnoredDuringExecution")
    if not required:
        return True
    return any(matches_term(node, term) for term in required.get("nodeSelectorTerms") or [])


def preferred_weight(node: Obj, pod: Obj) -> int:
    """The sum of the weights of the preferred terms that match."""
    preferred = _node_affinity(pod).get("preferredDuringSchedulingIgnoredDuringExecution") or []
    return sum(int(p.get("weight", 0)) for p in preferred if matches_term(node, p.get("preference") or {}))


def _node_affinity(pod: Obj) -> Obj:
    return (spec_of(pod).get("affinity") or {}).get("nodeAffinity") or {}


def matches_term(node: Obj, term: Obj) -> bool:
    """Whether every expression of a nodeSelectorTerm holds; an empty term matches nothing."""
    expressions, fields = term.get("matchExpressions") or [], term.get("matchFields") or []
    if not expressions and not fields:
        return False
    own = {"metadata.name": name_of(node)}
    return all(_holds(labels_of(node), e) for e in expressions) and all(_holds(own, f) for f in fields)


def _holds(labels: Mapping[str, str], expression: Obj) -> bool:
    value = labels.get(str(expression.get("key")))
    values = expression.get("values") or []
    match expression.get("operator"):
        case "In":
            return value in values
        case "NotIn":
            return value not in values
        case "Exists":
            return value is not None
        case "DoesNotExist":
            return value is None
        case "Gt" | "Lt" as operator:
            return _compares(value, operator, values)
    return False


def _compares(value: str | None, operator: str, values: list[str]) -> bool:
    try:
        number, bound = int(value or ""), int(values[0])
    except (ValueError, IndexError):
        return False
    return number > bound if operator == "Gt" else number < bound


def _tolerates(toleration: Obj, taint: Obj) -> bool:
    if toleration.get("effect") and toleration["effect"] != taint.get("effect"):
        return False
    key = toleration.get("key") or ""
    if key and key != taint.get("key"):
        return False
    if toleration.get("operator") == "Exists":
        return True
    return bool(key) and (toleration.get("value") or "") == (taint.get("value") or "")


def toleration_of(pod: Obj, taint: Obj) -> Obj | None:
    """The first of the pod's tolerations that covers the taint."""
    return next((t for t in spec_of(pod).get("tolerations") or [] if _tolerates(t, taint)), None)


def tolerated(pod: Obj, taint: Obj) -> bool:
    """Whether one of the pod's tolerations covers the taint."""
    return toleration_of(pod, taint) is not None


def untolerated_taint(node: Obj, pod: Obj) -> Obj | None:
    """The first taint that keeps the pod off the node."""
    for taint in spec_of(node).get("taints") or []:
        if taint.get("effect") in _HARD_EFFECTS and not tolerated(pod, taint):
            return dict(taint)
    return None


def soft_taints(node: Obj, pod: Obj) -> int:
    """How many PreferNoSchedule taints of the node the pod does not tolerate."""
    taints = spec_of(node).get("taints") or []
    return sum(t.get("effect") == "PreferNoSchedule" and not tolerated(pod, t) for t in taints)


def granted_capabilities(pod: Obj) -> Iterator[str]:
    """The hardware capabilities that the pod's containers add, each once."""
    seen = set()
    for container in containers(pod, init=True):
        added = ((container.get("securityContext") or {}).get("capabilities") or {}).get("add") or []
        for name in added:
            if name in NAMES.grant_capabilities and name not in seen:
                seen.add(name)
                yield name


def missing_capability(node: Obj, pod: Obj) -> str | None:
    """The first capability that the pod adds and the node does not publish."""
    published = {c.strip() for c in (annotation(node, NAMES.ann_capabilities) or "").split(",")}
    return next((c for c in granted_capabilities(pod) if c not in published), None)


def lacks_storage(node: Obj, pod: Obj) -> bool:
    """Whether the pod needs node storage and the node says that it has none."""
    return annotation(node, NAMES.ann_storage) == "false" and next(volume_claims(pod), None) is not None
