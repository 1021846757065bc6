"""The schema of a custom kind made ready for use: one Node for each place in an object."""

from dataclasses import dataclass, field
from typing import Any, cast

import orjson

from kube32.api.custom.regex import Regex

Object = dict[str, Any]
NO_DEFAULT: Any = object()
ROOT_FIELDS = ("apiVersion", "kind", "metadata")


@dataclass(slots=True)
class Node:
    """What one place in an object takes. `type` "" is any; `items` None and no `properties`: nothing is known.

    `additional` is the schema of fields that have no name in `properties`; `open` keeps them as they are.
    `defaults` says whether a default is at or below this place.
    """

    type: str = ""
    nullable: bool = False
    int_or_string: bool = False
    preserve: bool = False
    embedded: bool = False
    properties: dict[str, "Node"] = field(default_factory=dict)
    additional: "Node | None" = None
    open: bool = False
    items: "Node | None" = None
    default: Any = NO_DEFAULT
    default_bytes: int = 0
    defaults: bool = False
    required: tuple[str, ...] = ()
    enum: tuple[Any, ...] | None = None
    format: str = ""
    pattern: Regex | None = None
    numbers: dict[str, int | float] = field(default_factory=dict)
    exclusive: tuple[bool, bool] = (False, False)
    list_type: str = ""
    map_keys: tuple[str, ...] = ()
    all_of: tuple["Node", ...] = ()
    any_of: tuple["Node", ...] = ()
    one_of: tuple["Node", ...] = ()
    none_of: "Node | None" = None


_NUMBERS = (
    "minimum",
    "maximum",
    "multipleOf",
    "minLength",
    "maxLength",
    "minItems",
    "maxItems",
    "minProperties",
    "maxProperties",
)


def compile_schema(schema: Object | None) -> Node:
    """The nodes of a schema that has been found to be structural. Without a schema everything is kept."""
    if schema is None:
        return Node(type="object", preserve=True)
    return _node(schema)


def _node(schema: Object) -> Node:
    node = Node(
        type=schema.get("type") or "",
        nullable=bool(schema.get("nullable")),
        int_or_string=bool(schema.get("x-kubernetes-int-or-string")),
        preserve=bool(schema.get("x-kubernetes-preserve-unknown-fields")),
        embedded=bool(schema.get("x-kubernetes-embedded-resource")),
        required=tuple(schema.get("required") or ()),
        format=schema.get("format") or "",
        exclusive=(bool(schema.get("exclusiveMinimum")), bool(schema.get("exclusiveMaximum"))),
        list_type=schema.get("x-kubernetes-list-type") or "",
        map_keys=tuple(schema.get("x-kubernetes-list-map-keys") or ()),
    )
    node.properties = {name: _node(inner) for name, inner in (schema.get("properties") or {}).items()}
    if isinstance(schema.get("items"), dict):
        node.items = _node(schema["items"])
    additional = schema.get("additionalProperties")
    if isinstance(additional, dict):
        node.additional = _node(additional)
    node.open = additional is True
    node.numbers = {name: schema[name] for name in _NUMBERS if schema.get(name) is not None}
    if schema.get("enum"):
        node.enum = tuple(schema["enum"])
    if schema.get("pattern"):
        node.pattern = Regex(schema["pattern"])
    node.all_of, node.any_of, node.one_of = (
        tuple(_node(inner) for inner in schema.get(name) or ()) for name in ("allOf", "anyOf", "oneOf")
    )
    if schema.get("not") is not None:
        node.none_of = _node(schema["not"])
    _set_default(node, schema)
    return node


def _set_default(node: Node, schema: Object) -> None:
    if "default" in schema and schema["default"] is not None:
        node.default = schema["default"]
        node.default_bytes = len(orjson.dumps(node.default))
    inner = [*node.properties.values(), node.additional, node.items]
    node.defaults = node.default is not NO_DEFAULT or any(n is not None and n.defaults for n in inner)


def field_at(node: Node, path: tuple[str, ...]) -> Node | None:
    """The node of a field by the names that lead to it, None when the schema does not know it."""
    found: Node | None = node
    for name in path:
        if found is None:
            return None
        found = found.properties.get(name) or found.additional
    return found


def copied(value: Any) -> Any:
    """A copy of JSON."""
    return (
        value if isinstance(value, (str, int, float, bool)) else cast(Any, orjson.loads(orjson.dumps(value)))
    )
