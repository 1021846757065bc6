"""Rewrites a module so that its state can be reached, and its memory can be smaller than a page. Semantics
stay.

- Mutable globals, tables and the functions that references can lead to get hidden exports. Indexes do not
  shift.
- The start section becomes a hidden export, which a fresh start calls and a restore does not.
- Each passive segment gets a probe, a function that traps exactly when the segment was dropped.
- For a limit below a page the memory gets pages of one byte (custom-page-sizes): `memory.size` is then the
  constant 1 and `memory.grow` gives 1 for 0, else -1 (decisions, "Modules").
"""

from collections.abc import Iterator
from dataclasses import dataclass

from kube32.contract import K32S
from kube32.formats.wasm_module import ModuleInfo
from kube32.wasm.code import MEMORY_GROW, MEMORY_SIZE, bodies, encode_leb, instructions, leb, locals_of

REWRITE_VERSION = 1
"""Part of the cache's key: changes when the same module would be rewritten otherwise."""

_ORDER = (1, 2, 3, 4, 5, 6, 7, 9, 12, 10, 11)
_TYPE, _FUNCTION, _MEMORY, _EXPORT, _DATA_COUNT, _CODE = 1, 3, 5, 7, 12, 10
_KIND_FUNCTION, _KIND_TABLE, _KIND_GLOBAL = b"\x00", b"\x01", b"\x03"
_EMPTY_TYPE = b"\x60\x00\x00"
# i32.const 1
_SIZE_OF_ONE_PAGE = b"\x41\x01"
# n == 0 ? 1 : -1 as (n == 0) * 2 - 1
_GROW_OF_ONE_PAGE = b"\x45\x41\x02\x6c\x41\x01\x6b"
_CUSTOM_PAGE_LIMITS = b"\x01\x09"
_PAGE_OF_ONE_BYTE = b"\x00"


@dataclass(frozen=True, slots=True)
class Hidden:
    """What a rewritten module exports besides its own names, which begin with none of `prefix`."""

    prefix: str
    globals: tuple[tuple[int, str], ...]
    tables: tuple[int, ...]
    functions: tuple[int, ...]
    data_probes: tuple[int, ...]
    elem_probes: tuple[int, ...]
    start: int | None

    def name(self, kind: str, index: int) -> str:
        """An export's name: kind is "g", "t", "f", "d" (data probe), "e" (element probe), "s" (start)."""
        return f"{self.prefix}{kind}{index}"

    @property
    def probes(self) -> list[str]:
        """The probes' names in the order of their bodies."""
        return [self.name("d", i) for i in self.data_probes] + [self.name("e", i) for i in self.elem_probes]


def hidden_exports(info: ModuleInfo) -> Hidden:
    """What has to be reached in a module. The prefix is one that no export of it has."""
    prefix = "\x01k32."
    while any(name.startswith(prefix) for name in info.exports):
        prefix += "_"
    references = bool(info.tables) or any(t == "funcref" for _, t in info.mutable_globals)
    # Without a data count section no code can drop a data segment, without a table nobody sees an element
    # segment.
    counted = any(s.id == _DATA_COUNT for s in info.sections)
    data = [i for i, s in enumerate(info.data_segments) if counted and s.mode == "passive" and s.length]
    elem = [i for i, s in enumerate(info.elem_segments) if info.tables and s.mode == "passive" and s.length]
    return Hidden(
        prefix=prefix,
        globals=tuple(info.mutable_globals),
        tables=tuple(range(len(info.tables))),
        functions=info.escaping_functions if references else (),
        data_probes=tuple(data),
        elem_probes=tuple(elem),
        start=info.start,
    )


