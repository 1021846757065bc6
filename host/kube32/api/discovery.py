"""Discovery: /version, /api, /apis and below, as lists of old and as aggregated discovery
(apidiscovery.k8s.io).
"""

import base64
import hashlib
import platform
import re
import sys
from collections.abc import Iterable
from functools import partial
from typing import Any

import kube32
from kube32.api.catalog import Catalog
from kube32.api.documents import Document, document
from kube32.api.http import Response
from kube32.api.status import not_acceptable
from kube32.api.tables import accepted
from kube32.contract import NAMES, STORED, Resource, Subresource

Object = dict[str, Any]
_DISCOVERY_GROUP = "apidiscovery.k8s.io"
_DISCOVERY_VERSIONS = ("v2", "v2beta1")
_JSON = ("application/json", "application/*", "*/*")
_ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64"}
_BINDINGS: Object = {
    "resource": "bindings",
    "responseKind": {"group": "", "version": "v1", "kind": "Binding"},
    "scope": "Namespaced",
    "singularResource": "binding",
    "verbs": ["create"],
}


def handle(catalog: Catalog, path: str, accept: str, if_none_match: str = "") -> Response | None:
    """The answer to a GET of a discovery path; None when the path is none. ApiFailure 406."""
    path = path.rstrip("/") or "/"
    if path in ("/api", "/apis"):
        return _roots(catalog, path, accept, if_none_match)
    found = _documents(catalog).get(path)
    if found is None:
        return None
    if accept and not any(media in _JSON for media, _ in accepted(accept)):
        raise not_acceptable()
    return found.response(if_none_match)


def _roots(catalog: Catalog, path: str, accept: str, if_none_match: str) -> Response:
    """/api and /apis: aggregated for those who ask for it first."""
    for media, parameters in accepted(accept) or [("*/*", {})]:
        if media not in _JSON:
            continue
        wanted, version = parameters.get("as"), parameters.get("v", "")
        if wanted is None:
            return _documents(catalog)[path].response(if_none_match)
        if (
            wanted == "APIGroupDiscoveryList"
            and parameters.get("g") == _DISCOVERY_GROUP
            and version in _DISCOVERY_VERSIONS
        ):
            content_type = f"application/json;g={_DISCOVERY_GROUP};v={version};as={wanted}"
            make = partial(_aggregated, catalog, path, version)
            found = catalog.derived(("aggregated", path, version), make)
            return found.response(if_none_match, content_type=content_type)
    raise not_acceptable()


def _documents(catalog: Catalog) -> dict[str, Document]:
    return catalog.derived("discovery", lambda: _made_documents(catalog))


def _made_documents(catalog: Catalog) -> dict[str, Document]:
    groups = _groups(catalog)
    made = {"/version": document(version_info()), "/api": document(_core_versions(catalog))}
    made["/apis"] = document({"kind": "APIGroupList", "apiVersion": "v1", "groups": groups})
    for group in groups:
        made[f"/apis/{group['name']}"] = document({"kind": "APIGroup", "apiVersion": "v1", **group})
    for group_name, version in catalog.group_versions():
        path = f"/apis/{group_name}/{version}" if group_name else f"/api/{version}"
        made[path] = document(_resource_list(catalog, group_name, version))
    paths = sorted({*made, "/healthz", "/livez", "/readyz", "/openapi/v2", "/openapi/v3"})
    made["/"] = document({"paths": paths})
    return made


def version_info() -> Object:
    """What /version says: the Kubernetes API that is offered, with Kube32's version as build metadata."""
    offered: str = NAMES.kubernetes_version
    match = re.match(r"v([0-9]+)\.([0-9]+)\.", offered)
    assert match is not None
    machine = platform.machine().lower()
    return {
        "major": match[1],
        "minor": match[2],
        "gitVersion": f"{offered}+kube32.{kube32.__version__}",
        "gitCommit": "",
        "gitTreeState": "clean",
        "buildDate": "1970-01-01T00:00:00Z",
        "goVersion": "",
        "compiler": "",
        "platform": f"{sys.platform}/{_ARCHITECTURES.get(machine, machine)}",
    }


