"""Built-in roles, aggregation, bindings, and the index that follows the store."""

from typing import Any

import pytest

from kube32.api.http import UserInfo
from kube32.api.rbac.policy import Rbac
from kube32.api.rbac.rules import Attributes
from kube32.contract import LIMITS, PROFILES, limits_for, resource_of
from kube32.store import Store

EVERYONE = "system:authenticated"
VIEW = UserInfo("v", ("kube32:view", EVERYONE))
PODS = Attributes("get", "", "pods", "", "ns", "p")
SECRETS = Attributes("get", "", "secrets", "", "ns", "s")


def put(store: Store, kind: str, name: str, namespace: str = "", **parts: Any) -> None:
    resource = resource_of(kind)
    metadata = {"name": name, **parts.pop("metadata", {}), **({"namespace": namespace} if namespace else {})}
    store.put(resource.object_key(namespace, name), {"kind": kind, "metadata": metadata, **parts})


def drop(store: Store, kind: str, name: str, namespace: str = "") -> None:
    store.delete(resource_of(kind).object_key(namespace, name))


def rules(*resources: str, verbs: tuple[str, ...] = ("get",)) -> list[dict[str, Any]]:
    return [{"apiGroups": [""], "resources": list(resources), "verbs": list(verbs)}]


def bind(
    store: Store, subject: dict[str, Any], role: str, namespace: str = "", kind: str = "ClusterRole"
) -> None:
    binding = "RoleBinding" if namespace else "ClusterRoleBinding"
    put(store, binding, "b", namespace, subjects=[subject], roleRef={"kind": kind, "name": role})


@pytest.fixture
def store() -> Store:
    return Store(LIMITS)


@pytest.fixture
def rbac(store: Store) -> Rbac:
    rbac = Rbac(store, LIMITS)
    rbac.bootstrap()
    return rbac


def allowed(rbac: Rbac, user: UserInfo, wanted: Attributes) -> bool:
    return rbac.decide(user, wanted).allowed


VIEW_MAY = [
    PODS,
    Attributes("list", "", "pods", "log", "ns"),
    Attributes("watch", "apps", "deployments"),
    Attributes("get", "", "configmaps", "", "ns", "c"),
    Attributes("list", "", "nodes"),
    Attributes("list", "", "namespaces"),
    Attributes("list", "kube32.io", "modules"),
    Attributes("list", "kube32.io", "checkpoints"),
    Attributes("list", "metrics.k8s.io", "pods"),
    Attributes("list", "metrics.k8s.io", "nodes"),
    Attributes("list", "", "events"),
    Attributes("get", "coordination.k8s.io", "leases", "", "kube-node-lease", "n"),
]
VIEW_MAY_NOT = [
    SECRETS,
    Attributes("list", "", "secrets"),
    Attributes("watch", "", "secrets"),
    Attributes("get", "kube32.io", "checkpoints", "data", "ns", "c"),
    Attributes("create", "kube32.io", "checkpoints", "", "ns"),
    Attributes("get", "", "nodes", "proxy", "", "n"),
    Attributes("get", "", "pods", "proxy", "ns", "p"),
    Attributes("get", "", "services", "proxy", "ns", "p"),
    Attributes("create", "", "pods", "exec", "ns", "p"),
    Attributes("create", "", "pods", "eviction", "ns", "p"),
    Attributes("create", "", "serviceaccounts", "token", "ns", "s"),
    Attributes("list", "rbac.authorization.k8s.io", "roles"),
    Attributes("get", "kube32.io", "modules", "data", "", "m"),
    Attributes("delete", "", "pods", "", "ns", "p"),
    Attributes("impersonate", "", "users", "", "", "admin"),
    Attributes("create", "kube32.io", "users"),
]


@pytest.mark.parametrize("profile", PROFILES)
@pytest.mark.parametrize("wanted", VIEW_MAY, ids=str)
def test_view_may(profile: str, wanted: Attributes) -> None:
    rbac = Rbac(Store(LIMITS), limits_for(profile))
    rbac.bootstrap()
    assert allowed(rbac, VIEW, wanted)
    assert not allowed(rbac, UserInfo("x", (EVERYONE,)), wanted)


@pytest.mark.parametrize("profile", PROFILES)
@pytest.mark.parametrize("wanted", VIEW_MAY_NOT, ids=str)
def test_view_may_not(profile: str, wanted: Attributes) -> None:
    rbac = Rbac(Store(LIMITS), limits_for(profile))
    rbac.bootstrap()
    assert not allowed(rbac, VIEW, wanted)
    assert allowed(rbac, UserInfo("m", ("system:masters",)), wanted)


