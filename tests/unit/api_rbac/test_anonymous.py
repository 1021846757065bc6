"""Who shows no credential, and what is answered to wrong ones."""

from typing import Any

import pytest

PUBLIC = ["/healthz", "/livez", "/readyz", "/version"]


@pytest.mark.parametrize("path", PUBLIC)
async def test_public_information_is_for_everybody(api: Any, path: str) -> None:
    assert (await api.get(path, token="")).status == 200


@pytest.mark.parametrize(
    ("path", "message"),
    [
        ("/apis", 'forbidden: User "system:anonymous" cannot get path "/apis"'),
        ("/", 'forbidden: User "system:anonymous" cannot get path "/"'),
        (
            "/api/v1/namespaces/default/pods",
            'pods is forbidden: User "system:anonymous" cannot list resource "pods" in API group "" in the namespace '
            '"default"',
        ),
        (
            "/apis/kube32.io/v1/users",
            'users is forbidden: User "system:anonymous" cannot list resource "users" in API group "kube32.io" at the '
            "cluster scope",
        ),
    ],
)
async def test_everything_else_is_forbidden_to_system_anonymous(api: Any, path: str, message: str) -> None:
    answer = await api.get(path, token="")
    assert (answer.status, answer.message) == (403, message)


async def test_a_wrong_credential_is_401_even_for_public_information(api: Any) -> None:
    answer = await api.get("/version", token="wrong")
    assert (answer.status, answer.message) == (401, "Unauthorized")


async def test_anonymous_can_be_given_rights_as_in_kubernetes(api: Any) -> None:
    group = "rbac.authorization.k8s.io"
    await api.create(
        f"/apis/{group}/v1/clusterrolebindings",
        {
            "apiVersion": f"{group}/v1",
            "kind": "ClusterRoleBinding",
            "metadata": {"name": "open"},
            "subjects": [{"kind": "Group", "apiGroup": group, "name": "system:unauthenticated"}],
            "roleRef": {"apiGroup": group, "kind": "ClusterRole", "name": "view"},
        },
    )
    assert (await api.get("/api/v1/pods", token="")).status == 200
    assert (await api.get("/api/v1/secrets", token="")).status == 403
