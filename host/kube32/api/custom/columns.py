"""The table columns of custom kinds: additionalPrinterColumns, or the age where none are given."""

import time
from collections.abc import Callable
from datetime import datetime
from typing import Any

import orjson

from kube32.api.custom.jsonpath import JsonPath
from kube32.api.printers import since
from kube32.contract import Column

Object = dict[str, Any]
Cell = str | int | float | bool | None
Printer = Callable[[Object, float], Cell]
# Values that the columns of one table may visit together: what comes later stays empty.
_VISITS = 1_000_000
_NAME = Column(
    "Name",
    "string",
    ".metadata.name",
    "name",
    description="Name must be unique within a namespace. Is required when creating resources.",
)
_AGE = {
    "name": "Age",
    "type": "date",
    "jsonPath": ".metadata.creationTimestamp",
    "description": "CreationTimestamp is a timestamp representing the server time when this object was created.",
}


def columns_of(version: Object) -> tuple[tuple[Column, ...], tuple[Printer, ...]]:
    """Columns of a version of a definition, and what makes their cells."""
    rows = version.get("additionalPrinterColumns") or [_AGE]
    columns = [_NAME]
    printers: list[Printer] = [_name]
    allowance = _Allowance()
    for row in rows:
        columns.append(
            Column(
                row["name"],
                row["type"],
                row["jsonPath"],
                row.get("format") or "",
                row.get("priority") or 0,
                row.get("description") or "",
            )
        )
        printers.append(_printer(row["type"], JsonPath(row["jsonPath"]), allowance))
    return tuple(columns), tuple(printers)


class _Allowance:
    """The visits that are left for one table; all cells of a table are made at one `now`."""

    __slots__ = ("_at", "_left")

    def __init__(self) -> None:
        self._at = 0.0
        self._left = [0]

    def at(self, now: float) -> list[int]:
        """What is left of the table that is made at `now`."""
        if now != self._at:
            self._at, self._left = now, [_VISITS]
        return self._left


def _name(obj: Object, _now: float) -> Cell:
    name = obj.get("metadata", {}).get("name")
    return name if isinstance(name, str) else ""


def _printer(kind: str, path: JsonPath, allowance: _Allowance) -> Printer:
    def cell(obj: Object, now: float) -> Cell:
        return shown(kind, path.first(obj, allowance.at(now)), now)

    return cell


def shown(kind: str, value: Any, now: float | None = None) -> Cell:
    """A cell of a column of this type; nothing when the value has another one."""
    if value is None:
        return None
    if kind == "string":
        return _text(value)
    if kind == "date":
        return _age(value, time.time() if now is None else now)
    if kind == "boolean":
        return value if isinstance(value, bool) else None
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return None
    return int(value) if kind == "integer" else float(value)


def _text(value: Any) -> str:
    if isinstance(value, str):
        return value
    if isinstance(value, float) and value.is_integer() and abs(value) < 1e15:
        return str(int(value))
    return orjson.dumps(value, option=orjson.OPT_SORT_KEYS).decode()


def _age(value: Any, now: float) -> Cell:
    if not isinstance(value, str):
        return None
    try:
        moment = datetime.fromisoformat(value)
    except ValueError:
        return "<invalid>"
    return since(value, now) if moment.tzinfo is not None else "<invalid>"