def test_profiles_without_role_objects_store_none() -> None:
    store = Store(LIMITS)
    Rbac(store, limits_for("board")).bootstrap()
    assert store.count("/registry/") == 0


def test_edit_writes_and_reads_secrets_and_admin_gives_roles(store: Store, rbac: Rbac) -> None:
    bind(store, {"kind": "User", "name": "e"}, "edit")
    edit = UserInfo("e", ())
    assert allowed(rbac, edit, SECRETS)
    assert allowed(rbac, edit, PODS)
    assert allowed(rbac, edit, Attributes("create", "apps", "deployments", "", "ns"))
    assert allowed(rbac, edit, Attributes("get", "kube32.io", "checkpoints", "data", "ns", "c"))
    give = Attributes("create", "rbac.authorization.k8s.io", "rolebindings", "", "ns")
    assert not allowed(rbac, edit, give)
    bind(store, {"kind": "User", "name": "e"}, "admin")
    assert allowed(rbac, edit, give)
    assert allowed(rbac, edit, SECRETS)
    assert not allowed(rbac, edit, Attributes("create", "rbac.authorization.k8s.io", "clusterroles"))


def test_everybody_may_discover_and_ask_about_himself(rbac: Rbac) -> None:
    somebody, nobody = UserInfo("x", (EVERYONE,)), UserInfo("system:anonymous", ("system:unauthenticated",))
    for path in ("/api", "/apis/apps/v1", "/openapi/v3"):
        assert allowed(rbac, somebody, Attributes("get", path=path, is_resource=False))
        assert not allowed(rbac, nobody, Attributes("get", path=path, is_resource=False))
    for path in ("/version", "/healthz", "/livez", "/readyz"):
        assert allowed(rbac, nobody, Attributes("get", path=path, is_resource=False))
    ask = Attributes("create", "authorization.k8s.io", "selfsubjectaccessreviews")
    assert allowed(rbac, somebody, ask)
    assert not allowed(rbac, nobody, ask)


def test_a_role_binding_counts_in_its_namespace(store: Store, rbac: Rbac) -> None:
    put(store, "Role", "reader", "ns", rules=rules("pods"))
    bind(store, {"kind": "User", "name": "u"}, "reader", "ns", "Role")
    user = UserInfo("u", ())
    assert allowed(rbac, user, PODS)
    assert not allowed(rbac, user, Attributes("get", "", "pods", "", "other", "p"))
    assert not allowed(rbac, user, Attributes("get", "", "pods"))
    assert not allowed(rbac, UserInfo("other", ()), PODS)


def test_a_role_binding_of_a_cluster_role_counts_in_its_namespace(store: Store, rbac: Rbac) -> None:
    bind(store, {"kind": "Group", "name": "team"}, "view", "ns")
    user = UserInfo("u", ("team",))
    assert allowed(rbac, user, PODS)
    assert not allowed(rbac, user, Attributes("get", "", "nodes"))
    paths = Attributes("get", path="/metrics", is_resource=False)
    put(store, "ClusterRole", "paths", rules=[{"nonResourceURLs": ["*"], "verbs": ["*"]}])
    bind(store, {"kind": "Group", "name": "team"}, "paths", "ns")
    assert not allowed(rbac, user, paths)
    bind(store, {"kind": "Group", "name": "team"}, "paths")
    assert allowed(rbac, user, paths)


def test_a_service_account_is_bound_by_namespace_and_name(store: Store, rbac: Rbac) -> None:
    bind(store, {"kind": "ServiceAccount", "name": "robot", "namespace": "ns"}, "view")
    assert allowed(rbac, UserInfo("system:serviceaccount:ns:robot", ()), PODS)
    assert not allowed(rbac, UserInfo("system:serviceaccount:other:robot", ()), PODS)
    put(store, "Role", "reader", "ns", rules=rules("secrets"))
    bind(store, {"kind": "ServiceAccount", "name": "near"}, "reader", "ns", "Role")
    assert allowed(rbac, UserInfo("system:serviceaccount:ns:near", ()), SECRETS)


