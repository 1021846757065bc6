"""docs/formats.md shows the layout that the contract has."""

import re
from pathlib import Path
from typing import Any

from kube32.contract import K32L, K32S, LIMITS, PROFILES, limits_for, text

PAGE = (Path(__file__).parents[3] / "docs" / "formats.md").read_text(encoding="utf-8")
DOC, JOURNAL = PAGE.split("\n# K32L")
SIZES = {"u8": 1, "u16": 2, "u32": 4, "u64": 8}


def size_of(field: dict[str, Any]) -> int:
    return SIZES.get(field["type"]) or int(field["type"][6:])


def test_the_header_table_is_the_contracts() -> None:
    rows = re.findall(r"^\| (\d+) \| (\d+) \| ([\w -]+),?[^|]*\|", DOC, re.MULTILINE)
    at = 0
    wanted = []
    for field in K32S.raw["header"]:
        size = size_of(field)
        wanted.append((str(at), str(size)))
        at += size
    assert [(offset, size) for offset, size, _ in rows] == wanted
    assert f"| {at} | | sections |" in DOC
    assert f"| end - {K32S.trailer_bytes} | {K32S.trailer_bytes} | trailer |" in DOC


def test_the_sections_and_types_are_the_contracts() -> None:
    rows = re.findall(r"^\| (\d+) \| `([A-Z]+)` \|", DOC, re.MULTILINE)
    assert {name: int(number) for number, name in rows} == K32S.section_types
    for name, code in K32S.value_types.items():
        assert re.search(rf"`0x{code:02X}`\s+{name}", DOC)


def test_limits_and_texts_are_the_contracts() -> None:
    assert f"{LIMITS.k32s_sections:,} sections" in DOC
    assert text("refusals", "prefix", cause=text("refusals", "trailer")) in " ".join(DOC.split())


def test_the_journals_tables_are_the_contracts() -> None:
    rows = re.findall(r"^\| (\d+) \| (\d+) \| ([\w ]+?) \|", JOURNAL, re.MULTILINE)
    wanted = []
    for fields in (K32L.raw["sector_header"], K32L.raw["record_header"]):
        at = 0
        for field in fields:
            wanted.append((str(at), str(size_of(field)), field["name"].replace("_", " ")))
            at += size_of(field)
    assert [(offset, size, name.lower()) for offset, size, name in rows] == wanted
    words = " ".join(JOURNAL.split())
    assert ", ".join(f"{number} {name}" for name, number in K32L.types.items()) in words
    assert f"| `0x{K32L.record_magic:02X}` |" in JOURNAL
    assert f"A sector has {K32L.sector_bytes:,} bytes" in words
    assert f"one {K32L.page_bytes}-byte page" in words
    for profile in PROFILES:
        limits = limits_for(profile)
        assert f"{limits.journal_live_bytes:,} of {limits.journal_bytes >> 20} MiB" in words
