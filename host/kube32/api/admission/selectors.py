"""Label selectors in objects: their syntax, and what they select."""

from typing import Any

from kube32.api.admission import names
from kube32.api.admission.meta import check_labels
from kube32.api.admission.problems import Problems
from kube32.contract import text

Object = dict[str, Any]
_OPERATORS = ("In", "NotIn", "Exists", "DoesNotExist")


def check_selector(selector: Object, path: str, problems: Problems) -> None:
    """A label selector."""
    check_labels(selector.get("matchLabels") or {}, f"{path}.matchLabels", problems)
    for index, rule in enumerate(selector.get("matchExpressions") or ()):
        _check_rule(rule, f"{path}.matchExpressions[{index}]", problems)


def _check_rule(rule: Object, path: str, problems: Problems) -> None:
    key, operator, values = rule.get("key", ""), rule.get("operator", ""), rule.get("values") or []
    if operator in ("In", "NotIn") and not values:
        problems.required(f"{path}.values", text("validation", "selector_values"))
    elif operator in ("Exists", "DoesNotExist") and values:
        problems.forbidden(f"{path}.values", text("validation", "selector_no_values"))
    elif operator and operator not in _OPERATORS:
        problems.invalid(f"{path}.operator", operator, text("validation", "selector_operator"))
    if key:
        problems.invalids(f"{path}.key", key, names.qualified_name(key))
    for index, value in enumerate(values):
        problems.invalids(f"{path}.values[{index}]", value, names.label_value(value))


def is_empty(selector: Object) -> bool:
    """Whether it says nothing, and so selects everything."""
    return not selector.get("matchLabels") and not selector.get("matchExpressions")


def selects(selector: Object, labels: dict[str, str]) -> bool:
    """Whether an object with these labels is selected."""
    return all(labels.get(k) == v for k, v in (selector.get("matchLabels") or {}).items()) and all(
        _holds(rule, labels) for rule in selector.get("matchExpressions") or ()
    )


def _holds(rule: Object, labels: dict[str, str]) -> bool:
    key: str = rule.get("key", "")
    operator: str = rule.get("operator", "")
    values: list[str] = rule.get("values") or []
    if operator == "In":
        return labels.get(key) in values
    if operator == "NotIn":
        return labels.get(key) not in values
    return (key in labels) == (operator == "Exists")
