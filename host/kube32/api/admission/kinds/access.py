"""Validation of roles and their bindings, in kube-apiserver's words."""

from typing import Any

from kube32.api.admission import names
from kube32.api.admission.problems import Problems
from kube32.api.admission.selectors import check_selector
from kube32.contract import text
from kube32.contract.rbac import GROUP as RBAC

Object = dict[str, Any]
_SUBJECTS = ("User", "Group", "ServiceAccount")


def check_role(obj: Object, problems: Problems) -> None:
    """A Role: it knows no paths."""
    for index, rule in enumerate(obj.get("rules") or ()):
        _check_rule(rule, f"rules[{index}]", True, problems)


def check_cluster_role(obj: Object, problems: Problems) -> None:
    """A ClusterRole."""
    for index, rule in enumerate(obj.get("rules") or ()):
        _check_rule(rule, f"rules[{index}]", False, problems)
    aggregation = obj.get("aggregationRule")
    if aggregation is None:
        return
    selectors, path = aggregation.get("clusterRoleSelectors") or [], "aggregationRule.clusterRoleSelectors"
    if not selectors:
        problems.required(path, text("validation", "aggregation_none"))
    for index, selector in enumerate(selectors):
        check_selector(selector, f"{path}[{index}]", problems)


def _check_rule(rule: Object, path: str, namespaced: bool, problems: Problems) -> None:
    paths = rule.get("nonResourceURLs") or []
    if paths:
        if namespaced:
            problems.invalid(f"{path}.nonResourceURLs", paths, text("validation", "rule_namespaced"))
        if any(rule.get(field) for field in ("apiGroups", "resources", "resourceNames")):
            problems.invalid(f"{path}.nonResourceURLs", paths, text("validation", "rule_both"))
        return
    if not rule.get("apiGroups"):
        problems.required(f"{path}.apiGroups", text("validation", "rule_groups"))
    if not rule.get("resources"):
        problems.required(f"{path}.resources", text("validation", "rule_resources"))


def check_role_binding(obj: Object, problems: Problems) -> None:
    """A RoleBinding."""
    _check_binding(obj, ("Role", "ClusterRole"), problems)


def check_cluster_role_binding(obj: Object, problems: Problems) -> None:
    """A ClusterRoleBinding."""
    _check_binding(obj, ("ClusterRole",), problems)


def _check_binding(obj: Object, kinds: tuple[str, ...], problems: Problems) -> None:
    role: Object = obj.get("roleRef") or {}
    if role.get("apiGroup", RBAC) not in ("", RBAC):
        problems.unsupported("roleRef.apiGroup", role["apiGroup"], (RBAC,))
    if role.get("kind") and role["kind"] not in kinds:
        problems.unsupported("roleRef.kind", role["kind"], kinds)
    if role.get("name"):
        problems.invalids("roleRef.name", role["name"], names.path_segment(role["name"]))
    for index, subject in enumerate(obj.get("subjects") or ()):
        _check_subject(subject, f"subjects[{index}]", problems)


def _check_subject(subject: Object, path: str, problems: Problems) -> None:
    kind, name, group = (subject.get(key) or "" for key in ("kind", "name", "apiGroup"))
    if kind == "ServiceAccount":
        if name:
            problems.invalids(f"{path}.name", name, names.subdomain(name))
        if group:
            problems.unsupported(f"{path}.apiGroup", group, ("",))
        if not subject.get("namespace"):
            problems.required(f"{path}.namespace")
    elif kind in _SUBJECTS:
        if group != RBAC:
            problems.unsupported(f"{path}.apiGroup", group, (RBAC,))
    elif kind:
        problems.unsupported(f"{path}.kind", kind, _SUBJECTS)


def check_binding_update(old: Object, new: Object, problems: Problems) -> None:
    """The role stays."""
    if old.get("roleRef") != new.get("roleRef"):
        problems.invalid("roleRef", new.get("roleRef"), text("validation", "role_ref"))
