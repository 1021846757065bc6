"""The same over real sockets: the listener, its certificates, workers and kubelets with theirs."""

import asyncio
import ssl
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from aiohttp import web

from kube32.api import pki
from kube32.api.adapter import HttpsListener
from kube32.api.security import Security
from kube32.api.server import ApiServer
from kube32.contract import LIMITS, VERSIONS, Limits
from kube32.formats.k32s import Snapshot, encode

DATA = "/apis/kube32.io/v1/namespaces/default/checkpoints/save-1/data"


@pytest.fixture
def limits() -> Limits:
    return LIMITS.replace(api_read_stall_ms=500)


@dataclass
class Served:
    """A control plane that listens."""

    world: Any
    listener: HttpsListener

    @property
    def url(self) -> str:
        return f"https://127.0.0.1:{self.listener.bound_port}"

    @property
    def admin(self) -> dict[str, str]:
        return {"Authorization": f"Bearer {self.world.security.admin_token}"}

    def context(self, chain: Path | None = None) -> ssl.SSLContext:
        context = ssl.create_default_context(cadata=self.world.security.ca_pem)
        if chain is not None:
            context.load_cert_chain(chain)
        return context

    async def ask(
        self, method: str, path: str, *, chain: Path | None = None, **options: Any
    ) -> tuple[int, Any]:
        async with (
            aiohttp.ClientSession() as session,
            session.request(method, self.url + path, ssl=self.context(chain), **options) as response,
        ):
            body = await response.read()
            is_json = response.content_type == "application/json"
            return response.status, await response.json() if is_json else body

    async def raw(self, data: bytes) -> bytes:
        """Sends bytes and reads what comes until the server closes."""
        reader, writer = await asyncio.open_connection(
            "127.0.0.1", self.listener.bound_port, ssl=self.context()
        )
        writer.write(data)
        try:
            return await asyncio.wait_for(reader.read(), 20)
        finally:
            writer.close()


@pytest.fixture
async def served(world: Any, tmp_path: Path, limits: Limits) -> AsyncIterator[Served]:
    server = ApiServer(
        store=world.store,
        hub=world.hub,
        limits=limits,
        security=world.security,
        data_dir=tmp_path,
        kubelets=world.kubelets,
        pool=world.pool,
        modules=world.modules,
    )
    await server.start()
    listener = HttpsListener(server, "127.0.0.1", 0, world.security.server_ssl_context(), limits)
    await listener.start()
    yield Served(world, listener)
    await listener.stop()
    await server.close()


def snapshot() -> bytes:
    memory = b"m" * 65536
    return encode(Snapshot(b"i" * 32, len(memory), 1, 7, 0, memory, [], [], [], []))


async def join(served: Served, tmp_path: Path, name: str) -> tuple[Path, str]:
    """Joins as a worker does; gives its client certificate's file and its token."""
    key, client = pki.make_request(name)
    _, serving = pki.make_request(name, ["127.0.0.1"])
    spec = {
        "nodeName": name,
        "request": client,
        "servingRequest": serving,
        "addresses": ["127.0.0.1"],
        "versions": VERSIONS,
    }
    status, answer = await served.ask(
        "POST",
        "/apis/kube32.io/v1/join",
        headers={"Authorization": f"Bearer {served.world.security.join_token}"},
        json={"apiVersion": "kube32.io/v1", "kind": "Join", "spec": spec},
    )
    assert status == 201
    chain = tmp_path / f"{name}.pem"
    chain.write_text(key + answer["status"]["certificate"])
    return chain, answer["status"]["token"]


@pytest.mark.parametrize(
    ("headers", "answer"),
    [
        ({}, (403, "Status", "Forbidden")),
        ({"Authorization": "Bearer wrong"}, (401, "Status", "Unauthorized")),
    ],
)
async def test_without_a_credential_only_health_answers(
    served: Served, headers: dict[str, str], answer: tuple[int, str, str]
) -> None:
    for path in ("/healthz", "/livez", "/readyz"):
        assert (await served.ask("GET", path, headers=headers))[0] == 200
    paths = ("/", "/api", "/apis", "/openapi/v3", "/api/v1/pods/x", DATA, "/apis/kube32.io/v1/nodes/x")
    for path in paths:
        for method in ("GET", "POST", "PUT"):
            status, body = await served.ask(method, path, headers=headers)
            assert (status, body["kind"], body["reason"]) == answer


async def test_a_worker_joins_and_is_known_by_certificate_and_token(served: Served, tmp_path: Path) -> None:
    chain, token = await join(served, tmp_path, "devkit")
    node = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "devkit"}}
    status, _ = await served.ask("POST", "/api/v1/nodes", chain=chain, json=node)
    assert status == 201
    headers = {"Authorization": f"Bearer {token}"}
    assert (await served.ask("GET", "/api/v1/nodes/devkit", headers=headers))[0] == 200
    node["metadata"] = {"name": "other"}
    status, body = await served.ask("POST", "/api/v1/nodes", chain=chain, json=node)
    assert (status, body["message"]) == (
        403,
        'nodes "other" is forbidden: node "devkit" is not allowed to modify node "other"',
    )


async def test_a_certificate_of_another_ca_gets_no_answer(served: Served, tmp_path: Path) -> None:
    Security.create(tmp_path / "foreign", LIMITS, advertise=[])
    chain = tmp_path / "foreign" / "pki" / "apiserver-kubelet-client.pem"
    with pytest.raises((aiohttp.ClientError, ssl.SSLError, OSError)):
        await served.ask("GET", "/healthz", chain=chain)


