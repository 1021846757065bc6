"""The way to kubelets over real TLS: who is believed, what a failure says, how bodies stream."""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from kube32.api.http import BodyCut
from kube32.api.kubelets import KubeletConnector
from kube32.api.security import Security
from kube32.api.status import ApiFailure
from kube32.contract import LIMITS


async def hello(request: web.Request) -> web.Response:
    return web.Response(text="hello")


async def failure_of(world: Any, node: str = "devkit") -> ApiFailure:
    with pytest.raises(ApiFailure) as failure:
        await world.kubelets.request(node, "GET", "/healthz")
    return failure.value


async def test_a_kubelet_sees_the_api_servers_certificate_and_answers(world: Any) -> None:
    seen: list[Any] = []

    async def handler(request: web.Request) -> web.Response:
        assert request.transport is not None
        seen.append(dict(r[0] for r in request.transport.get_extra_info("peercert")["subject"]))
        return web.Response(status=418, text="hello", headers={"X-A": "b"})

    await world.kubelet("devkit", handler)
    answer = await world.kubelets.request("devkit", "GET", "/healthz")
    assert (answer.status, answer.headers["X-A"], await answer.read(100)) == (418, "b", b"hello")
    assert seen == [{"commonName": "system:kube32:apiserver"}]


async def test_path_and_query_go_as_they_are(world: Any) -> None:
    seen: list[str] = []

    async def handler(request: web.Request) -> web.Response:
        seen.append(request.raw_path)
        return web.Response()

    await world.kubelet("devkit", handler)
    await (await world.kubelets.request("devkit", "GET", "/a%2Fb//%41", query="x=%20+1&&y=;")).aclose()
    assert seen == ["/a%2Fb//%41?x=%20+1&&y=;"]


async def test_one_connection_serves_many_requests(world: Any) -> None:
    peers = set()

    async def handler(request: web.Request) -> web.Response:
        assert request.transport is not None
        peers.add(request.transport.get_extra_info("peername"))
        return web.Response(body=b"x" * 100_000)

    await world.kubelet("devkit", handler)
    for _ in range(5):
        await (await world.kubelets.request("devkit", "POST", "/x", body=b"y")).read(100_000)
    assert len(peers) == 1


async def test_a_kubelet_with_a_certificate_of_another_ca_is_not_believed(world: Any, tmp_path: Path) -> None:
    asked: list[str] = []

    async def handler(request: web.Request) -> web.Response:
        asked.append(request.path)
        return web.Response()

    foreign = Security.create(tmp_path / "foreign", LIMITS, advertise=[])
    credentials = foreign.local_node_credentials("devkit", ["127.0.0.1"])
    await world.kubelet("devkit", handler, credentials=replace(credentials, ca_pem=world.security.ca_pem))
    failure = await failure_of(world)
    assert failure.code == 502
    assert failure.message.startswith("node devkit cannot be reached at 127.0.0.1:")
    assert "certificate" in failure.message
    assert not asked


async def test_a_node_that_claims_the_address_of_another_gets_no_request(world: Any) -> None:
    asked: list[str] = []

    async def handler(request: web.Request) -> web.Response:
        asked.append(request.path)
        return web.Response()

    port = await world.kubelet("devkit", handler)
    await (await world.kubelets.request("devkit", "GET", "/mine")).read(10)
    world.node("thief", port)
    assert (await failure_of(world, "thief")).code == 502
    assert asked == ["/mine"]


async def test_a_kubelet_refuses_who_shows_a_certificate_of_another_ca(world: Any, tmp_path: Path) -> None:
    await world.kubelet("devkit", hello)
    foreign = Security.create(tmp_path / "foreign", LIMITS, advertise=[])
    context = foreign.kubelet_client_ssl_context()
    context.load_verify_locations(cadata=world.security.ca_pem)
    connector = KubeletConnector(world.store, LIMITS, context)
    with pytest.raises(ApiFailure):
        await connector.request("devkit", "GET", "/healthz")
    await connector.close()


async def test_a_node_that_is_not_there_is_404(world: Any) -> None:
    failure = await failure_of(world, "absent")
    assert (failure.code, failure.message) == (404, 'nodes "absent" not found')


