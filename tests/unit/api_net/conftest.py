"""A control plane without its listener, and kubelet stand-ins on loopback (the peer, not under test)."""

import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from kube32.api.catalog import Catalog
from kube32.api.checkpoint_data import make_pool
from kube32.api.http import Request, Response
from kube32.api.kubelets import KubeletConnector
from kube32.api.modules import ModuleStore
from kube32.api.routes import parse
from kube32.api.security import NodeCredentials, Security
from kube32.contract import LIMITS, Limits, resource_of
from kube32.store import Store, WatchHub

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


class World:
    """What handlers know as `server`, with short ways to make objects."""

    def __init__(self, directory: Path, limits: Limits) -> None:
        self.limits = limits
        self.directory = directory
        self.store = Store(limits)
        self.hub = WatchHub(self.store, limits)
        self.security = Security.create(directory, limits, advertise=[])
        self.security.bind(self.store)
        self.pool = make_pool(self.store, limits)
        self.modules = ModuleStore(directory / "modules", self.store, limits)
        self.kubelets = KubeletConnector(self.store, limits, self.security.kubelet_client_ssl_context())
        self._runners: list[web.AppRunner] = []
        self.put("Namespace", "default")

    async def close(self) -> None:
        await self.kubelets.close()
        for runner in self._runners:
            await runner.cleanup()

    def put(self, kind: str, name: str, namespace: str = "default", **parts: Any) -> dict[str, Any]:
        """Stores an object; `metadata` parts are merged, the rest stands beside it."""
        resource = resource_of(kind)
        metadata = {"name": name, "uid": f"uid-{name}", **parts.pop("metadata", {})}
        if resource.namespaced:
            metadata["namespace"] = namespace
        obj = {"apiVersion": resource.api_version, "kind": kind, "metadata": metadata, **parts}
        return self.store.put(resource.object_key(namespace, name), obj).obj

    def pod(
        self,
        name: str,
        node: str = "",
        *,
        phase: str = "Running",
        namespace: str = "default",
        annotations: dict[str, str] | None = None,
        **spec: Any,
    ) -> dict[str, Any]:
        spec.setdefault("containers", [{"name": "main", "image": "wasm://embedded"}])
        status: dict[str, Any] = {"phase": phase}
        if phase == "Running":
            status["containerStatuses"] = [{"name": "main", "state": {"running": {}}}]
        if node:
            spec["nodeName"] = node
        return self.put(
            "Pod", name, namespace, metadata={"annotations": annotations or {}}, spec=spec, status=status
        )

    def node(self, name: str, port: int, address: str = "127.0.0.1", ready: str = "True") -> None:
        self.put(
            "Node",
            name,
            status={
                "addresses": [{"type": "InternalIP", "address": address}],
                "daemonEndpoints": {"kubeletEndpoint": {"Port": port}},
                "conditions": [{"type": "Ready", "status": ready}],
            },
        )

    def object(self, kind: str, name: str, namespace: str = "default") -> dict[str, Any] | None:
        entry = self.store.get(resource_of(kind).object_key(namespace, name))
        return None if entry is None else entry.obj

    def request(self, method: str, target: str, token: str | None = None, **parts: Any) -> Request:
        """A request as the listener makes it, authenticated with `token` (None: the admin's)."""
        path, _, query = target.partition("?")
        headers = {
            "Authorization": f"Bearer {self.security.admin_token if token is None else token}",
            **parts.pop("headers", {}),
        }
        request = Request(method, path, query_string=query, headers=headers, **parts)
        request.user = self.security.authenticate(request)
        return request

    async def call(
        self, handler: Any, method: str, target: str, token: str | None = None, **parts: Any
    ) -> Response:
        """Gives a request to a handler, once the authorizer has let it pass."""
        request = self.request(method, target, token, **parts)
        info = parse(method, request.path, request.query, Catalog("sim"))
        assert request.user is not None
        self.security.authorize(request.user, info, request)
        answer: Response = await handler(self, request, info)
        return answer

    async def kubelet(
        self, name: str, handler: Handler, *, credentials: NodeCredentials | None = None, node: bool = True
    ) -> int:
        """Starts a kubelet stand-in that asks for the API server's certificate; gives its port."""
        credentials = credentials or self.security.local_node_credentials(name, ["127.0.0.1"])
        app = web.Application(client_max_size=2**28)

        async def answer(request: web.Request) -> web.StreamResponse:
            return await handler(request)

        app.router.add_route("*", "/{path:.*}", answer)
        runner = web.AppRunner(app, auto_decompress=False)
        await runner.setup()
        site = web.TCPSite(runner, "127.0.0.1", 0, ssl_context=self.kubelet_context(credentials))
        await site.start()
        self._runners.append(runner)
        assert site._server is not None
        port: int = site._server.sockets[0].getsockname()[1]  # type: ignore[attr-defined]
        if node:
            self.node(name, port)
        return port

    def kubelet_context(self, credentials: NodeCredentials) -> ssl.SSLContext:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        chain = self.directory / f"serving-{credentials.name}.pem"
        chain.write_text(credentials.serving_key_pem + credentials.serving_cert_pem)
        context.load_cert_chain(chain)
        context.load_verify_locations(cadata=credentials.ca_pem)
        context.verify_mode = ssl.CERT_REQUIRED
        return context


@pytest.fixture
def limits() -> Limits:
    return LIMITS


@pytest.fixture
async def world(tmp_path: Path, limits: Limits) -> AsyncIterator[World]:
    world = World(tmp_path, limits)
    yield world
    await world.close()


@pytest.fixture
def read() -> Callable[[Response], Awaitable[bytes]]:
    """Reads a Response's body, as a listener does."""

    async def whole(response: Response) -> bytes:
        if isinstance(response.body, bytes):
            return response.body
        return b"".join([bytes(chunk) async for chunk in response.body])

    return whole


@pytest.fixture
def world_type() -> type[World]:
    return World
