"""What a WebAssembly module's sections say about a pod: imports, exports, memory, globals, tables, digest.

Reads only; bodies of functions are left to the engine. Rules: pod ABI, and "Modules" of the decisions.
"""

from kube32.formats.wasm_module.parse import digest, parse_module
from kube32.formats.wasm_module.records import (
    DataSegment,
    ElemSegment,
    ExportDecl,
    FuncType,
    GlobalDecl,
    ImportDecl,
    ModuleInfo,
    ModuleRefused,
    Section,
    TableDecl,
)

__all__ = [
    "DataSegment",
    "ElemSegment",
    "ExportDecl",
    "FuncType",
    "GlobalDecl",
    "ImportDecl",
    "ModuleInfo",
    "ModuleRefused",
    "Section",
    "TableDecl",
    "digest",
    "parse_module",
]
