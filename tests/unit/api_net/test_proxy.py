"""nodes/proxy and pods/proxy: what goes on, what is kept back, and when there is nobody to ask."""

from collections.abc import AsyncIterator
from typing import Any

import pytest
from aiohttp import web

from kube32.api.proxy import node_proxy, pod_proxy
from kube32.api.status import ApiFailure
from kube32.contract import LIMITS

PODS = "/api/v1/namespaces/default/pods"


class Recorder:
    """A kubelet that notes what it is asked and gives one answer."""

    def __init__(self, answer: web.Response | None = None) -> None:
        self.answer = answer
        self.method = self.target = ""
        self.headers: dict[str, str] = {}
        self.body = b""

    async def __call__(self, request: web.Request) -> web.Response:
        self.method, self.target = request.method, request.raw_path
        self.headers = {name.lower(): value for name, value in request.headers.items()}
        self.body = await request.read()
        return self.answer or web.Response(text="pong")


async def failure_of(world: Any, method: str, target: str, **parts: Any) -> ApiFailure:
    with pytest.raises(ApiFailure) as failure:
        await world.call(pod_proxy, method, target, **parts)
    return failure.value


async def test_a_request_for_a_node_goes_on_verbatim(world: Any, read: Any) -> None:
    kubelet = Recorder(web.Response(status=409, body=b"no", headers={"X-Kube32-Pod-Time-Ms": "7"}))
    await world.kubelet("devkit", kubelet)
    answer = await world.call(
        node_proxy,
        "POST",
        "/api/v1/nodes/devkit/proxy/checkpoint/default/echo/main?leave=frozen&timeoutMs=10",
        body=b"data",
    )
    assert (kubelet.method, kubelet.body) == ("POST", b"data")
    assert kubelet.target == "/checkpoint/default/echo/main?leave=frozen&timeoutMs=10"
    assert (answer.status, await read(answer)) == (409, b"no")
    assert answer.headers["X-Kube32-Pod-Time-Ms"] == "7"
    assert answer.headers["Content-Length"] == "2"


@pytest.mark.parametrize(
    ("target", "seen"),
    [
        ("/proxy", "/proxy/default/echo/"),
        ("/proxy/", "/proxy/default/echo/"),
        ("/proxy/a/b%20c/?x=1&x=2", "/proxy/default/echo/a/b%20c/?x=1&x=2"),
        (":80/proxy/a", "/proxy/default/echo/a"),
        (":http/proxy/a", "/proxy/default/echo/a"),
    ],
)
async def test_the_prefix_is_taken_off_a_pods_path(world: Any, read: Any, target: str, seen: str) -> None:
    kubelet = Recorder()
    await world.kubelet("devkit", kubelet)
    world.pod("echo", "devkit")
    answer = await world.call(pod_proxy, "GET", f"{PODS}/echo{target}")
    assert (answer.status, await read(answer)) == (200, b"pong")
    assert kubelet.target == seen
    assert answer.content_type.startswith("text/plain")


@pytest.mark.parametrize("method", ["GET", "HEAD", "PUT", "POST", "PATCH", "DELETE"])
async def test_every_method_and_body_goes_on(world: Any, method: str) -> None:
    kubelet = Recorder()
    await world.kubelet("devkit", kubelet)
    world.pod("echo", "devkit")
    await world.call(
        pod_proxy, method, f"{PODS}/echo/proxy/", body=b"" if method in ("GET", "HEAD") else b"12"
    )
    assert kubelet.method == method
    assert kubelet.body == (b"" if method in ("GET", "HEAD") else b"12")


async def test_a_body_of_unknown_length_goes_on(world: Any) -> None:
    async def body() -> AsyncIterator[bytes]:
        yield b"one"
        yield b"two"

    kubelet = Recorder()
    await world.kubelet("devkit", kubelet)
    world.pod("echo", "devkit")
    headers = {"Transfer-Encoding": "chunked"}
    await world.call(pod_proxy, "POST", f"{PODS}/echo/proxy/", body=body(), headers=headers)
    assert kubelet.body == b"onetwo"


async def test_a_pod_never_sees_the_credentials_of_who_asks(world: Any) -> None:
    kubelet = Recorder()
    await world.kubelet("devkit", kubelet)
    world.pod("echo", "devkit")
    headers = {
        "Cookie": "session=1",
        "Proxy-Authorization": "Basic x",
        "Connection": "X-Private, close",
        "X-Private": "1",
        "Upgrade": "websocket",
        "TE": "trailers",
        "Accept": "text/html",
        "Content-Type": "application/x-thing",
        "User-Agent": "curl",
    }
    await world.call(pod_proxy, "POST", f"{PODS}/echo/proxy/", body=b"x", headers=headers)
    assert {"host", "content-length", "accept", "content-type", "user-agent"} == set(kubelet.headers)
    assert world.security.admin_token not in str(kubelet.headers)


async def test_an_answers_headers_pass_but_for_those_of_the_connection(world: Any, read: Any) -> None:
    answer = web.Response(
        status=201,
        body=b"{}",
        headers={"X-A": "1", "Set-Cookie": "a=b", "Keep-Alive": "x", "Content-Type": "application/json"},
    )
    answer.headers.add("X-A", "2")
    await world.kubelet("devkit", Recorder(answer))
    world.pod("echo", "devkit")
    response = await world.call(pod_proxy, "GET", f"{PODS}/echo/proxy/")
    assert await read(response) == b"{}"
    assert (response.status, response.headers["X-A"]) == (201, "1, 2")
    assert response.content_type == "application/json"
    assert not {"Set-Cookie", "Keep-Alive", "Connection", "Content-Type"} & set(response.headers)


