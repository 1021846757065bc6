"""Server-side printing: what an Accept header asks for, and objects as Tables or PartialObjectMetadata.

Columns come from the contract's resources, cells from printers.py; rows are as kube-apiserver makes them,
in lists and in watches.
"""

import re
import time
from collections.abc import Callable, Iterable
from enum import StrEnum
from functools import cache
from typing import Any

from kube32.api.custom.resource import CustomResource
from kube32.api.printers import PRINTERS, row_conditions
from kube32.api.printers import Cell as Printed
from kube32.api.status import bad_request, not_acceptable
from kube32.contract import Column, Resource, resource_of

_META_GROUP = "meta.k8s.io"
_INCLUDE = ("None", "Metadata", "Object")
_MAX_ACCEPT = 4096
Cell = Printed | float
Printers = tuple[Callable[[dict[str, Any], float], Cell | None], ...]


class View(StrEnum):
    """How an answer shows objects. The two versions of Tables and partial objects differ by name alone."""

    JSON = "json"
    TABLE = "table"
    PARTIAL = "partial"
    TABLE_V1BETA1 = "table/v1beta1"
    PARTIAL_V1BETA1 = "partial/v1beta1"

    @property
    def is_table(self) -> bool:
        """Whether objects become rows."""
        return self in (View.TABLE, View.TABLE_V1BETA1)

    @property
    def is_partial(self) -> bool:
        """Whether objects are cut down to their metadata."""
        return self in (View.PARTIAL, View.PARTIAL_V1BETA1)

    @property
    def api_version(self) -> str:
        """apiVersion of the Table or PartialObjectMetadata."""
        return f"{_META_GROUP}/v1beta1" if self.value.endswith("v1beta1") else f"{_META_GROUP}/v1"


_AS = {
    ("Table", "v1"): View.TABLE,
    ("Table", "v1beta1"): View.TABLE_V1BETA1,
    ("PartialObjectMetadata", "v1"): View.PARTIAL,
    ("PartialObjectMetadata", "v1beta1"): View.PARTIAL_V1BETA1,
    ("PartialObjectMetadataList", "v1"): View.PARTIAL,
    ("PartialObjectMetadataList", "v1beta1"): View.PARTIAL_V1BETA1,
}


def accepted(accept: str) -> list[tuple[str, dict[str, str]]]:
    """The media types of an Accept header and their parameters, the most wanted first; 406 when too long."""
    if len(accept) > _MAX_ACCEPT:
        raise not_acceptable()
    found: list[tuple[float, str, dict[str, str]]] = []
    for clause in accept.split(","):
        media, *rest = (part.strip() for part in clause.split(";"))
        if not media:
            continue
        parameters = {k.strip(): v.strip().strip('"') for k, _, v in (p.partition("=") for p in rest)}
        quality = _quality(parameters.pop("q", "1"))
        if quality > 0:
            found.append((-quality, media.lower(), parameters))
    found.sort(key=lambda clause: clause[0])
    return [(media, parameters) for _, media, parameters in found]


def _quality(text: str) -> float:
    return float(text) if re.fullmatch(r"[01](\.[0-9]{0,3})?", text) else 1.0


def negotiate(accept: str) -> View:
    """The first form in the Accept header that is offered; ApiFailure 406 when none is."""
    if not accept or accept in ("application/json", "*/*"):
        return View.JSON
    return _negotiate(accept)


def _negotiate(accept: str) -> View:
    for media, parameters in accepted(accept):
        if media not in ("application/json", "*/*", "application/*"):
            continue
        wanted = parameters.get("as")
        if wanted is None:
            return View.JSON
        view = _AS.get((wanted, parameters.get("v", "")))
        if view is not None and parameters.get("g") == _META_GROUP:
            return view
    raise not_acceptable()


def include_of(value: str) -> str:
    """The query parameter includeObject: None, Metadata (default) or Object; ApiFailure 400 for another."""
    if not value:
        return "Metadata"
    if value not in _INCLUDE:
        raise bad_request(f'includeObject must be one of None, Metadata or Object, not "{value}"')
    return value


