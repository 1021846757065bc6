"""Structural schemas: what is refused in them, and what they refuse in objects."""

import time
from typing import Any

import pytest
from tests.unit.api_core.conftest import Api
from tests.unit.api_custom.conftest import CRDS, TABS, crontab, with_schema

from kube32.api.custom import pruning
from kube32.api.custom.regex import TooMuchWork
from kube32.api.custom.schema import compile_schema
from kube32.api.custom.values import Check

STRING: dict[str, Any] = {"type": "string"}
SPEC = "spec.versions[0].schema.openAPIV3Schema.properties[spec]"


def faults(schema: dict[str, Any], value: Any) -> list[str]:
    """The faults of a field `x`, as "field: message"."""
    check = Check([100_000])
    check.value(compile_schema({"type": "object", "properties": {"x": schema}}), {"x": value}, None)
    return [f"{cause.field}: {cause.message}" for cause in (fault.cause() for fault in check.faults)]


def invalid(shown: str, rule: str) -> list[str]:
    return [f"x: Invalid value: {shown}: x in body {rule}"]


@pytest.mark.parametrize(
    ("schema", "value", "said"),
    [
        ({"type": "integer"}, "1", invalid('"string"', 'must be of type integer: "string"')),
        ({"type": "integer"}, 1.5, invalid('"number"', 'must be of type integer: "number"')),
        ({"type": "integer"}, 2.0, []),
        ({"type": "number"}, 1, []),
        ({"type": "boolean"}, 0, invalid('"integer"', 'must be of type boolean: "integer"')),
        ({"type": "string"}, None, invalid('"null"', 'must be of type string: "null"')),
        ({"type": "string", "nullable": True}, None, []),
        ({"type": "string", "minLength": 2}, "a", invalid('"a"', "should be at least 2 chars long")),
        ({"type": "string", "maxLength": 1}, "ab", ["x: Too long: may not be more than 1 bytes"]),
        ({"type": "string", "pattern": "^a+$"}, "b", invalid('"b"', "should match '^a+$'")),
        ({"type": "string", "enum": ["a", "b"]}, "c", ['x: Unsupported value: "c": supported values: "a", "b"']),
        ({"type": "integer", "minimum": 1}, 0, invalid("0", "should be greater than or equal to 1")),
        ({"type": "integer", "minimum": 1, "exclusiveMinimum": True}, 1, invalid("1", "should be greater than 1")),
        ({"type": "number", "maximum": 1}, 2, invalid("2", "should be less than or equal to 1")),
        ({"type": "number", "maximum": 1, "exclusiveMaximum": True}, 1, invalid("1", "should be less than 1")),
        ({"type": "integer", "multipleOf": 3}, 4, invalid("4", "should be a multiple of 3")),
        ({"type": "number", "multipleOf": 0.1}, 0.3, []),
        ({"type": "integer", "format": "int32"}, 2**31,
         ['<nil>: Invalid value: "": Checked value must be of type integer with format int32']),
        ({"type": "array", "items": STRING, "minItems": 1}, [], invalid("[]", "should have at least 1 items")),
        ({"type": "array", "items": STRING, "maxItems": 1}, ["a", "b"],
         ["x: Too many: 2: must have at most 1 items"]),
        ({"type": "array", "items": STRING}, ["a", 1],
         ['x[1]: Invalid value: "integer": x[1] in body must be of type string: "integer"']),
        ({"type": "array", "items": STRING, "x-kubernetes-list-type": "set"}, ["a", "b", "a"],
         ['x[2]: Duplicate value: "a"']),
        ({"type": "array", "items": {"type": "object", "properties": {"n": STRING, "v": STRING}},
          "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["n"]},
         [{"n": "a", "v": "1"}, {"n": "a", "v": "2"}], ['x[1]: Duplicate value: {"n":"a"}']),
        ({"type": "object", "required": ["a"]}, {}, ["x.a: Required value"]),
        ({"type": "object", "maxProperties": 0, "additionalProperties": STRING}, {"a": "b"},
         ["x: Too many: 1: must have at most 0 items"]),
        ({"type": "object", "additionalProperties": STRING}, {"a": 1},
         ['x.a: Invalid value: "integer": x.a in body must be of type string: "integer"']),
        ({"x-kubernetes-int-or-string": True}, True, invalid('"boolean"', 'must be of type integer,string: "boolean"')),
        ({"x-kubernetes-int-or-string": True}, "80%", []),
        ({"type": "string", "format": "date-time"}, "2026-12-01T00:00:00Z", []),
        ({"type": "string", "format": "date-time"}, "now", invalid('"now"', 'must be of type date-time: "now"')),
        ({"type": "string", "format": "ipv4"}, "10.0.0.256", invalid('"10.0.0.256"',
         'must be of type ipv4: "10.0.0.256"')),
        ({"type": "string", "format": "unheard-of"}, "anything", []),
        ({"type": "integer", "anyOf": [{"minimum": 5}, {"maximum": 1}]}, 3,
         ['<nil>: Invalid value: "": "x" must validate at least one schema (anyOf)',
          "x: Invalid value: 3: x in body should be greater than or equal to 5"]),
        ({"type": "integer", "oneOf": [{"minimum": 1}, {"maximum": 5}]}, 3,
         ['<nil>: Invalid value: "": "x" must validate one and only one schema (oneOf). Found 2 valid alternatives']),
        ({"type": "integer", "allOf": [{"minimum": 1}, {"maximum": 2}]}, 3,
         ['<nil>: Invalid value: "": "x" must validate all the schemas (allOf)',
          "x: Invalid value: 3: x in body should be less than or equal to 2"]),
        ({"type": "integer", "not": {"enum": [3]}}, 3,
         ['<nil>: Invalid value: "": "x" must not validate the schema (not)']),
    ],
)  # fmt: skip
def test_a_value_is_taken_or_refused_in_kubernetes_words(
    schema: dict[str, Any], value: Any, said: list[str]
) -> None:
    assert faults(schema, value) == said


def test_an_embedded_object_has_kind_and_version() -> None:
    schema = {
        "type": "object",
        "x-kubernetes-embedded-resource": True,
        "x-kubernetes-preserve-unknown-fields": True,
    }
    assert faults(schema, {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "a"}, "spec": {}}) == []
    assert faults(schema, {"kind": "Po d"})[0] == "x.apiVersion: Required value: must not be empty"
    assert "x.kind: Invalid value" in faults(schema, {"kind": "Po d"})[1]


