"""Validation of values against a compiled schema, worded as kube-apiserver words it.

Schemas and objects come from clients: alternatives within alternatives could multiply the work, so that each step
is counted and an object that needs more than its share is refused (TooMuchWork).
"""

import json
from dataclasses import dataclass, field
from typing import Any

import orjson

from kube32.api.admission.problems import shown
from kube32.api.custom import formats
from kube32.api.custom.embedded import check_embedded
from kube32.api.custom.regex import TooMuchWork
from kube32.api.custom.schema import Node
from kube32.api.status import Cause

Path = tuple["Path | None", str | int]
Object = dict[str, Any]
_INT_RANGES = {"int32": 2**31, "int64": 2**63}
_UNSHOWN = "<nil>"


@dataclass(slots=True)
class Fault:
    """One fault and where it is; `whole` marks those that Kubernetes reports without a field."""

    path: Path | None
    type: str
    message: str
    whole: bool = False

    def cause(self) -> Cause:
        """The fault in a Status."""
        return Cause(_UNSHOWN if self.whole else dotted(self.path) or _UNSHOWN, self.type, self.message)


@dataclass(slots=True)
class Check:
    """One validation: `budget[0]` is the number of steps that are left."""

    budget: list[int]
    faults: list[Fault] = field(default_factory=list)

    def value(self, node: Node, value: Any, path: Path | None) -> None:
        """Checks one value and what is in it. TooMuchWork."""
        self.budget[0] -= 1
        if self.budget[0] < 0:
            raise TooMuchWork
        if value is None and node.nullable:
            return
        kind = json_type(value)
        if not _fits(node, value, kind):
            wanted = "integer,string" if node.int_or_string else node.type
            said = f'{dotted(path)} in body must be of type {wanted}: "{kind}"'
            self.faults.append(Fault(path, "FieldValueTypeInvalid", f'Invalid value: "{kind}": {said}'))
            return
        if node.enum is not None:
            self._enum(node.enum, value, path)
        if kind == "object":
            self._object(node, value, path)
        elif kind == "array":
            self._array(node, value, path)
        elif kind == "string":
            self._string(node, value, path)
        elif kind in ("integer", "number"):
            self._number(node, value, path)
        self._alternatives(node, value, path)

    def _invalid(self, path: Path | None, value: Any, rule: str) -> None:
        said = f"Invalid value: {shown(value)}: {dotted(path)} in body {rule}"
        self.faults.append(Fault(path, "FieldValueInvalid", said))

    def _enum(self, allowed: tuple[Any, ...], value: Any, path: Path | None) -> None:
        self.budget[0] -= len(allowed) // 8
        if not any(same(value, one) for one in allowed):
            names = ", ".join(json.dumps(a if isinstance(a, str) else _compact(a)) for a in allowed)
            said = f"Unsupported value: {shown(value)}: supported values: {names}"
            self.faults.append(Fault(path, "FieldValueNotSupported", said))

    def _object(self, node: Node, value: Object, path: Path | None) -> None:
        for name in node.required:
            if name not in value:
                self.faults.append(Fault((path, name), "FieldValueRequired", "Required value"))
        numbers = node.numbers
        if numbers:
            if len(value) < numbers.get("minProperties", 0):
                least = numbers["minProperties"]
                self._invalid(path, value, f"should have at least {least} properties")
            self._too_many(path, len(value), numbers.get("maxProperties"))
        if node.embedded:
            for name, kind, message in check_embedded(value):
                self.faults.append(Fault((path, name), kind, message))
        properties, additional = node.properties, node.additional
        for name, item in value.items():
            inner = properties.get(name) or additional
            if inner is not None:
                self.value(inner, item, (path, name))

    def _too_many(self, path: Path | None, count: int, most: int | float | None) -> None:
        if most is not None and count > most:
            said = f"Too many: {count}: must have at most {most} items"
            self.faults.append(Fault(path, "FieldValueTooMany", said))

    def _array(self, node: Node, value: list[Any], path: Path | None) -> None:
        least = node.numbers.get("minItems", 0)
        if len(value) < least:
            self._invalid(path, value, f"should have at least {least} items")
        self._too_many(path, len(value), node.numbers.get("maxItems"))
        if node.items is not None:
            for index, item in enumerate(value):
                self.value(node.items, item, (path, index))
        if node.list_type in ("set", "map"):
            self._duplicates(node, value, path)

    def _duplicates(self, node: Node, value: list[Any], path: Path | None) -> None:
        seen: set[bytes] = set()
        for index, item in enumerate(value):
            self.budget[0] -= 1
            key = item
            if node.list_type == "map":
                if not isinstance(item, dict):
                    continue
                key = {name: item[name] for name in node.map_keys if name in item}
            written = orjson.dumps(key, option=orjson.OPT_SORT_KEYS)
            if written in seen:
                said = f"Duplicate value: {shown(key)}"
                self.faults.append(Fault((path, index), "FieldValueDuplicate", said))
            seen.add(written)

    def _string(self, node: Node, value: str, path: Path | None) -> None:
        numbers = node.numbers
        if len(value) < numbers.get("minLength", 0):
            self._invalid(path, value, f"should be at least {numbers['minLength']} chars long")
        most = numbers.get("maxLength")
        if most is not None and len(value) > most:
            said = f"Too long: may not be more than {most} bytes"
            self.faults.append(Fault(path, "FieldValueTooLong", said))
            return
        if node.pattern is not None and not node.pattern.search(value, self.budget):
            self._invalid(path, value, f"should match '{node.pattern.pattern}'")
        if node.format and not formats.holds(node.format, value):
            said = f"{dotted(path)} in body must be of type {node.format}: {shown(value)}"
            self.faults.append(Fault(path, "FieldValueTypeInvalid", f"Invalid value: {shown(value)}: {said}"))

    def _number(self, node: Node, value: int | float, path: Path | None) -> None:
        bound = _INT_RANGES.get(node.format)
        if bound is not None and not -bound <= value < bound:
            said = f'Invalid value: "": Checked value must be of type {node.type} with format {node.format}'
            self.faults.append(Fault(path, "FieldValueInvalid", said, whole=True))
        numbers = node.numbers
        if not numbers:
            return
        low, high, step = numbers.get("minimum"), numbers.get("maximum"), numbers.get("multipleOf")
        if low is not None and (value <= low if node.exclusive[0] else value < low):
            self._invalid(
                path, value, f"should be greater than {'' if node.exclusive[0] else 'or equal to '}{low}"
            )
        if high is not None and (value >= high if node.exclusive[1] else value > high):
            self._invalid(
                path, value, f"should be less than {'' if node.exclusive[1] else 'or equal to '}{high}"
            )
        if step is not None and not _is_multiple(value, step):
            self._invalid(path, value, f"should be a multiple of {step}")

    def _alternatives(self, node: Node, value: Any, path: Path | None) -> None:
        if node.any_of and not node.int_or_string:
            valid, best = self._tried(node.any_of, value, path, stop=True)
            if not valid:
                self._whole(path, "must validate at least one schema (anyOf)")
                self.faults += best
        if node.one_of:
            valid, best = self._tried(node.one_of, value, path)
            if valid != 1:
                found = f"Found {valid} valid alternatives" if valid else "Found none valid"
                self._whole(path, f"must validate one and only one schema (oneOf). {found}")
            if not valid:
                self.faults += best
        if node.all_of:
            before = len(self.faults)
            valid = 0
            for inner in node.all_of:
                count = len(self.faults)
                self.value(inner, value, path)
                valid += len(self.faults) == count
            if valid < len(node.all_of):
                said = "must validate all the schemas (allOf)"
                self._whole(path, said if valid else f"{said}. None validated", at=before)
        if node.none_of is not None:
            inner_check = Check(self.budget)
            inner_check.value(node.none_of, value, path)
            if not inner_check.faults:
                self._whole(path, "must not validate the schema (not)")

    def _whole(self, path: Path | None, said: str, at: int | None = None) -> None:
        fault = Fault(path, "FieldValueInvalid", f'Invalid value: "": "{dotted(path)}" {said}', whole=True)
        self.faults.insert(len(self.faults) if at is None else at, fault)

    def _tried(
        self, nodes: tuple[Node, ...], value: Any, path: Path | None, *, stop: bool = False
    ) -> tuple[int, list[Fault]]:
        """How many of the schemas hold, and the faults of the one that is nearest. `stop`: one is enough."""
        valid, best = 0, None
        for node in nodes:
            check = Check(self.budget)
            check.value(node, value, path)
            if not check.faults:
                valid += 1
                if stop:
                    break
            elif best is None or len(check.faults) < len(best):
                best = check.faults
        return valid, best or []


