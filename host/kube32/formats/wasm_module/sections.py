"""One reader for each section of a module. Each takes a cursor over the section and fills the Draft."""

from collections.abc import Callable
from dataclasses import dataclass, field

from kube32.contract import ABI, Limits
from kube32.formats.wasm_module.cursor import (
    EXCEPTIONS,
    EXTERNREF,
    FUNCTION_REFERENCES,
    GC,
    MULTI_MEMORY,
    Cursor,
)
from kube32.formats.wasm_module.records import (
    DataSegment,
    ElemSegment,
    ExportDecl,
    FuncType,
    GlobalDecl,
    ImportDecl,
    TableDecl,
    func_type,
    refused,
)

MEMORY_PAGES = 65536
TABLE_ENTRIES = 0xFFFFFFFF
KINDS = ("func", "table", "memory", "global", "tag")


@dataclass(slots=True)
class Draft:
    """What has been read so far; lists in the order of their index spaces."""

    limits: Limits
    types: list[FuncType] = field(default_factory=list)
    imports: list[ImportDecl] = field(default_factory=list)
    functions: list[int] = field(default_factory=list)
    tables: list[TableDecl] = field(default_factory=list)
    memories: list[tuple[int, int | None]] = field(default_factory=list)
    globals: list[GlobalDecl] = field(default_factory=list)
    exports: dict[str, ExportDecl] = field(default_factory=dict)
    start: int | None = None
    elements: list[ElemSegment] = field(default_factory=list)
    element_entries: int = 0
    data_count: int | None = None
    bodies: int = 0
    data: list[DataSegment] = field(default_factory=list)
    escaping: set[int] = field(default_factory=set)


def read_types(cursor: Cursor, draft: Draft) -> None:
    """Section 1: function types."""
    for _ in range(cursor.count(draft.limits.module_items, "types")):
        form = cursor.byte()
        if form in (0x5F, 0x5E, 0x50, 0x4F, 0x4E, 0x4D, 0x4C):
            raise refused("feature", feature=GC)
        if form != 0x60:
            raise cursor.malformed(f"type form 0x{form:02x} is no function")
        draft.types.append(FuncType(cursor.type_codes(), cursor.type_codes()))


def read_imports(cursor: Cursor, draft: Draft) -> None:
    """Section 2: functions of env, each with its type in the pod ABI."""
    for _ in range(cursor.count(draft.limits.module_items, "imports")):
        module, name, kind = cursor.name(), cursor.name(), cursor.byte()
        if kind >= len(KINDS):
            raise cursor.malformed(f"import kind {kind}")
        shown = {"module": _short(module), "name": _short(name)}
        if kind == 4:
            raise refused("feature", feature=EXCEPTIONS)
        if kind != 0:
            raise refused("import_kind", kind=KINDS[kind], **shown)
        if module != ABI.module:
            raise refused("import_module", **shown)
        if name not in ABI.functions:
            raise refused("import_unknown", name=shown["name"])
        index = _type_index(cursor, draft)
        declared, expected = draft.types[index], func_type(*ABI.functions[name].signature)
        if declared != expected:
            raise refused("import_type", name=name, found=declared, expected=expected)
        draft.imports.append(ImportDecl(module, name, index))
        draft.functions.append(index)


def read_functions(cursor: Cursor, draft: Draft) -> None:
    """Section 3: the type of each function that the module defines."""
    for _ in range(cursor.count(draft.limits.module_items, "functions")):
        draft.functions.append(_type_index(cursor, draft))


def read_tables(cursor: Cursor, draft: Draft) -> None:
    """Section 4: funcref tables within the contract's limits."""
    count = cursor.count(draft.limits.module_items, "tables")
    if count > draft.limits.pod_tables:
        raise refused("tables", count=count, limit=draft.limits.pod_tables)
    for index in range(count):
        code = cursor.byte()
        if code == 0x40:
            raise refused("feature", feature=FUNCTION_REFERENCES)
        if code == 0x6F:
            raise refused("feature", feature=EXTERNREF)
        if cursor.checked_type(code) != "funcref":
            raise cursor.malformed(f"0x{code:02x} is no reference type")
        least, most = cursor.limits(TABLE_ENTRIES, "a table")
        if least > draft.limits.pod_table_elements:
            raise refused("table_elements", index=index, found=least, limit=draft.limits.pod_table_elements)
        draft.tables.append(TableDecl("funcref", least, most))


def read_memories(cursor: Cursor, draft: Draft) -> None:
    """Section 5: memories; that there is exactly one is checked at the end."""
    count = cursor.count(draft.limits.module_items, "memories")
    if count > 1:
        raise refused("memory_many", count=count)
    for _ in range(count):
        draft.memories.append(cursor.limits(MEMORY_PAGES, "a memory"))


def read_globals(cursor: Cursor, draft: Draft) -> None:
    """Section 6: globals with their constant initialisers."""
    for _ in range(cursor.count(draft.limits.module_items, "globals")):
        value_type, mutable = cursor.value_type(), cursor.byte()
        if mutable > 1:
            raise cursor.malformed(f"mutability 0x{mutable:02x}")
        initial = cursor.constant(value_type)
        if value_type == "funcref" and initial is not None:
            draft.escaping.add(_function_index(cursor, draft, initial))
        draft.globals.append(GlobalDecl(value_type, mutable == 1))


