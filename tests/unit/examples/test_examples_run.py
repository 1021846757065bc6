"""The example pods do what they say, on the real engine, and go on from a snapshot."""

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from kube32.contract import LIMITS
from kube32.formats.k32s import HeldEvent, encode
from kube32.wasm import ChannelHub, Engine, FileTable, HostServices, HttpCall, Instance, PodClock, PodExit

EXAMPLES = Path(__file__).parents[3] / "examples"
Start = Callable[..., Instance]


@pytest.fixture(scope="module")
def engine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Engine]:
    engine = Engine(LIMITS, tmp_path_factory.mktemp("compiled"))
    yield engine
    engine.close()


@pytest.fixture
def published() -> list[tuple[str, bytes]]:
    return []


@pytest.fixture
def logged() -> list[str]:
    return []


@pytest.fixture
def start(engine: Engine, published: list[tuple[str, bytes]], logged: list[str]) -> Iterator[Start]:
    hub = ChannelHub(LIMITS)
    running: list[Instance] = []

    def publish(topic: str, payload: bytes) -> int:
        published.append((topic, payload))
        return 2

    def run(name: str, *, restore: bool = False, env: dict[str, str] | None = None) -> Instance:
        services = HostServices(
            log=logged.append,
            clock=PodClock(),
            unix_ms=lambda: 0,
            env=env or {},
            channels=hub.attach("default", f"{name}-{len(running)}"),
            files=FileTable(LIMITS, []),
            publish=publish,
        )
        module = engine.load((EXAMPLES / name / f"{name}.wasm").read_bytes())
        pod = Instance.start(module, limits=LIMITS, memory_limit=65536, services=services, restore=restore)
        running.append(pod)
        if pod.has("k32_init") and not restore:
            pod.call("k32_init", timeout_ms=5000)
        return pod

    yield run
    for pod in running:
        pod.close()


def ask(pod: Instance, path: str, method: str = "GET", **fields: Any) -> HttpCall:
    call = HttpCall(method, path, **fields)
    pod.call("k32_handle", timeout_ms=5000, request=call)
    return call


def answer(pod: Instance, path: str) -> dict[str, Any]:
    call = ask(pod, path)
    assert call.response_status == 200
    assert ("Content-Type", "application/json") in call.response_headers
    parsed: dict[str, Any] = json.loads(bytes(call.response_body))
    return parsed


def test_echo_answers_what_it_was_asked(start: Start) -> None:
    body = bytes(range(256)) * 20
    headers = [("host", "pods.test"), ("X-Request-Id", "7")]
    call = ask(start("echo"), "/a/b", "PUT", query="x=1&y=2", headers=headers, body=body)
    head, _, echoed = bytes(call.response_body).partition(b"\n\n")
    assert head.decode().splitlines() == [
        "method: PUT",
        "path: /a/b",
        "query: x=1&y=2",
        "Host: pods.test",
        "X-Request-Id: 7",
    ]
    assert echoed == body


def test_echo_greets_when_its_environment_says_so(start: Start) -> None:
    call = ask(start("echo", env={"GREETING": "salut"}), "/")
    assert call.response_body.startswith(b"greeting: salut\nmethod: GET\n")


def test_echo_cuts_what_is_longer_than_its_buffer(start: Start) -> None:
    call = ask(start("echo"), "/" + "p" * 3000)
    assert b"path: /" + b"p" * 1023 + b"\n" in call.response_body


def test_counter_counts_in_memory_and_in_its_global(start: Start) -> None:
    pod = start("counter")
    first = answer(pod, "/state")
    assert (first["count"], first["global"], first["ticks"], first["restored"], first["channel"]) == (
        0,
        0,
        0,
        0,
        1,
    )
    for number in (1, 2, 3):
        state = answer(pod, "/")
        assert (state["count"], state["global"]) == (number, number)
    pod.call("k32_tick", timeout_ms=5000)
    last = answer(pod, "/state")
    assert (last["count"], last["ticks"]) == (3, 1)
    assert last["seed"] == f"{pod.instance_id:016x}"
    assert last["time_ms"] >= first["time_ms"]


