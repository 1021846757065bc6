"""OpenAPI: documents that are whole (every reference resolves) and say what kubectl looks for."""

from collections.abc import Iterator
from typing import Any
from urllib.parse import urlsplit

import orjson
import pytest

from kube32.api import openapi
from kube32.api.catalog import Catalog
from kube32.api.http import Request, Response
from kube32.api.status import ApiFailure
from kube32.contract import RESOURCES

CATALOG = Catalog("sim")


def answer(url: str, **headers: str) -> Response:
    parts = urlsplit(url)
    request = Request("GET", parts.path, query_string=parts.query, headers=headers)
    response = openapi.handle(CATALOG, parts.path, request)
    assert response is not None
    assert isinstance(response.body, bytes)
    return response


def documents() -> dict[str, Any]:
    index = orjson.loads(answer("/openapi/v3").body)["paths"]
    return {name: orjson.loads(answer(row["serverRelativeURL"]).body) for name, row in index.items()}


def references(value: Any) -> Iterator[str]:
    if isinstance(value, dict):
        if isinstance(value.get("$ref"), str):
            yield value["$ref"]
        for item in value.values():
            yield from references(item)
    elif isinstance(value, list):
        for item in value:
            yield from references(item)


def test_every_reference_resolves() -> None:
    for name, found in documents().items():
        known = {f"#/components/schemas/{s}" for s in found["components"]["schemas"]}
        assert set(references(found)) <= known, name
    swagger = orjson.loads(answer("/openapi/v2").body)
    assert set(references(swagger)) <= {f"#/definitions/{s}" for s in swagger["definitions"]}
    quantity = swagger["definitions"]["io.k8s.apimachinery.pkg.api.resource.Quantity"]
    assert quantity["type"] == "string" and "oneOf" not in quantity


@pytest.mark.parametrize("resource", [r for r in RESOURCES if "patch" in r.verbs], ids=lambda r: r.kind)
def test_each_kind_offers_field_validation_on_its_patch(resource: Any) -> None:
    """kubectl apply and create look for exactly this; without it they ask for protobuf OpenAPI v2."""
    name = f"apis/{resource.group}/{resource.version}" if resource.group else f"api/{resource.version}"
    found = documents()[name]
    gvk = {"group": resource.group, "version": resource.version, "kind": resource.kind}
    path = resource.object_path("{namespace}", "{name}")
    for method in ("patch", "put", "get", "delete"):
        assert found["paths"][path][method]["x-kubernetes-group-version-kind"] == gvk
    for operation in (found["paths"][path]["patch"], found["paths"][path]["put"]):
        assert {"fieldValidation", "dryRun"} <= {p["name"] for p in operation["parameters"]}
    created = found["paths"][resource.collection_path("{namespace}")]["post"]
    assert {"fieldValidation", "dryRun"} <= {p["name"] for p in created["parameters"]}
    assert created["x-kubernetes-action"] == "post"
    patches = found["paths"][path]["patch"]["requestBody"]["content"]
    assert "application/strategic-merge-patch+json" in patches
    schema = found["components"]["schemas"][resource.openapi]
    assert schema["x-kubernetes-group-version-kind"] == [gvk]
    assert set(resource.subresources) == {
        p.rsplit("/", 1)[1] for p in found["paths"] if p.startswith(f"{path}/")
    }


def test_operation_ids_are_unique() -> None:
    for found in documents().values():
        ids = [
            operation["operationId"]
            for item in found["paths"].values()
            for method, operation in item.items()
            if method != "parameters"
        ]
        assert len(ids) == len(set(ids))


def test_lists_carry_their_merge_marks() -> None:
    schemas = documents()["api/v1"]["components"]["schemas"]
    spec = schemas["io.k8s.api.core.v1.PodSpec"]["properties"]
    assert spec["containers"]["x-kubernetes-patch-merge-key"] == "name"
    assert spec["containers"]["x-kubernetes-patch-strategy"] == "merge"
    assert spec["containers"]["x-kubernetes-list-map-keys"] == ["name"]
    assert spec["volumes"]["x-kubernetes-patch-strategy"] == "merge,retainKeys"
    assert spec["tolerations"]["x-kubernetes-list-type"] == "atomic"
    assert schemas["io.k8s.api.core.v1.PodSpec"]["required"] == ["containers"]


def test_what_people_ask_explain_for_is_described() -> None:
    found = documents()
    pod = found["api/v1"]["components"]["schemas"]["io.k8s.api.core.v1.PodSpec"]["properties"]
    checkpoint = found["apis/kube32.io/v1"]["components"]["schemas"]
    assert "A move sets it to the target" in pod["nodeName"]["description"]
    assert (
        "nodeName or nodeSelector"
        in checkpoint["io.kube32.v1.CheckpointSpec"]["properties"]["target"]["description"]
    )
    for name in ("CheckpointSpec", "CheckpointStatus", "CheckpointTarget", "ModuleSpec", "ModuleStatus"):
        for field, schema in checkpoint[f"io.kube32.v1.{name}"]["properties"].items():
            assert schema.get("description"), f"{name}.{field}"


def test_a_url_with_its_hash_never_changes() -> None:
    index = orjson.loads(answer("/openapi/v3").body)["paths"]
    url = index["api/v1"]["serverRelativeURL"]
    found = answer(url)
    assert found.headers["ETag"].strip('"') in url
    assert "immutable" in found.headers["Cache-Control"]
    assert answer(url, **{"If-None-Match": found.headers["ETag"]}).status == 304
    assert "immutable" not in answer("/openapi/v3/api/v1").headers["Cache-Control"]


def test_another_hash_is_sent_to_the_right_one() -> None:
    moved = answer("/openapi/v3/api/v1?hash=0000")
    assert moved.status == 301
    assert answer(moved.headers["Location"]).status == 200


def test_paths_that_are_no_documents_are_none() -> None:
    for path in ("/openapi", "/openapi/v3/apis/example.com/v1", "/openapi/v4"):
        assert openapi.handle(CATALOG, path, Request("GET", path)) is None


@pytest.mark.parametrize("path", ["/openapi/v2", "/openapi/v3", "/openapi/v3/api/v1"])
def test_protobuf_alone_is_406(path: str) -> None:
    accept = "application/com.github.proto-openapi.spec.v2.v1.0+protobuf"
    with pytest.raises(ApiFailure) as failure:
        answer(path, Accept=accept)
    assert failure.value.code == 406
    assert answer(path, Accept=f"{accept},application/json").status == 200