def table(
    resource: Resource,
    objects: Iterable[dict[str, Any]],
    revision: int | str = "",
    include_object: str = "Metadata",
    *,
    continue_token: str = "",
    remaining: int | None = None,
    view: View = View.TABLE,
    headers: bool = True,
    now: float | None = None,
) -> dict[str, Any]:
    """A Table of objects. `now`: wall clock in seconds since 1970. `headers` False: without columns."""
    printers = resource.printers if isinstance(resource, CustomResource) else _cells_of(resource.kind)
    at = time.time() if now is None else now
    rows = [_row(resource, printers, obj, include_object, view, at) for obj in objects]
    meta: dict[str, Any] = {"resourceVersion": str(revision)}
    if continue_token:
        meta["continue"] = continue_token
    if remaining is not None:
        meta["remainingItemCount"] = remaining
    return {
        "kind": "Table",
        "apiVersion": view.api_version,
        "metadata": meta,
        "columnDefinitions": _definitions(resource) if headers else None,
        "rows": rows,
    }


def row(
    resource: Resource,
    obj: dict[str, Any],
    include_object: str = "Metadata",
    *,
    view: View = View.TABLE,
    headers: bool = True,
    now: float | None = None,
) -> dict[str, Any]:
    """The Table of one object, for GET and watch events. A watch sends `headers` with the first event
    only.
    """
    version = obj.get("metadata", {}).get("resourceVersion", "")
    return table(resource, (obj,), version, include_object, view=view, headers=headers, now=now)


def partial(obj: dict[str, Any], view: View = View.PARTIAL) -> dict[str, Any]:
    """An object's PartialObjectMetadata."""
    return {
        "kind": "PartialObjectMetadata",
        "apiVersion": view.api_version,
        "metadata": obj.get("metadata", {}),
    }


def partial_list(
    objects: Iterable[dict[str, Any]],
    revision: int | str,
    *,
    continue_token: str = "",
    remaining: int | None = None,
    view: View = View.PARTIAL,
) -> dict[str, Any]:
    """A PartialObjectMetadataList."""
    meta: dict[str, Any] = {"resourceVersion": str(revision)}
    if continue_token:
        meta["continue"] = continue_token
    if remaining is not None:
        meta["remainingItemCount"] = remaining
    return {
        "kind": "PartialObjectMetadataList",
        "apiVersion": view.api_version,
        "metadata": meta,
        "items": [partial(obj, view) for obj in objects],
    }


def _row(
    resource: Resource,
    printers: Printers,
    obj: dict[str, Any],
    include_object: str,
    view: View,
    now: float,
) -> dict[str, Any]:
    made: dict[str, Any] = {"cells": [printer(obj, now) for printer in printers]}
    conditions = row_conditions(resource.builtin, obj)
    if conditions:
        made["conditions"] = conditions
    if include_object == "Metadata":
        made["object"] = partial(obj, View.PARTIAL_V1BETA1 if view is View.TABLE_V1BETA1 else View.PARTIAL)
    else:
        made["object"] = obj if include_object == "Object" else None
    return made


def _definitions(resource: Resource) -> list[dict[str, Any]]:
    return [
        {
            "name": c.name,
            "type": c.type,
            "format": c.format,
            "description": c.description,
            "priority": c.priority,
        }
        for c in resource.columns
    ]


@cache
def _cells_of(kind: str) -> Printers:
    return tuple(_printer(column) for column in resource_of(kind).columns)


def _printer(column: Column) -> Callable[[dict[str, Any], float], Cell | None]:
    if column.value.startswith("fn:"):
        return PRINTERS[column.value[3:]]
    keys = tuple(column.value.split(".")[1:])
    missing = "<none>" if column.format == "name" or column.type == "integer" else ""

    def cell(obj: dict[str, Any], _now: float) -> Cell:
        value: Any = obj
        for key in keys:
            value = value.get(key) if isinstance(value, dict) else None
        return value if isinstance(value, (str, int)) else missing

    return cell
