"""Makes golden/: one snapshot for each feature of K32S, with its module and what the pod does next.

`python -m tests.contract.make_golden NAME...` writes the named ones. What a release has written stays as it
is: add others for what is new, so that each release reads those of all before it.
"""

import hashlib
import struct
import sys
from dataclasses import dataclass, field

import wasmtime
import yaml

from kube32.formats.k32s import HeldEvent
from tests.contract.pods import GOLDEN, PAGE, Node, call, capture

INDEX = GOLDEN / "index.yaml"
TICKS_AFTER = 5

COUNTER = """
(module (memory (export "memory") 1)
  (data (i32.const 100) "counted")
  (global $count (mut i32) (i32.const 0))
  (func (export "k32_init") (i64.store (i32.const 65528) (i64.const 0x1122334455667788)))
  (func (export "k32_tick") (result i32)
    (global.set $count (i32.add (global.get $count) (i32.const 1)))
    (i32.store (i32.const 8) (i32.mul (global.get $count) (i32.const 0x9e3779b1)))
    (i32.store8 (i32.add (i32.const 1000) (global.get $count)) (global.get $count))
    (i32.load (i32.const 8))))
"""
SMALL = """
(module (memory (export "memory") 1)
  (data (i32.const 4000) "the last bytes that there are")
  (func (export "k32_tick") (result i32)
    (i32.store (i32.const 4092) (i32.add (i32.load (i32.const 4092)) (i32.const 3)))
    (i32.load (i32.const 4092))))
"""
TABLES = """
(module (memory (export "memory") 1)
  (global $calls (mut i32) (i32.const 0)) (global $fixed i32 (i32.const 9))
  (global $long (mut i64) (i64.const 1)) (global $single (mut f32) (f32.const 0))
  (global $double (mut f64) (f64.const 0))
  (global $next (mut funcref) (ref.func $two)) (global $none (mut funcref) (ref.null func))
  (table $steps 3 8 funcref) (table $one 1 1 funcref)
  (elem (table $steps) (i32.const 0) func $two $three) (elem declare func $hidden)
  (func $two (result i32) (i32.const 2)) (func $three (result i32) (i32.const 3))
  (func $hidden (result i32) (i32.const 5))
  (func (export "k32_init")
    (global.set $single (f32.reinterpret_i32 (i32.const 0xffa00001)))
    (global.set $double (f64.reinterpret_i64 (i64.const 0x7ff4000000000005)))
    (drop (table.grow $steps (ref.func $hidden) (i32.const 2)))
    (table.set $steps (i32.const 1) (ref.null func)))
  (func (export "k32_tick") (result i32)
    (global.set $calls (i32.add (global.get $calls) (i32.const 1)))
    (global.set $long (i64.mul (global.get $long) (i64.const 6364136223846793005)))
    (table.set $one (i32.const 0) (global.get $next))
    (global.set $next (table.get $steps (i32.mul (i32.const 3) (i32.and (global.get $calls) (i32.const 1)))))
    (i32.add
      (i32.mul (i32.const 100) (call_indirect $one (result i32) (i32.const 0)))
      (i32.wrap_i64 (i64.shr_u (global.get $long) (i64.const 60))))))
"""
LISTENER = """
(module
  (import "env" "kube32_channel_open" (func $open (param i32 i32) (result i32)))
  (import "env" "kube32_channel_close" (func $close (param i32) (result i32)))
  (import "env" "k32_event_payload" (func $payload (param i32 i32) (result i32)))
  (memory (export "memory") 1)
  (data (i32.const 0) "north") (data (i32.const 8) "south") (data (i32.const 16) "east")
  (func (export "k32_init")
    (drop (call $open (i32.const 0) (i32.const 5))) (drop (call $open (i32.const 8) (i32.const 5)))
    (drop (call $open (i32.const 16) (i32.const 4))) (drop (call $close (i32.const 1))))
  (func (export "k32_event")
    (i32.store (i32.const 64) (i32.add (i32.load (i32.const 64)) (call $payload (i32.const 128) (i32.const 64)))))
  (func (export "k32_tick") (result i32)
    (i32.add (i32.load (i32.const 64)) (call $open (i32.const 16) (i32.const 4)))))
"""


@dataclass(frozen=True, slots=True)
class Recipe:
    """How a golden snapshot comes about: `ticks` calls, `events` that are held, sections put in by hand."""

    wat: str
    memory: int
    ticks: int = 3
    events: tuple[HeldEvent, ...] = ()
    foreign: tuple[bytes, ...] = field(default=())


RECIPES = {
    "counter-64ki": Recipe(COUNTER, PAGE),
    "memory-4ki": Recipe(SMALL, 4096),
    "tables-and-globals": Recipe(TABLES, 4096),
    "channels-and-events": Recipe(
        LISTENER,
        4096,
        events=(HeldEvent("news", b"first"), HeldEvent("größe", bytes(range(40))), HeldEvent("news", b"")),
    ),
    "unknown-section-9": Recipe(TABLES, 4096, foreign=(b"of a later release", b"")),
}


def build(recipe: Recipe, wasm: bytes, node: Node) -> bytes:
    """The snapshot as this release writes it."""
    pod = node.start(wasm, recipe.memory)
    pod.services.clock.set(12_345)
    if pod.has("k32_init"):
        call(pod, "k32_init")
    for _ in range(recipe.ticks):
        call(pod, "k32_tick")
    return with_sections(capture(pod, list(recipe.events)), recipe.foreign)


def with_sections(data: bytes, contents: tuple[bytes, ...]) -> bytes:
    """A snapshot with sections of the unknown type 9 before its first one."""
    if not contents:
        return data
    (count,) = struct.unpack_from("<I", data, 64)
    added = b"".join(struct.pack("<HI", 9, len(content)) + content for content in contents)
    body = data[:64] + struct.pack("<I", count + len(contents)) + added + data[68:-32]
    return body + hashlib.sha256(body).digest()


def make(name: str, node: Node) -> dict[str, object]:
    """Writes one snapshot with its module; its entry in the index."""
    recipe = RECIPES[name]
    wasm = bytes(wasmtime.wat2wasm(recipe.wat))
    data = build(recipe, wasm, node)
    (GOLDEN / f"{name}.wasm").write_bytes(wasm)
    (GOLDEN / f"{name}.k32s").write_bytes(data)
    pod, events = node.restore(wasm, recipe.memory, data)
    for event in events:
        pod.call("k32_event", timeout_ms=None, event=event)
    return {
        "sha256": hashlib.sha256(data).hexdigest(),
        "memory": recipe.memory,
        "next": [call(pod, "k32_tick") for _ in range(TICKS_AFTER)],
    }


def main(names: list[str]) -> None:
    """Writes the named snapshots and the index."""
    GOLDEN.mkdir(exist_ok=True)
    index = yaml.safe_load(INDEX.read_text()) if INDEX.exists() else {}
    node = Node()
    for name in names:
        index[name] = make(name, node)
    INDEX.write_text(yaml.safe_dump(index, sort_keys=True))


if __name__ == "__main__":
    main(sys.argv[1:])
