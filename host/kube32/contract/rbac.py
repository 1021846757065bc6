"""The built-in roles and their holders, from rbac.yaml, as the objects of Kubernetes that they are."""

from typing import Any, cast

from kube32.contract.data import load

GROUP = "rbac.authorization.k8s.io"
API_VERSION = f"{GROUP}/v1"
AUTOUPDATE = "rbac.authorization.kubernetes.io/autoupdate"
BOOTSTRAPPING = "kubernetes.io/bootstrapping"
_AGGREGATE = f"{GROUP}/aggregate-to-"
_DATA = cast(dict[str, Any], load("rbac.yaml"))


def builtin_roles() -> list[dict[str, Any]]:
    """The ClusterRoles that every cluster has. Those that aggregate others have no rules yet."""
    return [_role(name, row) for name, row in _DATA["cluster_roles"].items()]


def builtin_bindings() -> list[dict[str, Any]]:
    """The ClusterRoleBindings that every cluster has."""
    return [_binding(name, row) for name, row in _DATA["cluster_role_bindings"].items()]


def _metadata(name: str) -> dict[str, Any]:
    return {
        "name": name,
        "labels": {BOOTSTRAPPING: "rbac-defaults"},
        "annotations": {AUTOUPDATE: "true"},
    }


def _role(name: str, row: dict[str, Any]) -> dict[str, Any]:
    role: dict[str, Any] = {"apiVersion": API_VERSION, "kind": "ClusterRole", "metadata": _metadata(name)}
    for target in row.get("aggregate_to", ()):
        role["metadata"]["labels"][f"{_AGGREGATE}{target}"] = "true"
    if aggregates := row.get("aggregates"):
        selector = {"matchLabels": {f"{_AGGREGATE}{aggregates}": "true"}}
        role["aggregationRule"] = {"clusterRoleSelectors": [selector]}
    role["rules"] = [{key: list(values) for key, values in rule.items()} for rule in row.get("rules", ())]
    return role


def _binding(name: str, row: dict[str, Any]) -> dict[str, Any]:
    return {
        "apiVersion": API_VERSION,
        "kind": "ClusterRoleBinding",
        "metadata": _metadata(name),
        "subjects": [{"kind": "Group", "apiGroup": GROUP, "name": group} for group in row["groups"]],
        "roleRef": {"apiGroup": GROUP, "kind": "ClusterRole", "name": row["role"]},
    }
