"""One version of a CustomResourceDefinition: its schema, defaults, columns, scale and selectable fields."""

from typing import Any

import orjson

from kube32.api.admission.problems import Problems
from kube32.api.custom import pruning
from kube32.api.custom.jsonpath import JsonPath, PathError
from kube32.api.custom.schema import NO_DEFAULT, Node, compile_schema, copied, field_at
from kube32.api.custom.structural import check_structural, said
from kube32.api.custom.values import Check
from kube32.contract import LIMITS

Object = dict[str, Any]
_COLUMN_TYPES = ("boolean", "date", "integer", "number", "string")
_COLUMN_FORMATS = ("", "byte", "date", "date-time", "double", "float", "int32", "int64", "password")
_SELECTABLE_TYPES = ("string", "boolean", "integer")
_SELECTABLE = 8


def check_version(version: Object, path: str, problems: Problems) -> None:
    """Names everything that is wrong in a version. TooMuchWork."""
    schema, at = version["schema"]["openAPIV3Schema"], f"{path}.schema.openAPIV3Schema"
    before = len(problems.causes)
    check_structural(schema, at, problems)
    _check_columns(
        version.get("additionalPrinterColumns") or [], f"{path}.additionalPrinterColumns", problems
    )
    scale = (version.get("subresources") or {}).get("scale")
    if scale is not None:
        _check_scale(scale, f"{path}.subresources.scale", problems)
    if len(problems.causes) == before:
        node = compile_schema(schema)
        _check_defaults(node, at, problems, [LIMITS.custom_validation_steps])
        fields = version.get("selectableFields") or []
        _check_selectable(fields, node, f"{path}.selectableFields", problems)


def _check_columns(columns: list[Object], path: str, problems: Problems) -> None:
    if len(columns) > LIMITS.custom_columns:
        problems.forbidden(path, said("columns_many", count=len(columns), limit=LIMITS.custom_columns))
        return
    for index, column in enumerate(columns):
        at = f"{path}[{index}]"
        if column.get("type") and column["type"] not in _COLUMN_TYPES:
            problems.invalid(f"{at}.type", column["type"], said("column_type"))
        if (column.get("format") or "") not in _COLUMN_FORMATS:
            problems.invalid(f"{at}.format", column["format"], said("column_format"))
        if column.get("jsonPath"):
            _check_path(column["jsonPath"], f"{at}.jsonPath", problems)


def _check_path(value: str, path: str, problems: Problems) -> bool:
    if not value.startswith("."):
        problems.invalid(path, value, said("path_dot"))
        return False
    try:
        JsonPath(value)
    except PathError as error:
        problems.invalid(path, value, said("path_unreadable", cause=error))
        return False
    return True


def _check_scale(scale: Object, path: str, problems: Problems) -> None:
    for field, roots, rule in (
        ("specReplicasPath", (".spec.",), "path_spec"),
        ("statusReplicasPath", (".status.",), "path_status"),
        ("labelSelectorPath", (".spec.", ".status."), "path_either"),
    ):
        value = scale.get(field)
        if value and _check_path(value, f"{path}.{field}", problems) and not value.startswith(roots):
            problems.invalid(f"{path}.{field}", value, said(rule))


def _check_selectable(fields: list[Object], node: Node, path: str, problems: Problems) -> None:
    if len(fields) > _SELECTABLE:
        problems.forbidden(path, said("selectable_many", limit=_SELECTABLE))
        return
    seen: set[str] = set()
    for index, field in enumerate(fields):
        at, value = f"{path}[{index}].jsonPath", field.get("jsonPath") or ""
        if not value:
            continue
        if value in seen:
            problems.duplicate(at, value)
        seen.add(value)
        if value.startswith(".metadata"):
            problems.invalid(at, value, said("metadata_selectable"))
            continue
        found = field_at(node, tuple(value.split(".")[1:])) if value.startswith(".") else None
        if found is None or found.type not in _SELECTABLE_TYPES:
            problems.invalid(at, value, said("selectable_type"))


def _check_defaults(node: Node, path: str, problems: Problems, budget: list[int]) -> None:
    """Defaults are objects like any other: they are pruned and they hold to the schema."""
    if not node.defaults:
        return
    if node.default is not NO_DEFAULT:
        _check_default(node, f"{path}.default", problems, budget)
    for name, inner in node.properties.items():
        _check_defaults(inner, f"{path}.properties[{name}]", problems, budget)
    for inner_node, word in ((node.items, "items"), (node.additional, "additionalProperties")):
        if inner_node is not None:
            _check_defaults(inner_node, f"{path}.{word}", problems, budget)


def _check_default(node: Node, path: str, problems: Problems, budget: list[int]) -> None:
    value = copied(node.default)
    if isinstance(value, dict):
        gone = pruning.prune(node, value)
        if gone and orjson.dumps(value) != orjson.dumps(node.default):
            problems.invalid(path, node.default, said("default_pruned", fields=", ".join(gone)))
            return
    check = Check(budget)
    check.value(node, value, (None, "default"))
    for fault in check.faults:
        cause = fault.cause()
        where = path + cause.field.removeprefix("<nil>").removeprefix("default")
        problems.add(where, cause.type.removeprefix("FieldValue"), cause.message)
