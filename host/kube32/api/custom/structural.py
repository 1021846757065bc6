"""The rules of structural schemas: what kube-apiserver refuses in a CustomResourceDefinition's openAPIV3Schema.

A schema is checked before it is compiled, with its depth and the size of its patterns bounded.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from kube32.api.admission.problems import Problems
from kube32.api.custom.regex import PatternError, Regex
from kube32.contract import LIMITS, text

Object = dict[str, Any]
_TYPES = ("array", "boolean", "integer", "number", "object", "string")
_SCALARS = ("string", "number", "integer", "boolean")
_UNSUPPORTED = (
    "$ref",
    "definitions",
    "dependencies",
    "id",
    "additionalItems",
    "patternProperties",
    "$schema",
)
_LIST_TYPES = ("atomic", "map", "set")
_MAP_TYPES = ("atomic", "granular")
_NESTED = ("allOf", "anyOf", "oneOf")
_ROOT, _FIELD, _ITEM = "type_root", "type_field", "type_item"
_NESTED_EMPTY = ("title", "description", "type", "x-kubernetes-list-type", "x-kubernetes-map-type")
_NESTED_FALSE = (
    "nullable",
    "x-kubernetes-preserve-unknown-fields",
    "x-kubernetes-embedded-resource",
    "x-kubernetes-int-or-string",
)
# What the two forms of x-kubernetes-int-or-string write out and everybody else may not.
_INT_OR_STRING = [{"type": "integer"}, {"type": "string"}]


def said(name: str, /, **fields: object) -> str:
    """A text about custom kinds."""
    return text("custom", name, **fields)


def check_structural(schema: Object, path: str, problems: Problems) -> None:
    """Names everything that is not structural in a schema."""
    _Structural(problems).place(schema, path, _ROOT, 0)


def rules_in(schema: Object, path: str) -> Iterator[str]:
    """Where a schema has CEL rules."""
    todo = [(schema, path)]
    while todo:
        found, at = todo.pop()
        if found.get("x-kubernetes-validations"):
            yield at
        todo += [(inner, f"{at}{where}") for inner, where in _inner(found)]


def _inner(schema: Object) -> Iterator[tuple[Object, str]]:
    for name, inner in (schema.get("properties") or {}).items():
        if isinstance(inner, dict):
            yield inner, f".properties[{name}]"
    for word in ("items", "additionalProperties"):
        if isinstance(schema.get(word), dict):
            yield schema[word], f".{word}"


@dataclass(slots=True)
class _Structural:
    problems: Problems
    states: list[int] = field(default_factory=lambda: [LIMITS.custom_pattern_states])

    def place(self, schema: Object, path: str, level: str, depth: int) -> None:
        """Checks the schema of one place and of those within."""
        problems = self.problems
        if depth >= LIMITS.custom_schema_depth:
            problems.forbidden(path, said("depth", limit=LIMITS.custom_schema_depth))
            return
        self._words(schema, path)
        self._type(schema, path, level)
        self._children(schema, path, depth)
        self._lists(schema, path)
        self._embedded(schema, path, level)
        for word in _NESTED:
            for index, inner in enumerate(schema.get(word) or ()):
                if not _is_int_or_string(schema, word, index, inner):
                    self._nested(inner, f"{path}.{word}[{index}]", depth + 1, [(schema, path)])
        if isinstance(schema.get("not"), dict):
            self._nested(schema["not"], f"{path}.not", depth + 1, [(schema, path)])

    def _words(self, schema: Object, path: str) -> None:
        """What is refused wherever it stands."""
        problems = self.problems
        for word in _UNSUPPORTED:
            if schema.get(word):
                problems.forbidden(f"{path}.{word}", said("not_supported", word=word))
        if schema.get("uniqueItems"):
            problems.forbidden(f"{path}.uniqueItems", said("unique_items"))
        kind = schema.get("type")
        if kind == "null":
            problems.forbidden(f"{path}.type", said("type_null"))
        elif kind and kind not in _TYPES:
            problems.unsupported(f"{path}.type", kind, _TYPES)
        if isinstance(schema.get("items"), list):
            problems.forbidden(f"{path}.items", said("items_form"))
        pattern = schema.get("pattern")
        if pattern:
            self._pattern(pattern, f"{path}.pattern")

    def _pattern(self, pattern: str, path: str) -> None:
        try:
            self.states[0] -= Regex(pattern).size
        except PatternError as error:
            self.problems.invalid(path, pattern, said("pattern", cause=error))
            return
        if self.states[0] < 0:
            self.problems.forbidden(path, said("patterns_large", limit=LIMITS.custom_pattern_states))

    def _type(self, schema: Object, path: str, level: str) -> None:
        problems, kind = self.problems, schema.get("type")
        if schema.get("x-kubernetes-int-or-string"):
            if kind:
                problems.forbidden(f"{path}.type", said("int_or_string_type"))
        elif not kind and not schema.get("x-kubernetes-preserve-unknown-fields"):
            if not schema.get("x-kubernetes-embedded-resource"):
                problems.required(f"{path}.type", said(level))
        elif level == _ROOT and kind and kind != "object":
            problems.invalid(f"{path}.type", kind, said("root_object"))

    def _children(self, schema: Object, path: str, depth: int) -> None:
        problems, additional = self.problems, schema.get("additionalProperties")
        for name, inner in (schema.get("properties") or {}).items():
            self.place(inner, f"{path}.properties[{name}]", _FIELD, depth + 1)
        if isinstance(schema.get("items"), dict):
            self.place(schema["items"], f"{path}.items", _ITEM, depth + 1)
        elif schema.get("type") == "array" and not schema.get("items"):
            problems.required(f"{path}.items", said("items_required"))
        if additional is None:
            return
        if additional is False:
            problems.forbidden(f"{path}.additionalProperties", said("additional_false"))
        elif schema.get("properties"):
            problems.forbidden(f"{path}.additionalProperties", said("additional_both"))
        elif depth == 0:
            problems.forbidden(f"{path}.additionalProperties", said("root_additional"))
        elif isinstance(additional, dict):
            self.place(additional, f"{path}.additionalProperties", _FIELD, depth + 1)
        elif additional is not True:
            problems.invalid(f"{path}.additionalProperties", additional, said("additional_form"))

    def _embedded(self, schema: Object, path: str, level: str) -> None:
        problems, properties = self.problems, schema.get("properties") or {}
        embedded = bool(schema.get("x-kubernetes-embedded-resource"))
        if embedded:
            kind = schema.get("type")
            if not kind:
                problems.required(f"{path}.type", said("embedded_object"))
            elif kind != "object":
                problems.invalid(f"{path}.type", kind, said("embedded_object"))
            if schema.get("additionalProperties") is not None:
                problems.forbidden(f"{path}.additionalProperties", said("embedded_additional"))
            if not properties and not schema.get("x-kubernetes-preserve-unknown-fields"):
                problems.required(f"{path}.properties", said("embedded_properties"))
        if not embedded and level != _ROOT:
            return
        for name, wanted in (("kind", "string"), ("apiVersion", "string"), ("metadata", "object")):
            found = properties.get(name)
            if isinstance(found, dict) and found.get("type") not in (None, wanted):
                where = f"{path}.properties[{name}].type"
                problems.invalid(where, found["type"], said("must_be", type=wanted))
        inner = (properties.get("metadata") or {}).get("properties") or {}
        if level == _ROOT and set(inner) - {"name", "generateName"}:
            problems.forbidden(f"{path}.properties[metadata]", said("root_metadata"))

    def _lists(self, schema: Object, path: str) -> None:
        problems = self.problems
        map_type, list_type = schema.get("x-kubernetes-map-type"), schema.get("x-kubernetes-list-type")
        if map_type and map_type not in _MAP_TYPES:
            problems.unsupported(f"{path}.x-kubernetes-map-type", map_type, _MAP_TYPES)
        elif map_type and schema.get("type") != "object":
            problems.invalid(f"{path}.type", schema.get("type") or "", said("map_type_object"))
        keys = schema.get("x-kubernetes-list-map-keys") or []
        if list_type and list_type not in _LIST_TYPES:
            problems.unsupported(f"{path}.x-kubernetes-list-type", list_type, _LIST_TYPES)
            return
        if list_type and schema.get("type") != "array":
            problems.invalid(f"{path}.type", schema.get("type") or "", said("list_type_array"))
        if keys and list_type != "map":
            problems.invalid(f"{path}.x-kubernetes-list-type", list_type or "", said("list_keys_alone"))
        items = schema.get("items")
        if list_type in ("map", "set") and isinstance(items, dict) and items.get("nullable"):
            problems.forbidden(f"{path}.items.nullable", said("set_items_nullable", type=list_type))
        if list_type == "map" and isinstance(items, dict):
            self._map_keys(keys, items, path)

    def _map_keys(self, keys: list[str], items: Object, path: str) -> None:
        problems = self.problems
        if not keys:
            problems.required(f"{path}.x-kubernetes-list-map-keys", said("list_keys_missing"))
        if items.get("type") != "object":
            problems.invalid(f"{path}.items.type", items.get("type") or "", said("list_items_object"))
        for index, key in enumerate(keys):
            found = (items.get("properties") or {}).get(key)
            if found is None:
                problems.invalid(f"{path}.x-kubernetes-list-map-keys[{index}]", key, said("list_key_unknown"))
                continue
            where = f"{path}.items.properties[{key}]"
            if found.get("type") not in _SCALARS:
                problems.invalid(f"{where}.type", found.get("type") or "", said("list_key_scalar"))
            if found.get("default") is None and key not in (items.get("required") or ()):
                problems.required(f"{where}.default", said("list_key_required"))

    def _nested(self, schema: Object, path: str, depth: int, outer: list[tuple[Object, str]]) -> None:
        """Alternatives only narrow what is specified outside of them."""
        problems = self.problems
        if depth >= LIMITS.custom_schema_depth:
            problems.forbidden(path, said("depth", limit=LIMITS.custom_schema_depth))
            return
        self._words(schema, path)
        for word in _NESTED_EMPTY:
            if schema.get(word):
                problems.forbidden(f"{path}.{word}", said("nested_empty"))
        for word in ("default", "additionalProperties", "x-kubernetes-validations"):
            if schema.get(word) is not None:
                problems.forbidden(f"{path}.{word}", said("nested_undefined"))
        for word in _NESTED_FALSE:
            if schema.get(word):
                problems.forbidden(f"{path}.{word}", said("nested_false"))
        for inner, where, known in _narrowed(schema, path, outer):
            if not known:
                missing = f"{outer[0][1]}{where[len(path) :]}"
                problems.required(missing, said("nested_known", path=where))
            self._nested(inner, where, depth + 1, known or [({}, where)])
        for word in _NESTED:
            for index, inner in enumerate(schema.get(word) or ()):
                self._nested(inner, f"{path}.{word}[{index}]", depth + 1, outer)
        if isinstance(schema.get("not"), dict):
            self._nested(schema["not"], f"{path}.not", depth + 1, outer)


def _narrowed(
    schema: Object, path: str, outer: list[tuple[Object, str]]
) -> Iterator[tuple[Object, str, list[tuple[Object, str]]]]:
    """The places inside an alternative, and the schemas of the same places outside of it."""
    around, at = outer[0]
    for name, inner in (schema.get("properties") or {}).items():
        found = (around.get("properties") or {}).get(name)
        if found is None and isinstance(around.get("additionalProperties"), dict):
            found = around["additionalProperties"]
        if found is None and around.get("x-kubernetes-preserve-unknown-fields"):
            found = around
        known = [(found, f"{at}.properties[{name}]")] if isinstance(found, dict) else []
        yield inner, f"{path}.properties[{name}]", known
    if isinstance(schema.get("items"), dict):
        found = around.get("items")
        known = [(found, f"{at}.items")] if isinstance(found, dict) else []
        yield schema["items"], f"{path}.items", known


def _is_int_or_string(schema: Object, word: str, index: int, inner: Object) -> bool:
    """Whether this is the alternative that x-kubernetes-int-or-string may write out."""
    if not schema.get("x-kubernetes-int-or-string"):
        return False
    if word == "anyOf":
        return bool(schema["anyOf"] == _INT_OR_STRING)
    return word == "allOf" and index == 0 and inner.get("anyOf") == _INT_OR_STRING