@pytest.mark.parametrize(
    "status",
    [
        {},
        {"addresses": [{"type": "InternalIP", "address": "127.0.0.1"}]},
        {"daemonEndpoints": {"kubeletEndpoint": {"Port": 1}}},
        {
            "addresses": [{"type": "Hostname", "address": "h"}],
            "daemonEndpoints": {"kubeletEndpoint": {"Port": 1}},
        },
        {
            "addresses": [{"type": "InternalIP", "address": "127.0.0.1/x?y#"}],
            "daemonEndpoints": {"kubeletEndpoint": {"Port": 1}},
        },
        {
            "addresses": [{"type": "InternalIP", "address": "127.0.0.1"}],
            "daemonEndpoints": {"kubeletEndpoint": {"Port": 65536}},
        },
    ],
)
async def test_a_node_without_a_usable_address_is_503(world: Any, status: dict[str, Any]) -> None:
    world.put("Node", "devkit", status=status)
    failure = await failure_of(world)
    assert (failure.code, failure.message) == (503, "node devkit has not reported an address")


async def test_a_closed_port_is_503_and_says_so(world: Any) -> None:
    world.node("devkit", 1)
    failure = await failure_of(world)
    assert failure.code == 503
    assert failure.message.startswith("node devkit cannot be reached at 127.0.0.1:1: ")
    assert "refused" in failure.message


async def test_a_peer_that_speaks_no_tls_is_502_or_503(world: Any) -> None:
    async def plain(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")
        writer.close()

    server = await asyncio.start_server(plain, "127.0.0.1", 0)
    world.node("devkit", server.sockets[0].getsockname()[1])
    assert (await failure_of(world)).code in (502, 503)
    server.close()


async def test_a_kubelet_that_does_not_answer_is_504(world: Any) -> None:
    release = asyncio.Event()

    async def handler(request: web.Request) -> web.Response:
        await release.wait()
        return web.Response()

    await world.kubelet("devkit", handler)
    for endless in (False, True):
        with pytest.raises(ApiFailure) as failure:
            await world.kubelets.request("devkit", "GET", "/", answer_ms=100, endless=endless)
        assert failure.value.code == 504
    release.set()


async def test_bodies_stream_both_ways_at_once(world: Any) -> None:
    async def echo(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        async for chunk in request.content.iter_any():
            await response.write(chunk)
        return response

    await world.kubelet("devkit", echo)
    feed: asyncio.Queue[bytes] = asyncio.Queue()

    async def body() -> AsyncIterator[bytes]:
        while piece := await feed.get():
            yield piece

    feed.put_nowait(b"one")
    stream = await world.kubelets.request("devkit", "POST", "/", body=body())
    assert await anext(stream) == b"one"
    feed.put_nowait(b"two")
    assert await anext(stream) == b"two"
    feed.put_nowait(b"")
    with pytest.raises(StopAsyncIteration):
        await anext(stream)


async def test_an_answer_that_is_cut_is_told_and_closed_once(world: Any) -> None:
    async def cut(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Length": "100"})
        await response.prepare(request)
        await response.write(b"half")
        assert request.transport is not None
        request.transport.close()
        return response

    await world.kubelet("devkit", cut)
    stream = await world.kubelets.request("devkit", "GET", "/")
    closed: list[int] = []
    stream.on_close = lambda: closed.append(1)
    with pytest.raises(BodyCut):
        async for _ in stream:
            pass
    await stream.aclose()
    assert closed == [1]


async def test_an_answer_larger_than_expected_is_not_read_to_its_end(world: Any) -> None:
    async def endless(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        while True:
            await response.write(b"x" * 4096)

    await world.kubelet("devkit", endless)
    stream = await world.kubelets.request("devkit", "GET", "/")
    with pytest.raises(BodyCut, match="more than 100 bytes"):
        await stream.read(100)


async def test_a_lane_keeps_the_order_in_which_requests_came(world: Any) -> None:
    order: list[int] = []

    async def go(number: int) -> None:
        async with world.kubelets.lane("publisher", "devkit"):
            await asyncio.sleep(0)
            order.append(number)

    await asyncio.gather(*(go(n) for n in range(20)))
    assert order == list(range(20))
    assert not world.kubelets._lanes
