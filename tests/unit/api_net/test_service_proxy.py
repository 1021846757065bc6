"""services/proxy: who is asked, in which order, when another one is, and who waits for whom."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import pytest
from aiohttp import web

from kube32.api import service_proxy
from kube32.api.computed import Views
from kube32.api.status import ApiFailure
from kube32.contract import LIMITS, Limits

SERVICES = "/api/v1/namespaces/default/services"
FROZEN = {"Retry-After": "1", "X-Kube32-Frozen": "uid"}
NOT_HERE = {"X-Kube32-Not-Here": "true"}


class Kubelet:
    """Answers for each pod with its name, or with what a test sets; notes who was asked and what came."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.bodies: list[bytes] = []
        self.answers: dict[str, Callable[[], Awaitable[web.StreamResponse]]] = {}

    async def __call__(self, request: web.Request) -> web.StreamResponse:
        pod = request.path.split("/")[3]
        self.asked.append(pod)
        self.bodies.append(await request.read())
        answer = self.answers.get(pod)
        return (
            web.Response(text=f"{pod} {request.method} {request.raw_path}")
            if answer is None
            else await answer()
        )

    def says(self, pod: str, status: int, headers: dict[str, str]) -> None:
        async def answer() -> web.StreamResponse:
            return web.Response(status=status, headers=headers, text="refused")

        self.answers[pod] = answer


class Service:
    """A Service with pods on one kubelet stand-in."""

    def __init__(self, world: Any, read: Any, kubelet: Kubelet) -> None:
        self.world, self._read, self.kubelet = world, read, kubelet

    def pod(
        self, name: str, *, ready: bool = True, node: str = "devkit", reason: str = "", **more: Any
    ) -> None:
        condition = {"type": "Ready", "status": str(ready), "reason": reason}
        self.world.put(
            "Pod",
            name,
            metadata={"labels": {"app": "web"}, **more},
            spec={"nodeName": node, "containers": [{"name": "main", "image": "wasm://echo"}]},
            status={"phase": "Running", "podIP": "10.0.0.1", "conditions": [condition]},
        )

    async def ask(
        self, rest: str = "/", name: str = "web", method: str = "GET", **parts: Any
    ) -> tuple[int, str]:
        answer = await self.world.call(
            service_proxy.handle, method, f"{SERVICES}/{name}/proxy{rest}", **parts
        )
        return answer.status, (await self._read(answer)).decode()

    async def refused(self, name: str = "web") -> ApiFailure:
        with pytest.raises(ApiFailure) as failure:
            await self.ask(name=name)
        return failure.value


@pytest.fixture
def limits() -> Limits:
    return LIMITS.replace(proxy_hold_ms=3000, proxy_hold_retry_ms=10)


@pytest.fixture
async def service(world: Any, read: Any) -> AsyncIterator[Service]:
    world.views = Views(world.store)
    world.turns = service_proxy.Turns()
    ports = [
        {"name": "http", "port": 80, "targetPort": 8080, "protocol": "TCP"},
        {"name": "admin", "port": 81, "targetPort": "none-has-this", "protocol": "TCP"},
    ]
    world.put("Service", "web", spec={"selector": {"app": "web"}, "ports": ports})
    kubelet = Kubelet()
    await world.kubelet("devkit", kubelet)
    yield Service(world, read, kubelet)
    world.views.close()


async def test_ready_pods_take_turns_and_others_are_left_out(service: Service) -> None:
    for name in "abc":
        service.pod(name)
    service.pod("d", ready=False)
    service.pod("e", deletionTimestamp="2026-01-01T00:00:00Z")
    for _ in range(6):
        assert (await service.ask())[0] == 200
    assert service.kubelet.asked == ["a", "b", "c"] * 2


@pytest.mark.parametrize("method", ["GET", "POST", "PUT", "PATCH", "DELETE"])
async def test_method_path_query_and_body_are_the_clients(service: Service, method: str) -> None:
    service.pod("a")
    body = b"" if method == "GET" else b"data"
    status, text = await service.ask("/x/y%20z?q=1&q=2", method=method, body=body)
    assert (status, text) == (200, f"a {method} /proxy/default/a/x/y%20z?q=1&q=2")
    assert service.kubelet.bodies == [body]


@pytest.mark.parametrize("name", ["web", "web:80", "web:http", "http:web:http", "http:web:80", ":web:http"])
async def test_a_port_has_a_name_and_a_number(service: Service, name: str) -> None:
    service.pod("a")
    assert (await service.ask(name=name))[0] == 200


@pytest.mark.parametrize(
    ("name", "code", "message"),
    [
        ("web:81", 503, 'no endpoints available for service "web"'),
        ("web:nope", 503, 'no endpoints available for service "web"'),
        ("web:82", 503, 'no service port 82 found for service "web"'),
        ("https:web:80", 400, 'invalid service request "https:web:80": pods speak plain HTTP'),
        ("ftp:web:80", 400, 'invalid service request "ftp:web:80"'),
        ("a:b:c:d", 400, 'invalid service request "a:b:c:d"'),
        ("missing", 404, 'services "missing" not found'),
    ],
)
async def test_what_cannot_be_asked_is_refused_with_the_reason(
    service: Service, name: str, code: int, message: str
) -> None:
    service.pod("a")
    failure = await service.refused(name)
    assert (failure.code, failure.message) == (code, message)
    assert service.kubelet.asked == []


