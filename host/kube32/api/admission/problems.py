"""Collects the faults of an object, worded as Kubernetes' field errors, and the checks that every schema
gives by itself.
"""

import json
from collections.abc import Iterable
from typing import Any

from kube32.api import schemas
from kube32.api.status import ApiFailure, Cause, invalid
from kube32.contract import Resource, text

_SHOWN = 256
# Filled by controllers and kubelets, which may leave out what is false or zero.
_UNCHECKED = ("status",)


class Problems:
    """The faults found so far."""

    __slots__ = ("causes", "prefix")

    def __init__(self) -> None:
        self.causes: list[Cause] = []
        self.prefix = ""

    def within(self, path: str) -> "Problems":
        """The same collection for what stands at `path`: paths are written from there."""
        inner = Problems()
        inner.causes = self.causes
        inner.prefix = f"{self.prefix}{path}."
        return inner

    def required(self, path: str, detail: str = "") -> None:
        """Nothing is there."""
        self.add(path, "Required", f"Required value: {detail}" if detail else "Required value")

    def invalid(self, path: str, value: Any, detail: str) -> None:
        """What is there cannot be."""
        self.add(path, "Invalid", f"Invalid value: {shown(value)}: {detail}")

    def invalids(self, path: str, value: Any, details: Iterable[str]) -> None:
        """Several rules are broken by one value."""
        for detail in details:
            self.invalid(path, value, detail)

    def unsupported(self, path: str, value: Any, supported: Iterable[str]) -> None:
        """The value is none of those that are known."""
        names = ", ".join(f'"{s}"' for s in sorted(supported))
        self.add(path, "NotSupported", f"Unsupported value: {shown(value)}: supported values: {names}")

    def duplicate(self, path: str, value: Any) -> None:
        """The value stands twice."""
        self.add(path, "Duplicate", f"Duplicate value: {shown(value)}")

    def forbidden(self, path: str, detail: str) -> None:
        """The field must not be set, or not be changed."""
        self.add(path, "Forbidden", f"Forbidden: {detail}")

    def not_found(self, path: str, value: Any) -> None:
        """The value names something that is not there."""
        self.add(path, "NotFound", f"Not found: {shown(value)}")

    def too_long(self, path: str, limit: int) -> None:
        """More than `limit` bytes."""
        self.add(path, "TooLong", f"Too long: may not be more than {limit} bytes")

    def between(self, path: str, value: int, low: int, high: int) -> None:
        """Checks a range, both ends included."""
        if not low <= value <= high:
            self.invalid(path, value, text("validation", "range", low=low, high=high))

    def add(self, path: str, kind: str, message: str) -> None:
        """A fault in other words; `kind` is Kubernetes' ("Invalid")."""
        self.causes.append(Cause(f"{self.prefix}{path}", f"FieldValue{kind}", message))

    def failure(self, resource: Resource | str, name: str) -> ApiFailure | None:
        """422 with all faults, or None."""
        return invalid(resource, name, self.causes) if self.causes else None


def shown(value: Any) -> str:
    """A value as messages show it, cut when it is long."""
    written = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    return written if len(written) <= _SHOWN else f"{written[:_SHOWN]}..."


def check_schema(resource: Resource | str, obj: dict[str, Any], problems: Problems) -> None:
    """Required fields and enums of everything but the status."""
    shape = schemas.shape_of(resource)
    for key, field in shape.fields.items():
        if key not in _UNCHECKED:
            _check_field(field, obj, key, problems)


def _check_field(field: schemas.Field, obj: dict[str, Any], path: str, problems: Problems) -> None:
    value = obj.get(field.name)
    if value is None or (value in ("", []) and field.name != "value"):
        if field.required:
            problems.required(path)
        return
    if field.enum and value not in field.enum:
        problems.unsupported(path, value, field.enum)
        return
    _check_value(field.type, value, path, problems)


def _check_value(kind: schemas.Type, value: Any, path: str, problems: Problems) -> None:
    if kind.kind == "object":
        for field in schemas.shapes()[kind.name].fields.values():
            if field.required or field.name in value:
                _check_field(field, value, f"{path}.{field.name}", problems)
    elif kind.item is not None and kind.item.kind != "scalar":
        if kind.kind == "list":
            for index, element in enumerate(value):
                _check_value(kind.item, element, f"{path}[{index}]", problems)
        else:
            for key, element in value.items():
                _check_value(kind.item, element, f"{path}[{key}]", problems)
