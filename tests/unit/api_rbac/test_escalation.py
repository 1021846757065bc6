"""Nobody gives away what he does not have."""

from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from tests.unit.api_rbac.conftest import RBAC, Person, binding, manifest

from kube32.api.http import Request
from kube32.api.routes import parse
from kube32.api.status import ApiFailure

ROLES = f"{RBAC}/namespaces/default/roles"
BINDINGS = f"{RBAC}/namespaces/default/rolebindings"
PODS = {"apiGroups": [""], "resources": ["pods"], "verbs": ["get", "list"]}
SECRETS = {"apiGroups": [""], "resources": ["secrets"], "verbs": ["get"]}
WRITE_ROLES = {
    "apiGroups": ["rbac.authorization.k8s.io"],
    "resources": ["roles", "rolebindings", "clusterroles", "clusterrolebindings"],
    "verbs": ["get", "create", "update", "patch", "delete"],
}


@pytest.fixture
async def giver(person: Callable[..., Awaitable[Person]]) -> Person:
    return await person("gil", PODS, WRITE_ROLES)


async def test_a_role_takes_what_its_writer_holds(giver: Person) -> None:
    assert await giver.code(f"POST {ROLES}", manifest("Role", "r", rules=[PODS])) == 201


async def test_a_role_with_more_is_refused_in_kubernetes_words(giver: Person) -> None:
    wanted = manifest("Role", "r", rules=[PODS, SECRETS])
    assert await giver.refusal(f"POST {ROLES}", wanted) == (
        'roles.rbac.authorization.k8s.io "r" is forbidden: user "gil" (groups=["system:authenticated"]) is '
        "attempting to grant RBAC permissions not currently held:\n"
        '{APIGroups:[""], Resources:["secrets"], Verbs:["get"]}'
    )
    wanted = manifest("ClusterRole", "r", rules=[{"nonResourceURLs": ["/logs"], "verbs": ["get"]}])
    assert '{NonResourceURLs:["/logs"], Verbs:["get"]}' in await giver.refusal(
        f"POST {RBAC}/clusterroles", wanted
    )


async def test_an_update_and_a_patch_are_looked_at_too(giver: Person, api: Any) -> None:
    role = await api.create(ROLES, manifest("Role", "r", rules=[SECRETS]))
    del role["metadata"]["resourceVersion"]
    role["metadata"]["labels"] = {"a": "b"}
    assert await giver.code(f"PUT {ROLES}/r", role) == 200  # its rules stay what they are
    assert "not currently held" in await giver.refusal(f"PUT {ROLES}/r", {**role, "rules": [SECRETS, PODS]})
    patch = {"rules": [{**SECRETS, "verbs": ["*"]}]}
    media = "application/merge-patch+json"
    assert "not currently held" in await giver.refusal(f"PATCH {ROLES}/r", patch, media=media)
    assert await giver.code(f"PATCH {ROLES}/r", {"rules": [PODS]}, media=media) == 200


async def test_the_verb_escalate_lets_a_role_be_written(person: Callable[..., Awaitable[Person]]) -> None:
    verbs = {**WRITE_ROLES, "verbs": ["create", "escalate"]}
    giver = await person("ed", verbs)
    assert await giver.code(f"POST {ROLES}", manifest("Role", "r", rules=[SECRETS])) == 201


async def test_a_binding_needs_the_roles_rules(giver: Person, api: Any) -> None:
    await api.create(ROLES, manifest("Role", "pods", rules=[PODS]))
    await api.create(ROLES, manifest("Role", "secrets", rules=[SECRETS]))
    assert await giver.code(f"POST {BINDINGS}", binding("RoleBinding", "a", "x", "pods", "Role")) == 201
    message = await giver.refusal(f"POST {BINDINGS}", binding("RoleBinding", "b", "x", "secrets", "Role"))
    assert message.startswith('rolebindings.rbac.authorization.k8s.io "b" is forbidden: user "gil"')
    message = await giver.refusal(f"POST {BINDINGS}", binding("RoleBinding", "b", "x", "cluster-admin"))
    assert '{APIGroups:["*"], Resources:["*"], Verbs:["*"]}' in message
    answer = await giver.send("POST", BINDINGS, binding("RoleBinding", "c", "x", "nothing", "Role"))
    assert (answer.status, answer.message) == (404, 'roles.rbac.authorization.k8s.io "nothing" not found')
    everywhere = binding("ClusterRoleBinding", "d", "x", "cluster-admin")
    assert "not currently held" in await giver.refusal(f"POST {RBAC}/clusterrolebindings", everywhere)


