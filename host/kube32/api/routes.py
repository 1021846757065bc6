"""Paths to what they ask for (verb, resource, namespace, name, subresource), as kube-apiserver does it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from urllib.parse import unquote_to_bytes

from kube32.api.catalog import Catalog
from kube32.api.status import ApiFailure, bad_request, method_not_allowed
from kube32.contract import Resource, resource_of

_OF_NAMESPACES = resource_of("Namespace").subresources
_OBJECT_VERBS = {
    "GET": "get",
    "HEAD": "get",
    "PUT": "update",
    "PATCH": "patch",
    "DELETE": "delete",
    "POST": "create",
}
_COLLECTION_VERBS = {"GET": "list", "HEAD": "list", "POST": "create", "DELETE": "deletecollection"}
_REMEMBERED = 512
_METHODS = frozenset(_OBJECT_VERBS)
_VIRTUAL = {
    ("", "v1", "bindings"),
    ("kube32.io", "v1", "join"),
    ("kube32.io", "v1", "topics"),
    ("kube32.io", "v1", "users"),
}
# Virtual resources without a namespace, and those whose path names one thing: always, or where it is given.
_CLUSTER_WIDE = ("join", "users")
_NAMED = {"topics": (True,), "users": (True, False)}


@dataclass(slots=True)
class RequestInfo:
    """What a request asks for.

    `rest` is what follows the subresource, still percent-encoded, without its leading "/" (`has_rest` tells
    "x" from "x/"). `resource` is None for paths that are no stored kind: then `virtual` is "join", "topics"
    (name = topic), "users" (name = user or "") or "bindings", or "" for what is not served. `selected_name` is
    the name that a list is narrowed to by fieldSelector=metadata.name=..., for the authorizer. For paths that
    are no resource only `verb` (the method in lower case) and `non_resource_path` count.
    """

    verb: str
    resource: Resource | None = None
    subresource: str = ""
    namespace: str = ""
    name: str = ""
    rest: str = ""
    is_resource: bool = True
    non_resource_path: str = ""
    group: str = ""
    plural: str = ""
    virtual: str = ""
    selected_name: str = ""
    has_rest: bool = False


def decode_segment(segment: str) -> str:
    """One decoded path segment. ApiFailure 400 for "." and "..", an encoded "/", controls and bad UTF-8."""
    if "%" in segment:
        try:
            segment = unquote_to_bytes(segment).decode("utf-8")
        except UnicodeDecodeError:
            raise bad_request("the path is not valid UTF-8") from None
        if "/" in segment or "\\" in segment:
            raise bad_request("the path has an encoded slash in a segment")
    if segment in (".", "..") or not segment.isprintable():
        raise bad_request("the path has a segment that no name can have")
    return segment


def parse(method: str, path: str, query: Mapping[str, Sequence[str]], catalog: Catalog) -> RequestInfo:
    """What a request asks for. ApiFailure 400 for a malformed path, 405 for a method nobody allows."""
    if method not in _METHODS:
        raise method_not_allowed()
    parts = path.split("/")
    if parts[0] or len(parts) == 1:
        raise bad_request("the path must begin with /")
    if "%" in path or ".." in path or not path.isprintable():
        _check(parts)
    if len(parts) > 3 and parts[3] and parts[1] == "api":
        return _resource_info(method, catalog, "", parts[2], parts, 3, query)
    if len(parts) > 4 and parts[4] and parts[1] == "apis":
        return _resource_info(method, catalog, parts[2], parts[3], parts, 4, query)
    return RequestInfo(method.lower(), is_resource=False, non_resource_path=path)


@lru_cache(_REMEMBERED)
def parse_get(path: str, catalog: Catalog, _generation: int) -> RequestInfo:
    """What a GET without a query asks for, in a generation of the catalog. The answer is shared: whoever gets it
    does not change it.
    """
    return parse("GET", path, {}, catalog)


def _check(parts: list[str]) -> None:
    """Refuses a path with segments that climb, however they are encoded."""
    for part in parts:
        try:
            plain = unquote_to_bytes(part).decode("utf-8")
        except UnicodeDecodeError:
            raise bad_request("the path is not valid UTF-8") from None
        if "\0" in plain or not {"..", "."}.isdisjoint(plain.replace("\\", "/").split("/")):
            raise bad_request("the path has a segment that no name can have")


def _resource_info(
    method: str,
    catalog: Catalog,
    group: str,
    version: str,
    parts: list[str],
    at: int,
    query: Mapping[str, Sequence[str]],
) -> RequestInfo:
    """`parts[at]` is the first segment after the group's version."""
    kinds = catalog.kinds(group, version)
    namespace = ""
    if parts[at] == "namespaces" and len(parts) > at + 2 and parts[at + 2] not in _OF_NAMESPACES:
        namespace = decode_segment(parts[at + 1])
        at += 2
        if not namespace or not parts[at]:
            return _unknown(method, group, parts, at)
    plural = parts[at]
    resource = kinds.get(plural)
    everywhere = resource is not None and resource.namespaced and not namespace and len(parts) == at + 1
    if resource is None or (resource.namespaced != bool(namespace) and not everywhere):
        return _unknown(method, group, parts, at, version, namespace)
    if len(parts) == at + 1:
        return _collection(method, resource, namespace, query)
    name = decode_segment(parts[at + 1])
    if not name:
        return _unknown(method, group, parts, at)
    if len(parts) == at + 2:
        return RequestInfo(_OBJECT_VERBS[method], resource, "", namespace, name, group=group, plural=plural)
    subresource = decode_segment(parts[at + 2])
    rest = "/".join(parts[at + 3 :])
    verb = _OBJECT_VERBS[method]
    return RequestInfo(
        verb,
        resource,
        subresource,
        namespace,
        name,
        rest,
        group=group,
        plural=plural,
        has_rest=len(parts) > at + 3,
    )


