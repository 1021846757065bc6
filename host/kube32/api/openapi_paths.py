"""The paths of each kind as OpenAPI operations, with the marks by which kubectl finds what a kind can do."""

from collections.abc import Iterable
from typing import Any

from kube32.api import openapi_schemas
from kube32.api.openapi_schemas import kind_reference, list_name, reference
from kube32.api.openapi_schemas import to_v2 as schema_to_v2
from kube32.contract import Resource, Subresource, offers

Object = dict[str, Any]
_METHODS = {"get": "get", "create": "post", "update": "put", "patch": "patch", "delete": "delete"}
_STRATEGIC = "application/strategic-merge-patch+json"
_APPLY = "application/apply-patch+yaml"
_PATCHES = ("application/json-patch+json", "application/merge-patch+json", _STRATEGIC, _APPLY)
_ACTIONS = {"create": "post", "update": "put", "watch": "watchlist"}
_BYTES: Object = {"type": "string", "format": "binary"}
_OWN_BODIES = ("data", "proxy", "log", "replacement")
_ANSWERED_BY_STATUS = ("Binding", "Eviction")


def _parameter(name: str, kind: str, description: str) -> Object:
    schema: Object = {"type": kind, "uniqueItems": True}
    return {"name": name, "in": "query", "description": description, "schema": schema}


_PRETTY = _parameter("pretty", "string", "true: indented JSON.")
_WRITE = [
    _PRETTY,
    _parameter("dryRun", "string", "All: check everything, but store nothing."),
    _parameter("fieldManager", "string", "Name of whoever makes the change."),
    _parameter(
        "fieldValidation",
        "string",
        "What becomes of unknown and duplicate fields: Ignore drops them, Warn (default) drops them with a "
        "warning, Strict refuses the request.",
    ),
]
_FORCE = _parameter("force", "boolean", "For server-side apply: take fields over from other managers.")
_LIST = [
    _parameter("allowWatchBookmarks", "boolean", "Send BOOKMARK events now and then."),
    _parameter("continue", "string", "The token of the list before, for the items that follow."),
    _parameter("fieldSelector", "string", "Only objects with these fields."),
    _parameter("labelSelector", "string", "Only objects with these labels."),
    _parameter("limit", "integer", "At most this many items."),
    _parameter("resourceVersion", "string", "Revision to read at, or to watch from."),
    _parameter("resourceVersionMatch", "string", "Exact or NotOlderThan."),
    _parameter("sendInitialEvents", "boolean", "Begin a watch with the objects that are there."),
    _parameter("timeoutSeconds", "integer", "End the watch after this many seconds."),
    _parameter("watch", "boolean", "Stream changes instead of a list."),
]
_DELETE = [
    _PRETTY,
    _parameter("dryRun", "string", "All: check everything, but delete nothing."),
    _parameter("gracePeriodSeconds", "integer", "Seconds to wait before the object goes; 0 at once."),
    _parameter(
        "propagationPolicy", "string", "What becomes of owned objects: Orphan, Background or Foreground."
    ),
]


def _path_parameter(name: str, description: str) -> Object:
    schema: Object = {"type": "string", "uniqueItems": True}
    return {"name": name, "in": "path", "required": True, "description": description, "schema": schema}


_NAMESPACE = _path_parameter("namespace", "Namespace of the object.")
_NAME = _path_parameter("name", "Name of the object.")


def paths(resources: Iterable[Resource], profile: str) -> Object:
    """All paths of some kinds, as a profile has them."""
    made: Object = {}
    for resource in resources:
        if resource.namespaced and "list" in resource.verbs:
            everywhere = {"get": _operation(resource, "list", "ForAllNamespaces"), "parameters": _LIST}
            made[resource.collection_path()] = everywhere
        scope = [_NAMESPACE] if resource.namespaced else []
        collection = _collection(resource)
        made[collection] = _item(resource, ("list", "create", "deletecollection"), scope)
        one = _item(resource, ("get", "update", "patch", "delete"), [_NAME, *scope])
        if len(one) > 1:
            made[f"{collection}/{{name}}"] = one
        for sub in resource.subresources.values():
            made[f"{collection}/{{name}}/{sub.name}"] = _sub_item(resource, sub, [_NAME, *scope])
    for item in made.values():
        _narrow_patches(item, offers(profile, "server_side_apply"))
    return made


def _narrow_patches(item: Object, applies: bool) -> None:
    """Server-side apply is named only where the profile has it."""
    content = item.get("patch", {}).get("requestBody", {}).get("content")
    if content and not applies:
        content.pop(_APPLY, None)


def _collection(resource: Resource) -> str:
    return resource.collection_path("{namespace}" if resource.namespaced else "")


def _item(resource: Resource, verbs: tuple[str, ...], parameters: list[Object]) -> Object:
    item: Object = {"parameters": parameters}
    for verb in verbs:
        if verb in resource.verbs:
            method = {"list": "get", "deletecollection": "delete"}.get(verb) or _METHODS[verb]
            item[method] = _operation(resource, verb)
    return item


