"""OpenAPI: v3 by group and version at /openapi/v3 with hash URLs, v2 as JSON at /openapi/v2.

kubectl's apply, create and explain read v3: the marks x-kubernetes-group-version-kind on operations and
schemas, the query parameter fieldValidation on each kind's PATCH, merge keys on lists.
"""

from typing import Any

from kube32.api import openapi_paths, openapi_schemas
from kube32.api.catalog import Catalog
from kube32.api.discovery import version_info
from kube32.api.documents import Document, document
from kube32.api.http import Request, Response
from kube32.api.status import not_acceptable
from kube32.api.tables import accepted

Object = dict[str, Any]
_JSON = ("application/json", "application/*", "*/*")
_V3, _V2 = "/openapi/v3", "/openapi/v2"


def handle(catalog: Catalog, path: str, request: Request) -> Response | None:
    """The answer to a GET below /openapi; None when the path is none. ApiFailure 406: there is JSON only."""
    path = path.rstrip("/")
    name = path.removeprefix(f"{_V3}/")
    if path not in (_V2, _V3) and name not in _names(catalog):
        return None
    accept = request.headers.get("Accept") or ""
    if accept and not any(media in _JSON for media, _ in accepted(accept)):
        raise not_acceptable()
    known = request.headers.get("If-None-Match") or ""
    if path == _V2:
        return catalog.derived("swagger", lambda: _swagger(catalog)).response(known)
    if path == _V3:
        return catalog.derived("openapi", lambda: _index(catalog)).response(known)
    found, asked = _document(catalog, *_names(catalog)[name]), request.q("hash")
    if asked and asked != found.etag:
        # The URL of another release's document: the client is told where this one is.
        return Response(301, b"", {"Location": _url(name, found)})
    return found.response(known, immutable=bool(asked))


def _url(name: str, found: Document) -> str:
    return f"{_V3}/{name}?hash={found.etag}"


def _index(catalog: Catalog) -> Document:
    paths = {
        name: {"serverRelativeURL": _url(name, _document(catalog, *found))}
        for name, found in _names(catalog).items()
    }
    return document({"paths": paths})


def _names(catalog: Catalog) -> dict[str, tuple[str, str]]:
    """Group and version of each document by its name in the index ("api/v1", "apis/kube32.io/v1")."""
    return catalog.derived(
        "openapi names",
        lambda: {f"apis/{g}/{v}" if g else f"api/{v}": (g, v) for g, v in catalog.group_versions()},
    )


def _document(catalog: Catalog, group: str, version: str) -> Document:
    return catalog.derived(("openapi", version), lambda: document(_v3(catalog, group, version)), group=group)


def _info() -> Object:
    return {"title": "Kube32", "version": version_info()["gitVersion"]}


def _v3(catalog: Catalog, group: str, version: str) -> Object:
    resources = catalog.resources_of(group, version)
    return {
        "openapi": "3.0.0",
        "info": _info(),
        "paths": openapi_paths.paths(resources, catalog.profile),
        "components": {
            "schemas": openapi_schemas.components(resources),
            "securitySchemes": {"BearerToken": {"type": "http", "scheme": "bearer"}},
        },
    }


def _swagger(catalog: Catalog) -> Document:
    """Swagger 2.0 of all groups, for tools that read no v3."""
    definitions: Object = {}
    paths: Object = {}
    for group, version in catalog.group_versions():
        made, more = _swagger_parts(catalog, group, version)
        paths.update(made)
        definitions.update(more)
    return document(
        {
            "swagger": "2.0",
            "info": _info(),
            "paths": paths,
            "definitions": definitions,
            "securityDefinitions": {
                "BearerToken": {"type": "apiKey", "name": "authorization", "in": "header"}
            },
            "security": [{"BearerToken": []}],
        }
    )


def _swagger_parts(catalog: Catalog, group: str, version: str) -> tuple[Object, Object]:
    """Paths and definitions of one group's version in Swagger 2.0."""

    def make() -> tuple[Object, Object]:
        resources = catalog.resources_of(group, version)
        paths = openapi_paths.paths(resources, catalog.profile)
        return (
            {path: openapi_paths.to_v2(item) for path, item in paths.items()},
            openapi_schemas.to_v2(openapi_schemas.components(resources)),
        )

    return catalog.derived(("swagger", version), make, group=group)