def test_pruning_keeps_what_the_schema_says() -> None:
    node = compile_schema(
        {
            "type": "object",
            "properties": {
                "free": {
                    "type": "object",
                    "x-kubernetes-preserve-unknown-fields": True,
                    "properties": {"known": {"type": "object", "properties": {"a": STRING}}},
                },
                "map": {
                    "type": "object",
                    "additionalProperties": {"type": "object", "properties": {"a": STRING}},
                },
                "list": {"type": "array", "items": {"type": "object", "properties": {"a": STRING}}},
                "pod": {
                    "type": "object",
                    "x-kubernetes-embedded-resource": True,
                    "properties": {"spec": STRING},
                },
            },
        }
    )
    obj = {
        "apiVersion": "v1",
        "kind": "X",
        "metadata": {"any": 1},
        "free": {"x": 1, "known": {"a": "1", "b": 2}},
        "map": {"k": {"a": "1", "b": 2}},
        "list": [{"a": "1"}, {"b": 2}],
        "pod": {"kind": "P", "metadata": {"name": "n", "odd": 1}, "spec": "s", "more": 1},
        "gone": 1,
    }
    assert pruning.prune(node, obj) == [
        "free.known.b",
        "map.k.b",
        "list[1].b",
        "pod.metadata.odd",
        "pod.more",
        "gone",
    ]
    assert obj["free"] == {"x": 1, "known": {"a": "1"}}


def test_defaults_are_put_wherever_an_object_is_there_for_them() -> None:
    item = {"type": "object", "properties": {"port": {"type": "integer", "default": 80}}}
    node = compile_schema(
        {
            "type": "object",
            "properties": {
                "list": {"type": "array", "items": item},
                "map": {"type": "object", "additionalProperties": item},
                "inner": {
                    "type": "object",
                    "default": {},
                    "properties": {"a": {"type": "string", "default": "b"}},
                },
                "none": {"type": "object", "properties": {"a": {"type": "string", "default": "b"}}},
                "null": {"type": "string", "default": "c"},
                "nullable": {"type": "string", "nullable": True, "default": "c"},
                "dropped": STRING,
            },
        }
    )
    obj = {"list": [{}], "map": {"k": {}}, "null": None, "nullable": None, "dropped": None}
    pruning.fill(node, obj, 1000)
    assert obj == {
        "list": [{"port": 80}],
        "map": {"k": {"port": 80}},
        "inner": {"a": "b"},
        "null": "c",
        "nullable": None,
    }


