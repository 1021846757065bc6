"""Whether function bodies are of our feature set: wasmtime's strict engine decides, and what its switches
cannot refuse.
"""

import wasmtime

from kube32.contract import text
from kube32.formats.wasm_module import ModuleInfo, ModuleRefused
from kube32.wasm.code import SELECT_TYPED, bodies, instructions, leb, locals_of

CODE_SECTION = 10
_LONG_REFERENCE = 0x63
_LONG_FUNCREF = b"\x63\x70"
_BLOCKS = (0x02, 0x03, 0x04)


def validate(engine: wasmtime.Engine, wasm: bytes, info: ModuleInfo) -> None:
    """Raises ModuleRefused unless the module is valid within our feature set. `engine` has the strict
    configuration.
    """
    try:
        wasmtime.Module.validate(engine, wasm)
    except wasmtime.WasmtimeError as fault:
        what = " ".join(str(fault).split())
        raise ModuleRefused(text("module_refusals", "invalid", what=what)) from None
    if _long_references(wasm, info):
        feature = "typed function references"
        raise ModuleRefused(text("module_refusals", "feature", feature=feature))


def _long_references(wasm: bytes, info: ModuleInfo) -> bool:
    """Whether a body writes funcref as (ref null func), which wasmtime takes without the proposal.

    Bodies are walked only where the two bytes of that type stand somewhere in them, which is rare.
    """
    section = next((s for s in info.sections if s.id == CODE_SECTION), None)
    if section is None:
        return False
    start, end = section.payload_offset, section.payload_offset + section.size
    if wasm.find(_LONG_FUNCREF, start, end) < 0:
        return False
    return any(
        _has_long_reference(wasm, *body)
        for body in bodies(wasm, start, end)
        if wasm.find(_LONG_FUNCREF, *body) >= 0
    )


def _has_long_reference(wasm: bytes, start: int, end: int) -> bool:
    types, first = locals_of(wasm, start)
    if _LONG_REFERENCE in types:
        return True
    for op, at, _ in instructions(wasm, first, end):
        if op in _BLOCKS and wasm[at + 1 : at + 3] == _LONG_FUNCREF:
            return True
        if op == SELECT_TYPED:
            _, position = leb(wasm, at + 1)
            if wasm[position] == _LONG_REFERENCE:
                return True
    return False