def _collection(
    method: str,
    resource: Resource,
    namespace: str,
    query: Mapping[str, Sequence[str]],
) -> RequestInfo:
    verb = _COLLECTION_VERBS.get(method)
    if verb is None or (resource.namespaced and not namespace and verb != "list"):
        raise method_not_allowed()
    info = RequestInfo(verb, resource, "", namespace, group=resource.group, plural=resource.plural)
    if query and verb != "create":
        watch = query.get("watch")
        if verb == "list" and watch and watch[0].lower() in ("1", "t", "true"):
            info.verb = "watch"
        selectors = query.get("fieldSelector", ())
        if (
            len(selectors) == 1
        ):  # a second one is not looked at by lists: nothing may be allowed because of it
            key, _, value = selectors[0].partition("=")
            if key == "metadata.name" and "," not in value:
                info.selected_name = value.removeprefix("=")
    return info


def _unknown(
    method: str,
    group: str,
    parts: list[str],
    at: int,
    version: str = "",
    namespace: str = "",
) -> RequestInfo:
    """A virtual resource or one that is not served; the authorizer needs to know what was asked for."""
    plural = decode_segment(parts[at])
    name = decode_segment(parts[at + 1]) if len(parts) > at + 1 else ""
    verb = _OBJECT_VERBS[method] if name else _COLLECTION_VERBS.get(method, _OBJECT_VERBS[method])
    info = RequestInfo(verb, namespace=namespace, name=name, group=group, plural=plural)
    if (
        (group, version, plural) in _VIRTUAL
        and bool(namespace) == (plural not in _CLUSTER_WIDE)
        and len(parts) == at + 1 + bool(name)
        and bool(name) in _NAMED.get(plural, (False,))
    ):
        info.virtual = plural
    return info


def check_served(info: RequestInfo) -> ApiFailure | None:
    """405 when the resource or subresource lacks the verb; None when it has it or is not served at all."""
    resource = info.resource
    if resource is None:
        answered = not info.virtual or info.verb == "create" or info.virtual == "users"
        return None if answered else method_not_allowed()
    if info.subresource:
        sub = resource.subresources.get(info.subresource)
        return method_not_allowed() if sub is not None and info.verb not in sub.verbs else None
    if info.verb == "create" and info.name:
        return method_not_allowed()
    return None if info.verb in resource.verbs else method_not_allowed()
