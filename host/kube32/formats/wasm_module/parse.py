"""Reads a module's sections in order and checks what the pod ABI asks of a pod (decisions, "Modules")."""

import hashlib

from kube32.contract import ABI, LIMITS, Limits
from kube32.formats.wasm_module.cursor import EXCEPTIONS, Cursor
from kube32.formats.wasm_module.records import ModuleInfo, Section, func_type, refused
from kube32.formats.wasm_module.sections import READERS, Draft

_PREAMBLE = b"\0asm\1\0\0\0"
_COMPONENT_LAYER = b"\1\0"
_RANK = {section: rank for rank, section in enumerate(READERS)}
_TAG_SECTION = 13
_EXPORT_TYPES = (func_type((), ()), func_type((), ("i32",)))


def digest(data: bytes) -> str:
    """SHA-256 of the module's own bytes, lower-case hex."""
    return hashlib.sha256(data).hexdigest()


def parse_module(data: bytes, limits: Limits = LIMITS) -> ModuleInfo:
    """Reads a module and checks all that its sections show. Raises ModuleRefused, whatever the bytes are.

    Never executes anything and never allocates by a number that the module claims. What stands in function
    bodies is left to the engine.
    """
    data = bytes(data)
    if len(data) > limits.module_bytes:
        raise refused("too_large", found=len(data), limit=limits.module_bytes)
    if data[:8] != _PREAMBLE:
        component = data[:4] == _PREAMBLE[:4] and data[6:8] == _COMPONENT_LAYER
        raise refused("component" if component else "magic")
    draft = Draft(limits)
    sections = _read_sections(data, draft)
    _check_counts(len(data), draft)
    _check_memory(draft)
    _check_exports(draft)
    least, most = draft.memories[0]
    return ModuleInfo(
        digest=digest(data),
        size=len(data),
        types=tuple(draft.types),
        imports=tuple(draft.imports),
        functions=tuple(draft.functions),
        globals=tuple(draft.globals),
        tables=tuple(draft.tables),
        memory_minimum=least,
        memory_maximum=most,
        exports=draft.exports,
        data_segments=tuple(draft.data),
        elem_segments=tuple(draft.elements),
        start=draft.start,
        escaping_functions=tuple(sorted(draft.escaping.union(range(len(draft.imports))))),
        sections=sections,
    )


def _read_sections(data: bytes, draft: Draft) -> tuple[Section, ...]:
    """Walks the sections, each once and in order (custom ones anywhere), and reads each to its end."""
    walk = Cursor(data, len(_PREAMBLE), len(data), "header", draft.limits.module_name_bytes)
    found: list[Section] = []
    last = -1
    while walk.position < len(data):
        offset = walk.position
        number = walk.byte()
        name = READERS[number][0] if number in READERS else f"custom ({number})"
        walk.section = name
        if number == _TAG_SECTION:
            raise refused("feature", feature=EXCEPTIONS)
        if number != 0 and number not in READERS:
            raise refused("malformed", section=number, offset=offset, what="there is no such section")
        size = walk.u32()
        if size > len(data) - walk.position:
            raise refused("truncated", section=name, offset=offset)
        if len(found) >= draft.limits.module_items:
            raise walk.malformed(f"more than {draft.limits.module_items} sections")
        cursor = Cursor(data, walk.position, walk.position + size, name, walk.name_limit)
        if number == 0:
            cursor.name()
        else:
            if _RANK[number] <= last:
                raise refused("malformed", section=name, offset=offset, what="stands twice or out of order")
            last = _RANK[number]
            READERS[number][1](cursor, draft)
            if cursor.position != cursor.end:
                raise cursor.malformed(f"{cursor.end - cursor.position} bytes follow the last entry")
        found.append(Section(number, offset, walk.position, size))
        walk.position += size
    return tuple(found)


def _check_counts(size: int, draft: Draft) -> None:
    """Functions have bodies, and the data count section tells the truth."""
    defined = len(draft.functions) - len(draft.imports)
    if defined != draft.bodies:
        what = f"{defined} functions are declared, {draft.bodies} have a body"
        raise refused("malformed", section="code", offset=size, what=what)
    if draft.data_count is not None and draft.data_count != len(draft.data):
        what = f"{draft.data_count} data segments are announced, {len(draft.data)} are there"
        raise refused("malformed", section="data", offset=size, what=what)


def _check_memory(draft: Draft) -> None:
    """Exactly one memory, exported as `memory`."""
    if not draft.memories:
        raise refused("memory_none")
    export = draft.exports.get(ABI.memory_export)
    if export is None or export.kind != "memory":
        raise refused("memory_export")


def _check_exports(draft: Draft) -> None:
    """The pod ABI's exports take nothing and give nothing or one i32, and there is one that makes a pod."""
    for name in ABI.exports:
        export = draft.exports.get(name)
        if export is None:
            continue
        if export.kind != "func":
            raise refused("export_kind", name=name, found=export.kind)
        found = draft.types[draft.functions[export.index]]
        if found not in _EXPORT_TYPES:
            raise refused("export_type", name=name, found=found)
    if not any(name in draft.exports for name in (*ABI.request_exports, *ABI.entry_points)):
        raise refused("no_export")
