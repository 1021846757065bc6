"""The kernel of kube32.io/interp-mops: the contract's bytes are its text, and its count is right."""

from typing import Any

import wasmtime

from kube32.contract.data import load
from kube32.formats.wasm_module import parse_module
from kube32.wasm import interp_mops
from kube32.wasm.code import bodies, instructions, locals_of
from kube32.wasm.speed import kernel

LOOP = 0x03
END = 0x0B


def test_the_bytes_are_the_assembled_text() -> None:
    assert kernel() == bytes(wasmtime.wat2wasm(load("speed.yaml")["wat"]))


def test_the_loop_has_as_many_instructions_as_the_contract_counts() -> None:
    wasm = kernel()
    code = next(s for s in parse_module(wasm).sections if s.id == 10)
    ((start, end),) = bodies(wasm, code.payload_offset, code.payload_offset + code.size)
    ops = [op for op, _, _ in instructions(wasm, locals_of(wasm, start)[1], end)]
    inside = ops[ops.index(LOOP) + 1 :]
    assert inside.index(END) == load("speed.yaml")["instructions"]
    assert str(load("speed.yaml")["iterations"]) in load("speed.yaml")["wat"]


def test_the_figure_is_a_speed(lab: Any) -> None:
    assert 1 < interp_mops(lab.engine, 5) < 1_000_000