def test_counter_chooses_a_function_of_its_table_by_its_state(start: Start) -> None:
    pod = start("counter")
    mixes = [answer(pod, "/")["mix"] for _ in range(3)]
    scrambled = ((3 ^ (3 >> 7)) * 2654435761) % 2**32
    assert mixes == [1, 3, scrambled]


def test_counters_hear_each_other(start: Start) -> None:
    one, other = start("counter"), start("counter")
    one.call("k32_tick", timeout_ms=5000)
    other.call("k32_tick", timeout_ms=5000)
    assert answer(other, "/state")["heard"] == 1


def test_counter_knows_no_other_path(start: Start) -> None:
    call = ask(start("counter"), "/elsewhere")
    assert (call.response_status, bytes(call.response_body)) == (404, b"no such path\n")


def test_a_restored_counter_goes_on_with_a_seed_of_its_own(start: Start) -> None:
    source = start("counter")
    for _ in range(5):
        before = answer(source, "/")
    source.call("k32_tick", timeout_ms=5000)
    source.services.clock.freeze()
    snapshot = encode(source.capture(0, []))

    target = start("counter", restore=True)
    reader = target.restorer()
    reader.feed(snapshot)
    target.apply(reader.finish())
    target.call("k32_restored", timeout_ms=5000)
    after = answer(target, "/state")
    same = ("count", "global", "mix", "channel")
    assert [after[key] for key in same] == [before[key] for key in same]
    assert (after["ticks"], after["restored"]) == (1, 1)
    assert after["time_ms"] >= before["time_ms"]
    assert after["seed"] == f"{target.instance_id:016x}" != before["seed"]
    assert answer(target, "/")["mix"] == answer(source, "/")["mix"]


def test_events_publishes_what_is_posted(start: Start, published: list[tuple[str, bytes]]) -> None:
    pod = start("events")
    call = ask(pod, "/publish", "POST", query="a=b&topic=news", body=b"hello")
    assert json.loads(bytes(call.response_body)) == {"receivers_here": 2}
    assert published == [("news", b"hello")]


@pytest.mark.parametrize(
    ("query", "body"), [("", b"x"), ("topics=a", b"x"), ("topic=", b"x"), ("topic=a", b"x" * 1025)]
)
def test_events_refuses_what_it_cannot_publish(
    start: Start, published: list[tuple[str, bytes]], query: str, body: bytes
) -> None:
    call = ask(start("events"), "/publish", "POST", query=query, body=body)
    assert call.response_status == 400
    assert published == []


def test_events_remembers_the_last_ones_newest_first(start: Start) -> None:
    pod = start("events")
    for number in range(10):
        payload = f'"{number}"\n\\ü'.encode()
        pod.call("k32_event", timeout_ms=5000, event=HeldEvent("news", payload))
    shown = answer(pod, "/")
    assert shown["received"] == 10
    assert [e["payload"] for e in shown["events"]] == [f'"{n}"\n\\ü' for n in range(9, 1, -1)]
    assert {e["topic"] for e in shown["events"]} == {"news"}


def test_events_cuts_a_long_payload_between_characters(start: Start) -> None:
    pod = start("events")
    pod.call("k32_event", timeout_ms=5000, event=HeldEvent("t" * 100, ("x" + "é" * 200).encode()))
    (shown,) = answer(pod, "/")["events"]
    assert shown == {"topic": "t" * 64, "payload": "x" + "é" * 127}


def test_entry_logs_and_ends_when_told(start: Start, logged: list[str]) -> None:
    with pytest.raises(PodExit) as exit_:
        start("entry", env={"BEATS": "1"}).call("_start", timeout_ms=5000)
    assert exit_.value.code == 0
    assert logged == ["beat 1"]


@pytest.mark.parametrize(("env", "result"), [({}, 0), ({"EXIT_CODE": "3"}, 3)])
def test_hello_greets_and_ends_with_its_code(
    start: Start, logged: list[str], env: dict[str, str], result: int
) -> None:
    assert start("hello", env={"HOSTNAME": "me", **env}).call("main", timeout_ms=5000) == result
    assert logged == ["hello from me"]
