"""The kubelet's endpoints against hostile clients and hostile pods: certificate, limits, headers, queues."""

import asyncio
import ssl
from typing import Any

import aiohttp
import pytest

from kube32.contract import LIMITS, Limits

SHOUTS = """
(module
  (import "env" "k32_resp_header" (func $header (param i32 i32 i32 i32) (result i32)))
  (import "env" "k32_resp_status" (func $status (param i32)))
  (import "env" "k32_resp_write" (func $write (param i32 i32) (result i32)))
  (import "env" "k32_req_path" (func $path (param i32 i32) (result i32)))
  (import "env" "k32_req_query" (func $query (param i32 i32) (result i32)))
  (import "env" "k32_req_method" (func $method (param i32 i32) (result i32)))
  (memory (export "memory") 1)
  (data (i32.const 0) "X-Kube32-Frozenabc")
  (data (i32.const 32) "X-Goodvalue\\0d\\0aSet-Cookie: evil")
  (func (export "k32_handle")
    (drop (call $header (i32.const 0) (i32.const 15) (i32.const 15) (i32.const 3)))
    (drop (call $header (i32.const 32) (i32.const 6) (i32.const 38) (i32.const 5)))
    (drop (call $header (i32.const 32) (i32.const 6) (i32.const 38) (i32.const 24)))
    (call $status (i32.const 503))
    (drop (call $write (i32.const 512) (call $method (i32.const 512) (i32.const 100))))
    (drop (call $write (i32.const 512) (call $path (i32.const 512) (i32.const 100))))
    (drop (call $write (i32.const 512) (call $query (i32.const 512) (i32.const 100))))))
"""
WAITS = """
(module (import "env" "k32_time_ms" (func $time (result i64)))
  (memory (export "memory") 1)
  (func (export "k32_handle") (local i64) (local.set 0 (i64.add (call $time) (i64.const 300)))
    (loop (br_if 0 (i64.lt_u (call $time) (local.get 0))))))
"""


@pytest.fixture
def limits() -> Limits:
    return LIMITS.replace(pod_request_queue=2, pod_request_headers=10, api_read_stall_ms=200)


async def test_health_and_pods_are_served(bench: Any) -> None:
    node = await bench.node()
    await bench.running("echo")
    assert (await node.get("/healthz")).body == b"ok"
    pods = (await node.get("/pods")).json
    assert pods["kind"] == "PodList" and [p["metadata"]["name"] for p in pods["items"]] == ["echo"]


async def test_no_certificate_no_answer(bench: Any, security: Any) -> None:
    node = await bench.node()
    context = ssl.create_default_context(cadata=security.ca_pem)
    with pytest.raises(aiohttp.ClientError):
        async with aiohttp.ClientSession() as http, http.get(f"{node.url}/healthz", ssl=context) as response:
            await response.read()


async def test_a_nodes_certificate_is_not_the_api_servers(bench: Any, security: Any, tmp_path: Any) -> None:
    node = await bench.node()
    other = security.local_node_credentials("other", ["127.0.0.1"])
    (tmp_path / "c.pem").write_text(other.cert_pem + other.key_pem)
    context = ssl.create_default_context(cadata=security.ca_pem)
    context.load_cert_chain(tmp_path / "c.pem")
    async with aiohttp.ClientSession() as http, http.get(f"{node.url}/healthz", ssl=context) as response:
        assert response.status == 403


async def test_a_pods_marks_and_line_ends_in_headers_do_not_go_out(bench: Any) -> None:
    node = await bench.node()
    await bench.running("shout", SHOUTS)
    reply = await node.get("/proxy/default/shout/a%20b/../c?x=%31&y")
    assert reply.body == b"GET/a%20b/../cx=%31&y"
    assert reply.status == 503
    assert "X-Kube32-Frozen" not in reply.headers and "Set-Cookie" not in reply.headers
    assert reply.headers["X-Good"] == "value"


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "PATCH", "OPTIONS"])
async def test_every_method_reaches_the_pod(bench: Any, method: str) -> None:
    node = await bench.node()
    await bench.running("shout", SHOUTS)
    reply = await node.request(method, "/proxy/default/shout/p", data=b"body")
    assert reply.body == f"{method}/p".encode()


