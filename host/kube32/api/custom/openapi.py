"""The schema of a custom kind as an OpenAPI component, as kube-apiserver publishes it."""

from typing import Any

from kube32.api.custom.resource import CustomResource

Object = dict[str, Any]
_META = "#/components/schemas/io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta"
_FIELDS: dict[str, Object] = {
    "apiVersion": {
        "type": "string",
        "description": "Version of the object's schema. Servers convert recognized schemas to the latest "
        "internal value, and may reject unrecognized values.",
    },
    "kind": {"type": "string", "description": "The kind of the object, in CamelCase. Cannot be updated."},
    "metadata": {"allOf": [{"$ref": _META}], "description": "Standard object's metadata."},
}


def component(resource: CustomResource) -> Object:
    """The version's schema with apiVersion, kind and metadata in it."""
    schema: Object = dict(resource.schema or {})
    schema.setdefault("type", "object")
    schema["properties"] = {**(schema.get("properties") or {}), **_FIELDS}
    mark = {"group": resource.group, "version": resource.version, "kind": resource.kind}
    schema["x-kubernetes-group-version-kind"] = [mark]
    return schema
