"""What a module's sections tell, and each refusal that they can earn (decisions, "Modules"; pod ABI)."""

import hashlib

import pytest
import wasmtime

from kube32.contract import LIMITS, limits_for, text
from kube32.formats.wasm_module import ModuleInfo, ModuleRefused, TableDecl, digest, parse_module

PREAMBLE = b"\0asm\1\0\0\0"
POD = '(memory (export "memory") 1) (func (export "k32_handle"))'


def wat(source: str) -> bytes:
    return bytes(wasmtime.wat2wasm(f"(module {source})"))


def read(source: str) -> ModuleInfo:
    return parse_module(wat(source))


def cause(module: bytes | str) -> str:
    with pytest.raises(ModuleRefused) as refusal:
        parse_module(wat(module) if isinstance(module, str) else module)
    assert str(refusal.value) == text("module_refusals", "prefix", cause=refusal.value.cause)
    return refusal.value.cause


def sec(number: int, *content: bytes) -> bytes:
    body = b"".join(content)
    return bytes([number]) + leb(len(body)) + body


def leb(value: int) -> bytes:
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*out, value])


VOID = sec(1, b"\1\x60\0\0")
ONE_FUNCTION = VOID + sec(3, b"\1\0")
MEMORY = sec(5, b"\1\0\1")
EXPORTS = sec(7, b"\2", b"\x06memory\2\0", b"\x0ak32_handle\0\0")
CODE = sec(10, b"\1\2\0\x0b")
WHOLE = PREAMBLE + ONE_FUNCTION + MEMORY + EXPORTS + CODE


def test_a_request_pod_is_described_in_full() -> None:
    source = """
        (type $r (func (result i32)))
        (import "env" "k32_log" (func $log (param i32 i32)))
        (table 4 10 funcref) (table 1 funcref)
        (memory (export "memory") 1 4)
        (global (mut i32) (i32.const -7)) (global i64 (i64.const 5)) (global (mut funcref) (ref.func $hidden))
        (export "k32_handle" (func $f)) (export "table" (table 1))
        (start $f)
        (elem (i32.const 1) $f $log) (elem declare func $declared) (elem func $f)
        (func $f) (func $hidden) (func $declared) (func $private)
        (data (i32.const -16) "hello") (data "passive")
    """
    info = read(source)
    assert (info.kind, info.entry_point, info.abi_exports) == ("request", None, ("k32_handle",))
    assert info.digest == digest(wat(source)) == hashlib.sha256(wat(source)).hexdigest()
    assert info.size == len(wat(source))
    assert [(i.module, i.name, str(info.types[i.type_index])) for i in info.imports] == [
        ("env", "k32_log", "(i32, i32) -> ()")
    ]
    assert len(info.functions) == 5
    assert str(info.type_of(1)) == "() -> ()"
    assert info.tables == (TableDecl("funcref", 4, 10), TableDecl("funcref", 1, None))
    assert (info.memory_minimum, info.memory_maximum) == (1, 4)
    assert info.mutable_globals == [(0, "i32"), (2, "funcref")]
    assert info.exports["table"].kind == "table"
    assert info.exports["table"].index == 1
    assert info.start == 1
    assert [(d.mode, d.offset, d.length) for d in info.data_segments] == [
        ("active", 0xFFFFFFF0, 5),
        ("passive", None, 7),
    ]
    assert [(e.mode, e.offset, e.length) for e in info.elem_segments] == [
        ("active", 1, 2),
        ("declared", None, 1),
        ("passive", None, 1),
    ]
    assert info.escaping_functions == (0, 1, 2, 3)
    for part in info.sections:
        assert wat(source)[part.offset] == part.id
    assert info.sections[-1].payload_offset + info.sections[-1].size == len(wat(source))


@pytest.mark.parametrize("name", ["_start", "app_main", "main"])
def test_an_entry_point_makes_an_entry_point_pod_even_beside_k32_handle(name: str) -> None:
    info = read(f'{POD} (func (export "{name}"))')
    assert (info.kind, info.entry_point) == ("entry-point", name)


