"""The HTTPS listener with real sockets: streams both ways, limits, slow and silent clients."""

import asyncio
import socket
import ssl
from collections.abc import AsyncIterator, Callable
from typing import Any

import orjson
import pytest

from kube32.api.adapter import HttpsListener
from kube32.api.connection import set_keepalive
from kube32.contract import Limits, limits_for

CORE = "/api/v1/namespaces/default"
PATIENCE_S = 20


@pytest.fixture
def limits() -> Limits:
    """Short stalls, so that tests need not wait long for them, and few connections."""
    return limits_for("sim").replace(api_read_stall_ms=400, stream_write_stall_ms=400, api_connections=4)


class Client:
    """Raw connections to a listener."""

    def __init__(self, api: Any, listener: HttpsListener) -> None:
        self.api = api
        self.port = listener.bound_port
        self.context = ssl.create_default_context(cadata=api.server.security.ca_pem)

    async def connect(self, receive_bytes: int = 0) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        sock = socket.socket()
        if receive_bytes:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_bytes)
        sock.setblocking(False)
        await asyncio.get_running_loop().sock_connect(sock, ("127.0.0.1", self.port))
        return await asyncio.open_connection(
            sock=sock, ssl=self.context, server_hostname="localhost", limit=receive_bytes or 65536
        )

    def head(self, method: str, path: str, *more: str, token: str | None = None) -> bytes:
        token = self.api.token if token is None else token
        lines = [f"{method} {path} HTTP/1.1", "Host: localhost", *more]
        if token:
            lines.append(f"Authorization: Bearer {token}")
        return "\r\n".join([*lines, "", ""]).encode()


async def read_answer(reader: asyncio.StreamReader) -> tuple[int, dict[str, str], bytes]:
    """One answer with a Content-Length."""
    status, headers = await read_head(reader)
    async with asyncio.timeout(PATIENCE_S):
        return status, headers, await reader.readexactly(int(headers["content-length"]))