async def test_without_ready_pods_there_is_nobody_to_ask(service: Service) -> None:
    failure = await service.refused()
    assert (failure.code, failure.message) == (503, 'no endpoints available for service "web"')
    assert failure.status()["reason"] == "ServiceUnavailable" and "Retry-After" not in failure.headers
    service.pod("a", ready=False)
    assert (await service.refused()).code == 503


@pytest.mark.parametrize("mark", [FROZEN, NOT_HERE, {"X-Kube32-Not-Delivered": "true"}])
async def test_another_pod_gets_the_whole_request_that_the_first_did_not(
    service: Service, mark: dict[str, str]
) -> None:
    async def chunks() -> AsyncIterator[bytes]:
        yield b"one"
        yield b"two"

    service.pod("a")
    service.pod("b")
    service.kubelet.says("a", 503, mark)
    headers = {"Transfer-Encoding": "chunked"}
    status, text = await service.ask(method="POST", body=chunks(), headers=headers)
    assert status == 200 and text.startswith("b POST")
    assert (service.kubelet.asked, service.kubelet.bodies) == (["a", "b"], [b"onetwo"] * 2)


async def test_another_pod_is_asked_when_a_node_cannot_be_reached(service: Service) -> None:
    service.world.node("gone", 1)
    service.pod("a", node="gone")
    service.pod("b")
    assert (await service.ask())[1].startswith("b GET")


@pytest.mark.parametrize("status", [200, 404, 500, 503])
async def test_a_pods_own_answer_stands_whatever_it_is(service: Service, status: int) -> None:
    service.pod("a")
    service.pod("b")
    service.kubelet.says("a", status, {"Retry-After": "1"})
    assert await service.ask() == (status, "refused")
    assert service.kubelet.asked == ["a"]


async def test_a_connection_that_breaks_after_the_request_is_no_reason_to_send_it_again(
    service: Service,
) -> None:
    async def cut() -> web.StreamResponse:
        raise asyncio.CancelledError

    service.pod("a")
    service.pod("b")
    service.kubelet.answers["a"] = cut
    failure = await service.refused()
    assert failure.code in (502, 503) and service.kubelet.asked == ["a"]


async def test_a_request_waits_for_a_frozen_pod_and_reaches_its_replacement(service: Service) -> None:
    service.pod("a", ready=False, reason="Frozen")
    waiting = asyncio.create_task(service.ask(method="POST", body=b"data"))
    await asyncio.sleep(0.05)
    assert not waiting.done()
    # The replacement has no address yet.
    service.world.put(
        "Pod",
        "a",
        metadata={"labels": {"app": "web"}, "annotations": {"kube32.io/restore-from": "save"}},
        spec={"nodeName": "devkit"},
        status={"phase": "Pending"},
    )
    await asyncio.sleep(0.05)
    assert not waiting.done() and service.kubelet.asked == []
    service.pod("a")
    status, text = await waiting
    assert status == 200 and text.startswith("a POST") and service.kubelet.bodies == [b"data"]


async def test_a_pod_that_freezes_under_the_request_is_asked_again_when_it_thaws(service: Service) -> None:
    service.pod("a")
    thrice = asyncio.Event()

    async def frozen() -> web.StreamResponse:
        if len(service.kubelet.asked) == 3:
            thrice.set()
        return web.Response(status=503, headers=FROZEN)

    service.kubelet.answers["a"] = frozen
    waiting = asyncio.create_task(service.ask())
    await thrice.wait()
    del service.kubelet.answers["a"]
    assert (await waiting)[0] == 200


async def test_the_wait_has_an_end(service: Service) -> None:
    service.world.limits = service.world.limits.replace(proxy_hold_ms=100)
    service.pod("a", ready=False, reason="Frozen")
    failure = await service.refused()
    assert (failure.code, failure.headers["Retry-After"]) == (503, "1")


@pytest.mark.parametrize(
    ("limit", "body"), [({"pod_request_queue": 2}, b"x"), ({"pod_request_bytes_held": 20}, b"x" * 10)]
)
async def test_only_so_many_requests_wait_for_a_service(
    service: Service, limit: dict[str, int], body: bytes
) -> None:
    service.world.limits = service.world.limits.replace(**limit)
    service.pod("a", ready=False, reason="Frozen")
    waiting = [asyncio.create_task(service.ask(method="POST", body=body)) for _ in range(2)]
    await asyncio.sleep(0.05)
    with pytest.raises(ApiFailure) as failure:
        await service.ask(method="POST", body=body)
    assert failure.value.message == "as many requests wait for pods of service web as may"
    assert failure.value.headers["Retry-After"] == "1"
    service.pod("a")
    assert [(await task)[0] for task in waiting] == [200, 200]
    assert service.world.turns._waiting == {}


async def test_a_body_that_no_pod_takes_is_refused_before_any_is_asked(service: Service) -> None:
    service.pod("a")
    with pytest.raises(ApiFailure) as failure:
        await service.ask(method="POST", body=b"x" * (LIMITS.pod_request_body_bytes + 1))
    assert failure.value.code == 413 and service.kubelet.asked == []


async def test_an_answer_is_streamed(service: Service) -> None:
    more = asyncio.Event()

    async def slowly(request: web.Request) -> web.StreamResponse:
        answer = web.StreamResponse()
        await answer.prepare(request)
        await answer.write(b"first")
        await more.wait()
        await answer.write(b"second")
        return answer

    await service.world.kubelet("slow", slowly)
    service.pod("a", node="slow")
    answer = await service.world.call(service_proxy.handle, "GET", f"{SERVICES}/web/proxy/")
    body = aiter(answer.body)
    assert await anext(body) == b"first"
    more.set()
    assert b"".join([bytes(c) async for c in body]) == b"second"
