"""What each place of an object is to field ownership: a leaf with one owner, a map or a list with an owner for
each of its items. Made from the contract's schemas, and from the structural schemas of custom kinds.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import Any

from kube32.api import schemas
from kube32.api.catalog import Catalog
from kube32.api.custom.resource import CustomResource
from kube32.contract import Resource

# LEAF: a scalar, or a list or a map that is atomic. ITEMS: a list of maps that are told apart by keys. SET: a
# list of scalars. ANY: what the value itself says: maps have owners by field, everything else is a leaf.
LEAF, MAP, ITEMS, SET, ANY = range(5)

# Fields that Kubernetes' types always have, even when nothing was written there: whoever creates an object does
# not own these places themselves.
_ALWAYS: Mapping[str, frozenset[str]] = {
    "PodSpec": frozenset(("containers",)),
    "PodTemplateSpec": frozenset(("metadata", "spec")),
    "DeploymentSpec": frozenset(("strategy", "template")),
    "DaemonSetSpec": frozenset(("updateStrategy", "template")),
    "JobSpec": frozenset(("template",)),
    "PersistentVolumeClaimSpec": frozenset(("resources",)),
    "CustomResourceDefinitionSpec": frozenset(("names",)),
    "Event": frozenset(("source",)),
}
_ROOT_ALWAYS = frozenset(("metadata", "spec", "status"))
_KEY_DEFAULTS: Mapping[str, Any] = {"protocol": "TCP"}


@dataclass(slots=True)
class Node:
    """One place. `fields` have names, `element` is every other value of a MAP and each item of ITEMS.

    `keys` (sorted) tell items apart, with `defaults` for those that are left out. `always`: see _ALWAYS.
    """

    kind: int
    fields: dict[str, "Node"] = field(default_factory=dict)
    element: "Node | None" = None
    keys: tuple[str, ...] = ()
    defaults: dict[str, Any] = field(default_factory=dict)
    always: frozenset[str] = frozenset()

    def child(self, name: str) -> "Node":
        """The place of a field; what the schema does not know is taken as it comes."""
        return self.fields.get(name) or self.element or ANY_NODE

    def of(self, value: object) -> int:
        """The kind of the place when it holds `value`: a value of another type is a leaf."""
        kind = self.kind
        if kind == ANY:
            return MAP if type(value) is dict else LEAF
        if kind == MAP:
            return MAP if type(value) is dict else LEAF
        return kind if kind == LEAF or type(value) is list else LEAF


LEAF_NODE = Node(LEAF)
ANY_NODE = Node(ANY)


def of(resource: Resource, catalog: Catalog) -> Node:
    """The root of a kind's objects."""
    if isinstance(resource, CustomResource):
        key = ("field ownership", resource.version, resource.plural)
        return catalog.derived(key, lambda: of_schema(resource.schema), group=resource.group)
    return of_kind(resource.kind)


@cache
def of_kind(kind: str) -> Node:
    """The root of a built-in kind's objects."""
    shape = _shapes()[kind]
    return Node(MAP, shape.fields, always=_ROOT_ALWAYS | shape.always)


@cache
def _shapes() -> dict[str, Node]:
    """Every shape of the contract. They are made first and filled then, since some hold themselves."""
    known = schemas.shapes()
    made = {name: Node(MAP, always=_ALWAYS.get(name, frozenset())) for name in known}
    for name, shape in known.items():
        made[name].fields.update({f.name: _field(f, made) for f in shape.fields.values()})
    return made


def _field(row: schemas.Field, made: dict[str, Node]) -> Node:
    if row.atomic:
        return LEAF_NODE
    if row.type.kind != "list" or row.type.item is None:
        return _type(row.type, made)
    if row.set:
        return Node(SET)
    if row.map_keys:
        keys = tuple(sorted(row.map_keys))
        defaults = {k: _KEY_DEFAULTS[k] for k in keys if k in _KEY_DEFAULTS and len(keys) > 1}
        return Node(ITEMS, element=_type(row.type.item, made), keys=keys, defaults=defaults)
    return LEAF_NODE


def _type(kind: schemas.Type, made: dict[str, Node]) -> Node:
    if kind.kind == "object":
        return LEAF_NODE if schemas.shapes()[kind.name].atomic else made[kind.name]
    if kind.kind == "map" and kind.item is not None:
        return Node(MAP, element=_type(kind.item, made))
    return ANY_NODE if kind.kind == "scalar" and kind.name == "any" else LEAF_NODE


def of_schema(schema: dict[str, Any] | None) -> Node:
    """The root of a custom kind's objects from its version's openAPIV3Schema; None: nothing is known."""
    made = _schema(schema) if schema is not None else Node(MAP, element=ANY_NODE)
    metadata = _shapes()["ObjectMeta"]
    fields = {**made.fields, "apiVersion": LEAF_NODE, "kind": LEAF_NODE, "metadata": metadata}
    return Node(MAP, fields, made.element)


def _schema(schema: dict[str, Any]) -> Node:
    preserves = schema.get("x-kubernetes-preserve-unknown-fields") is True
    if schema.get("x-kubernetes-int-or-string") is True:
        return LEAF_NODE
    match schema.get("type"):
        case "object":
            return _schema_map(schema, preserves)
        case "array":
            return _schema_list(schema)
        case None | "":
            return ANY_NODE
    return LEAF_NODE


def _schema_map(schema: dict[str, Any], preserves: bool) -> Node:
    if schema.get("x-kubernetes-map-type") == "atomic":
        return LEAF_NODE
    properties = schema.get("properties") or {}
    fields = {name: _schema(inner) for name, inner in properties.items()}
    if schema.get("x-kubernetes-embedded-resource") is True:
        own = {"apiVersion": LEAF_NODE, "kind": LEAF_NODE, "metadata": _shapes()["ObjectMeta"]}
        fields = {**fields, **own}
    additional = schema.get("additionalProperties")
    element = _schema(additional) if isinstance(additional, dict) else None
    if element is None and (preserves or additional is True):
        element = ANY_NODE
    return Node(MAP, fields, element)


def _schema_list(schema: dict[str, Any]) -> Node:
    items = schema.get("items")
    inner = items if isinstance(items, dict) else {}
    match schema.get("x-kubernetes-list-type"):
        case "set":
            return Node(SET)
        case "map":
            keys = tuple(sorted(schema.get("x-kubernetes-list-map-keys") or ()))
            rows = inner.get("properties") or {}
            defaults = {k: rows[k]["default"] for k in keys if rows.get(k, {}).get("default") is not None}
            return Node(ITEMS, element=_schema(inner), keys=keys, defaults=defaults)
    return LEAF_NODE