async def read_head(reader: asyncio.StreamReader) -> tuple[int, dict[str, str]]:
    async with asyncio.timeout(PATIENCE_S):
        lines = (await reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")
    headers = {k.lower(): v.strip() for k, _, v in (line.partition(":") for line in lines[1:] if line)}
    return int(lines[0].split()[1]), headers


async def read_end(reader: asyncio.StreamReader) -> bytes:
    """What comes until the peer closes."""
    data = b""
    async with asyncio.timeout(PATIENCE_S):
        try:
            while piece := await reader.read(65536):
                data += piece
        except (ConnectionError, ssl.SSLError):
            pass
    return data


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(PATIENCE_S):
        while not condition():  # noqa: ASYNC110 - the server has no event for it
            await asyncio.sleep(0.01)


@pytest.fixture
async def client(api: Any, limits: Limits) -> AsyncIterator[Client]:
    listener = HttpsListener(api.server, "127.0.0.1", 0, api.server.security.server_ssl_context(), limits)
    await listener.start()
    yield Client(api, listener)
    await api.server.close()
    await listener.stop()


async def test_one_connection_serves_request_after_request(client: Client, objects: Any) -> None:
    created = await client.api.send("POST", f"{CORE}/configmaps", objects.config_map("a"))
    reader, writer = await client.connect()
    for _ in range(3):
        writer.write(client.head("GET", f"{CORE}/configmaps/a"))
        status, headers, body = await read_answer(reader)
        assert (status, headers["content-type"], body) == (200, "application/json", created.body)
    writer.write(client.head("HEAD", f"{CORE}/configmaps/a"))
    status, headers = await read_head(reader)
    assert (status, headers["content-length"]) == (200, str(len(created.body)))
    writer.write(client.head("GET", "/healthz", "Connection: close"))
    status, _, body = await read_answer(reader)
    assert (status, body) == (200, b"ok")
    assert await read_end(reader) == b""


@pytest.mark.parametrize(
    ("version", "asked", "said"),
    [
        ("1.1", "Connection: close", "close"),
        ("1.1", "Connection: keep-alive", None),
        ("1.0", "X: y", "close"),
        ("1.0", "Connection: keep-alive", "keep-alive"),
    ],
)
@pytest.mark.parametrize("path", [f"{CORE}/configmaps/a", f"{CORE}/configmaps/none"])
async def test_the_connection_stays_as_the_client_asked(
    client: Client, objects: Any, path: str, version: str, asked: str, said: str | None
) -> None:
    await client.api.create(f"{CORE}/configmaps", objects.config_map("a"))
    reader, writer = await client.connect()
    writer.write(client.head("GET", path, asked).replace(b"HTTP/1.1", f"HTTP/{version}".encode()))
    _, headers, body = await read_answer(reader)
    assert headers.get("connection", "close" if version == "1.0" else None) == said
    assert headers["date"].endswith("GMT") and orjson.loads(body)["kind"] in ("ConfigMap", "Status")
    if said == "close":
        assert await read_end(reader) == b""
    else:
        writer.write(client.head("GET", path))
        assert (await read_answer(reader))[2] == body


async def test_requests_sent_ahead_are_answered_in_order(client: Client, objects: Any) -> None:
    for name in "abc":
        await client.api.create(f"{CORE}/configmaps", objects.config_map(name))
    reader, writer = await client.connect()
    writer.write(b"".join(client.head("GET", f"{CORE}/configmaps/{name}") for name in "abc"))
    answers = [orjson.loads((await read_answer(reader))[2]) for _ in range(3)]
    assert [answer["metadata"]["name"] for answer in answers] == ["a", "b", "c"]


async def test_a_large_list_arrives_whole(client: Client, objects: Any) -> None:
    for n in range(10):
        await client.api.create(f"{CORE}/configmaps", objects.config_map(f"c{n}", data={"k": "x" * 50_000}))
    expected = await client.api.get(f"{CORE}/configmaps")
    reader, writer = await client.connect()
    writer.write(client.head("GET", f"{CORE}/configmaps"))
    status, _, body = await read_answer(reader)
    assert (status, body) == (200, expected.body)


async def test_a_body_is_taken_with_and_without_its_length(client: Client, objects: Any) -> None:
    reader, writer = await client.connect()
    body = orjson.dumps(objects.config_map("a"))
    length = f"Content-Length: {len(body)}"
    writer.write(client.head("POST", f"{CORE}/configmaps", length, "Content-Type: application/json") + body)
    assert (await read_answer(reader))[0] == 201
    chunked = client.head("PUT", f"{CORE}/configmaps/a", "Transfer-Encoding: chunked")
    writer.write(chunked + b"%x\r\n%s\r\n0\r\n\r\n" % (len(body), body))
    assert (await read_answer(reader))[0] == 200


async def test_a_large_body_is_asked_for_only_when_it_is_read(client: Client) -> None:
    expect = ("Content-Length: 2", "Expect: 100-continue")
    reader, writer = await client.connect()
    writer.write(client.head("POST", f"{CORE}/configmaps", *expect))
    assert (await read_head(reader))[0] == 100
    writer.write(b"{}")
    assert (await read_answer(reader))[0] == 422
    reader, writer = await client.connect()
    writer.write(client.head("POST", f"{CORE}/configmaps", *expect, token="wrong"))
    assert (await read_answer(reader))[0] == 401


async def test_a_body_past_the_limit_is_413_without_being_read(client: Client) -> None:
    reader, writer = await client.connect()
    writer.write(client.head("POST", f"{CORE}/configmaps", "Content-Length: 100000000") + b"{")
    status, _, body = await read_answer(reader)
    assert (status, orjson.loads(body)["kind"]) == (413, "Status")


async def test_a_body_that_stops_coming_is_400(client: Client) -> None:
    reader, writer = await client.connect()
    writer.write(client.head("POST", f"{CORE}/configmaps", "Content-Length: 100") + b'{"a"')
    status, _, body = await read_answer(reader)
    assert status == 400
    assert "incomplete" in orjson.loads(body)["message"]


@pytest.mark.parametrize("sent", [b"", b"GET /heal", b"GET /healthz HTTP/1.1\r\nHost: x\r\nX-A: "])
async def test_headers_that_stop_coming_lose_the_connection(client: Client, sent: bytes) -> None:
    reader, writer = await client.connect()
    writer.write(sent)
    assert await read_end(reader) == b""


async def test_headers_without_end_lose_the_connection(client: Client, limits: Limits) -> None:
    reader, writer = await client.connect()
    writer.write(b"GET /healthz HTTP/1.1\r\n")
    line = b"X-A: " + b"a" * 1000 + b"\r\n"
    sent = 0
    try:
        while sent < 10 * limits.api_header_bytes:
            writer.write(line)
            await writer.drain()
            sent += len(line)
            await asyncio.sleep(0)
    except (ConnectionError, ssl.SSLError):
        pass
    answer = await read_end(reader)
    assert answer == b"" or answer.startswith((b"HTTP/1.1 400", b"HTTP/1.1 431", b"HTTP/1.0 4"))


@pytest.mark.parametrize(
    ("sent", "codes"),
    [
        (b"nonsense\r\n\r\n", (400,)),
        (b"GET /healthz HTTP/9\r\n\r\n", (400,)),
        (b"POST /healthz HTTP/1.1\r\nContent-Length: -1\r\n\r\n", (400,)),
        (b"POST /healthz HTTP/1.1\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n", (400,)),
        (b"GET /" + b"a" * 20000 + b" HTTP/1.1\r\n\r\n", (431,)),
        (b"GET /healthz HTTP/1.1\r\nX-A: " + b"a" * 20000 + b"\r\n\r\n", (431,)),
        (b"GET /healthz HTTP/1.1\r\n" + b"X-A: b\r\n" * 300 + b"\r\n", (400, 431)),
    ],
)
async def test_what_is_not_http_is_answered_with_a_status_and_closed(
    client: Client, sent: bytes, codes: tuple[int, ...]
) -> None:
    reader, writer = await client.connect()
    writer.write(sent)
    answer = await read_end(reader)
    head, _, body = answer.partition(b"\r\n\r\n")
    assert int(head.split()[1]) in codes
    status = orjson.loads(body)
    assert (status["kind"], status["code"]) == ("Status", int(head.split()[1]))
    assert b"Traceback" not in body


async def test_a_watch_streams_and_its_place_is_free_when_the_client_leaves(
    client: Client, objects: Any
) -> None:
    reader, writer = await client.connect()
    since = client.api.server.store.revision
    writer.write(client.head("GET", f"{CORE}/configmaps?watch=true&resourceVersion={since}"))
    status, headers = await read_head(reader)
    assert (status, headers["transfer-encoding"]) == (200, "chunked")
    assert client.api.server.hub.stream_count == 1
    await client.api.create(f"{CORE}/configmaps", objects.config_map("a"))
    async with asyncio.timeout(PATIENCE_S):
        size = int(await reader.readuntil(b"\r\n"), 16)
        frame = orjson.loads(await reader.readexactly(size))
    assert (frame["type"], frame["object"]["metadata"]["name"]) == ("ADDED", "a")
    writer.close()
    await until(lambda: client.api.server.hub.stream_count == 0)


async def test_a_watch_ends_with_the_end_of_its_chunks(client: Client) -> None:
    reader, writer = await client.connect()
    writer.write(client.head("GET", f"{CORE}/configmaps?watch=true&resourceVersion=99999"))
    await read_head(reader)
    async with asyncio.timeout(PATIENCE_S):
        body = await reader.readuntil(b"0\r\n\r\n")
    assert b'"code":410' in body
    writer.write(client.head("GET", "/healthz"))
    assert (await read_answer(reader))[0] == 200


async def test_a_head_of_a_watch_opens_no_stream_that_stays(client: Client) -> None:
    reader, writer = await client.connect()
    writer.write(client.head("HEAD", f"{CORE}/configmaps?watch=true"))
    assert (await read_head(reader))[0] == 200
    await until(lambda: client.api.server.hub.stream_count == 0)


async def test_a_client_that_takes_nothing_loses_its_stream(client: Client, objects: Any) -> None:
    for n in range(100):
        await client.api.create(f"{CORE}/configmaps", objects.config_map(f"c{n}", data={"k": "x" * 60_000}))
    reader, writer = await client.connect(receive_bytes=4096)
    writer.write(client.head("GET", f"{CORE}/configmaps?watch=true"))
    await read_head(reader)
    await until(lambda: client.api.server.hub.stream_count == 0)
    status, _, _ = await _on_new_connection(client, "/healthz")
    assert status == 200


async def _on_new_connection(client: Client, path: str) -> tuple[int, dict[str, str], bytes]:
    reader, writer = await client.connect()
    writer.write(client.head("GET", path))
    answer = await read_answer(reader)
    writer.close()
    return answer


async def test_an_idle_connection_makes_room_for_a_new_one(client: Client, limits: Limits) -> None:
    held = [await client.connect() for _ in range(limits.api_connections)]
    status, _, _ = await _on_new_connection(client, "/healthz")
    assert status == 200
    assert await read_end(held[0][0]) == b""


async def test_connections_past_the_cap_are_cut_while_all_are_busy(client: Client, limits: Limits) -> None:
    busy = []
    for _ in range(limits.api_connections):
        reader, writer = await client.connect()
        writer.write(client.head("GET", f"{CORE}/configmaps?watch=true"))
        await read_head(reader)
        busy.append((reader, writer))
    with pytest.raises((ConnectionError, ssl.SSLError, asyncio.IncompleteReadError)):
        await _on_new_connection(client, "/healthz")
    busy[0][1].close()
    await until(lambda: client.api.server.hub.stream_count == limits.api_connections - 1)
    assert (await _on_new_connection(client, "/healthz"))[0] == 200


async def test_a_dead_peer_is_found_out_within_a_minute(limits: Limits) -> None:
    numbers = limits_for("sim")
    patience_s = (
        numbers.api_keepalive_idle_s + numbers.api_keepalive_probes * numbers.api_keepalive_interval_s
    )
    assert patience_s < 60
    with socket.socket() as sock:
        set_keepalive(sock, numbers)
        assert sock.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE) == 1
        if hasattr(socket, "TCP_KEEPIDLE"):
            assert sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE) == numbers.api_keepalive_idle_s


async def test_stopping_ends_watches_with_the_end_of_their_chunks(api: Any, limits: Limits) -> None:
    listener = HttpsListener(api.server, "127.0.0.1", 0, api.server.security.server_ssl_context(), limits)
    await listener.start()
    client = Client(api, listener)
    reader, writer = await client.connect()
    writer.write(client.head("GET", f"{CORE}/configmaps?watch=true"))
    await read_head(reader)
    await api.server.close()
    await listener.stop()
    assert (await read_end(reader)).endswith(b"0\r\n\r\n")
    with pytest.raises(OSError):
        await client.connect()


async def test_a_port_that_is_taken_is_an_oserror(api: Any, client: Client, limits: Limits) -> None:
    with pytest.raises(OSError):
        await HttpsListener(api.server, "127.0.0.1", client.port, None, limits).start()
