"""Snapshots that lie reach a kubelet as they are: refused in words, and nothing is allocated by a claim."""

import hashlib
import struct
import tracemalloc
from typing import Any

import pytest

from kube32.contract import LIMITS, text

HUGE = 0xFFFFFFFF
# What reading one may take, the node's own odds and ends included; the pod has 64 KiB.
ALLOWED_BYTES = 3 << 20
POD = '(module (memory (export "memory") 1 1) (table 2 funcref) (func (export "k32_handle")))'


def section(kind: int, content: bytes, length: int | None = None) -> bytes:
    """A section; `length` lies about the content when given."""
    return struct.pack("<HI", kind, len(content) if length is None else length) + content


def snapshot(image: bytes, *sections: bytes, **header: int) -> bytes:
    """A page of zeros and more, with a true trailer over whatever the header claims."""
    parts = [section(1, bytes(65536)), section(3, struct.pack("<IIII", 0, 2, HUGE, HUGE)), *sections]
    body = struct.pack(
        "<4sHH32sIIQQI",
        b"K32S",
        header.get("version", 1),
        0,
        image,
        header.get("memory", 65536),
        header.get("pages", 1),
        1000,
        0,
        header.get("count", len(parts)),
    ) + b"".join(parts)
    return body + hashlib.sha256(body).digest()


LIES = {
    "version": ({"version": 2}, (), text("refusals", "version", version=2, supported=1)),
    "memory": (
        {"memory": HUGE, "pages": HUGE},
        (),
        text("refusals", "memory_limit", limit=65536, found=HUGE),
    ),
    "sections": (
        {"count": HUGE},
        (),
        text("refusals", "section_count", found=HUGE, limit=LIMITS.k32s_sections),
    ),
    "past the end": ({}, (section(9, b"x", HUGE),), text("refusals", "truncated")),
    "table": (
        {},
        (section(3, struct.pack("<II", 1, HUGE) + bytes(400)),),
        text("refusals", "section_length", name="TABLE", length=408),
    ),
    "events": ({}, (section(5, struct.pack("<HI", 0, 0) * 1_000_000),), "section EVENTS has 6000000 bytes"),
    "channels": ({}, (section(4, bytes(50), HUGE),), f"section CHANNELS has {HUGE} bytes"),
}


@pytest.mark.parametrize("lie", LIES)
async def test_a_lie_is_refused_with_its_cause_and_little_memory(bench: Any, tools: Any, lie: str) -> None:
    header, sections, cause = LIES[lie]
    await bench.node()
    image = hashlib.sha256(tools.wasm(POD)).digest()
    bench.cluster.data["Checkpoint", "foreign"] = snapshot(image, *sections, **header)
    limits = {"resources": {"limits": {"memory": "64Ki"}}}
    restored = {"kube32.io/restore-from": "foreign"}
    tracemalloc.start()
    try:
        bench.pod("victim", POD, container=limits, annotations=restored)
        pod = await bench.until_phase("victim", "Failed")
        assert tracemalloc.get_traced_memory()[1] < ALLOWED_BYTES
    finally:
        tracemalloc.stop()
    ended = tools.status(pod)["state"]["terminated"]
    assert ended["reason"] == "RestoreError"
    assert ended["message"].startswith(text("refusals", "prefix", cause=cause))


async def test_the_same_snapshot_without_a_lie_restores(bench: Any, tools: Any) -> None:
    await bench.node()
    bench.cluster.data["Checkpoint", "foreign"] = snapshot(
        hashlib.sha256(tools.wasm(POD)).digest(), section(9, b"of a later release")
    )
    await bench.running("guest", POD, annotations={"kube32.io/restore-from": "foreign"})
