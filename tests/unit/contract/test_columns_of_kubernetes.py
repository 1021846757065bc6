"""Short names, categories, scope and columns of the kinds are those of a real kube-apiserver.

The table was read off a running one and lies beside the checkout; without it the test says that it skips.
"""

import re
from dataclasses import dataclass
from pathlib import Path

import pytest

from kube32.contract import RESOURCES, Resource

FACTS = Path(__file__).resolve().parents[4] / "shared" / "facts" / "kubernetes-api.md"
# Newer than the table's server: a Job's Status column came with 1.30, these subresources with others.
NEWER_COLUMNS = {"Job": {"Status"}}
# What Kube32 leaves out on purpose.
LEFT_OUT = {
    "PersistentVolume",
    "PodDisruptionBudget",
    "ReplicaSet/scale",
    "ReplicaSet/status",
    "Pod/eviction",
}


@dataclass(frozen=True)
class Row:
    """One line of the table."""

    kind: str
    plural: str
    short: tuple[str, ...]
    namespaced: bool
    categories: tuple[str, ...]
    subresources: tuple[str, ...]
    columns: tuple[tuple[str, str, bool], ...]


def rows() -> list[Row]:
    found = []
    for line in FACTS.read_text(encoding="utf-8").splitlines():
        cells = [c.strip() for c in line.strip("|").split("|")] if line.startswith("| ") else []
        if len(cells) != 7 or cells[0] == "kind":
            continue
        kind = re.sub(r"\(.*?\)", "", cells[0]).split()[-1]
        columns = re.findall(r"([^;]+?)\((?:string|integer|date)(?:,name)?\)( wide)?(?:;|$)", cells[6])
        types = re.findall(r"\((string|integer|date)(?:,name)?\)(?: wide)?(?:;|$)", cells[6])
        found.append(
            Row(
                kind,
                cells[1],
                tuple(s for s in re.sub(r"\(.*\)", "", cells[2]).strip().split(",") if s),
                cells[3] == "yes",
                tuple(c for c in cells[4].split(", ") if c),
                tuple(s for s in cells[5].split(", ") if s),
                tuple((n.strip(), t, bool(w)) for (n, w), t in zip(columns, types, strict=True)),
            )
        )
    return found


def own(kind: str) -> Resource | None:
    return next((r for r in RESOURCES if r.kind == kind and r.storage != "metrics"), None)


@pytest.mark.skipif(not FACTS.exists(), reason=f"{FACTS} is not there")
def test_kinds_are_named_and_shown_as_kube_apiserver_does() -> None:
    faults, compared = [], 0
    for row in rows():
        resource = own(row.kind)
        if resource is None:
            if row.kind not in LEFT_OUT:
                faults.append(f"{row.kind} is not served")
            continue
        compared += 1
        columns = tuple(
            (c.name, c.type, c.priority > 0)
            for c in resource.columns
            if c.name not in NEWER_COLUMNS.get(row.kind, set())
        )
        for what, ours, theirs in (
            ("plural", resource.plural, row.plural),
            ("short names", resource.short_names, row.short),
            ("scope", resource.namespaced, row.namespaced),
            ("categories", resource.categories, row.categories),
            ("columns", columns, row.columns),
        ):
            if ours != theirs:
                faults.append(f"{row.kind}: {what} {ours}, kube-apiserver has {theirs}")
        faults += [
            f"{row.kind}: no subresource {name}"
            for name in row.subresources
            if name not in resource.subresources and f"{row.kind}/{name}" not in LEFT_OUT
        ]
    assert not faults, "\n".join(faults)
    assert compared >= 20
