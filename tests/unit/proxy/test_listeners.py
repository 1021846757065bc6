"""Listeners over real sockets, pods played by functions that answer, refuse or break as real ones do."""

import asyncio
import socket
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import aiohttp
import orjson
import pytest

from kube32.client.transport import TransportError
from kube32.contract import LIMITS, Limits
from kube32.proxy.listeners import Listeners
from kube32.proxy.pods import NotDelivered, PodAnswer, PodRequest

QUICK = LIMITS.replace(proxy_hold_ms=2000, proxy_hold_retry_ms=10, node_port_retry_ms=20)


class FakePods:
    """Pods of one side. `behave` gives the answer of a pod to a request, or raises."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, PodRequest]] = []
        self.behave: Callable[[str, PodRequest], PodAnswer] = lambda pod, request: PodAnswer(
            200, [("Content-Type", "text/plain")], pod.encode()
        )

    async def call(self, namespace: str, pod: str, request: PodRequest) -> PodAnswer:
        self.asked.append((pod, request))
        return self.behave(pod, request)


class World:
    """A node's listeners with an Ingress on a free port."""

    def __init__(self, folder: Path, limits: Limits) -> None:
        self.local, self.remote = FakePods(), FakePods()
        self.folder = folder
        self.listeners = self.make(limits)

    def make(self, limits: Limits = QUICK) -> Listeners:
        return Listeners(
            "here",
            local=self.local,
            remote=self.remote,
            limits=limits,
            file=self.folder / "routes.json",
            host="127.0.0.1",
            ingress=("127.0.0.1", 0),
        )

    @property
    def url(self) -> str:
        assert self.listeners.ingress is not None
        return f"http://127.0.0.1:{self.listeners.ingress.port}"

    async def routes(self, *endpoints: tuple[str, str], waits: bool = False, node_port: int = 0) -> None:
        port: dict[str, Any] = {
            "name": "",
            "port": 80,
            "endpoints": [{"pod": p, "node": n} for p, n in endpoints],
            "waits": waits,
        }
        if node_port:
            port["nodePort"] = node_port
        rule = {"host": "", "path": "/", "pathType": "Prefix", "service": "echo", "port": 80}
        await self.listeners.replace(
            orjson.dumps(
                {
                    "services": [{"namespace": "default", "name": "echo", "ports": [port]}],
                    "ingresses": [{"namespace": "default", "name": "web", "rules": [rule]}],
                }
            )
        )


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[World]:
    made = World(tmp_path, QUICK)
    await made.listeners.start()
    yield made
    await made.listeners.stop()


@pytest.fixture
async def http() -> AsyncIterator[aiohttp.ClientSession]:
    async with aiohttp.ClientSession(auto_decompress=False) as session:
        yield session


async def fetch(http: aiohttp.ClientSession, url: str, **options: Any) -> tuple[int, str]:
    async with http.request(options.pop("method", "GET"), url, **options) as answer:
        return answer.status, await answer.text()


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


async def status_of(http: aiohttp.ClientSession, url: str) -> int:
    """The status of a GET, 0 when nobody listens."""
    try:
        return (await fetch(http, url, headers={"Host": "anything"}))[0]
    except aiohttp.ClientConnectionError:
        return 0


async def until_status(http: aiohttp.ClientSession, url: str, wanted: int) -> None:
    for _ in range(500):
        if await status_of(http, url) == wanted:
            return
        await asyncio.sleep(0.02)
    raise AssertionError(f"{url} never gave {wanted}")


async def test_requests_go_round_the_ready_pods_of_all_nodes(
    world: World, http: aiohttp.ClientSession
) -> None:
    await world.routes(("a", "here"), ("b", "there"), ("c", "here"))
    answers = [await fetch(http, world.url) for _ in range(6)]
    assert [text for _, text in answers] == ["a", "b", "c", "a", "b", "c"]
    assert [pod for pod, _ in world.remote.asked] == ["b", "b"]


async def test_a_pod_gets_the_request_as_it_came(world: World, http: aiohttp.ClientSession) -> None:
    await world.routes(("a", "here"))
    headers = {"X-Mine": "1", "Connection": "keep-alive, X-Hop", "X-Hop": "2", "X-Kube32-Frozen": "lie"}
    await fetch(http, f"{world.url}/a%2Fb?q=%20&r", method="POST", data=b"body", headers=headers)
    ((_, request),) = world.local.asked
    assert (request.method, request.target, request.body) == ("POST", "/a%2Fb?q=%20&r", b"body")
    assert request.headers["X-Mine"] == "1"
    assert request.headers["X-Forwarded-For"] == "127.0.0.1"
    assert request.headers["X-Forwarded-Host"] == world.url.removeprefix("http://")
    assert not {"x-hop", "connection", "x-kube32-frozen", "host"} & {k.lower() for k in request.headers}


async def test_another_pod_is_asked_when_nothing_was_delivered(
    world: World, http: aiohttp.ClientSession
) -> None:
    def behave(pod: str, request: PodRequest) -> PodAnswer:
        if pod == "a":
            raise NotDelivered("it has stopped")
        return PodAnswer(201, [], b"b took it")

    world.local.behave = behave
    await world.routes(("a", "here"), ("b", "here"))
    for _ in range(2):
        assert await fetch(http, world.url, method="POST", data=b"x") == (201, "b took it")