def rewrite(wasm: bytes, info: ModuleInfo, hidden: Hidden, sub_page: bool) -> bytes:
    """The rewritten module, without custom sections. `wasm` is valid."""
    sections = {
        s.id: wasm[s.payload_offset : s.payload_offset + s.size] for s in info.sections if s.id in _ORDER
    }
    if sub_page:
        sections[_MEMORY] = _byte_memory(info)
        if _CODE in sections:
            sections[_CODE] = _one_page_code(sections[_CODE])
    probes = [_data_probe(i) for i in hidden.data_probes] + [_elem_probe(i) for i in hidden.elem_probes]
    if probes:
        kind = encode_leb(len(info.types))
        sections[_TYPE] = _extended(sections.get(_TYPE), [_EMPTY_TYPE])
        sections[_FUNCTION] = _extended(sections.get(_FUNCTION), [kind] * len(probes))
        sections[_CODE] = _extended(sections.get(_CODE), [encode_leb(len(p)) + p for p in probes])
    sections[_EXPORT] = _extended(sections.get(_EXPORT), list(_entries(info, hidden)))
    out = bytearray(wasm[:8])
    for number in _ORDER:
        if number in sections:
            out.append(number)
            out += encode_leb(len(sections[number]))
            out += sections[number]
    return bytes(out)


def data_end(info: ModuleInfo) -> int:
    """The first byte after all active data segments."""
    return max((s.offset + s.length for s in info.data_segments if s.offset is not None), default=0)


def _extended(vector: bytes | None, entries: list[bytes]) -> bytes:
    """A section's vector with entries added at its end."""
    count, first = leb(vector, 0) if vector else (0, 0)
    return encode_leb(count + len(entries)) + (vector[first:] if vector else b"") + b"".join(entries)


def _entries(info: ModuleInfo, hidden: Hidden) -> Iterator[bytes]:
    for index, _ in hidden.globals:
        yield _entry(hidden.name("g", index), _KIND_GLOBAL, index)
    for index in hidden.tables:
        yield _entry(hidden.name("t", index), _KIND_TABLE, index)
    for index in hidden.functions:
        yield _entry(hidden.name("f", index), _KIND_FUNCTION, index)
    for offset, name in enumerate(hidden.probes):
        yield _entry(name, _KIND_FUNCTION, len(info.functions) + offset)
    if hidden.start is not None:
        yield _entry(hidden.name("s", 0), _KIND_FUNCTION, hidden.start)


def _entry(name: str, kind: bytes, index: int) -> bytes:
    raw = name.encode()
    return encode_leb(len(raw)) + raw + kind + encode_leb(index)


def _data_probe(segment: int) -> bytes:
    """memory.init of 0 bytes from offset 1: out of bounds only when nothing is left of the segment."""
    return b"\x00\x41\x00\x41\x01\x41\x00\xfc\x08" + encode_leb(segment) + b"\x00\x0b"


def _elem_probe(segment: int) -> bytes:
    """table.init of 0 entries from entry 1, into table 0."""
    return b"\x00\x41\x00\x41\x01\x41\x00\xfc\x0c" + encode_leb(segment) + b"\x00\x0b"


def _byte_memory(info: ModuleInfo) -> bytes:
    """A memory in bytes, as many as the data segments need; the node grows it to the pod's limit."""
    least, most = encode_leb(data_end(info)), encode_leb(K32S.page_bytes - 1)
    return _CUSTOM_PAGE_LIMITS + least + most + _PAGE_OF_ONE_BYTE


def _one_page_code(code: bytes) -> bytes:
    """The code section with memory.size and memory.grow replaced."""
    count, _ = leb(code, 0)
    out = bytearray(encode_leb(count))
    for start, end in bodies(code, 0, len(code)):
        body = code[start:end]
        if bytes((MEMORY_SIZE, 0)) in body or bytes((MEMORY_GROW, 0)) in body:
            body = _one_page_body(body)
        out += encode_leb(len(body))
        out += body
    return bytes(out)


def _one_page_body(body: bytes) -> bytes:
    _, first = locals_of(body, 0)
    out, copied = bytearray(), 0
    for op, at, after in instructions(body, first, len(body)):
        if op in (MEMORY_SIZE, MEMORY_GROW):
            out += body[copied:at]
            out += _SIZE_OF_ONE_PAGE if op == MEMORY_SIZE else _GROW_OF_ONE_PAGE
            copied = after
    return bytes(out + body[copied:])
