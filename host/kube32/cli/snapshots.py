"""inspect: what a snapshot file holds, for a person."""

from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from kube32.cli.errors import CliError
from kube32.contract import LIMITS
from kube32.formats.inspect import describe


def read(path: Path) -> dict[str, Any]:
    """The file's facts; its key "problem" is None or says what is wrong with it."""
    try:
        return describe(path, LIMITS)
    except OSError as error:
        raise CliError(f"{path}: {error.strerror}") from None


def show(facts: dict[str, Any]) -> None:
    """Prints the facts as tables; a problem comes last, where it is seen."""
    console = Console(highlight=False, soft_wrap=True)
    console.print(f"{facts['file']}: {facts['sizeBytes']} bytes", markup=False)
    if facts["header"]:
        _print(console, "header", ["field", "value"], [[k, _cell(v)] for k, v in facts["header"].items()])
    _rows(console, facts, "sections", ["name", "type", "offset", "length", "complete"])
    _rows(console, facts, "globals", ["index", "type", "value", "bits"])
    _rows(console, facts, "tables", ["index", "size", "entries"])
    _rows(console, facts, "channels", ["handle", "name"])
    _rows(console, facts, "events", ["topic", "payloadBytes"])
    if facts["trailer"]:
        _print(console, "trailer", ["field", "value"], [[k, _cell(v)] for k, v in facts["trailer"].items()])
    console.print(
        f"problem: {facts['problem']}" if facts["problem"] else "the snapshot is whole", markup=False
    )


def _rows(console: Console, facts: dict[str, Any], part: str, columns: list[str]) -> None:
    rows = facts[part]
    present = [c for c in columns if any(c in row for row in rows)]
    if rows:
        _print(console, part, present, [[_cell(row.get(c)) for c in present] for row in rows])


def _cell(value: Any) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, list):
        shown = ", ".join("null" if v is None else str(v) for v in value[:16])
        return f"{shown}, ... ({len(value)})" if len(value) > 16 else shown
    # A foreign file's text must not steer the terminal.
    return "" if value is None else "".join(c if c.isprintable() else f"\\u{ord(c):04x}" for c in str(value))


def _print(console: Console, title: str, columns: list[str], rows: list[list[str]]) -> None:
    table = Table(
        title=title, title_justify="left", title_style="bold", box=None, pad_edge=False, padding=(0, 3, 0, 0)
    )
    for column in columns:
        table.add_column(column.upper(), overflow="fold")
    for row in rows:
        table.add_row(*(Text(cell) for cell in row))
    console.print(table)
    console.print()