async def test_the_verb_bind_lets_a_role_be_given(person: Callable[..., Awaitable[Person]]) -> None:
    bind = {
        "apiGroups": ["rbac.authorization.k8s.io"],
        "resources": ["clusterroles"],
        "resourceNames": ["edit"],
        "verbs": ["bind"],
    }
    giver = await person("bo", WRITE_ROLES, bind)
    assert await giver.code(f"POST {BINDINGS}", binding("RoleBinding", "a", "x", "edit")) == 201
    assert await giver.code(f"POST {BINDINGS}", binding("RoleBinding", "b", "x", "admin")) == 403


async def test_more_subjects_are_a_new_gift(giver: Person, api: Any) -> None:
    await api.create(ROLES, manifest("Role", "secrets", rules=[SECRETS]))
    given = await api.create(BINDINGS, binding("RoleBinding", "b", "x", "secrets", "Role"))
    del given["metadata"]["resourceVersion"]
    given["metadata"]["labels"] = {"a": "b"}
    assert await giver.code(f"PUT {BINDINGS}/b", given) == 200
    given["subjects"].append({"kind": "User", "apiGroup": "rbac.authorization.k8s.io", "name": "gil"})
    assert await giver.code(f"PUT {BINDINGS}/b", given) == 403


async def test_an_aggregation_rule_needs_everything(giver: Person, api: Any) -> None:
    selector = {"matchLabels": {"rbac.authorization.k8s.io/aggregate-to-admin": "true"}}
    wanted = manifest("ClusterRole", "all", aggregationRule={"clusterRoleSelectors": [selector]}, rules=[])
    message = await giver.refusal(f"POST {RBAC}/clusterroles", wanted)
    assert message == (
        'clusterroles.rbac.authorization.k8s.io "all" is forbidden: must have cluster-admin privileges to use an '
        "aggregationRule"
    )
    role = await api.create(f"{RBAC}/clusterroles", wanted)
    rules = (await api.get(f"{RBAC}/clusterroles/all")).json["rules"]
    assert role["metadata"]["name"] == "all"
    assert any("secrets" in rule.get("resources", ()) for rule in rules)


async def test_admin_of_a_namespace_gives_what_admin_has_there(
    person: Callable[..., Awaitable[Person]],
) -> None:
    admin = await person("ada", role="admin", namespace="default")
    assert await admin.code(f"POST {BINDINGS}", binding("RoleBinding", "b", "x", "edit")) == 201
    assert await admin.code(f"POST {BINDINGS}", binding("RoleBinding", "c", "x", "admin")) == 201
    assert await admin.code(f"POST {BINDINGS}", binding("RoleBinding", "d", "x", "cluster-admin")) == 403
    other = f"{RBAC}/namespaces/kube-system/rolebindings"
    assert await admin.code(f"POST {other}", binding("RoleBinding", "b", "x", "view")) == 403


async def test_a_patch_that_makes_an_object_needs_the_verb_create(
    api: Any, person: Callable[..., Awaitable[Person]]
) -> None:
    configmaps = {"apiGroups": [""], "resources": ["configmaps"], "verbs": ["patch"]}
    patcher = await person("pat", configmaps)
    security = api.server.security
    user = security.authenticate(Request("GET", "/", headers={"Authorization": f"Bearer {patcher.token}"}))
    info = parse("PATCH", "/api/v1/namespaces/default/configmaps/c", {}, api.server.catalog)
    security.authorize(user, info, Request("PATCH", "/"))
    with pytest.raises(ApiFailure) as failure:
        security.authorize_create(user, info)
    assert failure.value.message == (
        'configmaps "c" is forbidden: User "pat" cannot create resource "configmaps" in API group "" in the '
        'namespace "default"'
    )


async def test_a_role_too_wide_to_compare_is_refused_at_once(giver: Person) -> None:
    many = [f"r{number}" for number in range(1500)]
    wide = {"apiGroups": many, "resources": many, "verbs": many, "resourceNames": many}
    message = await giver.refusal(f"POST {ROLES}", manifest("Role", "r", rules=[wide]))
    assert "more than 2000 parts" in message