@pytest.mark.parametrize(
    ("spec", "said"),
    [
        ({}, f"{SPEC}.type: Required value: must not be empty for specified object fields"),
        ({"type": "thing"}, f'{SPEC}.type: Unsupported value: "thing": supported values: "array", "boolean"'),
        ({"type": "array"}, f"{SPEC}.items: Required value: must be specified for arrays"),
        ({"type": "array", "items": {}}, f"{SPEC}.items.type: Required value: must not be empty for specified array"),
        ({"type": "array", "items": [STRING]}, "items must be a schema object and not an array"),
        ({"$ref": "#/x", "type": "object"}, f"{SPEC}.$ref: Forbidden: $ref is not supported"),
        ({"type": "object", "patternProperties": {"a": STRING}}, "patternProperties is not supported"),
        ({"type": "object", "uniqueItems": True}, "uniqueItems cannot be set to true"),
        ({"type": "object", "additionalProperties": False}, "additionalProperties cannot be set to false"),
        ({"type": "object", "additionalProperties": STRING, "properties": {"a": STRING}}, "are mutual exclusive"),
        ({"type": "string", "pattern": "a(b"}, "isn't: error parsing regexp: missing closing ): `a(b`"),
        ({"type": "string", "pattern": "(?=a)"}, "invalid or unsupported Perl syntax"),
        ({"type": "string", "pattern": r"(a)\1"}, r"invalid escape sequence: `\1`"),
        ({"type": "string", "x-kubernetes-int-or-string": True}, "must be empty if x-kubernetes-int-or-string"),
        ({"type": "object", "anyOf": [{"type": "object"}]}, f"{SPEC}.anyOf[0].type: Forbidden: must be empty to be"),
        ({"type": "object", "anyOf": [{"properties": {"a": {"minimum": 1}}}]},
         f"{SPEC}.properties[a]: Required value: because it is defined in {SPEC}.anyOf[0].properties[a]"),
        ({"type": "object", "not": {"default": {}}}, f"{SPEC}.not.default: Forbidden: must be undefined"),
        ({"type": "integer", "default": "x"},
         f'{SPEC}.default: Invalid value: "string": default in body must be of type integer: "string"'),
        ({"type": "object", "default": {"b": 1}, "properties": {"a": STRING}}, "must not have unknown fields: b"),
        ({"type": "object", "x-kubernetes-list-type": "set"}, "must be array if x-kubernetes-list-type is specified"),
        ({"type": "array", "items": STRING, "x-kubernetes-list-type": "map"}, "must not be empty if x-kubernetes-list"),
        ({"type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["a"],
          "items": {"type": "object", "properties": {"a": STRING}}}, "so it must have a default or be a required"),
        ({"type": "string", "x-kubernetes-embedded-resource": True}, "must be object if x-kubernetes-embedded"),
    ],
)  # fmt: skip
async def test_a_schema_that_is_not_structural_is_refused(api: Api, spec: dict[str, Any], said: str) -> None:
    answer = await api.send("POST", CRDS, with_schema(spec))
    assert answer.status == 422, answer.body
    assert said in answer.message


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ({"additionalPrinterColumns": [{"name": "A", "type": "text", "jsonPath": ".a"}]},
         'additionalPrinterColumns[0].type: Invalid value: "text": must be one of boolean,date,integer,number,string'),
        ({"additionalPrinterColumns": [{"name": "A", "type": "string", "jsonPath": "a"}]},
         "must be a simple json path starting with ."),
        ({"additionalPrinterColumns": [{"name": "A", "type": "string", "jsonPath": ".a[?(@.b==)]"}]},
         "is not a JSON path that is read"),
        ({"subresources": {"scale": {"specReplicasPath": ".status.a", "statusReplicasPath": ".status.b"}}},
         'specReplicasPath: Invalid value: ".status.a": should be a json path under .spec'),
        ({"selectableFields": [{"jsonPath": ".spec.nothing"}]}, "must point to a field of type string"),
        ({"selectableFields": [{"jsonPath": ".metadata.name"}]}, "must not point to fields in metadata"),
    ],
)  # fmt: skip
async def test_columns_and_paths_that_cannot_be_are_refused(
    api: Api, more: dict[str, Any], said: str
) -> None:
    answer = await api.send("POST", CRDS, with_schema({"type": "object"}, **more))
    assert answer.status == 422, answer.body
    assert said in answer.message


async def test_unknown_words_of_a_schema_are_named_and_dropped(api: Api) -> None:
    spec = {"type": "array", "items": {"type": "string", "colour": "red"}, "size": 1}
    answer = await api.send("POST", CRDS, with_schema(spec))
    assert answer.status == 201
    assert "items.colour" in answer.headers["Warning"] and "size" in answer.headers["Warning"]
    wrong = await api.send("POST", CRDS, with_schema({"type": "array", "items": {"properties": "none"}}))
    assert wrong.status == 400


