"""The K32S layout from k32s.yaml, as struct formats and section numbers."""

import struct
from dataclasses import dataclass
from typing import Any, cast

from kube32.contract.data import load

_DATA = cast(dict[str, Any], load("k32s.yaml"))
_CODES = {"u8": "B", "u16": "H", "u32": "I", "u64": "Q"}


def struct_of(fields: list[dict[str, str]]) -> struct.Struct:
    """The little-endian struct of fixed-size fields (u8 to u64, bytes:N)."""
    codes = [f"{f['type'][6:]}s" if f["type"].startswith("bytes:") else _CODES[f["type"]] for f in fields]
    return struct.Struct("<" + "".join(codes))


@dataclass(frozen=True)
class K32SLayout:
    """Constants and structs of the K32S format, version 1."""

    magic: bytes
    version: int
    header: struct.Struct
    header_fields: tuple[str, ...]
    section_header: struct.Struct
    trailer_bytes: int
    section_types: dict[str, int]
    section_names: dict[int, str]
    sections: dict[str, Any]
    global_entry: struct.Struct
    table_header: struct.Struct
    value_types: dict[str, int]
    value_type_names: dict[int, str]
    null_funcref: int
    page_bytes: int
    content_type: str
    headers: dict[str, str]
    raw: dict[str, Any]


def _layout() -> K32SLayout:
    sections: dict[str, Any] = _DATA["sections"]
    types = {n: s["type"] for n, s in sections.items()}
    return K32SLayout(
        magic=_DATA["magic"].encode(),
        version=_DATA["version"],
        header=struct_of(_DATA["header"]),
        header_fields=tuple(f["name"] for f in _DATA["header"]),
        section_header=struct_of(_DATA["section_header"]),
        trailer_bytes=_DATA["trailer_bytes"],
        section_types=types,
        section_names={t: n for n, t in types.items()},
        sections=sections,
        global_entry=struct_of(sections["GLOBALS"]["fields"]),
        table_header=struct_of(sections["TABLE"]["fields"]),
        value_types=dict(_DATA["value_types"]),
        value_type_names={v: k for k, v in _DATA["value_types"].items()},
        null_funcref=_DATA["null_funcref"],
        page_bytes=_DATA["page_bytes"],
        content_type=_DATA["content_type"],
        headers=dict(_DATA["headers"]),
        raw=_DATA,
    )


K32S = _layout()
