"""Label selectors of workloads (matchLabels and matchExpressions)."""

from kube32.controllers.objects import Obj, spec_of


def selects(owner: Obj, pod: Obj) -> bool:
    """Whether the owner, of the pod's namespace, selects the pod."""
    meta = pod["metadata"]
    same = owner["metadata"].get("namespace") == meta.get("namespace")
    return same and matches(spec_of(owner).get("selector") or {}, meta.get("labels") or {})


def matches(selector: Obj, labels: dict[str, str]) -> bool:
    """Whether the labels fit; an empty selector fits nothing, as for Kubernetes' workloads."""
    wanted, expressions = selector.get("matchLabels") or {}, selector.get("matchExpressions") or []
    if not wanted and not expressions:
        return False
    return all(labels.get(k) == v for k, v in wanted.items()) and all(_holds(e, labels) for e in expressions)


def _holds(expression: Obj, labels: dict[str, str]) -> bool:
    value, values = labels.get(str(expression.get("key"))), expression.get("values") or []
    match expression.get("operator"):
        case "In":
            return value in values
        case "NotIn":
            return value not in values
        case "Exists":
            return value is not None
        case "DoesNotExist":
            return value is None
    return False
