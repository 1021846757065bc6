"""HttpTransport and ApiClient against a real socket: streams, reuse, TLS, refusals, servers that go away."""

import asyncio
import socket
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

from kube32.api.security import Security
from kube32.client.api import ApiClient, ApiError
from kube32.client.http import HttpTransport
from kube32.client.kubeconfig import load_kubeconfig, render_kubeconfig
from kube32.client.transport import TransportError
from kube32.contract import LIMITS

STREAMED = 8 << 20


class Peer:
    """An HTTP server that does what each path says."""

    def __init__(self) -> None:
        self.seen: list[web.Request] = []
        self.bodies: list[Any] = []
        self.peers: set[Any] = set()
        self.most = 0

    async def handle(self, request: web.Request) -> web.StreamResponse:
        """One request."""
        self.seen.append(request)
        self.peers.add(request.transport.get_extra_info("peername") if request.transport else None)
        action = getattr(self, request.path.strip("/").split("/")[-1], None)
        if action is not None:
            found: web.StreamResponse = await action(request)
            return found
        self.bodies.append(await request.read())
        return web.json_response({"metadata": {"name": "x"}})

    async def sink(self, request: web.Request) -> web.Response:
        """Takes a body without keeping it."""
        size = 0
        async for chunk in request.content.iter_any():
            size += len(chunk)
        return web.json_response({"size": size, "length": request.headers.get("Content-Length")})

    async def source(self, request: web.Request) -> web.StreamResponse:
        """Sends a large body."""
        response = web.StreamResponse(headers={"Content-Length": str(STREAMED)})
        await response.prepare(request)
        for _ in range(STREAMED // 65536):
            await response.write(bytes(65536))
        return response

    async def cut(self, request: web.Request) -> web.StreamResponse:
        """Promises more than it sends."""
        response = web.StreamResponse(headers={"Content-Length": "1000"})
        await response.prepare(request)
        await response.write(b"x" * 10)
        assert request.transport is not None
        request.transport.close()
        return response

    async def refuse(self, request: web.Request) -> web.Response:
        """A Status."""
        body = {"kind": "Status", "code": 409, "reason": "Conflict", "message": "someone was faster"}
        return web.json_response(body, status=409, headers={"Retry-After": "3"})

    async def plain(self, request: web.Request) -> web.Response:
        """A refusal of a proxy that knows no Status."""
        return web.Response(status=502, text="<b>bad gateway</b>")

    async def redirect(self, request: web.Request) -> web.Response:
        """Somewhere else."""
        raise web.HTTPFound("http://127.0.0.1:1/")

    async def hang_up(self, request: web.Request) -> web.Response:
        """Goes away without a word."""
        assert request.transport is not None
        request.transport.close()
        return web.Response()

    async def slow(self, request: web.Request) -> web.Response:
        """Too late."""
        await asyncio.sleep(5)
        return web.Response()


@pytest.fixture
async def peer() -> AsyncIterator[tuple[Peer, HttpTransport]]:
    """The peer, served, and a transport to it."""
    found = Peer()
    app = web.Application()
    app.router.add_route("*", "/{tail:.*}", found.handle)
    server = TestServer(app)
    await server.start_server()
    transport = HttpTransport(str(server.make_url("/")), token="secret")
    yield found, transport
    await transport.close()
    await server.close()


Pair = tuple[Peer, HttpTransport]


@pytest.mark.parametrize("method", ["GET", "PUT", "DELETE", "POST"])
async def test_a_request_whose_connection_breaks_is_not_sent_again(peer: Pair, method: str) -> None:
    """Somebody may have acted on it already: a pod, for one."""
    server, transport = peer
    with pytest.raises(TransportError):
        await transport.send(method, "/hang_up")
    assert len(server.seen) == 1


async def test_the_token_goes_along_and_paths_stay_as_they_are(peer: Pair) -> None:
    served, transport = peer
    async with await transport.send("GET", "/api/a%2Fb/%20c", query={"x": "1 2&"}) as response:
        assert response.status == 200
    assert served.seen[0].headers["Authorization"] == "Bearer secret"
    assert served.seen[0].raw_path == "/api/a%2Fb/%20c?x=1+2%26"


async def test_connections_are_used_again(peer: Pair) -> None:
    served, transport = peer
    for _ in range(5):
        async with await transport.send("GET", "/x") as response:
            await response.read()
    assert len(served.peers) == 1


async def test_bodies_stream_up_with_their_length_and_down_in_chunks(peer: Pair) -> None:
    _, transport = peer

    async def body() -> AsyncIterator[bytes]:
        for _ in range(STREAMED // 65536):
            yield bytes(65536)

    headers = {"Content-Length": str(STREAMED)}
    async with await transport.send("PUT", "/sink", headers=headers, body=body()) as response:
        assert await response.read() == b'{"size": %d, "length": "%d"}' % (STREAMED, STREAMED)
    size, largest = 0, 0
    async with await transport.send("GET", "/source", timeout_s=None) as response:
        async for chunk in response.chunks():
            size += len(chunk)
            largest = max(largest, len(chunk))
    assert size == STREAMED and largest < STREAMED


async def test_a_body_from_one_answer_goes_into_the_next_request(peer: Pair) -> None:
    _, transport = peer
    async with await transport.send("GET", "/source", timeout_s=None) as source:
        headers = {"Content-Length": source.headers["content-length"]}
        async with await transport.send("PUT", "/sink", headers=headers, body=source.chunks()) as response:
            assert b'"size": %d' % STREAMED in await response.read()


async def test_a_cut_body_is_a_transport_error_either_way_of_reading(peer: Pair) -> None:
    _, transport = peer
    with pytest.raises(TransportError):
        async with await transport.send("GET", "/cut") as response:
            await response.read()
    with pytest.raises(TransportError):
        async with await transport.send("GET", "/cut") as response:
            async for _ in response.chunks():
                pass


async def test_a_body_whose_source_breaks_is_no_success(peer: Pair) -> None:
    _, transport = peer

    async def body() -> AsyncIterator[bytes]:
        yield b"x" * 100
        raise TransportError("the source broke")

    with pytest.raises((TransportError, OSError)):
        async with await transport.send("PUT", "/sink", headers={"Content-Length": "1000"}, body=body()):
            pass


async def test_nobody_there_is_a_transport_error_with_the_address_and_slow_ones_time_out(peer: Pair) -> None:
    _, transport = peer
    with pytest.raises(TimeoutError):
        await transport.send("GET", "/slow", timeout_s=0.1)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    nobody = HttpTransport(f"http://127.0.0.1:{port}")
    with pytest.raises(TransportError, match=f"127.0.0.1:{port}"):
        await nobody.send("GET", "/")
    await nobody.close()


async def test_redirects_are_not_followed(peer: Pair) -> None:
    _, transport = peer
    async with await transport.send("GET", "/redirect") as response:
        assert response.status == 302


async def test_streams_notice_a_peer_that_vanished_before_half_of_the_lease_time(peer: Pair) -> None:
    _, transport = peer
    async with await transport.send("GET", "/source", timeout_s=None) as response:
        connection = response._response.connection  # type: ignore[attr-defined]
        sock = connection.transport.get_extra_info("socket")
        idle, interval, count = (
            sock.getsockopt(socket.IPPROTO_TCP, getattr(socket, name))
            for name in ("TCP_KEEPIDLE", "TCP_KEEPINTVL", "TCP_KEEPCNT")
        )
        assert sock.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE)
        assert idle + interval * count <= 10


async def test_after_a_renewal_requests_take_new_connections_and_those_under_way_end_on_theirs(
    peer: Pair,
) -> None:
    served, transport = peer
    async with await transport.send("GET", "/source", timeout_s=None) as response:
        chunks = response.chunks()
        size = len(await anext(chunks))
        await transport.renew()
        async with await transport.send("GET", "/x") as other:
            await other.read()
        async for chunk in chunks:
            size += len(chunk)
    assert size == STREAMED
    before = len(served.peers)
    for _ in range(2):
        async with await transport.send("GET", "/x") as again:
            await again.read()
    assert len(served.peers) == before
    await transport.renew()
    async with await transport.send("GET", "/x") as last:
        await last.read()
    assert len(served.peers) == before + 1


async def test_a_refusal_is_an_api_error_with_the_status_of_the_server(peer: Pair) -> None:
    _, transport = peer
    client = ApiClient(transport)
    with pytest.raises(ApiError, match="someone was faster") as caught:
        async with await client.raw("GET", "/refuse") as response:
            await client.check(response)
    assert (caught.value.code, caught.value.reason, caught.value.retry_after_s) == (409, "Conflict", 3)
    with pytest.raises(ApiError, match="bad gateway") as caught:
        async with await client.raw("GET", "/plain") as response:
            await client.check(response)
    assert caught.value.code == 502


async def test_verbs_go_to_the_paths_of_the_contract(peer: Pair) -> None:
    served, transport = peer
    client = ApiClient(transport)
    pod = {"metadata": {"name": "p", "namespace": "team", "resourceVersion": "7"}}
    await client.get("Pod", "p", "team")
    await client.create("Pod", pod)
    await client.create("Pod", {"x": 1}, "team", subresource="binding", name="p")
    await client.update("Pod", pod, subresource="status")
    await client.patch("Checkpoint", "c", {"a": None}, "team")
    await client.patch("Node", "n", [{"op": "remove", "path": "/x"}], type="json")
    await client.delete("Pod", "p", "team", uid="u", grace_s=0)
    assert [(r.method, r.path) for r in served.seen] == [
        ("GET", "/api/v1/namespaces/team/pods/p"),
        ("POST", "/api/v1/namespaces/team/pods"),
        ("POST", "/api/v1/namespaces/team/pods/p/binding"),
        ("PUT", "/api/v1/namespaces/team/pods/p/status"),
        ("PATCH", "/apis/kube32.io/v1/namespaces/team/checkpoints/c"),
        ("PATCH", "/api/v1/nodes/n"),
        ("DELETE", "/api/v1/namespaces/team/pods/p"),
    ]
    assert [r.headers.get("Content-Type") for r in served.seen[4:6]] == [
        "application/merge-patch+json",
        "application/json-patch+json",
    ]
    assert b'"preconditions":{"uid":"u"},"gracePeriodSeconds":0' in served.bodies[6]


async def test_names_cannot_leave_their_place_in_the_path(peer: Pair) -> None:
    served, transport = peer
    await ApiClient(transport).get("Pod", "../../x?y", "a/b")
    assert served.seen[0].raw_path == "/api/v1/namespaces/a%2Fb/pods/..%2F..%2Fx%3Fy"


async def test_tls_is_checked_against_the_authority_of_the_kubeconfig(tmp_path: Path) -> None:
    security = Security.create(tmp_path, LIMITS, advertise=[])
    served = Peer()
    app = web.Application()
    app.router.add_route("*", "/{tail:.*}", served.handle)
    server = TestServer(app, scheme="https")
    await server.start_server(ssl=security.server_ssl_context())
    url = f"https://127.0.0.1:{server.port}"
    config = tmp_path / "config"
    config.write_text(render_kubeconfig(url, security.ca_pem, "admin", "secret", "here"))
    access = load_kubeconfig(config)
    known = HttpTransport(access.server, ssl_context=access.ssl_context, token=access.token)
    async with await known.send("GET", "/x") as response:
        assert response.status == 200
    stranger = HttpTransport(url, token="secret")
    with pytest.raises(TransportError, match="certificate verify failed"):
        await stranger.send("GET", "/x")
    assert len(served.seen) == 1
    for transport in (known, stranger):
        await transport.close()
    await server.close()