def _operation(resource: Resource, verb: str, suffix: str = "") -> Object:
    answer = reference(list_name(resource) if verb == "list" else resource.openapi)
    operation: Object = {
        "description": f"{verb} {resource.kind} objects",
        "operationId": _operation_id(resource, verb, suffix),
        "tags": [_tag(resource)],
        "parameters": _parameters(verb),
        "responses": _responses(answer, created=verb == "create"),
        "x-kubernetes-action": _ACTIONS.get(verb, verb),
        "x-kubernetes-group-version-kind": _gvk(resource, resource.kind),
    }
    if verb in ("create", "update"):
        operation["requestBody"] = _body(("*/*",), reference(resource.openapi))
    elif verb == "patch":
        patches = tuple(p for p in _PATCHES if p != _STRATEGIC or resource.builtin)
        operation["requestBody"] = _body(patches, reference(openapi_schemas.PATCH))
    elif verb in ("delete", "deletecollection"):
        operation["requestBody"] = _body(("*/*",), kind_reference("DeleteOptions"), required=False)
        operation["responses"] = _responses(kind_reference("Status"))
    return operation


def _sub_item(resource: Resource, sub: Subresource, parameters: list[Object]) -> Object:
    item: Object = {"parameters": parameters}
    for verb in sub.verbs:
        operation = _operation(resource, verb, sub.name.title())
        operation["x-kubernetes-group-version-kind"] = _sub_gvk(resource, sub)
        if sub.name in _OWN_BODIES:
            operation["responses"] = _responses(_BYTES if verb == "get" else reference(resource.openapi))
            operation["parameters"] = []
            operation.pop("requestBody", None)
            if verb in ("create", "update", "patch"):
                operation["requestBody"] = _body(("*/*",), _BYTES, required=False)
        elif sub.kind:
            answer = "Status" if sub.kind in _ANSWERED_BY_STATUS else sub.kind
            operation["responses"] = _responses(kind_reference(answer), created=verb == "create")
            if verb in ("create", "update"):
                operation["requestBody"] = _body(("*/*",), kind_reference(sub.kind))
        item[_METHODS[verb]] = operation
    return item


def _operation_id(resource: Resource, verb: str, suffix: str) -> str:
    scope = "Namespaced" if resource.namespaced and suffix != "ForAllNamespaces" else ""
    group = resource.group.replace(".", " ").title().replace(" ", "") or "Core"
    return f"{verb}{group}{resource.version.title()}{scope}{resource.kind}{suffix}"


def _tag(resource: Resource) -> str:
    return f"{resource.group.replace('.', '_') or 'core'}_{resource.version}"


def _parameters(verb: str) -> list[Object]:
    if verb in ("create", "update"):
        return _WRITE
    if verb == "patch":
        return [*_WRITE, _FORCE]
    if verb == "list":
        return [_PRETTY, *_LIST]
    if verb == "delete":
        return _DELETE
    return [*_DELETE, *_LIST] if verb == "deletecollection" else [_PRETTY]


def _responses(schema: Object, *, created: bool = False) -> Object:
    content = {"application/json": {"schema": schema}}
    made: Object = {"200": {"description": "OK", "content": content}}
    if created:
        made["201"] = {"description": "Created", "content": content}
    made["401"] = {"description": "Unauthorized"}
    return made


def _body(media_types: tuple[str, ...], schema: Object, *, required: bool = True) -> Object:
    body: Object = {"content": {media: {"schema": schema} for media in media_types}}
    if required:
        body["required"] = True
    return body


def _gvk(resource: Resource, kind: str) -> Object:
    return {"group": resource.group, "version": resource.version, "kind": kind}


def _sub_gvk(resource: Resource, sub: Subresource) -> Object:
    if not sub.version:
        return _gvk(resource, sub.kind or resource.kind)
    return {"group": sub.group, "version": sub.version, "kind": sub.kind}


def to_v2(item: Object) -> Object:
    """A path's item in the dialect of Swagger 2.0."""
    made: Object = {}
    for key, value in item.items():
        made[key] = [_parameter_v2(p) for p in value] if key == "parameters" else _operation_v2(value)
    return made


def _parameter_v2(parameter: Object) -> Object:
    return {**{k: v for k, v in parameter.items() if k != "schema"}, **parameter["schema"]}


def _operation_v2(operation: Object) -> Object:
    made = {k: v for k, v in operation.items() if k not in ("requestBody", "responses", "parameters")}
    made["parameters"] = [_parameter_v2(p) for p in operation["parameters"]]
    made["produces"] = ["application/json"]
    body = operation.get("requestBody")
    if body is not None:
        media, content = next(iter(body["content"].items()))
        made["consumes"] = list(body["content"]) if media != "*/*" else ["*/*"]
        schema = schema_to_v2(content["schema"])
        made["parameters"].append(
            {"name": "body", "in": "body", "required": body.get("required", False), "schema": schema}
        )
    made["responses"] = {code: _response_v2(r) for code, r in operation["responses"].items()}
    return made


def _response_v2(response: Object) -> Object:
    made: Object = {"description": response["description"]}
    content = response.get("content")
    if content:
        made["schema"] = schema_to_v2(content["application/json"]["schema"])
    return made
