"""From an accepted CustomResourceDefinition to the kinds that the catalog serves."""

from typing import Any

import orjson

from kube32.api.catalog import version_order
from kube32.api.custom.columns import columns_of
from kube32.api.custom.resource import CustomResource, Names, ScalePaths
from kube32.api.custom.schema import Node, compile_schema
from kube32.api.custom.structural import said
from kube32.contract import Subresource

Object = dict[str, Any]
_STATUS = Subresource("status", ("get", "patch", "update"), persist="controller")
_SCALE = Subresource("scale", ("get", "patch", "update"), "Scale", "controller", "autoscaling", "v1")


def stored_form(spec: Object) -> bytes:
    """What decides how objects are stored and read: while it stays, stored objects need no second look."""
    forms = [
        (v["name"], v.get("storage"), (v.get("schema") or {}).get("openAPIV3Schema"))
        for v in spec["versions"]
    ]
    return orjson.dumps(forms, option=orjson.OPT_SORT_KEYS)


def kinds_of(definition: Object, since: int) -> tuple[CustomResource, ...]:
    """The served versions of a definition. `since`: the revision at which its stored form became what it is."""
    spec = definition["spec"]
    (storage,) = (v for v in spec["versions"] if v.get("storage"))
    storage_node = compile_schema(_schema(storage))
    served = sorted((v for v in spec["versions"] if v.get("served")), key=lambda v: version_order(v["name"]))
    return tuple(_kind(definition, v, storage["name"], storage_node, since) for v in served)


def _schema(version: Object) -> Object | None:
    found: Object | None = (version.get("schema") or {}).get("openAPIV3Schema")
    return found


def _kind(
    definition: Object, version: Object, storage: str, storage_node: Node, since: int
) -> CustomResource:
    spec = definition["spec"]
    names = (definition.get("status") or {}).get("acceptedNames") or spec["names"]
    group, kind = spec["group"], spec["names"]["kind"]
    columns, printers = columns_of(version)
    schema = _schema(version)
    subresources = version.get("subresources") or {}
    offered = {}
    if subresources.get("status") is not None:
        offered["status"] = _STATUS
    scale = subresources.get("scale")
    if scale is not None:
        offered["scale"] = _SCALE
    return CustomResource(
        group=group,
        version=version["name"],
        kind=kind,
        plural=spec["names"]["plural"],
        namespaced=spec["scope"] == "Namespaced",
        key=f"{group}/{spec['names']['plural']}",
        persist="durable",
        openapi=".".join([*reversed(group.split(".")), version["name"], kind]),
        columns=columns,
        short_names=tuple(names.get("shortNames") or ()),
        categories=tuple(names.get("categories") or ()),
        persist_status="controller" if "status" in offered else "",
        subresources=offered,
        names=Names(names.get("singular") or kind.lower(), names.get("listKind") or f"{kind}List"),
        schema=schema,
        storage_version=storage,
        scale=None
        if scale is None
        else ScalePaths(
            scale["specReplicasPath"], scale["statusReplicasPath"], scale.get("labelSelectorPath") or ""
        ),
        node=storage_node if version["name"] == storage else compile_schema(schema),
        storage_node=storage_node,
        printers=printers,
        selectable=tuple(f["jsonPath"].removeprefix(".") for f in version.get("selectableFields") or ()),
        definition=definition["metadata"]["name"],
        deprecation=_deprecation(spec, version),
        since=since,
    )


def _deprecation(spec: Object, version: Object) -> str:
    """The warning of a deprecated version, which names a better one if there is one."""
    if not version.get("deprecated"):
        return ""
    if version.get("deprecationWarning"):
        return str(version["deprecationWarning"])
    names = {"group": spec["group"], "version": version["name"], "kind": spec["names"]["kind"]}
    fresh = [v["name"] for v in spec["versions"] if v.get("served") and not v.get("deprecated")]
    newer = [n for n in sorted(fresh, key=version_order) if version_order(n) < version_order(version["name"])]
    return said("deprecated_newer", newer=newer[0], **names) if newer else said("deprecated", **names)