@pytest.mark.parametrize(("error", "status"), [(TransportError("cut"), 502), (TimeoutError(), 504)])
async def test_no_other_pod_is_asked_when_the_first_may_have_seen_the_request(
    world: World, http: aiohttp.ClientSession, error: Exception, status: int
) -> None:
    def behave(pod: str, request: PodRequest) -> PodAnswer:
        raise error

    world.remote.behave = behave
    await world.routes(("a", "there"), ("b", "there"))
    assert (await fetch(http, world.url))[0] == status
    assert [pod for pod, _ in world.remote.asked] == ["a"]


async def test_a_request_waits_for_a_frozen_pod(world: World, http: aiohttp.ClientSession) -> None:
    tries = 0

    def behave(pod: str, request: PodRequest) -> PodAnswer:
        nonlocal tries
        tries += 1
        if tries < 4:
            raise NotDelivered("frozen", soon=True)
        return PodAnswer(200, [], request.body)

    world.local.behave = behave
    await world.routes(("a", "here"))
    assert await fetch(http, world.url, method="PUT", data=b"kept") == (200, "kept")


async def test_a_request_follows_a_pod_to_its_new_node(world: World, http: aiohttp.ClientSession) -> None:
    await world.routes(waits=True)
    waiting = asyncio.create_task(fetch(http, world.url))
    await asyncio.sleep(0.05)
    assert not waiting.done()
    await world.routes(("a", "there"))
    assert await waiting == (200, "a")


async def test_a_service_without_pods_is_unavailable_at_once(
    world: World, http: aiohttp.ClientSession
) -> None:
    await world.routes()
    assert await fetch(http, world.url) == (503, 'no endpoints available for service "echo"\n')


async def test_a_pod_that_stays_frozen_gives_503_with_retry_after(
    tmp_path: Path, http: aiohttp.ClientSession
) -> None:
    world = World(tmp_path, QUICK.replace(proxy_hold_ms=50))
    await world.listeners.start()
    try:
        await world.routes(waits=True)
        async with http.get(world.url) as answer:
            assert answer.status == 503
            assert answer.headers["Retry-After"] == str(LIMITS.pod_retry_after_s)
    finally:
        await world.listeners.stop()


async def test_what_no_rule_takes_is_not_found(world: World, http: aiohttp.ClientSession) -> None:
    status, words = await fetch(http, f"{world.url}/x?y=1")
    assert status == 404
    assert words == f"no rule of an Ingress takes {world.url.removeprefix('http://')}/x\n"


async def test_a_body_that_no_pod_takes_is_refused_before_it_is_read(
    world: World, http: aiohttp.ClientSession
) -> None:
    await world.routes(("a", "here"))
    status, words = await fetch(
        http, world.url, method="POST", data=b"x" * (LIMITS.pod_request_body_bytes + 1)
    )
    assert status == 413
    assert str(LIMITS.pod_request_body_bytes) in words
    assert not world.local.asked


async def test_a_node_port_opens_and_closes_with_its_service(
    world: World, http: aiohttp.ClientSession
) -> None:
    port = free_port()
    url = f"http://127.0.0.1:{port}"
    await world.routes(("a", "here"), node_port=port)

    await until_status(http, url, 200)
    await world.routes(("a", "here"))
    await until_status(http, url, 0)


async def test_a_node_port_that_somebody_has_is_taken_over_when_it_is_free(
    world: World, http: aiohttp.ClientSession
) -> None:
    with socket.socket() as other:
        other.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        other.bind(("127.0.0.1", 0))
        other.listen()
        port = other.getsockname()[1]
        await world.routes(("a", "here"), node_port=port)
        await asyncio.sleep(0.1)
    await until_status(http, f"http://127.0.0.1:{port}", 200)


async def test_the_last_table_serves_after_a_restart_without_a_control_plane(
    world: World, http: aiohttp.ClientSession
) -> None:
    await world.routes(("a", "here"))
    await world.listeners.stop()
    world.listeners = world.make()
    await world.listeners.start()
    assert await fetch(http, world.url) == (200, "a")


async def test_a_damaged_table_on_disk_does_not_keep_the_node_from_starting(
    tmp_path: Path, http: aiohttp.ClientSession
) -> None:
    (tmp_path / "routes.json").write_bytes(b'{"services": [')
    world = World(tmp_path, QUICK)
    await world.listeners.start()
    try:
        assert (await fetch(http, world.url))[0] == 404
        await world.routes(("a", "here"))
        assert await fetch(http, world.url) == (200, "a")
    finally:
        await world.listeners.stop()


async def test_an_answer_that_breaks_is_cut_not_ended(world: World, http: aiohttp.ClientSession) -> None:
    class Broken(PodAnswer):
        async def chunks(self) -> AsyncIterator[bytes]:
            yield b"half"
            raise TransportError("the node is gone")

    world.local.behave = lambda pod, request: Broken(200, [("Content-Length", "8")], b"halfhalf")
    await world.routes(("a", "here"))
    with pytest.raises(aiohttp.ClientPayloadError):
        await fetch(http, world.url)
