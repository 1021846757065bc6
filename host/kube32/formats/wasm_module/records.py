"""The records that reading a module gives, and the one error it raises."""

from dataclasses import dataclass

from kube32.contract import ABI, text

VALUE_TYPES = {0x7F: "i32", 0x7E: "i64", 0x7D: "f32", 0x7C: "f64", 0x70: "funcref"}


class ModuleRefused(Exception):
    """A module that Kube32 does not take. `cause` says why; str() puts "module refused: " before it."""

    def __init__(self, cause: str) -> None:
        super().__init__(text("module_refusals", "prefix", cause=cause))
        self.cause = cause


def refused(name: str, /, **fields: object) -> ModuleRefused:
    """The refusal with the contract's text `name` (module_refusals)."""
    return ModuleRefused(text("module_refusals", name, **fields))


@dataclass(frozen=True, slots=True)
class FuncType:
    """A function type, kept as its value types' bytes: a hostile type section stays as small as it is."""

    param_codes: bytes
    result_codes: bytes

    @property
    def params(self) -> tuple[str, ...]:
        """Names of the parameters' types."""
        return tuple(VALUE_TYPES[c] for c in self.param_codes)

    @property
    def results(self) -> tuple[str, ...]:
        """Names of the results' types."""
        return tuple(VALUE_TYPES[c] for c in self.result_codes)

    def __str__(self) -> str:
        return f"{_type_list(self.param_codes)} -> {_type_list(self.result_codes)}"


def _type_list(codes: bytes) -> str:
    """Type names in parentheses; a list that nobody would read to its end is cut."""
    shown = ", ".join(VALUE_TYPES[c] for c in codes[:16])
    return f"({shown}, ... {len(codes)} in all)" if len(codes) > 16 else f"({shown})"


def func_type(params: tuple[str, ...], results: tuple[str, ...]) -> FuncType:
    """The function type of named value types."""
    codes = {name: code for code, name in VALUE_TYPES.items()}
    return FuncType(bytes(codes[p] for p in params), bytes(codes[r] for r in results))


@dataclass(frozen=True, slots=True)
class ImportDecl:
    """An imported function of the pod ABI."""

    module: str
    name: str
    type_index: int


@dataclass(frozen=True, slots=True)
class GlobalDecl:
    """A global; `type` is "i32" to "funcref". None is imported, since only functions can be."""

    type: str
    mutable: bool
    imported: bool = False


@dataclass(frozen=True, slots=True)
class TableDecl:
    """A funcref table; sizes in entries."""

    type: str
    minimum: int
    maximum: int | None
    imported: bool = False


@dataclass(frozen=True, slots=True)
class ExportDecl:
    """An export; `kind` is func, table, memory or global, `index` counts in that kind's index space."""

    name: str
    kind: str
    index: int


@dataclass(frozen=True, slots=True)
class DataSegment:
    """A data segment of `length` bytes; `offset` is None for a passive one."""

    mode: str
    offset: int | None
    length: int


@dataclass(frozen=True, slots=True)
class ElemSegment:
    """An element segment of `length` entries; `mode` is active, passive or declared."""

    mode: str
    table: int
    offset: int | None
    length: int


@dataclass(frozen=True, slots=True)
class Section:
    """Where a section stands: offset of its id byte, of its payload, and the payload's size in bytes."""

    id: int
    offset: int
    payload_offset: int
    size: int


@dataclass(frozen=True, slots=True)
class ModuleInfo:
    """Everything about a module that is known without running it. Index spaces count imports first."""

    digest: str
    size: int
    types: tuple[FuncType, ...]
    imports: tuple[ImportDecl, ...]
    functions: tuple[int, ...]
    globals: tuple[GlobalDecl, ...]
    tables: tuple[TableDecl, ...]
    memory_minimum: int
    memory_maximum: int | None
    exports: dict[str, ExportDecl]
    data_segments: tuple[DataSegment, ...]
    elem_segments: tuple[ElemSegment, ...]
    start: int | None
    escaping_functions: tuple[int, ...]
    sections: tuple[Section, ...]

    @property
    def kind(self) -> str:
        """ "request" or "entry-point" (pod ABI)."""
        return "request" if self.entry_point is None else "entry-point"

    @property
    def entry_point(self) -> str | None:
        """The exported entry point, the first in the order _start, app_main, main."""
        return next((n for n in ABI.entry_points if n in self.exports), None)

    @property
    def mutable_globals(self) -> list[tuple[int, str]]:
        """(index, type) of each mutable global, ascending."""
        return [(i, g.type) for i, g in enumerate(self.globals) if g.mutable]

    @property
    def abi_exports(self) -> tuple[str, ...]:
        """The exports that the node calls, in the contract's order."""
        return tuple(n for n in ABI.exports if n in self.exports)

    def type_of(self, function: int) -> FuncType:
        """The type of a function by its index, imports first."""
        return self.types[self.functions[function]]
