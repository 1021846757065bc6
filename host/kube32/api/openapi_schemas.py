"""Field schemas as OpenAPI schemas, in the form that kube-apiserver gives and kubectl reads."""

from collections.abc import Iterable
from functools import cache
from typing import Any

from kube32.api import scalars, schemas
from kube32.api.custom import openapi
from kube32.api.custom.resource import CustomResource
from kube32.contract import RESOURCES, Resource

Object = dict[str, Any]
_REF = "#/components/schemas/"
_META = "io.k8s.apimachinery.pkg.apis.meta.v1"
# Bodies and answers of every group, beside its kinds.
_COMMON = ("DeleteOptions", "Status")
# What Swagger 2.0 has no words for.
_ONLY_V3 = ("oneOf", "anyOf", "not", "nullable")
# The body of every patch.
PATCH = f"{_META}.Patch"


def reference(name: str) -> Object:
    """A reference to a component by its full name."""
    return {"$ref": f"{_REF}{name}"}


def list_name(resource: Resource) -> str:
    """The component of a kind's list: "io.k8s.api.core.v1.PodList"."""
    return f"{resource.openapi}List"


def kind_reference(kind: str) -> Object:
    """A reference to a kind's component; any JSON for a kind without a schema (proxy options)."""
    shape = schemas.shapes().get(kind)
    return {"type": "string"} if shape is None else reference(shape.full_name)


@cache
def _gvk_marks() -> dict[str, list[Object]]:
    """Which group, version and kind a shape is, by its full name."""
    marks: dict[str, list[Object]] = {}
    for resource in RESOURCES:
        mark = {"group": resource.group, "version": resource.version, "kind": resource.kind}
        marks[resource.openapi] = [mark]
        for name in _COMMON:
            common = {"group": resource.group, "version": resource.version, "kind": name}
            entries = marks.setdefault(f"{_META}.{name}", [])
            if common not in entries:
                entries.append(common)
    marks["io.k8s.api.core.v1.Binding"] = [{"group": "", "version": "v1", "kind": "Binding"}]
    return marks


def components(resources: Iterable[Resource]) -> Object:
    """All components that a group's kinds and paths refer to, by full name."""
    made: Object = {}
    todo: list[str] = list(_COMMON)
    for resource in resources:
        if "list" in resource.verbs:
            made[list_name(resource)] = _list(resource)
        if isinstance(resource, CustomResource):
            made[resource.openapi] = openapi.component(resource)
            todo.append("ObjectMeta")
        else:
            todo.append(resource.kind)
        todo += [s.kind for s in resource.subresources.values() if s.kind]
    todo.append("ListMeta")
    made[PATCH] = {"type": "object", "description": "A JSON, merge, strategic merge or apply patch."}
    while todo:
        shape = schemas.shapes().get(todo.pop())
        if shape is not None and shape.full_name not in made:
            made[shape.full_name] = _shape(shape, todo, made)
    return dict(sorted(made.items()))


def _list(resource: Resource) -> Object:
    known = schemas.shapes()
    return {
        "description": f"A list of {resource.kind} objects.",
        "type": "object",
        "required": ["items"],
        "properties": {
            "apiVersion": {"type": "string", "description": "Version of the object's schema."},
            "kind": {"type": "string", "description": resource.list_kind},
            "metadata": _described(reference(known["ListMeta"].full_name), known["ListMeta"].doc),
            "items": {
                "type": "array",
                "description": f"The {resource.kind} objects.",
                "items": {"allOf": [reference(resource.openapi)], "default": {}},
            },
        },
        "x-kubernetes-group-version-kind": [
            {"group": resource.group, "version": resource.version, "kind": resource.list_kind}
        ],
    }


def _shape(shape: schemas.Shape, todo: list[str], made: Object) -> Object:
    properties = {name: _field(field, todo, made) for name, field in shape.fields.items()}
    schema: Object = {"type": "object", "properties": properties}
    if shape.doc:
        schema["description"] = shape.doc
    required = [f.name for f in shape.fields.values() if f.required]
    if required:
        schema["required"] = required
    if shape.atomic:
        schema["x-kubernetes-map-type"] = "atomic"
    marks = _gvk_marks().get(shape.full_name)
    if marks:
        schema["x-kubernetes-group-version-kind"] = marks
    return schema


def _field(field: schemas.Field, todo: list[str], made: Object) -> Object:
    schema = _described(_type(field.type, todo, made), field.doc)
    if field.enum:
        schema["enum"] = list(field.enum)
    if field.type.kind == "list":
        schema.update(_list_marks(field))
    elif field.atomic:
        schema["x-kubernetes-map-type"] = "atomic"
    return schema


def _list_marks(field: schemas.Field) -> Object:
    marks: Object = {"x-kubernetes-list-type": "set" if field.set else "map" if field.map_keys else "atomic"}
    if field.map_keys:
        marks["x-kubernetes-list-map-keys"] = list(field.map_keys)
    if field.merge_key:
        marks["x-kubernetes-patch-merge-key"] = field.merge_key
        marks["x-kubernetes-patch-strategy"] = "merge,retainKeys" if field.retain_keys else "merge"
    elif field.set:
        marks["x-kubernetes-patch-strategy"] = "merge"
    return marks


def _described(schema: Object, doc: str) -> Object:
    """A reference takes no siblings in OpenAPI 3.0, so that its description stands beside an allOf."""
    if "$ref" in schema and doc:
        schema = {"allOf": [schema]}
    return {"description": doc, **schema} if doc else schema


def _type(kind: schemas.Type, todo: list[str], made: Object) -> Object:
    if kind.kind == "object":
        todo.append(kind.name)
        return reference(schemas.shapes()[kind.name].full_name)
    if kind.item is not None:
        item = _type(kind.item, todo, made)
        if "$ref" in item:
            item = {"allOf": [item], "default": {}} if kind.item.kind == "object" else {"allOf": [item]}
        if kind.kind == "list":
            return {"type": "array", "items": item}
        return {"type": "object", "additionalProperties": item}
    if kind.name in scalars.OPENAPI:
        return dict(scalars.OPENAPI[kind.name])
    name, schema = scalars.OPENAPI_REFS[kind.name]
    made[name] = schema
    return reference(name)


def to_v2(value: Any, *, names: bool = False) -> Any:
    """Schemas in the dialect of Swagger 2.0: other reference paths, no allOf around a reference, no alternatives.

    `names`: the keys are names of fields, not words of the schema.
    """
    if isinstance(value, list):
        return [to_v2(item) for item in value]
    if not isinstance(value, dict):
        return value
    if names:
        return {key: to_v2(item) for key, item in value.items()}
    made = {key: to_v2(item, names=key == "properties") for key, item in value.items() if key not in _ONLY_V3}
    if isinstance(made.get("$ref"), str):
        made["$ref"] = made["$ref"].replace(_REF, "#/definitions/")
    wrapped = made.pop("allOf", None)
    if isinstance(wrapped, list) and len(wrapped) == 1 and "$ref" in wrapped[0]:
        made.pop("default", None)
        made.update(wrapped[0])
    if isinstance(value.get("oneOf"), list) and "type" not in made:
        made["type"] = "string"
    return made