async def test_a_kubelets_serving_certificate_is_no_client_certificate(
    served: Served, tmp_path: Path
) -> None:
    local = served.world.security.local_node_credentials("main", ["127.0.0.1"])
    chain = tmp_path / "serving.pem"
    chain.write_text(local.serving_key_pem + local.serving_cert_pem)
    with pytest.raises((aiohttp.ClientError, ssl.SSLError, OSError)):
        await served.ask("GET", "/healthz", chain=chain)


async def test_a_pods_answer_streams_through_while_the_request_streams_in(served: Served) -> None:
    async def echo(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse(headers={"X-Kube32-Frozen": "u", "Retry-After": "1"}, status=503)
        await response.prepare(request)
        async for chunk in request.content.iter_any():
            await response.write(chunk)
        return response

    await served.world.kubelet("devkit", echo)
    served.world.pod("echo", "devkit")
    url = f"{served.url}/api/v1/namespaces/default/pods/echo/proxy/x"
    feed: asyncio.Queue[bytes] = asyncio.Queue()

    async def body() -> AsyncIterator[bytes]:
        while piece := await feed.get():
            yield piece

    feed.put_nowait(b"one")
    async with (
        aiohttp.ClientSession() as session,
        session.post(url, data=body(), headers=served.admin, ssl=served.context()) as response,
    ):
        assert (response.status, response.headers["X-Kube32-Frozen"]) == (503, "u")
        assert response.headers["Retry-After"] == "1"
        assert await response.content.readany() == b"one"
        feed.put_nowait(b"two")
        assert await response.content.readany() == b"two"
        feed.put_nowait(b"")
        assert await response.read() == b""


async def test_a_followed_log_is_given_up_when_its_reader_goes(served: Served) -> None:
    gone = asyncio.Event()

    async def endless(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        try:
            while True:
                await response.write(b"line\n")
                await asyncio.sleep(0.01)
        except (ConnectionError, asyncio.CancelledError):
            gone.set()
            raise

    await served.world.kubelet("devkit", endless)
    served.world.pod("echo", "devkit")
    url = f"{served.url}/api/v1/namespaces/default/pods/echo/log?follow=true"
    async with aiohttp.ClientSession() as session:
        response = await session.get(url, headers=served.admin, ssl=served.context())
        assert (await response.content.readany()).startswith(b"line\n")
        assert served.world.hub.stream_count == 1
        response.close()
        await asyncio.wait_for(gone.wait(), 20)
    assert served.world.hub.stream_count == 0


def put(served: Served, length: object, body: bytes) -> bytes:
    token = served.world.security.admin_token
    head = (
        f"PUT {DATA} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {token}\r\n"
        f"Content-Type: application/octet-stream\r\nContent-Length: {length}\r\n\r\n"
    )
    return head.encode() + body


async def test_a_snapshot_goes_in_and_out(served: Served) -> None:
    served.world.put("Checkpoint", "save-1", spec={"podName": "echo"})
    data = snapshot()
    headers = {**served.admin, "Content-Type": "application/octet-stream"}
    status, body = await served.ask("PUT", DATA, data=data, headers=headers)
    assert (status, body["status"]["sizeBytes"]) == (200, len(data))
    assert await served.ask("GET", DATA, headers=served.admin) == (200, data)


async def test_a_body_that_stops_coming_ends_and_leaves_the_old_data(served: Served) -> None:
    served.world.put("Checkpoint", "save-1", spec={"podName": "echo"})
    data = snapshot()
    headers = {**served.admin, "Content-Type": "application/octet-stream"}
    await served.ask("PUT", DATA, data=data, headers=headers)
    answer = await served.raw(put(served, len(data), data[:40000]))
    assert answer == b"" or answer.startswith(b"HTTP/1.1 400 ")
    assert await served.ask("GET", DATA, headers=served.admin) == (200, data)
    assert served.world.pool.used_bytes == len(data)


@pytest.mark.parametrize(
    ("length", "code"), [(2**62, b"413"), ("1" * 30, b"400"), ("-1", b"400"), ("x", b"400"), ("1_0", b"400")]
)
async def test_a_length_that_cannot_be_is_answered_at_once(
    served: Served, length: object, code: bytes
) -> None:
    served.world.put("Checkpoint", "save-1", spec={"podName": "echo"})
    answer = await served.raw(put(served, length, b"K32S"))
    assert answer.split()[1] == code
    assert served.world.pool.used_bytes == 0


async def test_a_path_that_climbs_out_of_a_pod_is_400(served: Served) -> None:
    asked: list[str] = []

    async def handler(request: web.Request) -> web.Response:
        asked.append(request.raw_path)
        return web.Response()

    await served.world.kubelet("devkit", handler)
    served.world.pod("echo", "devkit")
    token = served.world.security.admin_token
    for climb in ("../../../checkpoint/default/x/main", "%2e%2e/%2e%2e/pods", "a/..%2f..%2f.."):
        target = f"/api/v1/namespaces/default/pods/echo/proxy/{climb}"
        head = (
            f"GET {target} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {token}\r\nConnection: close\r\n\r\n"
        )
        assert (await served.raw(head.encode())).startswith(b"HTTP/1.1 400 ")
    assert not asked
