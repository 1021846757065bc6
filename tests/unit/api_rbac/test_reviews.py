"""May I, may somebody, what may I, who am I, whose token is this."""

from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from tests.unit.api_rbac.conftest import Person

MakePerson = Callable[..., Awaitable[Person]]
GET_PODS = {"namespace": "default", "verb": "get", "resource": "pods"}
GET_SECRETS = {"namespace": "default", "verb": "get", "resource": "secrets"}


@pytest.fixture
def admin(api: Any) -> Person:
    return Person(api, "kubernetes-admin", api.token)


async def test_may_i(person: MakePerson) -> None:
    viewer = await person("vera", role="view")
    status = await viewer.review("SelfSubjectAccessReview", {"resourceAttributes": GET_PODS})
    assert status == {
        "allowed": True,
        "reason": 'RBAC: allowed by ClusterRoleBinding "of-vera" of ClusterRole "view" to User "vera"',
    }
    assert await viewer.review("SelfSubjectAccessReview", {"resourceAttributes": GET_SECRETS}) == {
        "allowed": False
    }
    data = {"group": "kube32.io", "resource": "checkpoints", "subresource": "data", "verb": "get"}
    assert await viewer.review("SelfSubjectAccessReview", {"resourceAttributes": data}) == {"allowed": False}
    for path, allowed in (("/version", True), ("/apis/x", True), ("/metrics", False)):
        spec = {"nonResourceAttributes": {"path": path, "verb": "get"}}
        assert (await viewer.review("SelfSubjectAccessReview", spec))["allowed"] is allowed


async def test_admin_may_do_everything(admin: Person) -> None:
    everything = {"verb": "*", "group": "*", "resource": "*"}
    assert (await admin.review("SelfSubjectAccessReview", {"resourceAttributes": everything}))["allowed"]
    spec = {"nonResourceAttributes": {"path": "/anything", "verb": "delete"}}
    assert (await admin.review("SelfSubjectAccessReview", spec))["allowed"]


async def test_may_somebody(admin: Person, person: MakePerson) -> None:
    viewer = await person("vera", role="view", namespace="default")
    for user, groups, allowed in (
        ("vera", [], True),
        ("nobody", [], False),
        ("nobody", ["system:masters"], True),
        ("", ["kube32:view"], True),
    ):
        spec = {"user": user, "groups": groups, "resourceAttributes": GET_PODS}
        assert (await admin.review("SubjectAccessReview", spec))["allowed"] is allowed
        assert (await admin.review("LocalSubjectAccessReview", spec, namespace="default"))[
            "allowed"
        ] is allowed
    body = {"apiVersion": "authorization.k8s.io/v1", "kind": "SubjectAccessReview", "spec": {}}
    assert "cannot create" in await viewer.refusal(
        "POST /apis/authorization.k8s.io/v1/subjectaccessreviews", body
    )


async def test_a_node_is_asked_about_as_a_node(admin: Person, api: Any) -> None:
    for node, allowed in (("n", True), ("other", False)):
        spec = {
            "user": "system:node:n",
            "groups": ["system:nodes"],
            "resourceAttributes": {"verb": "get", "resource": "nodes", "name": node},
        }
        status = await admin.review("SubjectAccessReview", spec)
        assert status["allowed"] is allowed
    assert status["reason"] == "no relationship found between node 'n' and this object"


FAULTS = [
    (
        "SelfSubjectAccessReview",
        {},
        "spec.resourceAttributes: Invalid value: null: "
        "exactly one of nonResourceAttributes or resourceAttributes must be specified",
    ),
    (
        "SubjectAccessReview",
        {"resourceAttributes": GET_PODS},
        'spec.user: Invalid value: "": at least one of user or group must be specified',
    ),
    (
        "SelfSubjectAccessReview",
        {"resourceAttributes": {}, "nonResourceAttributes": {"path": "/"}},
        'spec.nonResourceAttributes: Invalid value: {"path":"/"}: '
        "cannot be specified in combination with resourceAttributes",
    ),
]


@pytest.mark.parametrize(("kind", "spec", "message"), FAULTS)
async def test_a_review_that_asks_nothing_is_invalid(
    api: Any, kind: str, spec: dict[str, Any], message: str
) -> None:
    body = {"apiVersion": "authorization.k8s.io/v1", "kind": kind, "spec": spec}
    answer = await api.send("POST", f"/apis/authorization.k8s.io/v1/{kind.lower()}s", body)
    assert answer.status == 422
    assert answer.message == f'{kind}.authorization.k8s.io "" is invalid: {message}'


async def test_a_local_review_is_about_its_namespace(api: Any) -> None:
    path = "/apis/authorization.k8s.io/v1/namespaces/default/localsubjectaccessreviews"
    spec = {"user": "u", "resourceAttributes": {**GET_PODS, "namespace": "other"}}
    body = {"apiVersion": "authorization.k8s.io/v1", "kind": "LocalSubjectAccessReview", "spec": spec}
    answer = await api.send("POST", path, body)
    assert answer.status == 422
    assert "must match metadata.namespace" in answer.message


async def test_reviews_are_not_kept(api: Any) -> None:
    for path in (
        "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews",
        "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews/x",
        "/apis/authentication.k8s.io/v1/tokenreviews",
    ):
        for method in ("GET", "PUT", "DELETE"):
            assert (await api.send(method, path, {} if method == "PUT" else None)).status == 405, (
                method,
                path,
            )


async def test_what_may_i(admin: Person, person: MakePerson) -> None:
    status = await admin.review("SelfSubjectRulesReview", {"namespace": "default"})
    assert {"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"]} in status["resourceRules"]
    assert {"verbs": ["*"], "nonResourceURLs": ["*"]} in status["nonResourceRules"]
    assert status["incomplete"] is False
    rule = {"apiGroups": [""], "resources": ["pods"], "resourceNames": ["p"], "verbs": ["get"]}
    user = await person("u", rule)
    status = await user.review("SelfSubjectRulesReview", {"namespace": "default"})
    assert rule in status["resourceRules"]
    assert any("/api/*" in row["nonResourceURLs"] for row in status["nonResourceRules"])
    assert any("selfsubjectaccessreviews" in row["resources"] for row in status["resourceRules"])


async def test_who_am_i(person: MakePerson) -> None:
    user = await person("uma", groups=["team"])
    status = await user.review("SelfSubjectReview", {}, group="authentication")
    assert status["userInfo"] == {"username": "uma", "groups": ["team", "system:authenticated"]}


async def test_whose_token_is_this(admin: Person, person: MakePerson) -> None:
    user = await person("uma", groups=["team"])
    status = await admin.review("TokenReview", {"token": user.token}, group="authentication")
    assert status["authenticated"] is True
    assert status["user"] == {"username": "uma", "groups": ["team", "system:authenticated"]}
    assert status["audiences"] == ["https://kubernetes.default.svc.cluster.local"]
    status = await admin.review("TokenReview", {"token": "wrong"}, group="authentication")
    assert status["authenticated"] is False
    assert status["error"]
    assert await user.code("POST /apis/authentication.k8s.io/v1/tokenreviews", {}) == 403