# --- hostile ones ---


async def test_a_schema_that_is_nested_without_end_is_refused(api: Api) -> None:
    spec: dict[str, Any] = {"type": "object"}
    for _ in range(100):
        spec = {"type": "object", "properties": {"a": spec}}
    answer = await api.send("POST", CRDS, with_schema(spec))
    assert answer.status == 422 and "the schema has more than 64 levels" in answer.message
    for word, other in (('{"properties":{"a":', "}}"), ('{"items":', "}"), ('{"anyOf":[', "]}")):
        deep = (word * 400 + '{"type":"object"}' + other * 400).encode()
        body = (
            b'{"metadata":{"name":"a.b.c"},"spec":{"versions":[{"schema":{"openAPIV3Schema":'
            + deep
            + b"}}]}}"
        )
        assert (await api.send("POST", CRDS, body)).status in (400, 422)


async def test_alternatives_within_alternatives_end(api: Api) -> None:
    nested: dict[str, Any] = {"minimum": 1}
    for _ in range(12):
        nested = {"anyOf": [nested, {"allOf": [nested]}]}
    with pytest.raises(TooMuchWork):
        Check([1000]).value(compile_schema({"type": "integer", **nested}), 0, None)
    many = [{"properties": {"a": {"items": {"minimum": n}}}} for n in range(300)]
    spec = {
        "type": "object",
        "properties": {"a": {"type": "array", "items": {"type": "integer"}}},
        "not": {"allOf": many},
    }
    await api.create(CRDS, with_schema(spec))
    begin = time.monotonic()
    answer = await api.send("POST", TABS, crontab(spec={"a": [500] * 20_000}))
    assert answer.status == 422 and "takes more than 200000 steps" in answer.message
    assert time.monotonic() - begin < 5


@pytest.mark.parametrize(
    "pattern", [r"^(a+)+$", r"^(a|a)*$", r"^(a*)*b$", r"(x+x+)+y", r"^(([a-z])+.)+[A-Z]([a-z])+$"]
)
async def test_a_pattern_that_backtracks_costs_nothing(api: Api, pattern: str) -> None:
    await api.create(
        CRDS, with_schema({"type": "object", "properties": {"a": {"type": "string", "pattern": pattern}}})
    )
    begin = time.monotonic()
    for letter in "ax":
        answer = await api.send("POST", TABS, crontab(spec={"a": letter * 30_000 + "!"}))
        assert answer.status == 422
    assert time.monotonic() - begin < 5


async def test_patterns_that_grow_without_end_are_refused(api: Api) -> None:
    pattern = "((a{100}){100}){100}"
    answer = await api.send("POST", CRDS, with_schema({"type": "string", "pattern": pattern}))
    assert answer.status == 422 and "expression is too large" in answer.message
    some = {f"p{n}": {"type": "string", "pattern": "a{900}"} for n in range(50)}
    answer = await api.send("POST", CRDS, with_schema({"type": "object", "properties": some}))
    assert answer.status == 422 and "the patterns of a schema may have" in answer.message


async def test_defaults_that_multiply_are_refused(api: Api) -> None:
    item = {"type": "object", "properties": {"a": {"type": "string", "default": "x" * 10_000}}}
    await api.create(
        CRDS, with_schema({"type": "object", "properties": {"l": {"type": "array", "items": item}}})
    )
    answer = await api.send("POST", TABS, crontab(spec={"l": [{}] * 10_000}))
    assert answer.status == 413
    assert answer.message == "crontabs: with its defaults the object has more than 131072 bytes"


async def test_an_object_that_is_too_large_is_refused_before_it_is_checked(tabs: Api) -> None:
    answer = await tabs.send("POST", TABS, crontab(spec={"image": "x" * 200_000}))
    assert answer.status == 413
    assert (await tabs.send("POST", TABS, crontab(spec={"image": "x" * 100_000}))).status == 413


async def test_deep_json_in_a_free_field_is_kept_or_refused(api: Api) -> None:
    await api.create(CRDS, with_schema({"type": "object", "x-kubernetes-preserve-unknown-fields": True}))
    for depth in (200, 1000):
        body = b'{"metadata":{"name":"d"},"spec":{"a":' + b"[" * depth + b"]" * depth + b"}}"
        assert (await api.send("POST", TABS, body)).status in (201, 400, 409)
