"""A user of the role `view` (user-demand A15): what it reads, and that no way leads it to Secrets or snapshots."""

from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from tests.unit.api_rbac.conftest import Person

NS = "/api/v1/namespaces/default"
CHECKPOINTS = "/apis/kube32.io/v1/namespaces/default/checkpoints"
SECRET = {
    "apiVersion": "v1",
    "kind": "Secret",
    "metadata": {"name": "password"},
    "stringData": {"p": "hunter2"},
}
MOVE = {
    "apiVersion": "kube32.io/v1",
    "kind": "Checkpoint",
    "metadata": {"name": "peek"},
    "spec": {"podName": "p", "action": "Move"},
}


@pytest.fixture
async def viewer(api: Any, person: Callable[..., Awaitable[Person]]) -> Person:
    await api.create(f"{NS}/secrets", SECRET)
    return await person("vera", role="view")


async def test_view_reads_what_is_no_secret(viewer: Person) -> None:
    for path in (
        f"{NS}/pods",
        "/api/v1/pods",
        "/api/v1/nodes",
        "/api/v1/namespaces",
        "/api/v1/namespaces/default",
        f"{NS}/configmaps",
        "/apis/kube32.io/v1/modules",
        CHECKPOINTS,
        "/apis",
        "/version",
    ):
        assert await viewer.code(f"GET {path}") == 200, path


async def test_view_reads_no_secrets_in_any_way(viewer: Person) -> None:
    message = await viewer.refusal(f"GET {NS}/secrets/password")
    assert message == (
        'secrets "password" is forbidden: User "vera" cannot get resource "secrets" in API group "" '
        'in the namespace "default"'
    )
    assert await viewer.refusal("GET /api/v1/secrets") == (
        'secrets is forbidden: User "vera" cannot list resource "secrets" in API group "" at the cluster scope'
    )
    for line in (
        f"GET {NS}/secrets",
        f"GET {NS}/secrets?watch=1",
        "GET /api/v1/secrets?watch=true",
        f"GET {NS}/secrets?fieldSelector=metadata.name=password",
        f"GET {NS}/secrets?watch=1&fieldSelector=metadata.name=password",
        f"HEAD {NS}/secrets/password",
    ):
        assert "cannot" in await viewer.refusal(line)
    table = {"Accept": "application/json;as=Table;v=v1;g=meta.k8s.io"}
    assert await viewer.code(f"GET {NS}/secrets", headers=table) == 403


async def test_view_gets_no_checkpoint_data(viewer: Person) -> None:
    assert await viewer.refusal(f"GET {CHECKPOINTS}/x/data") == (
        'checkpoints.kube32.io "x" is forbidden: User "vera" cannot get resource "checkpoints/data" in API group '
        '"kube32.io" in the namespace "default"'
    )
    assert await viewer.code(f"PUT {CHECKPOINTS}/x/data", b"x") == 403


async def test_view_gets_through_no_proxy(viewer: Person) -> None:
    for line in (
        "GET /api/v1/nodes/n/proxy/checkpoint/default/p/main",
        "POST /api/v1/nodes/n/proxy/checkpoint/default/p/main",
        f"GET {NS}/pods/p/proxy/",
        f"GET {NS}/services/p/proxy/",
        f"GET {NS}/pods/p/exec?command=sh",
        f"POST {NS}/pods/p/portforward",
    ):
        assert "cannot" in await viewer.refusal(line)


async def test_view_writes_nothing(viewer: Person) -> None:
    for line in (
        f"POST {CHECKPOINTS}",
        f"PATCH {NS}/pods/p",
        f"PUT {NS}/pods/p/status",
        f"DELETE {NS}/pods/p",
        f"DELETE {NS}/pods",
        f"POST {NS}/pods/p/eviction",
        f"POST {NS}/pods/p/replacement",
        f"POST {NS}/pods/p/binding",
        "POST /apis/kube32.io/v1/namespaces/default/topics/t",
        "PUT /apis/kube32.io/v1/modules/m/data",
        "POST /apis/kube32.io/v1/users",
        "GET /apis/kube32.io/v1/users",
        "DELETE /apis/kube32.io/v1/users/vera",
        "POST /apis/kube32.io/v1/join",
        f"POST {NS}/serviceaccounts/default/token",
    ):
        assert "cannot" in await viewer.refusal(line, {})


async def test_who_may_create_moves_but_not_read_secrets_gets_no_bytes(
    api: Any, person: Callable[..., Awaitable[Person]]
) -> None:
    rules = [
        {"apiGroups": ["kube32.io"], "resources": ["checkpoints"], "verbs": ["*"]},
        {"apiGroups": ["kube32.io"], "resources": ["checkpoints/status"], "verbs": ["get"]},
    ]
    mover = await person("mo", *rules)
    assert await mover.code(f"POST {CHECKPOINTS}", MOVE) == 201
    assert await mover.code(f"GET {CHECKPOINTS}/peek") == 200
    for line in (
        f"GET {CHECKPOINTS}/peek/data",
        f"GET {NS}/secrets",
        "GET /api/v1/nodes/n/proxy/checkpoint/default/p/main",
        f"POST {NS}/pods",  # a pod that restores from the Checkpoint
    ):
        assert "cannot" in await mover.refusal(line, {} if line.startswith("POST") else None)


async def test_view_in_one_namespace_sees_that_namespace_only(
    api: Any, person: Callable[..., Awaitable[Person]]
) -> None:
    viewer = await person("nina", role="view", namespace="default")
    assert await viewer.code(f"GET {NS}/pods") == 200
    assert await viewer.code("GET /api/v1/namespaces/default") == 200
    assert await viewer.code("GET /api/v1/pods") == 403
    assert await viewer.refusal("GET /api/v1/namespaces/kube-system") == (
        'namespaces "kube-system" is forbidden: User "nina" cannot get resource "namespaces" in API group "" '
        'in the namespace "kube-system"'
    )
    assert await viewer.code("GET /api/v1/nodes") == 403


async def test_the_group_view_needs_no_binding_of_its_own(
    api: Any, person: Callable[..., Awaitable[Person]]
) -> None:
    viewer = await person("gus", groups=["kube32:view"])
    assert await viewer.code(f"GET {NS}/pods") == 200
    assert await viewer.code(f"GET {NS}/secrets") == 403


async def test_a_second_field_selector_opens_no_list(
    api: Any, person: Callable[..., Awaitable[Person]]
) -> None:
    await api.create(f"{NS}/secrets", SECRET)
    rule = {"apiGroups": [""], "resources": ["secrets"], "verbs": ["list"], "resourceNames": ["mine"]}
    user = await person("sly", rule)
    assert await user.code(f"GET {NS}/secrets?fieldSelector=metadata.name=mine") == 200
    for query in (
        "",
        "?fieldSelector=metadata.name=password",
        "?fieldSelector=metadata.name!=mine",
        "?fieldSelector=&fieldSelector=metadata.name=mine",
        "?fieldSelector=metadata.name=password&fieldSelector=metadata.name=mine",
        "?fieldSelector=metadata.name=mine,metadata.name=password",
    ):
        assert await user.code(f"GET {NS}/secrets{query}") == 403, query