@pytest.mark.parametrize("name", ["k32_handle", "k32_tick", "k32_event"])
def test_each_request_export_alone_makes_a_request_pod(name: str) -> None:
    assert (
        read(f'(memory (export "memory") 0) (func (export "{name}") (result i32) i32.const 0)').kind
        == "request"
    )


def test_padded_numbers_are_valid() -> None:
    padded = b"\1" + b"\x88\x80\x80\x80\x00" + b"\x81\x80\x80\x80\x00" + b"\x60\0\0"
    assert parse_module(PREAMBLE + padded + WHOLE[8 + len(VOID) :]).kind == "request"


def test_custom_sections_may_stand_anywhere() -> None:
    custom = sec(0, b"\4name", b"whatever \xff")
    assert parse_module(PREAMBLE + custom + WHOLE[8:] + custom).kind == "request"


def test_the_bytes_may_be_any_buffer() -> None:
    assert parse_module(memoryview(bytearray(WHOLE))) == parse_module(WHOLE)  # type: ignore[arg-type]


def test_what_is_no_module_is_named() -> None:
    assert (
        cause(b"")
        == cause(b"\0as")
        == cause(b"(module)")
        == cause(b"\0asm\2\0\0\0")
        == text("module_refusals", "magic")
    )
    assert cause(b"\0asm\x0d\0\1\0") == text("module_refusals", "component")


@pytest.mark.parametrize(
    ("source", "key", "fields"),
    [
        ('(func (export "k32_handle"))', "memory_none", {}),
        ('(memory 1) (func (export "k32_handle"))', "memory_export", {}),
        ('(memory 1) (func (export "memory"))', "memory_export", {}),
        ('(memory (export "memory") 1)', "no_export", {}),
        (f'(import "wasi" "f" (func)) {POD}', "import_module", {"module": "wasi", "name": "f"}),
        (f'(import "env" "f" (func)) {POD}', "import_unknown", {"name": "f"}),
        ('(import "env" "m" (memory 1))', "import_kind", {"kind": "memory", "module": "env", "name": "m"}),
        (
            '(import "env" "t" (table 1 funcref))',
            "import_kind",
            {"kind": "table", "module": "env", "name": "t"},
        ),
        ('(import "a" "g" (global i32))', "import_kind", {"kind": "global", "module": "a", "name": "g"}),
        (
            f'(import "env" "k32_log" (func (param i32))) {POD}',
            "import_type",
            {"name": "k32_log", "found": "(i32) -> ()", "expected": "(i32, i32) -> ()"},
        ),
        (
            f'{POD} (func (export "main") (param i32))',
            "export_type",
            {"name": "main", "found": "(i32) -> ()"},
        ),
        (
            f'{POD} (func (export "k32_tick") (result i64) i64.const 0)',
            "export_type",
            {"name": "k32_tick", "found": "() -> (i64)"},
        ),
        (
            f'{POD} (global (export "k32_init") i32 i32.const 0)',
            "export_kind",
            {"name": "k32_init", "found": "global"},
        ),
        (f"{POD} (memory 1)", "memory_many", {"count": 2}),
        (f"{POD} {'(table 1 funcref)' * 17}", "tables", {"count": 17, "limit": 16}),
        (f"{POD} (table 65537 funcref)", "table_elements", {"index": 0, "found": 65537, "limit": 65536}),
        (f"{POD} (table 1 externref)", "feature", {"feature": "externref"}),
        (f"{POD} (func (param externref))", "feature", {"feature": "externref"}),
        (f"{POD} (global externref (ref.null extern))", "feature", {"feature": "externref"}),
        (f"{POD} (func (param v128))", "feature", {"feature": "SIMD (v128)"}),
        (
            '(memory (export "memory") 1 2 shared) (func (export "main"))',
            "feature",
            {"feature": "shared memory (threads)"},
        ),
        (
            '(memory (export "memory") i64 1) (func (export "main"))',
            "feature",
            {"feature": "64-bit memories"},
        ),
        (f"{POD} (tag)", "feature", {"feature": "exceptions"}),
        (f"{POD} (type (struct))", "feature", {"feature": "garbage-collected types"}),
        (
            f"{POD} (global i32 (i32.add (i32.const 1) (i32.const 2)))",
            "feature",
            {"feature": "extended constant expressions"},
        ),
    ],
)
def test_what_the_pod_abi_does_not_offer_is_refused_by_name(
    source: str, key: str, fields: dict[str, object]
) -> None:
    assert cause(source) == text("module_refusals", key, **fields)