def test_each_change_of_an_object_counts_at_once(store: Store, rbac: Rbac) -> None:
    user = UserInfo("u", ())
    assert not allowed(rbac, user, PODS)
    bind(store, {"kind": "User", "name": "u"}, "r")
    assert rbac.decide(user, PODS).reason == 'RBAC: clusterrole.rbac.authorization.k8s.io "r" not found'
    put(store, "ClusterRole", "r", rules=rules("pods"))
    assert rbac.decide(user, PODS).reason == (
        'RBAC: allowed by ClusterRoleBinding "b" of ClusterRole "r" to User "u"'
    )
    put(store, "ClusterRole", "r", rules=rules("secrets"))
    assert not allowed(rbac, user, PODS)
    assert allowed(rbac, user, SECRETS)
    bind(store, {"kind": "User", "name": "other"}, "r")
    assert not allowed(rbac, user, SECRETS)
    bind(store, {"kind": "User", "name": "u"}, "r")
    drop(store, "ClusterRole", "r")
    assert not allowed(rbac, user, SECRETS)
    put(store, "ClusterRole", "r", rules=rules("secrets"))
    drop(store, "ClusterRoleBinding", "b")
    assert not allowed(rbac, user, SECRETS)


def test_what_is_stored_before_the_start_counts(store: Store) -> None:
    put(store, "ClusterRole", "r", rules=rules("pods"))
    bind(store, {"kind": "User", "name": "u"}, "r")
    assert allowed(Rbac(store, LIMITS), UserInfo("u", ()), PODS)


def test_an_aggregated_role_has_the_rules_of_those_it_selects(store: Store, rbac: Rbac) -> None:
    def of(name: str) -> list[Any]:
        entry = store.get(resource_of("ClusterRole").object_key("", name))
        assert entry is not None
        return list(entry.obj["rules"])

    added = {"apiGroups": ["stable.example.com"], "resources": ["crontabs"], "verbs": ["get"]}
    labels = {"rbac.authorization.k8s.io/aggregate-to-view": "true"}
    put(store, "ClusterRole", "crontabs", metadata={"labels": labels}, rules=[added])
    assert all(added in of(name) for name in ("view", "edit", "admin"))
    assert allowed(rbac, VIEW, Attributes("get", "stable.example.com", "crontabs", "", "ns", "x"))
    drop(store, "ClusterRole", "crontabs")
    assert not any(added in of(name) for name in ("view", "edit", "admin"))
    selector = {"matchExpressions": [{"key": "team", "operator": "In", "values": ["a", "b"]}]}
    put(store, "ClusterRole", "all", aggregationRule={"clusterRoleSelectors": [selector]}, rules=rules("x"))
    assert of("all") == []
    put(store, "ClusterRole", "one", metadata={"labels": {"team": "b"}}, rules=[added, added])
    assert of("all") == [added]


def test_roles_that_aggregate_each_other_come_to_rest(store: Store, rbac: Rbac) -> None:
    for name in ("a", "b", "c"):
        others = [{"matchLabels": {"is": other}} for other in "abc" if other != name]
        put(
            store,
            "ClusterRole",
            name,
            metadata={"labels": {"is": name}},
            aggregationRule={"clusterRoleSelectors": others},
            rules=[*rules(f"of-{name}"), *rules("all")],
        )
    put(store, "ClusterRole", "d", metadata={"labels": {"is": "a"}}, rules=rules("d"))
    assert store.revision < 100


def test_bootstrapping_leaves_what_is_there_and_adds_rules_that_lack(store: Store) -> None:
    put(store, "ClusterRole", "system:discovery", rules=[], metadata={"annotations": {}})
    auto = {"annotations": {"rbac.authorization.kubernetes.io/autoupdate": "true"}}
    put(store, "ClusterRole", "system:basic-user", rules=rules("own"), metadata=auto)
    rbac = Rbac(store, LIMITS)
    rbac.bootstrap()
    somebody = UserInfo("x", (EVERYONE,))
    assert not allowed(rbac, somebody, Attributes("get", path="/api", is_resource=False))
    assert allowed(rbac, somebody, Attributes("get", "", "own"))
    assert allowed(rbac, somebody, Attributes("create", "authentication.k8s.io", "selfsubjectreviews"))
    revision = store.revision
    rbac.bootstrap()
    assert store.revision == revision


def test_more_users_than_are_remembered_are_answered_too(store: Store) -> None:
    rbac = Rbac(store, LIMITS.replace(rbac_users=2))
    rbac.bootstrap()
    for number in range(10):
        assert allowed(rbac, UserInfo(f"u{number}", ("kube32:view",)), PODS)
        assert not allowed(rbac, UserInfo(f"u{number}", ()), PODS)


def test_questions_about_strangers_do_not_fill_the_memory(rbac: Rbac) -> None:
    for number in range(5):
        stranger = UserInfo(f"{number}" * 10_000, ("kube32:view",))
        assert allowed(rbac, stranger, PODS)
        assert not allowed(rbac, VIEW, Attributes("get", "", "secrets", "", f"{number}" * 10_000))
    assert len(rbac.index._held) == 1
    assert set(rbac.index._held[VIEW.name, VIEW.groups]) == {""}
