"""OpenAPI: v3 by group and version at /openapi/v3 with hash URLs, v2 as JSON at /openapi/v2.

kubectl's apply, create and explain read v3: the marks x-kubernetes-group-version-kind on operations and
schemas, the query parameter fieldValidation on each kind's PATCH, merge keys on lists.
"""

from functools import cache
from typing import Any

from kube32.api import openapi_paths, openapi_schemas
from kube32.api.discovery import group_versions, resources_of, version_info
from kube32.api.documents import Document, document
from kube32.api.http import Request, Response
from kube32.api.status import not_acceptable
from kube32.api.tables import accepted

Object = dict[str, Any]
_JSON = ("application/json", "application/*", "*/*")
_V3, _V2 = "/openapi/v3", "/openapi/v2"


def handle(path: str, request: Request) -> Response | None:
    """The answer to a GET below /openapi; None when the path is none. ApiFailure 406: there is JSON only."""
    path = path.rstrip("/")
    if path != _V2 and path != _V3 and path.removeprefix(f"{_V3}/") not in _documents():
        return None
    accept = request.headers.get("Accept") or ""
    if accept and not any(media in _JSON for media, _ in accepted(accept)):
        raise not_acceptable()
    known = request.headers.get("If-None-Match") or ""
    if path == _V2:
        return _swagger().response(known)
    if path == _V3:
        return _index().response(known)
    name = path.removeprefix(f"{_V3}/")
    found, asked = _documents()[name], request.q("hash")
    if asked and asked != found.etag:
        # The URL of another release's document: the client is told where this one is.
        return Response(301, b"", {"Location": _url(name, found)})
    return found.response(known, immutable=bool(asked))


def _url(name: str, found: Document) -> str:
    return f"{_V3}/{name}?hash={found.etag}"


@cache
def _index() -> Document:
    paths = {name: {"serverRelativeURL": _url(name, found)} for name, found in _documents().items()}
    return document({"paths": paths})


@cache
def _documents() -> dict[str, Document]:
    """One document for each group and version, by the index's name ("api/v1", "apis/kube32.io/v1")."""
    made: dict[str, Document] = {}
    for group, version in group_versions():
        name = f"apis/{group}/{version}" if group else f"api/{version}"
        made[name] = document(_v3(group, version))
    return made


def _info() -> Object:
    return {"title": "Kube32", "version": version_info()["gitVersion"]}


def _v3(group: str, version: str) -> Object:
    resources = resources_of(group, version)
    return {
        "openapi": "3.0.0",
        "info": _info(),
        "paths": openapi_paths.paths(resources),
        "components": {
            "schemas": openapi_schemas.components(resources),
            "securitySchemes": {"BearerToken": {"type": "http", "scheme": "bearer"}},
        },
    }


@cache
def _swagger() -> Document:
    """Swagger 2.0 of all groups, for tools that read no v3."""
    definitions: Object = {}
    paths: Object = {}
    for group, version in group_versions():
        resources = resources_of(group, version)
        definitions.update(openapi_schemas.components(resources))
        paths.update(openapi_paths.paths(resources))
    return document(
        {
            "swagger": "2.0",
            "info": _info(),
            "paths": {path: openapi_paths.to_v2(item) for path, item in paths.items()},
            "definitions": openapi_schemas.to_v2(definitions),
            "securityDefinitions": {
                "BearerToken": {"type": "apiKey", "name": "authorization", "in": "header"}
            },
            "security": [{"BearerToken": []}],
        }
    )
