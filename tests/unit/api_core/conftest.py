"""A whole API server without a socket: real store, hub, security, modules and pool behind `dispatch`."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import orjson
import pytest

from kube32.api.checkpoint_data import make_pool
from kube32.api.http import Request, Response
from kube32.api.kubelets import KubeletConnector
from kube32.api.modules import ModuleStore
from kube32.api.security import Security
from kube32.api.server import ApiServer
from kube32.contract import Limits, limits_for
from kube32.store import Journal, Store, WatchHub

JSON = "application/json"


class Answer:
    """A response with its body read."""

    def __init__(self, response: Response, body: bytes) -> None:
        self.status = response.status
        self.headers = response.headers
        self.content_type = response.content_type
        self.body = body

    @property
    def json(self) -> Any:
        return orjson.loads(self.body)

    @property
    def message(self) -> str:
        status = self.json
        assert status["kind"] == "Status" and status["apiVersion"] == "v1" and status["code"] == self.status
        assert status["metadata"] == {}
        return str(status["message"])


class Frames:
    """The frames of a watch, one at a time."""

    def __init__(self, response: Response) -> None:
        assert response.status == 200, response.body
        assert not isinstance(response.body, bytes)
        self.body: Any = response.body
        self._lines: list[bytes] = []

    async def next(self) -> dict[str, Any]:
        while not self._lines:
            async with asyncio.timeout(10):
                self._lines = (await anext(self.body)).splitlines()
        frame: dict[str, Any] = orjson.loads(self._lines.pop(0))
        return frame

    async def ended(self) -> bool:
        try:
            async with asyncio.timeout(10):
                await anext(self.body)
        except StopAsyncIteration:
            return True
        return False

    async def close(self) -> None:
        await self.body.aclose()


class Api:
    """Requests of the admin, or of whoever has `token`."""

    def __init__(self, server: ApiServer) -> None:
        self.server = server
        self.token = server.security.admin_token

    async def send(
        self,
        method: str,
        path: str,
        body: Any = None,
        *,
        media: str | None = JSON,
        headers: dict[str, str] | None = None,
        token: str | None = None,
    ) -> Answer:
        response = await self.response(method, path, body, media=media, headers=headers, token=token)
        if isinstance(response.body, bytes):
            return Answer(response, response.body)
        return Answer(response, b"".join([bytes(piece) async for piece in response.body]))

    async def response(
        self,
        method: str,
        path: str,
        body: Any = None,
        *,
        media: str | None = JSON,
        headers: dict[str, str] | None = None,
        token: str | None = None,
        remote: bool = False,
    ) -> Response:
        data = body if isinstance(body, bytes) or body is None else orjson.dumps(body)
        token = self.token if token is None else token
        all_headers = {"Authorization": f"Bearer {token}"} if token else {}
        if data is not None and media is not None:
            all_headers["Content-Type"] = media
        all_headers.update(headers or {})
        path, _, query = path.partition("?")
        request = Request(method, path, query_string=query, headers=all_headers, body=data, remote=remote)
        return await self.server.dispatch(request)

    async def get(self, path: str, **more: Any) -> Answer:
        return await self.send("GET", path, **more)

    async def create(self, path: str, body: Any, **more: Any) -> Any:
        answer = await self.send("POST", path, body, **more)
        assert answer.status == 201, answer.body
        return answer.json

    async def patch(self, path: str, body: Any, kind: str = "merge", **more: Any) -> Answer:
        media = {"json": "json-patch", "merge": "merge-patch", "strategic": "strategic-merge-patch"}[kind]
        return await self.send("PATCH", path, body, media=f"application/{media}+json", **more)

    async def watch(self, path: str, **more: Any) -> Frames:
        return Frames(await self.response("GET", path, **more))


def make_server(data_dir: Path, limits: Limits, journal: Journal | None = None) -> ApiServer:
    """A server that has not been started."""
    store = Store(limits, journal=journal)
    security = Security.create(data_dir, limits, advertise=[])
    return ApiServer(
        store=store,
        hub=WatchHub(store.settled, limits),
        limits=limits,
        security=security,
        data_dir=data_dir,
        kubelets=KubeletConnector(store, limits, security.kubelet_client_ssl_context()),
        pool=make_pool(store, limits),
        modules=ModuleStore(data_dir / "modules", store, limits),
    )


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


def config_map(name: str, **more: Any) -> dict[str, Any]:
    metadata = {"name": name, **more.pop("metadata", {})}
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, **more}


def pod(name: str, **more: Any) -> dict[str, Any]:
    metadata = {"name": name, **more.pop("metadata", {})}
    spec = {"containers": [{"name": "main", "image": "wasm://echo"}], **more.pop("spec", {})}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec, **more}


@pytest.fixture
def objects() -> Any:
    """Makers of objects, for tests that cannot import from here."""

    class Objects:
        config_map = staticmethod(config_map)
        pod = staticmethod(pod)

    return Objects
