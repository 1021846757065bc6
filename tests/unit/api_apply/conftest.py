"""A whole API server without a socket, and appliers: `apply(path, object, manager)`."""

from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from tests.unit.api_core.conftest import Answer, Api, make_server

from kube32.api.security import Security
from kube32.contract import Limits, limits_for

APPLY = "application/apply-patch+yaml"
Applier = Callable[..., Awaitable[Answer]]


@pytest.fixture(scope="session")
def pki_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Keys and certificates, made once."""
    directory = tmp_path_factory.mktemp("server")
    Security.create(directory, limits_for("sim"), advertise=[])
    return directory


@pytest.fixture
def limits() -> Limits:
    return limits_for("sim")


@pytest.fixture
async def api(pki_dir: Path, limits: Limits) -> AsyncIterator[Api]:
    server = make_server(pki_dir, limits)
    await server.start()
    yield Api(server)
    await server.close()


@pytest.fixture
def apply(api: Api) -> Applier:
    """Applies an object (or YAML) at a path as a manager; `query` is appended."""

    async def send(path: str, obj: Any, manager: str = "me", query: str = "", **more: Any) -> Answer:
        return await api.send("PATCH", f"{path}?fieldManager={manager}{query}", obj, media=APPLY, **more)

    return send


def owners(obj: dict[str, Any]) -> dict[str, Any]:
    """The fields of each manager, "manager" or "manager/subresource"."""
    entries = obj["metadata"].get("managedFields", [])
    named = {
        f"{e['manager']}/{e['subresource']}" if "subresource" in e else e["manager"]: e["fieldsV1"]
        for e in entries
    }
    assert len(named) == len(entries)
    return named