def json_type(value: Any) -> str:
    """The JSON type of a value as messages name it."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "boolean"
    if isinstance(value, str):
        return "string"
    if isinstance(value, int):
        return "integer"
    if isinstance(value, float):
        return "number"
    return "array" if isinstance(value, list) else "object"


def _fits(node: Node, value: Any, kind: str) -> bool:
    if node.int_or_string:
        return kind in ("integer", "string") or (kind == "number" and value.is_integer())
    if not node.type or node.type == kind:
        return True
    if node.type == "number":
        return kind == "integer"
    return node.type == "integer" and kind == "number" and bool(value.is_integer())


def same(one: Any, other: Any) -> bool:
    """Whether two values are the same JSON; 1 and 1.0 are, 1 and true are not."""
    if isinstance(one, bool) or isinstance(other, bool):
        return one is other
    if isinstance(one, (dict, list)) or isinstance(other, (dict, list)):
        return type(one) is type(other) and _canonical(one) == _canonical(other)
    return bool(one == other)


def _canonical(value: Any) -> bytes:
    return orjson.dumps(value, option=orjson.OPT_SORT_KEYS)


def _compact(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def _is_multiple(value: int | float, step: int | float) -> bool:
    if isinstance(value, int) and isinstance(step, int):
        return step != 0 and value % step == 0
    quotient = value / step if step else 0.5
    return abs(quotient) >= 2**53 or abs(quotient - round(quotient)) < 1e-9


def dotted(path: Path | None) -> str:
    """ "spec.list[0].name"."""
    parts: list[str | int] = []
    while path is not None:
        path, last = path
        parts.append(last)
    text = ""
    for part in reversed(parts):
        text += f"[{part}]" if isinstance(part, int) else f".{part}" if text else part
    return text


def unchanged(old: Any, new: Any, path: Path | None) -> bool:
    """Whether what a fault is about was there before: then an update may keep it (ratcheting).

    Items of lists are the same ones only where the whole list is.
    """
    parts: list[str | int] = []
    while path is not None:
        path, last = path
        parts.append(last)
    for part in reversed(parts):
        if not isinstance(part, str) or not isinstance(old, dict) or not isinstance(new, dict):
            return False
        if part not in old or part not in new:
            return False
        old, new = old[part], new[part]
        if same(old, new):
            return True
    return False