async def test_a_body_that_is_too_large_is_a_413_whether_announced_or_not(bench: Any) -> None:
    node = await bench.node()
    await bench.running("echo")
    big = LIMITS.pod_request_body_bytes + 1
    assert (await node.request("POST", "/proxy/default/echo/", data=b"x" * big)).status == 413

    async def stream() -> Any:
        for _ in range(big // 65536 + 1):
            yield b"x" * 65536

    assert (await node.request("POST", "/proxy/default/echo/", data=stream())).status == 413
    assert (await node.ask("echo")).status == 200


async def test_too_many_headers_are_a_431(bench: Any) -> None:
    node = await bench.node()
    await bench.running("echo")
    headers = {f"X-{n}": "v" for n in range(11)}
    assert (await node.get("/proxy/default/echo/", headers=headers)).status == 431


async def test_a_body_that_stops_coming_is_given_up(bench: Any) -> None:
    node = await bench.node()
    await bench.running("echo")
    reader, writer = await asyncio.open_connection(
        "127.0.0.1", node.kubelet.port, ssl=bench._security.kubelet_client_ssl_context()
    )
    writer.write(b"POST /proxy/default/echo/ HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\nxx")
    line = await asyncio.wait_for(reader.readline(), 10)
    assert line.startswith(b"HTTP/1.1 400")
    writer.close()


async def test_more_requests_than_the_queue_takes_are_busy(bench: Any, tools: Any) -> None:
    node = await bench.node()
    await bench.running("slow", WAITS)
    calls = [asyncio.create_task(node.ask("slow")) for _ in range(6)]
    replies = await asyncio.gather(*calls)
    busy = [r for r in replies if r.status == 503]
    assert len(busy) >= 3 and len([r for r in replies if r.status == 200]) >= 2
    assert all(r.headers["Retry-After"] == "1" and "X-Kube32-Frozen" not in r.headers for r in busy)
    assert busy[0].body == b"pod slow has 2 requests waiting\n"


async def test_large_bodies_under_way_are_bounded(bench: Any, tools: Any) -> None:
    node = await bench.node()
    await bench.running("slow", WAITS)
    worker = node.kubelet.registry.worker("default", "slow")
    body = b"x" * LIMITS.pod_request_body_bytes
    calls = [node.request("POST", "/proxy/default/slow/", data=body) for _ in range(2)]
    running = [asyncio.create_task(call) for call in calls]
    await tools.until(lambda: worker.held_bytes == 2 * len(body))
    worker.held_bytes += LIMITS.pod_request_bytes_held
    assert (await node.ask("slow")).status == 503
    worker.held_bytes -= LIMITS.pod_request_bytes_held
    assert [r.status for r in await asyncio.gather(*running)] == [200, 200]
    await tools.until(lambda: worker.held_bytes == 0)


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("GET", "/", 404),
        ("GET", "/exec/default/echo/main", 404),
        ("GET", "/checkpoint/default/echo/main", 405),
        ("POST", "/checkpoint/default/echo", 404),
        ("GET", "/proxy/default/nobody/", 404),
        ("GET", "/proxy", 404),
        ("POST", "/events/default/", 400),
    ],
)
async def test_other_paths_and_methods_are_refused(bench: Any, method: str, path: str, status: int) -> None:
    node = await bench.node()
    reply = await node.request(method, path)
    assert reply.status == status and reply.json["message"]


async def test_a_pod_that_is_elsewhere_is_told_apart_from_a_pods_own_404(bench: Any) -> None:
    node = await bench.node()
    await bench.running("quiet", '(module (memory (export "memory") 1) (func (export "k32_tick")))')
    assert (await node.ask("nobody")).headers["X-Kube32-Not-Here"] == "true"
    assert "X-Kube32-Not-Here" not in (await node.ask("quiet")).headers


async def test_a_pod_without_a_handler_is_a_404(bench: Any) -> None:
    node = await bench.node()
    await bench.running("quiet", '(module (memory (export "memory") 1) (func (export "k32_tick")))')
    reply = await node.ask("quiet")
    assert reply.status == 404 and reply.body == b"pod quiet does not export k32_handle\n"


@pytest.mark.parametrize("code", [0, 101, 600])
async def test_a_status_that_is_none_does_not_break_the_answer(bench: Any, code: int) -> None:
    node = await bench.node()
    module = f"""(module (import "env" "k32_resp_status" (func $s (param i32))) (memory (export "memory") 1)
      (func (export "k32_handle") (call $s (i32.const {code}))))"""
    await bench.running("odd", module)
    assert [(await node.ask("odd")).status for _ in range(2)] == [200, 200]
