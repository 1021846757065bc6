"""A whole API server without a socket, and people who ask it: `people(name, *rules)` makes a user with a token."""

from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from tests.unit.api_core.conftest import Api, make_server

from kube32.api.security import Security
from kube32.contract import Limits, limits_for

RBAC = "/apis/rbac.authorization.k8s.io/v1"


class Person:
    """A user with a token of its own."""

    def __init__(self, api: Api, name: str, token: str) -> None:
        self.api = api
        self.name = name
        self.token = token

    async def send(self, method: str, path: str, body: Any = None, **more: Any) -> Any:
        return await self.api.send(method, path, body, token=self.token, **more)

    async def code(self, line: str, body: Any = None, **more: Any) -> int:
        """The status of an answer to "GET /api/v1/pods"."""
        method, path = line.split(" ")
        return int((await self.send(method, path, body, **more)).status)

    async def refusal(self, line: str, body: Any = None, **more: Any) -> str:
        """The message of a 403."""
        method, path = line.split(" ")
        answer = await self.send(method, path, body, **more)
        assert answer.status == 403, answer.body
        assert answer.json["reason"] == "Forbidden"
        return str(answer.message)

    async def review(
        self, kind: str, spec: dict[str, Any], *, group: str = "authorization", namespace: str = ""
    ) -> Any:
        """The status of a review."""
        space = f"namespaces/{namespace}/" if namespace else ""
        path = f"/apis/{group}.k8s.io/v1/{space}{kind.lower()}s"
        body = {"apiVersion": f"{group}.k8s.io/v1", "kind": kind, "spec": spec}
        answer = await self.send("POST", path, body)
        assert answer.status == 201, answer.body
        assert answer.json["kind"] == kind
        return answer.json["status"]


@pytest.fixture(scope="session")
def pki_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("server")
    Security.create(directory, limits_for("sim"), advertise=[])
    return directory


@pytest.fixture
def limits() -> Limits:
    return limits_for("sim")


@pytest.fixture
async def api(pki_dir: Path, limits: Limits) -> AsyncIterator[Api]:
    (pki_dir / "pki" / "users.json").unlink(missing_ok=True)
    server = make_server(pki_dir, limits)
    await server.start()
    yield Api(server)
    await server.close()


@pytest.fixture
def person(api: Api) -> Callable[..., Awaitable[Person]]:
    """Makes a user; `rules` become a ClusterRole, bound in `namespace` or (None) in the whole cluster."""

    async def make(
        name: str, *rules: dict[str, Any], role: str = "", namespace: str | None = None, groups: Any = ()
    ) -> Person:
        body = {
            "apiVersion": "kube32.io/v1",
            "kind": "User",
            "metadata": {"name": name},
            "spec": {"groups": list(groups)},
        }
        token = (await api.create("/apis/kube32.io/v1/users", body))["status"]["token"]
        if rules:
            role = f"of-{name}"
            await api.create(f"{RBAC}/clusterroles", manifest("ClusterRole", role, rules=list(rules)))
        if role:
            kind = "ClusterRoleBinding" if namespace is None else "RoleBinding"
            space = f"/namespaces/{namespace}" if namespace else ""
            bound = binding(kind, f"of-{name}", name, role)
            await api.create(f"{RBAC}{space}/{kind.lower()}s", bound)
        return Person(api, name, token)

    return make


def manifest(kind: str, name: str, **parts: Any) -> dict[str, Any]:
    metadata = {"name": name, **parts.pop("metadata", {})}
    return {"apiVersion": "rbac.authorization.k8s.io/v1", "kind": kind, "metadata": metadata, **parts}


def binding(kind: str, name: str, user: str, role: str, role_kind: str = "ClusterRole") -> dict[str, Any]:
    group = "rbac.authorization.k8s.io"
    return manifest(
        kind,
        name,
        subjects=[{"kind": "User", "apiGroup": group, "name": user}],
        roleRef={"apiGroup": group, "kind": role_kind, "name": role},
    )
