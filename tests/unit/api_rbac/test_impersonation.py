"""Asking as somebody else (`kubectl --as`)."""

from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from multidict import CIMultiDict
from tests.unit.api_rbac.conftest import Person

from kube32.api.http import Request

MakePerson = Callable[..., Awaitable[Person]]
WHOAMI = "/apis/authentication.k8s.io/v1/selfsubjectreviews"
REVIEW = {"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"}


async def whoami(api: Any, token: str | None = None, **headers: str) -> Any:
    answer = await api.send(
        "POST", WHOAMI, REVIEW, token=token, headers={k.replace("_", "-"): v for k, v in headers.items()}
    )
    assert answer.status == 201, answer.body
    return answer.json["status"]["userInfo"]


async def test_admin_is_whoever_it_wants_to_be(api: Any) -> None:
    assert await whoami(api, Impersonate_User="vera") == {
        "username": "vera",
        "groups": ["system:authenticated"],
    }
    found = await whoami(api, Impersonate_User="vera", impersonate_group="team", Impersonate_Uid="7")
    assert found == {"username": "vera", "uid": "7", "groups": ["team", "system:authenticated"]}
    found = await whoami(api, Impersonate_User="vera", Impersonate_Extra_scopes="view")
    assert found["extra"] == {"scopes": ["view"]}


async def test_a_service_account_brings_its_groups(api: Any) -> None:
    assert await whoami(api, Impersonate_User="system:serviceaccount:ns:robot") == {
        "username": "system:serviceaccount:ns:robot",
        "groups": ["system:serviceaccounts", "system:serviceaccounts:ns", "system:authenticated"],
    }


async def test_rights_are_those_of_the_impersonated(api: Any, person: MakePerson) -> None:
    await person("vera", role="view")
    as_vera = {"Impersonate-User": "vera"}
    assert (await api.get("/api/v1/pods", headers=as_vera)).status == 200
    answer = await api.get("/api/v1/secrets", headers=as_vera)
    assert answer.status == 403
    assert 'User "vera" cannot list' in answer.message
    group = {"Impersonate-User": "x", "Impersonate-Group": "kube32:view"}
    assert (await api.get("/api/v1/pods", headers=group)).status == 200


async def test_it_needs_the_verb_impersonate_on_each(person: MakePerson) -> None:
    rules = [
        {"apiGroups": [""], "resources": ["users"], "verbs": ["impersonate"], "resourceNames": ["vera"]},
        {"apiGroups": [""], "resources": ["groups"], "verbs": ["impersonate"], "resourceNames": ["team"]},
        {
            "apiGroups": ["authentication.k8s.io"],
            "resources": ["userextras/scopes"],
            "verbs": ["impersonate"],
            "resourceNames": ["view"],
        },
    ]
    user = await person("uma", *rules)
    good = {"Impersonate-User": "vera", "Impersonate-Group": "team", "Impersonate-Extra-Scopes": "view"}
    assert await user.code(f"POST {WHOAMI}", REVIEW, headers=good) == 201
    for change, message in (
        (
            {"Impersonate-User": "kubernetes-admin"},
            'users "kubernetes-admin" is forbidden: User "uma" cannot impersonate resource "users" in API group "" '
            "at the cluster scope",
        ),
        (
            {"Impersonate-Group": "system:masters"},
            'groups "system:masters" is forbidden: User "uma" cannot impersonate resource "groups" in API group "" '
            "at the cluster scope",
        ),
        (
            {"Impersonate-User": "system:serviceaccount:ns:robot"},
            'serviceaccounts "robot" is forbidden: User "uma" cannot impersonate resource "serviceaccounts" in API '
            'group "" in the namespace "ns"',
        ),
        (
            {"Impersonate-Extra-Scopes": "all"},
            'userextras "all" is forbidden: User "uma" cannot impersonate resource "userextras/scopes" in API group '
            '"authentication.k8s.io" at the cluster scope',
        ),
        (
            {"Impersonate-Uid": "1"},
            'uids "1" is forbidden: User "uma" cannot impersonate resource "uids" in API group '
            '"authentication.k8s.io" at the cluster scope',
        ),
    ):
        assert await user.refusal(f"POST {WHOAMI}", REVIEW, headers={**good, **change}) == message


@pytest.mark.parametrize(
    "header", ["Impersonate-Group", "Impersonate-Uid", "Impersonate-Extra-x", "impersonate-"]
)
async def test_nothing_is_impersonated_without_a_user(api: Any, header: str) -> None:
    answer = await api.get("/api/v1/pods", headers={header: "x"})
    assert answer.status == 400
    assert "without impersonating a user" in answer.message


async def test_nobody_impersonates_without_a_credential(api: Any) -> None:
    answer = await api.get("/api/v1/pods", token="", headers={"Impersonate-User": "kubernetes-admin"})
    assert answer.status == 403
    assert 'User "system:anonymous" cannot impersonate' in answer.message


async def test_several_groups_arrive_and_no_header_goes_on(api: Any) -> None:
    headers = CIMultiDict({"Authorization": f"Bearer {api.token}", "Impersonate-User": "u", "Accept": "x"})
    headers.add("Impersonate-Group", "a")
    headers.add("impersonate-group", "b")
    request = Request("GET", "/api", headers=headers)
    user = api.server.security.authenticate(request)
    assert user.groups == ("a", "b", "system:authenticated")
    assert set(request.headers) == {"Authorization", "Accept"}
    assert request.impersonator is not None
    assert request.impersonator.name == "kubernetes-admin"
    for number in range(100):
        headers.add("Impersonate-Group", str(number))
    answer = await api.server.dispatch(Request("GET", "/api", headers=headers))
    assert answer.status == 400


async def test_an_impersonated_node_does_not_take_the_admins_token(api: Any) -> None:
    from kube32.api import pki
    from kube32.contract import VERSIONS

    _, client = pki.make_request("devkit")
    _, serving = pki.make_request("devkit", ["127.0.0.1"])
    spec = {
        "nodeName": "devkit",
        "request": client,
        "servingRequest": serving,
        "addresses": ["127.0.0.1"],
        "versions": VERSIONS,
    }
    headers = {"Impersonate-User": "system:node:devkit", "Impersonate-Group": "system:nodes"}
    body = {"apiVersion": "kube32.io/v1", "kind": "Join", "spec": spec}
    answer = await api.send("POST", "/apis/kube32.io/v1/join", body, headers=headers)
    assert answer.status == 201
    assert answer.json["status"]["token"] != api.token
    assert (await whoami(api))["username"] == "kubernetes-admin"
