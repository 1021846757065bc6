"""The host functions of the pod ABI: every pointer is checked, and each does what the contract says."""

import itertools
from typing import Any

import pytest

from kube32.contract import ABI
from kube32.formats.k32s import HeldEvent
from kube32.wasm import HttpCall, Instance

LIMIT = 8192
HOSTILE = [
    (0xFFFFFFFF, 1),
    (0, 0x7FFFFFFF),
    (0, 0xFFFFFFFF),
    (0x80000000, 0x80000000),
    (0xFFFFFFF0, 0x20),
    (LIMIT - 1, 2),
    (LIMIT + 1, 0),
    (0x7FFFFFFF, 0x7FFFFFFF),
]


def pointer_pairs(name: str) -> list[int]:
    """The positions of pointers that the next parameter gives the length of."""
    lengths = ("len", "cap")
    names = [n for n, _ in ABI.functions[name].params]
    return [i for i in range(len(names) - 1) if names[i + 1] in lengths or names[i + 1] == f"{names[i]}_len"]


POINTED = [(n, at) for n in ABI.functions for at in pointer_pairs(n)]


def caller(name: str, arguments: list[int], data: str = "") -> str:
    """A pod whose k32_handle calls one function, three times over, and gives its result (0 for none)."""
    function = ABI.functions[name]
    params = " ".join(f"(param {t})" for _, t in function.params)
    result = "" if function.result == "none" else f"(result {function.result})"
    call = f"(call $f {' '.join(f'(i32.const {a})' for a in arguments)})"
    give = {"i32": call, "i64": f"(i32.wrap_i64 {call})", "none": f"{call} (i32.const 0)"}[function.result]
    return f"""(module (import "env" "{name}" (func $f {params} {result})) (memory (export "memory") 1)
      {data} (func (export "k32_handle") (result i32) {give})
      (func (export "k32_event") (result i32) {give}))"""


def test_every_function_with_a_pointer_is_covered() -> None:
    with_pointers = {
        n for n, f in ABI.functions.items() if {"ptr", "buf", "name", "path", "topic"} & set(dict(f.params))
    }
    assert {n for n, _ in POINTED} == with_pointers


@pytest.mark.parametrize(("name", "at"), POINTED, ids=[f"{n}-{a}" for n, a in POINTED])
def test_a_hostile_pointer_is_an_error_and_changes_nothing(lab: Any, name: str, at: int) -> None:
    for pointer, length in HOSTILE:
        arguments = [0] * len(ABI.functions[name].params)
        arguments[at : at + 2] = [pointer, length]
        pod = lab.start(
            caller(name, arguments, '(data (i32.const 0) "memory as it was")'), memory_limit=LIMIT
        )
        before = bytes(pod.capture(0, []).memory)
        call = HttpCall("GET", "/x", headers=[("a", "b")], body=b"body")
        result = pod.call("k32_handle", timeout_ms=None, request=call)
        expected = 0 if ABI.functions[name].result == "none" else ABI.errors["K32_EFAULT"]
        assert result == expected, (pointer, length)
        assert bytes(pod.capture(0, []).memory) == before
        assert (lab.logs, lab.published, call.response_body, call.response_headers) == ([], [], b"", [])


ROWS = 1024
VALUES = (0, 1, 9, 0x7FFFFFFF, 0x80000000, 0xFFFFFFFF, 0xFFF0)


