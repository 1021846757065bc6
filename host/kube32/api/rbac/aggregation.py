"""ClusterRoles that are put together from others (aggregationRule): their rules are filled in whenever a ClusterRole
changes, as Kubernetes' controller does it.
"""

from collections.abc import Iterable
from typing import Any

import orjson

Object = dict[str, Any]


def is_aggregated(role: Object) -> bool:
    """Whether the control plane fills in the rules of a ClusterRole."""
    return bool((role.get("aggregationRule") or {}).get("clusterRoleSelectors"))


def rules_of(role: Object, roles: Iterable[Object]) -> list[Object]:
    """The rules of the roles that an aggregated one selects, by name, each once."""
    selectors = role["aggregationRule"]["clusterRoleSelectors"]
    own = role["metadata"]["name"]
    found: dict[bytes, Object] = {}
    for other in sorted(roles, key=lambda item: str(item["metadata"]["name"])):
        labels = other["metadata"].get("labels") or {}
        if other["metadata"]["name"] == own or not any(_selects(s, labels) for s in selectors):
            continue
        for rule in other.get("rules") or ():
            found.setdefault(_canonical(rule), rule)
    return list(found.values())


def same(rules: list[Object], others: list[Object]) -> bool:
    """Whether both are the same rules. Their order is no difference: roles that select each other would take
    turns for ever.
    """
    return {_canonical(rule) for rule in rules} == {_canonical(rule) for rule in others}


def _canonical(rule: Object) -> bytes:
    return orjson.dumps(rule, option=orjson.OPT_SORT_KEYS)


def filled(roles: list[Object]) -> list[Object]:
    """Roles with the aggregated ones filled in, also those that select one another."""
    for _ in roles:
        changed = False
        for role in roles:
            if is_aggregated(role) and not same(rules := rules_of(role, roles), role.get("rules") or []):
                role["rules"] = rules
                changed = True
        if not changed:
            break
    return roles


def _selects(selector: Any, labels: dict[str, str]) -> bool:
    if not isinstance(selector, dict):
        return False
    wanted = selector.get("matchLabels") or {}
    if any(labels.get(key) != value for key, value in wanted.items()):
        return False
    return all(_meets(row, labels) for row in selector.get("matchExpressions") or ())


def _meets(row: Object, labels: dict[str, str]) -> bool:
    value, values = labels.get(row.get("key", "")), row.get("values") or ()
    match row.get("operator"):
        case "In":
            return value in values
        case "NotIn":
            return value not in values
        case "Exists":
            return value is not None
        case "DoesNotExist":
            return value is None
    return False
