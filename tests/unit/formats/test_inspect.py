"""inspect tells all that can be read of a snapshot file, and what is wrong with it."""

import hashlib
import json
import struct
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kube32.contract import LIMITS, text
from kube32.formats.inspect import describe
from kube32.formats.k32s import Channel, Global, HeldEvent, Snapshot, Table, encode

Build = Callable[..., bytes]
GOOD = encode(
    Snapshot(
        image_sha256=bytes(range(32)),
        memory_bytes=100,
        memory_pages=1,
        pod_time_ms=1234,
        unix_time_ms=1_700_000_000_000,
        memory=b"s" * 100,
        globals=[
            Global(0, "i32", 0xFFFFFFFF),
            Global(1, "i64", 1 << 63),
            Global(2, "f32", 0x3FC00000),
            Global(3, "f64", 0x7FF0000000000000),
            Global(4, "funcref", 7),
            Global(5, "funcref", 0xFFFFFFFF),
        ],
        tables=[Table(0, [3, 0xFFFFFFFF])],
        channels=[Channel(2, "chat")],
        events=[HeldEvent("news", b"12345")],
    )
)


@pytest.fixture
def show(tmp_path: Path) -> Callable[[bytes], dict[str, Any]]:
    def described(content: bytes) -> dict[str, Any]:
        path = tmp_path / "pod.k32s"
        path.write_bytes(content)
        facts = describe(path, LIMITS)
        assert json.loads(json.dumps(facts)) == facts
        return facts

    return described


def test_a_good_file_is_told_in_full(show: Callable[[bytes], dict[str, Any]], tmp_path: Path) -> None:
    assert show(GOOD) == {
        "file": str(tmp_path / "pod.k32s"),
        "sizeBytes": len(GOOD),
        "header": {
            "version": 1,
            "flags": 0,
            "imageSha256": bytes(range(32)).hex(),
            "memoryBytes": 100,
            "memoryPages": 1,
            "podTimeMs": 1234,
            "unixTimeMs": 1_700_000_000_000,
            "sectionCount": 5,
        },
        "sections": [
            {"type": 1, "name": "MEMORY", "offset": 68, "length": 100, "complete": True},
            {"type": 2, "name": "GLOBALS", "offset": 174, "length": 78, "complete": True},
            {"type": 3, "name": "TABLE", "offset": 258, "length": 16, "complete": True},
            {"type": 4, "name": "CHANNELS", "offset": 280, "length": 10, "complete": True},
            {"type": 5, "name": "EVENTS", "offset": 296, "length": 15, "complete": True},
        ],
        "globals": [
            {"index": 0, "type": "i32", "bits": "0xffffffff", "value": "-1"},
            {"index": 1, "type": "i64", "bits": "0x8000000000000000", "value": str(-(1 << 63))},
            {"index": 2, "type": "f32", "bits": "0x3fc00000", "value": "1.5"},
            {"index": 3, "type": "f64", "bits": "0x7ff0000000000000", "value": "inf"},
            {"index": 4, "type": "funcref", "bits": "0x00000007", "value": "function 7"},
            {"index": 5, "type": "funcref", "bits": "0xffffffff", "value": "null"},
        ],
        "tables": [{"index": 0, "size": 2, "entries": [3, None]}],
        "channels": [{"handle": 2, "name": "chat"}],
        "events": [{"topic": "news", "payloadBytes": 5}],
        "trailer": {"sha256": GOOD[-32:].hex(), "computed": GOOD[-32:].hex(), "ok": True},
        "problem": None,
    }


def test_damage_in_memory_is_found_and_the_rest_is_shown(show: Callable[[bytes], dict[str, Any]]) -> None:
    damaged = GOOD[:100] + b"X" + GOOD[101:]
    facts = show(damaged)
    assert facts["problem"] == text("refusals", "trailer")
    assert facts["trailer"] == {
        "sha256": GOOD[-32:].hex(),
        "computed": hashlib.sha256(damaged[:-32]).hexdigest(),
        "ok": False,
    }
    assert facts["channels"] == [{"handle": 2, "name": "chat"}]


def test_a_cut_file_shows_what_is_there(show: Callable[[bytes], dict[str, Any]]) -> None:
    facts = show(GOOD[:262])
    assert facts["problem"] == text("refusals", "truncated")
    assert [(s["name"], s["complete"]) for s in facts["sections"]] == [("MEMORY", True), ("GLOBALS", False)]
    assert len(facts["globals"]) == 6
    assert not facts["trailer"]["ok"]


def test_the_header_of_another_version_is_shown(
    show: Callable[[bytes], dict[str, Any]], forge: Build
) -> None:
    facts = show(forge(version=7))
    assert facts["problem"] == text("refusals", "version", version=7, supported=1)
    assert facts["header"]["version"] == 7
    assert facts["trailer"]["ok"]


@pytest.mark.parametrize("content", [b"", b"K32S", b"\x7fELF" + bytes(200)])
def test_what_is_no_snapshot_has_no_header(show: Callable[[bytes], dict[str, Any]], content: bytes) -> None:
    facts = show(content)
    assert facts["header"] is None
    assert facts["sections"] == []
    assert facts["problem"]


def test_unknown_sections_and_lying_lengths_are_shown(
    show: Callable[[bytes], dict[str, Any]], forge: Build, section: Build
) -> None:
    facts = show(forge(section(9, b"future"), section(2, b"x", 0xFFFFFFFF)))
    assert [(s["name"], s["length"], s["complete"]) for s in facts["sections"]] == [
        ("MEMORY", 65536, True),
        ("unknown", 6, True),
        ("GLOBALS", 0xFFFFFFFF, False),
    ]
    assert "section GLOBALS has 4294967295 bytes" in facts["problem"]


def test_a_huge_file_takes_little_memory(tmp_path: Path) -> None:
    pages = 4096
    path = tmp_path / "huge.k32s"
    with path.open("wb") as file:
        header = struct.pack("<4sHH32sIIQQI", b"K32S", 1, 0, bytes(32), pages * 65536, pages, 0, 0, 1)
        file.write(header + struct.pack("<HI", 1, pages * 65536))
        file.truncate(68 + 6 + pages * 65536 + 32)
    tracemalloc.start()
    try:
        facts = describe(path, LIMITS)
        assert tracemalloc.get_traced_memory()[1] < 2 * 1024 * 1024
    finally:
        tracemalloc.stop()
    assert facts["problem"] == text("refusals", "trailer")
    assert facts["sections"][0]["complete"]