def test_a_module_larger_than_the_profile_takes_is_refused() -> None:
    large = WHOLE + sec(0, b"\1x", bytes(300_000))
    assert parse_module(large).size == len(large)
    with pytest.raises(ModuleRefused, match="bytes, at most 262144 are taken"):
        parse_module(large, limits_for("board"))


@pytest.mark.parametrize("at", range(8, len(WHOLE)))
def test_a_module_that_is_cut_anywhere_is_refused(at: int) -> None:
    cause(WHOLE[:at])


@pytest.mark.parametrize(
    ("module", "what"),
    [
        (PREAMBLE + b"\1\xff\xff\xff\xff\x0f", "section type at byte 8 is cut off"),
        (PREAMBLE + b"\1\xff\xff\xff\xff\x1f", "larger than 32 bits"),
        (PREAMBLE + b"\1\xff\xff\xff\xff\xff\0", "larger than 32 bits"),
        (PREAMBLE + b"\x0e\0", "section 14 at byte 8: there is no such section"),
        (PREAMBLE + sec(1, b"\xff\xff\xff\xff\x0f"), "announces 4294967295 types, 0 bytes are left"),
        (PREAMBLE + sec(1, b"\1\x60\xff\xff\xff\xff\x0f"), "4294967295 bytes announced"),
        (PREAMBLE + sec(1, b"\1\x60\1\x33\0"), "0x33 is no value type"),
        (PREAMBLE + sec(1, b"\1\x40\0\0"), "type form 0x40"),
        (PREAMBLE + sec(1, b"\1\x60\0\0\0"), "1 bytes follow the last entry"),
        (PREAMBLE + VOID + VOID, "section type at byte 14: stands twice or out of order"),
        (PREAMBLE + MEMORY + VOID, "stands twice or out of order"),
        (PREAMBLE + VOID + sec(2, b"\xff\xff\xff\xff\x0f"), "announces 4294967295 imports"),
        (PREAMBLE + VOID + sec(2, b"\1\3env\7k32_log\0\5"), "type 5 is not there"),
        (PREAMBLE + VOID + sec(2, b"\1\3env\1x\x09\0"), "import kind 9"),
        (PREAMBLE + VOID + sec(2, b"\1\xff\xff\xff\xff\x0f"), "a name of 4294967295 bytes"),
        (PREAMBLE + VOID + sec(2, b"\1\2\xc3\x28\1x\0\0"), "a name is not UTF-8"),
        (PREAMBLE + VOID + sec(3, b"\xff\xff\xff\xff\x0f"), "announces 4294967295 functions"),
        (PREAMBLE + VOID + sec(3, b"\1\7"), "type 7 is not there"),
        (PREAMBLE + sec(4, b"\1\x7f\0\1"), "0x7f is no reference type"),
        (PREAMBLE + sec(4, b"\1\x70\1\5\4"), "the minimum 5 is above the maximum 4"),
        (PREAMBLE + sec(4, b"\1\x70\x10\5"), "limits have flags 0x10"),
        (PREAMBLE + sec(4, b"\xff\xff\xff\xff\x0f"), "announces 4294967295 tables"),
        (PREAMBLE + sec(5, b"\1\0\x81\x80\4"), "a memory of more than 65536"),
        (PREAMBLE + sec(6, b"\1\x7f\2\x41\0\x0b"), "mutability 0x02"),
        (PREAMBLE + sec(6, b"\1\x7f\0\x42\0\x0b"), "a constant of type i64 where i32 belongs"),
        (PREAMBLE + sec(6, b"\1\x7f\0\x23\0\x0b"), "reads a global"),
        (PREAMBLE + sec(6, b"\1\x7f\0\x0b"), "0x0b is no constant instruction"),
        (PREAMBLE + sec(6, b"\1\x7f\0\x41\xff\xff\xff\xff\x0f\x0b"), "larger than 32 bits"),
        (PREAMBLE + sec(6, b"\1\x70\0\xd2\0\x0b"), "function 0 is not there"),
        (PREAMBLE + sec(6, b"\1\x7f\0\x41\0\x1a\x0b"), "more than one value"),
        (PREAMBLE + MEMORY + sec(7, b"\2\1a\2\0\1a\2\0"), "export a stands twice"),
        (PREAMBLE + MEMORY + sec(7, b"\1\1a\2\1"), "export a names memory 1, which is not there"),
        (PREAMBLE + MEMORY + sec(7, b"\1\1a\5\1"), "export kind 5"),
        (PREAMBLE + ONE_FUNCTION + MEMORY + sec(8, b"\1"), "function 1 is not there"),
        (
            PREAMBLE + sec(1, b"\1\x60\0\1\x7f") + sec(3, b"\1\0") + sec(8, b"\0"),
            "the start function has type () -> (i32)",
        ),
        (PREAMBLE + sec(9, b"\1\0\x41\0\x0b\0"), "names table 0, which is not there"),
        (PREAMBLE + sec(9, b"\1\1\0\xff\xff\xff\xff\x0f"), "announces 4294967295 element entries"),
        (PREAMBLE + sec(9, b"\1\1\0\1\0"), "function 0 is not there"),
        (PREAMBLE + sec(9, b"\1\1\1\0"), "an element segment holds no functions"),
        (PREAMBLE + sec(9, b"\1\x08"), "element segment flags 8"),
        (WHOLE[: -len(CODE)], "1 functions are declared, 0 have a body"),
        (WHOLE[: -len(CODE)] + sec(10, b"\1\xff\xff\xff\xff\x0f"), "4294967295 bytes announced"),
        (
            WHOLE[: -len(CODE)] + sec(12, b"\2") + CODE + sec(11, b"\0"),
            "2 data segments are announced, 0 are there",
        ),
        (WHOLE + sec(11, b"\1\0\x41\0\x0b\xff\xff\xff\xff\x0f"), "4294967295 bytes announced"),
        (WHOLE + sec(11, b"\1\3"), "data segment flags 3"),
        (PREAMBLE + sec(11, b"\1\0\x41\0\x0b\0"), "names memory 0, which is not there"),
        (WHOLE + sec(0, b""), "section custom (0) at byte"),
    ],
)
def test_a_lie_in_any_section_is_refused_with_its_place(module: bytes, what: str) -> None:
    assert what in cause(module)


def test_more_entries_than_the_contract_takes_are_refused() -> None:
    many = LIMITS.module_items + 1
    module = PREAMBLE + VOID + sec(3, leb(many), bytes(many))
    assert f"has {many} functions, at most {LIMITS.module_items} are taken" in cause(module)


def test_a_foreign_name_is_shown_on_one_short_line() -> None:
    name = b"a\n\x1b[31m" + b"x" * 200
    shown = cause(PREAMBLE + VOID + sec(2, b"\1", b"\3env", leb(len(name)), name, b"\0\0"))
    assert "\n" not in shown
    assert "\x1b" not in shown
    assert len(shown) < 160


def test_a_type_with_very_many_parameters_is_not_printed_in_full() -> None:
    module = PREAMBLE + sec(1, b"\1\x60", leb(50_000), b"\x7f" * 50_000, b"\0") + WHOLE[8 + len(VOID) :]
    assert "... 50000 in all) -> ()" in cause(module)
