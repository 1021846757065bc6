"""Objects of any content, within their schema, are admitted or refused with a Status; and every field is explained."""

import copy
from typing import Any

import orjson
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kube32.api import admission, metadata, schemas, services, tables
from kube32.api.admission.kinds.workloads import generate_selector
from kube32.api.status import ApiFailure
from kube32.contract import RESOURCES, STORED, resource_of

KINDS = [
    r.kind
    for r in RESOURCES
    if r.storage == STORED and r.kind not in ("CustomResourceDefinition", "Event", "Lease", "Namespace")
]
WORDS = [
    "",
    "a",
    "web",
    "None",
    "0",
    "25%",
    "-1",
    "*",
    "*.a.example",
    "/",
    "//",
    "10.96.0.9",
    "10.0.0.300",
    "ä\U0001f600",
]
SCALARS: dict[str, st.SearchStrategy[Any]] = {
    "string": st.sampled_from(WORDS),
    "int32": st.sampled_from([-1, 0, 1, 80, 30080, 2**31 - 1]),
    "int64": st.sampled_from([-1, 0, 1, 2**63 - 1]),
    "bool": st.booleans(),
    "number": st.sampled_from([0, 1.5]),
    "time": st.just("2026-01-01T00:00:00Z"),
    "microtime": st.just("2026-01-01T00:00:00.000000Z"),
    "quantity": st.sampled_from(["0", "-1", "1", "500m", "1Gi", "1e3"]),
    "int-or-string": st.sampled_from([-1, 0, 1, 80, *WORDS]),
    "bytes": st.just("YQ=="),
    "any": st.sampled_from([None, 1, "x", {"a": []}]),
}


def of_type(kind: schemas.Type, depth: int) -> st.SearchStrategy[Any]:
    if kind.kind == "scalar":
        return SCALARS[kind.name]
    if kind.item is not None:
        inner = of_type(kind.item, depth)
        if kind.kind == "list":
            return st.lists(inner, max_size=2)
        return st.dictionaries(st.sampled_from(["a", "app", "b/c", "x y", "storage"]), inner, max_size=2)
    return of_shape(kind.name, depth - 1)


def of_shape(name: str, depth: int) -> st.SearchStrategy[dict[str, Any]]:
    if depth < 0:
        return st.just({})
    return st.deferred(lambda: _fields(name, depth))


@st.composite
def _fields(draw: st.DrawFn, name: str, depth: int) -> dict[str, Any]:
    fields = schemas.shapes()[name].fields
    likely = [f for f in fields.values() if f.required or f.name in ("spec", "template", "metadata", "type")]
    chosen = draw(st.lists(st.sampled_from(sorted(fields)), max_size=5)) if fields else []
    made: dict[str, Any] = {}
    for field in {*chosen, *(f.name for f in likely if draw(st.integers(0, 3)))}:
        if field not in ("apiVersion", "managedFields"):
            enum = fields[field].enum
            made[field] = draw(st.sampled_from(enum) if enum else of_type(fields[field].type, depth))
    return made


@pytest.mark.parametrize("kind", KINDS)
@given(data=st.data())
@settings(max_examples=40, deadline=None, suppress_health_check=list(HealthCheck))
def test_any_object_is_admitted_or_refused(kind: str, data: st.DataObject) -> None:
    resource = resource_of(kind)
    obj = {**data.draw(of_shape(kind, 6)), "kind": kind, "apiVersion": resource.api_version}
    given_metadata = obj.get("metadata") or {}
    obj["metadata"] = {**given_metadata, "name": "web", "namespace": "default", "uid": "u"}
    obj = orjson.loads(orjson.dumps(obj))
    try:
        admission.check_fields(resource, obj, "Strict")
        admission.default(resource, obj)
        if kind == "Job":
            generate_selector(obj)
        if kind == "Service":
            services.prepare_create(obj)
        again = copy.deepcopy(obj)
        admission.default(resource, again)
        assert again == obj
        tables.row(resource, obj)
        other = {**data.draw(of_shape(kind, 6)), "metadata": dict(obj["metadata"])}
        admission.check_fields(resource, other, "")
        admission.default(resource, other)
        if kind == "Service":
            services.prepare_update(obj, other)
        metadata.count_generation(resource, obj, other)
        try:
            admission.validate_update(resource, obj, other)
        except ApiFailure as failure:
            assert failure.code == 422
        admission.validate_create(resource, obj)
    except ApiFailure as failure:
        assert failure.code in (400, 422), failure.message


def test_every_field_says_what_it_is() -> None:
    missing = [
        f"{shape.name}.{field.name}"
        for shape in schemas.shapes().values()
        for field in shape.fields.values()
        if not field.doc
    ]
    assert not missing
