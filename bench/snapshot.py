"""Bench "snapshot": capture and restore of pods, K32S coding against SHA-256, what host calls cost."""

import hashlib
import statistics
from functools import partial
from pathlib import Path

from bench import pods
from bench.harness import Report, Timing, ratios, time_calls, time_in_turn
from kube32.contract import LIMITS
from kube32.formats.k32s import Encoder, Expectation, Reader, Snapshot, encode
from kube32.wasm import ChannelHub, Engine, FileTable, HostServices, HttpCall, Instance, PodClock

KIB, MIB = 1 << 10, 1 << 20
SIZES = ((1, "64 KiB"), (16, "1 MiB"), (256, "16 MiB"))
CODING_AIM = 0.9
PIECE = 65536
REPEATS = 20_000
# 64 bytes a call must fit the response's limit.
WRITES = min(REPEATS, LIMITS.pod_response_body_bytes // 64)
ECHO = Path(__file__).resolve().parent.parent / "examples" / "echo" / "echo.wasm"


def run() -> Path:
    """Measures, prints the table, gives the JSON's path."""
    report = Report("snapshot", "Snapshots, K32S coding and host calls (one process, one thread)")
    engine = Engine(LIMITS)
    try:
        for pages, label in SIZES:
            _states(report, engine, pages, label)
        _host_calls(report, engine)
        _handle(report, engine)
    finally:
        engine.close()
    return report.finish()


def _services(hub: ChannelHub, name: str = "pod") -> HostServices:
    return HostServices(
        log=lambda line: None,
        clock=PodClock(),
        unix_ms=lambda: 0,
        env={},
        channels=hub.attach("default", name),
        files=FileTable(LIMITS, []),
        publish=lambda topic, payload: 0,
    )


def _start(engine: Engine, wasm: bytes, *, restore: bool = False, memory: int | None = None) -> Instance:
    return Instance.start(
        engine.load(wasm),
        limits=LIMITS,
        memory_limit=memory,
        services=_services(ChannelHub(LIMITS)),
        restore=restore,
    )


def _states(report: Report, engine: Engine, pages: int, label: str) -> None:
    """Capture, restore and coding of one size."""
    wasm = pods.stateful(pages)
    pod = _start(engine, wasm)
    pod.call("k32_init", timeout_ms=None)
    pod.services.clock.freeze()

    def capture() -> None:
        encoder = Encoder(pod.capture(0, []))
        assert encoder.trailer
        for _ in encoder.chunks():
            pass

    whole = encode(pod.capture(0, []))
    restored = _start(engine, wasm, restore=True)
    restored.services.clock.freeze()

    def restore() -> None:
        reader = restored.restorer()
        _feed(reader, whole)
        restored.apply(reader.finish())

    def start() -> None:
        _start(engine, wasm, restore=True).close()

    seconds = 1.0 if pages < 256 else 2.5
    captured = time_calls(capture, seconds=seconds)
    _milliseconds(report, f"capture {label}", captured, "SHA-256, then all chunks; memory not copied")
    _milliseconds(
        report, f"restore {label}", time_calls(restore, seconds=seconds), "into an instance that is there"
    )
    _milliseconds(report, f"new instance {label}", time_calls(start, seconds=0.5), "compiled before")
    assert encode(restored.capture(0, [])) == whole, "a restored pod's snapshot differs"
    if pages >= MIB // pods.PAGE:
        _coding(report, pod.capture(0, []), restored.expectation(), whole, label, seconds)
    pod.close()
    restored.close()


def _feed(reader: Reader, whole: bytes) -> None:
    view = memoryview(whole)
    for at in range(0, len(view), PIECE):
        reader.feed(view[at : at + PIECE])


def _coding(
    report: Report, snapshot: Snapshot, expect: Expectation, whole: bytes, label: str, seconds: float
) -> None:
    """One pass of Encoder and Reader beside one SHA-256 of the same bytes, rounds in turn."""
    memory = memoryview(bytearray(len(snapshot.memory)))

    def store(offset: int, piece: memoryview) -> None:
        memory[offset : offset + len(piece)] = piece

    def check(offset: int, piece: memoryview) -> None:
        pass

    def write() -> None:
        for _ in Encoder(snapshot).chunks():
            pass

    def read_into_memory() -> None:
        reader = Reader(limits=LIMITS, expect=expect, memory_sink=store)
        _feed(reader, whole)
        reader.finish()

    def read_only() -> None:
        reader = Reader(limits=LIMITS, memory_sink=check)
        _feed(reader, whole)
        reader.finish()

    def sha256() -> None:
        hashlib.sha256(whole).digest()

    timings = time_in_turn([sha256, write, read_only, read_into_memory], seconds=seconds, rounds=25)
    plain = timings[0]
    report.add(f"SHA-256 {label}", plain.rate * len(whole) / MIB, "MiB/s", note="hashlib, the same bytes")
    names = ("K32S write", "K32S read and check", "K32S read into memory")
    aims = (CODING_AIM, CODING_AIM, None)
    for name, aim, timing in zip(names, aims, timings[1:], strict=True):
        found = ratios(timing, plain)
        report.add(
            f"{name} {label}",
            statistics.median(found),
            "x SHA-256",
            aim=aim,
            more_is_better=True,
            note=f"{timing.rate * len(whole) / MIB:,.0f} MiB/s, one pass" + ("" if aim else " and one copy"),
            samples=found,
        )


def _milliseconds(report: Report, what: str, timing: Timing, note: str) -> None:
    report.add(what, timing.median * 1e3, "ms", note=note, samples=[s * 1e3 for s in timing.samples])


def _host_calls(report: Report, engine: Engine) -> None:
    """Nanoseconds of one call between pod and host, either way."""
    calls = (
        (
            "k32_resp_status",
            "(param i32)",
            "(call $f (i32.const 200))",
            REPEATS,
            "the least that a host call costs",
        ),
        ("k32_time_ms", "(result i64)", "(drop (call $f))", REPEATS, ""),
        (
            "k32_resp_write",
            "(param i32 i32) (result i32)",
            "(drop (call $f (i32.const 0) (i32.const 64)))",
            WRITES,
            "64 bytes",
        ),
        (
            "k32_req_header",
            "(param i32 i32 i32 i32) (result i32)",
            "(drop (call $f (i32.const 0) (i32.const 4) (i32.const 64) (i32.const 64)))",
            REPEATS,
            "absent header, name of 4 bytes",
        ),
    )
    for function, signature, call, count, note in calls:
        pod = _start(engine, pods.host_calls(function, signature, call, count))

        def handle(pod: Instance = pod) -> None:
            pod.call("k32_handle", timeout_ms=None, request=HttpCall("GET", "/"))

        timing = time_calls(handle, seconds=0.6)
        report.add(f"host call {function}", timing.median / count * 1e9, "ns", note=note)
        if function == calls[0][0]:
            deadline = LIMITS.pod_call_timeout_ms
            empty = time_calls(partial(pod.call, "k32_tick", timeout_ms=deadline), seconds=0.6)
            report.add("call of an empty export", empty.median * 1e9, "ns", note="with a deadline")
        pod.close()


def _handle(report: Report, engine: Engine) -> None:
    """A whole request to examples/echo, without any network."""
    pod = _start(engine, ECHO.read_bytes(), memory=64 * KIB)
    headers = [("Host", "localhost"), ("User-Agent", "bench"), ("Accept", "*/*")]

    def handle() -> None:
        call = HttpCall("POST", "/path", "a=b", headers, b"x" * 64)
        pod.call("k32_handle", timeout_ms=LIMITS.pod_call_timeout_ms, request=call)
        assert call.response_status == 200 and call.response_body.endswith(b"x" * 64)

    timing = time_calls(handle, seconds=1.0)
    report.add(
        "k32_handle of examples/echo", timing.median * 1e6, "us", note="38 host calls, 64 bytes of body"
    )
    pod.close()