def _core_versions(catalog: Catalog) -> Object:
    versions = [version for group, version in catalog.group_versions() if not group]
    address = [{"clientCIDR": "0.0.0.0/0", "serverAddress": ""}]
    return {"kind": "APIVersions", "versions": versions, "serverAddressByClientCIDRs": address}


def _groups(catalog: Catalog) -> list[Object]:
    groups: dict[str, list[Object]] = {}
    for group, version in catalog.group_versions():
        if group:
            entry = {"groupVersion": f"{group}/{version}", "version": version}
            groups.setdefault(group, []).append(entry)
    return [{"name": n, "versions": v, "preferredVersion": v[0]} for n, v in groups.items()]


def _resource_list(catalog: Catalog, group: str, version: str) -> Object:
    rows = [row for resource in catalog.resources_of(group, version) for row in _rows(resource)]
    if not group:
        bindings = {"name": "bindings", "singularName": "binding", "namespaced": True, "kind": "Binding"}
        rows.append({**bindings, "verbs": ["create"]})
    return {
        "kind": "APIResourceList",
        "apiVersion": "v1",
        "groupVersion": f"{group}/{version}" if group else version,
        "resources": sorted(rows, key=lambda row: str(row["name"])),
    }


def _rows(resource: Resource) -> Iterable[Object]:
    row: Object = {
        "name": resource.plural,
        "singularName": resource.singular,
        "namespaced": resource.namespaced,
        "kind": resource.kind,
        "verbs": list(resource.verbs),
    }
    if resource.short_names:
        row["shortNames"] = list(resource.short_names)
    if resource.categories:
        row["categories"] = list(resource.categories)
    if resource.storage == STORED:
        row["storageVersionHash"] = _storage_hash(resource)
    yield row
    for sub in resource.subresources.values():
        sub_row: Object = {
            "name": f"{resource.plural}/{sub.name}",
            "singularName": "",
            "namespaced": resource.namespaced,
            "kind": sub.kind or resource.kind,
            "verbs": list(sub.verbs),
        }
        if sub.version:
            sub_row.update(group=sub.group, version=sub.version)
        yield sub_row


def _storage_hash(resource: Resource) -> str:
    named = f"{resource.group}/{resource.version}/{resource.kind}"
    return base64.b64encode(hashlib.sha256(named.encode()).digest()[:8]).decode()


def _aggregated(catalog: Catalog, path: str, version: str) -> Document:
    groups: dict[str, list[Object]] = {}
    for group, group_version in catalog.group_versions():
        if bool(group) == (path == "/apis"):
            resources = [_aggregated_resource(r) for r in catalog.resources_of(group, group_version)]
            if not group:
                resources.append(_BINDINGS)
            resources.sort(key=lambda row: str(row["resource"]))
            groups.setdefault(group, []).append(
                {"version": group_version, "resources": resources, "freshness": "Current"}
            )
    items = [{"metadata": {"name": name} if name else {}, "versions": v} for name, v in groups.items()]
    return document(
        {
            "kind": "APIGroupDiscoveryList",
            "apiVersion": f"{_DISCOVERY_GROUP}/{version}",
            "metadata": {},
            "items": items,
        }
    )


def _aggregated_resource(resource: Resource) -> Object:
    row: Object = {
        "resource": resource.plural,
        "responseKind": _gvk(resource, resource.kind),
        "scope": "Namespaced" if resource.namespaced else "Cluster",
        "singularResource": resource.singular,
        "verbs": list(resource.verbs),
    }
    if resource.short_names:
        row["shortNames"] = list(resource.short_names)
    if resource.categories:
        row["categories"] = list(resource.categories)
    if resource.subresources:
        row["subresources"] = [_aggregated_sub(resource, s) for s in resource.subresources.values()]
    return row


def _aggregated_sub(resource: Resource, sub: Subresource) -> Object:
    return {
        "subresource": sub.name,
        "responseKind": {
            "group": sub.group if sub.version else resource.group,
            "version": sub.version or resource.version,
            "kind": sub.kind or resource.kind,
        },
        "verbs": list(sub.verbs),
    }


def _gvk(resource: Resource, kind: str) -> Object:
    return {"group": resource.group, "version": resource.version, "kind": kind}
