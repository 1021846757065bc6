"""docs/formats.md shows the layout that the contract has."""

import re
from pathlib import Path

from kube32.contract import K32S, LIMITS, text

DOC = (Path(__file__).parents[3] / "docs" / "formats.md").read_text(encoding="utf-8")


def test_the_header_table_is_the_contracts() -> None:
    rows = re.findall(r"^\| (\d+) \| (\d+) \| ([\w -]+),?[^|]*\|", DOC, re.MULTILINE)
    at = 0
    wanted = []
    for field in K32S.raw["header"]:
        size = {"u16": 2, "u32": 4, "u64": 8}.get(field["type"]) or int(field["type"][6:])
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
