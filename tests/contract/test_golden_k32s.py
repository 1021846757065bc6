"""Snapshots that a release has written stay readable for good, and a restore of a restore of a restore works
(user demand, A12).
"""

import hashlib
from collections.abc import Iterator
from typing import Any

import pytest
import wasmtime
import yaml

from kube32.formats.inspect import describe
from kube32.formats.k32s import decode, encode
from tests.contract.make_golden import INDEX, RECIPES, TABLES, build
from tests.contract.pods import GOLDEN, Node, call, capture

FACTS: dict[str, dict[str, Any]] = yaml.safe_load(INDEX.read_text())
LARGEST_BYTES = 70_000


@pytest.fixture(scope="module")
def node() -> Iterator[Node]:
    """A node that has none of the modules."""
    node = Node()
    yield node
    node.engine.close()


def files(name: str) -> tuple[bytes, bytes]:
    """The module and the snapshot."""
    return (GOLDEN / f"{name}.wasm").read_bytes(), (GOLDEN / f"{name}.k32s").read_bytes()


def known(name: str, data: bytes) -> bytes:
    """The snapshot without what this release does not know, as it writes it again."""
    return files("tables-and-globals")[1] if name == "unknown-section-9" else data


@pytest.mark.parametrize("name", FACTS)
def test_a_golden_snapshot_is_the_one_that_was_committed(name: str) -> None:
    _, data = files(name)
    assert hashlib.sha256(data).hexdigest() == FACTS[name]["sha256"]
    assert len(data) < LARGEST_BYTES
    assert describe(GOLDEN / f"{name}.k32s")["problem"] is None


@pytest.mark.parametrize("name", FACTS)
def test_it_is_read_and_written_again_bit_for_bit(name: str) -> None:
    wasm, data = files(name)
    snapshot = decode(data)
    assert snapshot.image_sha256 == hashlib.sha256(wasm).digest()
    assert bytes(encode(snapshot)) == known(name, data)


@pytest.mark.parametrize("name", FACTS)
def test_it_restores_and_is_captured_again_bit_for_bit(node: Node, name: str) -> None:
    wasm, data = files(name)
    pod, events = node.restore(wasm, FACTS[name]["memory"], data)
    assert pod.blockers() == []
    assert capture(pod, events, decode(data).unix_time_ms) == known(name, data)


@pytest.mark.parametrize("name", FACTS)
def test_the_restored_pod_goes_on_as_it_did_for_the_release_that_wrote_it(node: Node, name: str) -> None:
    wasm, data = files(name)
    pod, events = node.restore(wasm, FACTS[name]["memory"], data)
    for event in events:
        pod.call("k32_event", timeout_ms=None, event=event)
    assert [call(pod, "k32_tick") for _ in FACTS[name]["next"]] == FACTS[name]["next"]


@pytest.mark.parametrize("name", RECIPES)
def test_this_release_still_writes_the_same_bytes(node: Node, name: str) -> None:
    wasm, data = files(name)
    assert build(RECIPES[name], wasm, node) == data


def test_each_section_and_each_type_of_value_is_there() -> None:
    types, sections = set(), set()
    for name in FACTS:
        facts = describe(GOLDEN / f"{name}.k32s")
        sections |= {section["type"] for section in facts["sections"]}
        types |= {value.type for value in decode(files(name)[1]).globals}
    assert sections == {1, 2, 3, 4, 5, 9}
    assert types == {"i32", "i64", "f32", "f64", "funcref"}
    assert {facts["memory"] for facts in FACTS.values()} >= {4096, 65536}


def test_two_hundred_moves_over_three_nodes_change_nothing_that_the_pod_can_see() -> None:
    nodes = [Node(), Node(), Node()]
    wasm = bytes(wasmtime.wat2wasm(TABLES))
    stayed, moved = nodes[0].start(wasm, 8192), nodes[0].start(wasm, 8192)
    for pod in (stayed, moved):
        call(pod, "k32_init")
    for hop in range(200):
        assert call(stayed, "k32_tick") == call(moved, "k32_tick")
        data = capture(moved, [])
        moved.close()
        moved, _ = nodes[(hop + 1) % 3].restore(wasm, 8192, data)
        assert capture(moved, []) == data
    assert decode(capture(moved, [])) == decode(capture(stayed, []))
    for node in nodes:
        node.engine.close()
