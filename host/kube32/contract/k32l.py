"""The K32L layout from k32l.yaml, as struct formats and numbers."""

import struct
from dataclasses import dataclass
from typing import Any, cast

from kube32.contract.data import load
from kube32.contract.k32s import struct_of

_DATA = cast(dict[str, Any], load("k32l.yaml"))


@dataclass(frozen=True)
class K32LLayout:
    """Constants and structs of the K32L format, version 1."""

    magic: bytes
    version: int
    blank: int
    alignment: int
    no_record: int
    sector_bytes: int
    page_bytes: int
    erase_cycles: int
    sector_header: struct.Struct
    record_header: struct.Struct
    record_magic: int
    record_reserved: int
    types: dict[str, int]
    begins: int
    boot: int
    mark: struct.Struct
    fence: struct.Struct
    raw: dict[str, Any]


def _layout() -> K32LLayout:
    return K32LLayout(
        magic=_DATA["magic"].encode(),
        version=_DATA["version"],
        blank=_DATA["blank"],
        alignment=_DATA["alignment"],
        no_record=_DATA["no_record"],
        sector_bytes=_DATA["sector_bytes"],
        page_bytes=_DATA["page_bytes"],
        erase_cycles=_DATA["erase_cycles"],
        sector_header=struct_of(_DATA["sector_header"]),
        record_header=struct_of(_DATA["record_header"]),
        record_magic=_DATA["record_magic"],
        record_reserved=_DATA["record_reserved"],
        types=dict(_DATA["types"]),
        begins=_DATA["flags"]["begins"],
        boot=_DATA["flags"]["boot"],
        mark=struct_of(_DATA["mark"]),
        fence=struct_of(_DATA["fence"]),
        raw=_DATA,
    )


K32L = _layout()