async def test_a_frozen_pods_503_passes_with_its_mark(world: Any, read: Any) -> None:
    frozen = web.Response(status=503, text="frozen", headers={"Retry-After": "1", "X-Kube32-Frozen": "uid-1"})
    await world.kubelet("devkit", Recorder(frozen))
    world.pod("echo", "devkit")
    response = await world.call(pod_proxy, "GET", f"{PODS}/echo/proxy/")
    assert await read(response) == b"frozen"
    assert (response.status, response.headers["Retry-After"]) == (503, "1")
    assert response.headers["X-Kube32-Frozen"] == "uid-1"


async def test_a_pod_that_left_its_node_meanwhile_is_503_and_not_404(world: Any) -> None:
    gone = web.Response(status=404, text="not on this node", headers={"X-Kube32-Not-Here": "true"})
    await world.kubelet("devkit", Recorder(gone))
    world.pod("echo", "devkit")
    failure = await failure_of(world, "GET", f"{PODS}/echo/proxy/")
    assert (failure.code, failure.headers["Retry-After"]) == (503, "1")


async def test_a_pods_own_404_passes(world: Any, read: Any) -> None:
    await world.kubelet("devkit", Recorder(web.Response(status=404, text="no such page")))
    world.pod("echo", "devkit")
    response = await world.call(pod_proxy, "GET", f"{PODS}/echo/proxy/")
    assert (response.status, await read(response)) == (404, b"no such page")


async def test_a_redirect_is_the_clients_to_follow(world: Any) -> None:
    moved = web.Response(status=302, headers={"Location": "https://example.org/"})
    await world.kubelet("devkit", Recorder(moved))
    world.pod("echo", "devkit")
    response = await world.call(pod_proxy, "GET", f"{PODS}/echo/proxy/")
    assert (response.status, response.headers["Location"]) == (302, "https://example.org/")


async def test_a_compressed_answer_passes_as_it_is(world: Any, read: Any) -> None:
    answer = web.Response(body=b"\x1f\x8bnot really", headers={"Content-Encoding": "gzip"})
    await world.kubelet("devkit", Recorder(answer))
    world.pod("echo", "devkit")
    response = await world.call(pod_proxy, "GET", f"{PODS}/echo/proxy/")
    assert await read(response) == b"\x1f\x8bnot really"
    assert response.headers["Content-Encoding"] == "gzip"


@pytest.mark.parametrize(
    ("node", "phase", "retry"),
    [
        ("", "Pending", "1"),
        ("devkit", "Pending", "1"),
        ("devkit", "Succeeded", None),
        ("devkit", "Failed", None),
        ("", "Running", "1"),
    ],
)
async def test_a_pod_that_does_not_run_is_503(world: Any, node: str, phase: str, retry: str | None) -> None:
    world.pod("echo", node, phase=phase)
    failure = await failure_of(world, "GET", f"{PODS}/echo/proxy/")
    assert (failure.code, failure.message) == (503, "pod echo is not running")
    assert failure.headers.get("Retry-After") == retry


async def test_a_pod_that_is_not_there_is_404(world: Any) -> None:
    failure = await failure_of(world, "GET", f"{PODS}/absent/proxy/")
    assert (failure.code, failure.message) == (404, 'pods "absent" not found')


async def test_a_pod_on_a_node_that_is_away_is_503(world: Any) -> None:
    world.node("devkit", 1)
    world.pod("echo", "devkit")
    failure = await failure_of(world, "GET", f"{PODS}/echo/proxy/")
    assert failure.code == 503
    assert failure.message.startswith("node devkit cannot be reached at 127.0.0.1:1: ")


@pytest.mark.parametrize(
    "name", ["echo:0", "echo:65536", "echo:9999999999", "echo:80:80", "ftp:echo:80", "echo:a%20b"]
)
async def test_a_port_that_is_none_is_400(world: Any, name: str) -> None:
    world.pod("echo", "devkit")
    assert (await failure_of(world, "GET", f"{PODS}/{name}/proxy/")).code == 400


@pytest.mark.parametrize(
    "path",
    [
        "../../../checkpoint/default/other/main",
        "a/../b",
        "%2e%2e/%2e%2e/pods",
        "..%2f..%2fpods",
        "%2e./x",
        "%00",
    ],
)
async def test_a_path_that_climbs_reaches_no_kubelet(world: Any, path: str) -> None:
    kubelet = Recorder()
    await world.kubelet("devkit", kubelet)
    world.pod("echo", "devkit")
    assert (await failure_of(world, "POST", f"{PODS}/echo/proxy/{path}")).code == 400
    assert kubelet.method == ""


async def test_a_body_larger_than_a_pod_takes_is_413_before_it_is_read(world: Any) -> None:
    world.pod("echo", "devkit")
    world.node("devkit", 1)

    async def never() -> AsyncIterator[bytes]:
        raise AssertionError("the body was read")
        yield b""

    failure = await failure_of(
        world, "POST", f"{PODS}/echo/proxy/", body=never(), content_length=LIMITS.pod_request_body_bytes + 1
    )
    assert failure.code == 413


async def test_a_body_that_grows_too_large_on_the_way_is_413(world: Any) -> None:
    await world.kubelet("devkit", Recorder())
    world.pod("echo", "devkit")

    async def growing() -> AsyncIterator[bytes]:
        for _ in range(LIMITS.pod_request_body_bytes // 65536 + 2):
            yield b"x" * 65536

    headers = {"Transfer-Encoding": "chunked"}
    failure = await failure_of(world, "POST", f"{PODS}/echo/proxy/", body=growing(), headers=headers)
    assert failure.code == 413