def read_exports(cursor: Cursor, draft: Draft) -> None:
    """Section 7: exports, each of something that is there, no name twice."""
    sizes = (len(draft.functions), len(draft.tables), len(draft.memories), len(draft.globals))
    for _ in range(cursor.count(draft.limits.module_items, "exports")):
        name, kind, index = cursor.name(), cursor.byte(), cursor.u32()
        if kind == 4:
            raise refused("feature", feature=EXCEPTIONS)
        if kind > 4:
            raise cursor.malformed(f"export kind {kind}")
        if index >= sizes[kind]:
            raise cursor.malformed(f"export {_short(name)} names {KINDS[kind]} {index}, which is not there")
        if name in draft.exports:
            raise cursor.malformed(f"export {_short(name)} stands twice")
        draft.exports[name] = ExportDecl(name, KINDS[kind], index)
        if kind == 0:
            draft.escaping.add(index)


def read_start(cursor: Cursor, draft: Draft) -> None:
    """Section 8: the start function, which takes and gives nothing."""
    index = _function_index(cursor, draft, cursor.u32())
    found = draft.types[draft.functions[index]]
    if found.param_codes or found.result_codes:
        raise cursor.malformed(f"the start function has type {found}")
    draft.start = index


def read_elements(cursor: Cursor, draft: Draft) -> None:
    """Section 9: element segments in their eight encodings."""
    for _ in range(cursor.count(draft.limits.module_items, "element segments")):
        flags = cursor.u32()
        if flags > 7:
            raise cursor.malformed(f"element segment flags {flags}")
        active, table, offset = not flags & 1, 0, None
        if active:
            table = cursor.u32() if flags & 2 else 0
            if table >= len(draft.tables):
                raise cursor.malformed(f"an element segment names table {table}, which is not there")
            offset = _address(cursor.constant("i32"))
        if flags & 3:
            if flags & 4:
                cursor.reference_type()
            elif cursor.byte() != 0:
                raise cursor.malformed("an element segment holds no functions")
        left = draft.limits.module_items - draft.element_entries
        length = cursor.count(left, "element entries")
        draft.element_entries += length
        for _ in range(length):
            function = cursor.constant("funcref") if flags & 4 else cursor.u32()
            if function is not None:
                draft.escaping.add(_function_index(cursor, draft, function))
        mode = "active" if active else ("declared" if flags & 2 else "passive")
        draft.elements.append(ElemSegment(mode, table, offset, length))


def read_data_count(cursor: Cursor, draft: Draft) -> None:
    """Section 12: how many data segments follow the code."""
    draft.data_count = cursor.u32()


def read_code(cursor: Cursor, draft: Draft) -> None:
    """Section 10: only the sizes of the bodies; the engine validates what is in them."""
    draft.bodies = cursor.count(draft.limits.module_items, "function bodies")
    for _ in range(draft.bodies):
        cursor.skip(cursor.u32())


def read_data(cursor: Cursor, draft: Draft) -> None:
    """Section 11: data segments."""
    for _ in range(cursor.count(draft.limits.module_items, "data segments")):
        flags = cursor.u32()
        if flags > 2:
            raise cursor.malformed(f"data segment flags {flags}")
        offset = None
        if flags != 1:
            if flags == 2 and cursor.u32() != 0:
                raise refused("feature", feature=MULTI_MEMORY)
            if not draft.memories:
                raise cursor.malformed("a data segment names memory 0, which is not there")
            offset = _address(cursor.constant("i32"))
        length = cursor.u32()
        cursor.skip(length)
        draft.data.append(DataSegment("passive" if flags == 1 else "active", offset, length))


def _type_index(cursor: Cursor, draft: Draft) -> int:
    index = cursor.u32()
    if index >= len(draft.types):
        raise cursor.malformed(f"type {index} is not there")
    return index


def _function_index(cursor: Cursor, draft: Draft, index: int) -> int:
    if index >= len(draft.functions):
        raise cursor.malformed(f"function {index} is not there")
    return index


def _address(value: int | None) -> int | None:
    """An i32 constant as the unsigned address that it is."""
    return None if value is None else value & 0xFFFFFFFF


def _short(name: str) -> str:
    """A foreign name for a message: one line, not endless."""
    shown = name if len(name) <= 64 else name[:64] + "..."
    return "".join(c if c.isprintable() else "?" for c in shown)


READERS: dict[int, tuple[str, Callable[[Cursor, Draft], None]]] = {
    1: ("type", read_types),
    2: ("import", read_imports),
    3: ("function", read_functions),
    4: ("table", read_tables),
    5: ("memory", read_memories),
    6: ("global", read_globals),
    7: ("export", read_exports),
    8: ("start", read_start),
    9: ("element", read_elements),
    12: ("data count", read_data_count),
    10: ("code", read_code),
    11: ("data", read_data),
}
"""By section id, in the order in which they must stand in a module."""