@pytest.mark.parametrize("name", ABI.functions)
def test_no_arguments_whatever_end_more_than_the_call(lab: Any, name: str) -> None:
    """Each call takes the next row of arguments from memory, or what earlier calls wrote over it."""
    function = ABI.functions[name]
    count = len(function.params)
    rows = list(itertools.product(VALUES, repeat=count))[:: max(1, len(VALUES) ** count // 500)]
    packed = "".join(f"\\{b:02x}" for row in rows for v in row for b in v.to_bytes(4, "little"))
    loads = " ".join(f"(i32.load offset={4 * i} (global.get $row))" for i in range(count))
    params = " ".join(f"(param {t})" for _, t in function.params)
    result = "" if function.result == "none" else f"(result {function.result})"
    drop = "" if function.result == "none" else "drop"
    body = f"(call $f {loads}) {drop} (global.set $row (i32.add (global.get $row) (i32.const {4 * count})))"
    pod = lab.start(f"""(module (import "env" "{name}" (func $f {params} {result}))
      (memory (export "memory") 1)
      (data (i32.const {ROWS}) "{packed}")
      (global $row (mut i32) (i32.const {ROWS}))
      (func (export "k32_handle") {body}) (func (export "k32_event") {body}))""")
    for number in range(len(rows)):
        if number % 2:
            pod.call("k32_handle", timeout_ms=None, request=HttpCall("GET", "/", body=b"body"))
        else:
            pod.call("k32_event", timeout_ms=None, event=HeldEvent("t", b"p"))


def run(lab: Any, name: str, arguments: list[int], data: str = "", **more: Any) -> tuple[int | None, bytes]:
    """The result of one call of a host function, and the first 256 bytes of memory afterwards."""
    services = lab.services(**{k: v for k, v in more.items() if k not in ("request", "event")})
    pod: Instance = lab.start(caller(name, arguments, data), services=services)
    export = "k32_event" if "event" in more else "k32_handle"
    result = pod.call(export, timeout_ms=None, request=more.get("request"), event=more.get("event"))
    return result, bytes(pod.capture(0, []).memory[:256])


@pytest.mark.parametrize(("capacity", "written"), [(0, b""), (2, b"va"), (5, b"value"), (9, b"value")])
def test_a_copy_out_writes_at_most_cap_bytes_and_gives_the_full_length(
    lab: Any, capacity: int, written: bytes
) -> None:
    result, memory = run(
        lab, "k32_env", [0, 3, 16, capacity], '(data (i32.const 0) "KEY")', env={"KEY": "value"}
    )
    assert (result, memory[16:32]) == (5, written.ljust(16, b"\0"))


def test_a_missing_environment_variable_is_no_such_thing(lab: Any) -> None:
    assert run(lab, "k32_env", [0, 3, 16, 4], '(data (i32.const 0) "KEY")', env={"KEYS": "x"})[0] == -2
    assert run(lab, "k32_env", [0, 200, 16, 4], env={})[0] == -2


def test_a_log_line_is_cut_before_it_is_read(lab: Any) -> None:
    run(lab, "k32_log", [0, 60000], '(data (i32.const 0) "text\\ff")')
    assert len(lab.logs[0]) == lab.limits.pod_log_line_bytes
    assert lab.logs[0].startswith("text�")
    run(lab, "k32_log", [0, 5], '(data (i32.const 0) "line\\0a")')
    assert lab.logs[1] == "line"


def test_clocks_and_ids_come_as_they_are(lab: Any) -> None:
    assert run(lab, "k32_unix_ms", [], unix_ms=lambda: (7 << 32) + 99)[0] == 99
    assert run(lab, "k32_unix_ms", [], unix_ms=lambda: 0)[0] == 0


def test_random_fills_exactly_the_range(lab: Any) -> None:
    first, second = (run(lab, "k32_random", [16, 64])[1] for _ in range(2))
    assert first[16:80] != second[16:80] and any(first[16:80])
    assert not any(first[:16]) and not any(first[80:])


def test_the_request_is_readable(lab: Any) -> None:
    call = HttpCall(
        "POST", "/a/b", "x=1&y", [("X-Kube", "one"), ("x-kube", "two"), ("Raw", "\udcff")], b"0123456789"
    )
    data = '(data (i32.const 0) "x-KUBE") (data (i32.const 8) "raw")'
    assert run(lab, "k32_req_method", [16, 9], request=call)[1][16:20] == b"POST"
    assert run(lab, "k32_req_path", [16, 9], request=call)[1][16:20] == b"/a/b"
    assert run(lab, "k32_req_query", [16, 9], request=call)[0] == 5
    assert run(lab, "k32_req_header", [0, 6, 16, 9], data, request=call)[1][16:24] == b"one, two"
    assert run(lab, "k32_req_header", [8, 3, 16, 9], data, request=call)[1][16:17] == b"\xff"
    assert run(lab, "k32_req_header", [0, 5, 16, 9], data, request=call)[0] == -2
    assert run(lab, "k32_req_body_len", [], request=call)[0] == 10
    assert run(lab, "k32_req_body_read", [8, 16, 9], request=call)[1][16:19] == b"89\0"
    assert run(lab, "k32_req_body_read", [10, 16, 9], request=call)[0] == 0
    assert run(lab, "k32_req_body_read", [-1, 16, 9], request=call)[0] == -22


OUTSIDE = ["k32_req_method", "k32_req_header", "k32_req_body_len", "k32_req_body_read", "k32_resp_write"]


@pytest.mark.parametrize("name", [*OUTSIDE, "k32_resp_header", "k32_event_topic", "k32_event_payload"])
def test_outside_of_its_call_there_is_no_such_thing(lab: Any, name: str) -> None:
    assert run(lab, name, [0] * len(ABI.functions[name].params))[0] == -2


def test_the_response_is_what_the_pod_makes_it(lab: Any) -> None:
    wat = """(module (import "env" "k32_resp_status" (func $status (param i32)))
      (import "env" "k32_resp_header" (func $header (param i32 i32 i32 i32) (result i32)))
      (import "env" "k32_resp_write" (func $write (param i32 i32) (result i32)))
      (memory (export "memory") 1) (data (i32.const 0) "X-aset-cookie") (data (i32.const 32) "body text")
      (func (export "k32_handle") (result i32)
        (call $status (i32.const 404)) (call $status (i32.const 99)) (call $status (i32.const 600))
        (drop (call $header (i32.const 0) (i32.const 3) (i32.const 32) (i32.const 4)))
        (drop (call $header (i32.const 0) (i32.const 3) (i32.const 32) (i32.const 2)))
        (drop (call $header (i32.const 3) (i32.const 10) (i32.const 32) (i32.const 1)))
        (drop (call $header (i32.const 3) (i32.const 10) (i32.const 33) (i32.const 1)))
        (drop (call $write (i32.const 32) (i32.const 5)))
        (call $write (i32.const 37) (i32.const 4))))"""
    call = HttpCall("GET", "/")
    assert lab.start(wat).call("k32_handle", timeout_ms=None, request=call) == 4
    assert (call.response_status, bytes(call.response_body)) == (404, b"body text")
    assert call.response_headers == [("X-a", "bo"), ("set-cookie", "b"), ("set-cookie", "o")]


@pytest.mark.parametrize(
    ("name", "value", "result"),
    [
        ("X-Fine", "a value", 0),
        ("X-Fine", "", 0),
        ("", "v", -22),
        ("Bad Name", "v", -22),
        ("X-Split", "a\\0d\\0aSet-Cookie: b", -22),
        ("X-Nul", "\\00", -22),
        ("X-Raw", "\\ff", -22),
        ("Content-Length", "5", -22),
        ("transfer-encoding", "chunked", -22),
        ("Connection", "close", -22),
    ],
)
def test_a_header_that_would_frame_or_split_the_response_is_refused(
    lab: Any, name: str, value: str, result: int
) -> None:
    length = (
        len(value.encode().decode("unicode_escape"))
        if "\\" not in value
        else value.count("\\") * -2 + len(value)
    )
    data = f'(data (i32.const 0) "{name}") (data (i32.const 64) "{value}")'
    call = HttpCall("GET", "/")
    arguments = [0, len(name), 64, length]
    assert run(lab, "k32_resp_header", arguments, data, request=call)[0] == result
    assert bool(call.response_headers) == (result == 0)


def test_a_response_has_room_up_to_the_limits(lab: Any) -> None:
    body = HttpCall("GET", "/", response_body=bytearray(lab.limits.pod_response_body_bytes - 10))
    assert run(lab, "k32_resp_write", [0, 11], request=body)[0] == -12
    assert run(lab, "k32_resp_write", [0, 10], request=body)[0] == 10
    full = HttpCall(
        "GET", "/", response_headers=[(f"h{i}", "") for i in range(lab.limits.pod_response_headers)]
    )
    assert run(lab, "k32_resp_header", [0, 1, 0, 0], '(data (i32.const 0) "x")', request=full)[0] == -12
    assert (
        run(
            lab, "k32_resp_header", [0, 1, 0, 60000], '(data (i32.const 0) "x")', request=HttpCall("GET", "/")
        )[0]
        == -12
    )


def test_an_event_is_readable_and_published(lab: Any) -> None:
    event = HeldEvent("töpic", b"\0\xff")
    result, memory = run(lab, "k32_event_topic", [16, 20], event=event)
    assert memory[16 : 16 + (result or 0)].decode() == "töpic"
    assert run(lab, "k32_event_payload", [16, 20], event=event)[1][16:18] == b"\0\xff"
    data = '(data (i32.const 0) "topic") (data (i32.const 8) "data") (data (i32.const 20) "\\ff")'
    assert run(lab, "k32_publish", [0, 5, 8, 4], data)[0] == 1
    assert lab.published == [("topic", b"data")]
    too_long = lab.limits.pod_topic_bytes + 1
    for arguments in ([0, 0, 8, 4], [0, too_long, 8, 4], [20, 1, 8, 4]):
        assert run(lab, "k32_publish", arguments, data)[0] == -22
    assert run(lab, "k32_publish", [0, 5, 8, 4], data, publish=lambda t, p: -12)[0] == -12


def test_memory_that_grew_inside_the_call_is_reachable(lab: Any) -> None:
    wat = """(module (import "env" "k32_random" (func $random (param i32 i32))) (memory (export "memory") 1 4)
      (func (export "k32_tick") (result i32) (drop (memory.grow (i32.const 2)))
        (call $random (i32.const 131072) (i32.const 65536)) (i32.load (i32.const 196604))))"""
    pod = lab.start(wat)
    assert pod.call("k32_tick", timeout_ms=None) != 0
