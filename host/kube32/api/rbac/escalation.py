"""Nobody gives away what he does not have: roles are written by those who hold all their rules or the verb
`escalate`, bindings by those who hold their role's rules or the verb `bind` on it.
"""

from typing import Any

from kube32.api.http import UserInfo
from kube32.api.rbac import aggregation
from kube32.api.rbac.index import Decision, role_key_of
from kube32.api.rbac.policy import KINDS, Rbac
from kube32.api.rbac.rules import Attributes, TooManyParts, missing, quoted, shown
from kube32.api.routes import RequestInfo
from kube32.api.status import forbidden_because, not_found
from kube32.contract import Resource, resource_of, text
from kube32.contract.rbac import GROUP

Object = dict[str, Any]
_EVERYTHING = [
    {"apiGroups": ["*"], "resources": ["*"], "verbs": ["*"]},
    {"nonResourceURLs": ["*"], "verbs": ["*"]},
]


def concerns(info: RequestInfo) -> bool:
    """Whether a request is about roles or bindings."""
    return info.group == GROUP and info.resource is not None and info.resource.kind in KINDS


def admit(rbac: Rbac, user: UserInfo, info: RequestInfo, old: Object | None, new: Object | None) -> None:
    """ApiFailure 403 when `user` would give rights that it does not hold; 404 for a binding to no role.

    `old` is None for a create, `new` for a deletion. The privileged are not asked.
    """
    resource = info.resource
    if new is None or resource is None:
        return
    name = new["metadata"].get("name") or info.name
    if resource.kind in ("Role", "ClusterRole"):
        _check_role(rbac, user, resource, info.namespace, name, old, new)
    else:
        _check_binding(rbac, user, resource, info.namespace, name, old, new)


def _check_role(
    rbac: Rbac,
    user: UserInfo,
    resource: Resource,
    namespace: str,
    name: str,
    old: Object | None,
    new: Object,
) -> None:
    aggregates = aggregation.is_aggregated(new) and (
        old is None or new.get("aggregationRule") != old.get("aggregationRule")
    )
    unchanged = old is not None and (new.get("rules") or []) == (old.get("rules") or [])
    if unchanged and not aggregates:
        return
    if _may(rbac, user, "escalate", resource, namespace, name).allowed:
        return
    if aggregates and missing(rbac.index.rules(user, ""), _EVERYTHING, rbac.limits.rbac_rule_parts):
        why = "must have cluster-admin privileges to use an aggregationRule"
        raise forbidden_because(resource, name, why)
    _check_held(rbac, user, resource, namespace, name, new.get("rules"))


def _check_binding(
    rbac: Rbac,
    user: UserInfo,
    resource: Resource,
    namespace: str,
    name: str,
    old: Object | None,
    new: Object,
) -> None:
    reference = new.get("roleRef") or {}
    if (
        old is not None
        and reference == old.get("roleRef")
        and (new.get("subjects") or []) == (old.get("subjects") or [])
    ):
        return
    role = resource_of("Role" if reference.get("kind") == "Role" else "ClusterRole")
    role_name = str(reference.get("name", ""))
    if _may(rbac, user, "bind", role, namespace, role_name).allowed:
        return
    rows = rbac.index.role_rows(role_key_of(reference, namespace))
    if rows is None:
        raise not_found(role, role_name)
    _check_held(rbac, user, resource, namespace, name, rows)


def _check_held(rbac: Rbac, user: UserInfo, resource: Resource, namespace: str, name: str, rows: Any) -> None:
    limit = rbac.limits.rbac_rule_parts
    try:
        lacking = missing(rbac.index.rules(user, namespace), rows, limit)
    except TooManyParts:
        raise forbidden_because(resource, name, text("answers", "rbac_parts", limit=limit)) from None
    if not lacking:
        return
    who = f'user "{user.name}" (groups={quoted(user.groups)})'
    listed = "\n".join(sorted({shown(row) for row in lacking}))
    why = f"{who} is attempting to grant RBAC permissions not currently held:\n{listed}"
    if bound := rbac.index.missing(user, namespace):
        why += f"; resolution errors: [{', '.join(bound)}]"
    raise forbidden_because(resource, name, why)


def _may(rbac: Rbac, user: UserInfo, verb: str, resource: Resource, namespace: str, name: str) -> Decision:
    return rbac.decide(user, Attributes(verb, GROUP, resource.plural, "", namespace, name))
