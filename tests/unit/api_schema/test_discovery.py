"""Discovery: lists of old and aggregated, as kubectl and client libraries ask for them."""

from typing import Any

import orjson
import pytest

from kube32.api import discovery
from kube32.api.catalog import Catalog
from kube32.api.http import Response
from kube32.api.status import ApiFailure
from kube32.contract import RESOURCES

CATALOG = Catalog("sim")
AGGREGATED = (
    "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList,"
    "application/json;g=apidiscovery.k8s.io;v=v2beta1;as=APIGroupDiscoveryList,application/json"
)


def get(path: str, accept: str = "") -> Any:
    return orjson.loads(answer(path, accept).body)


def answer(path: str, accept: str = "", if_none_match: str = "") -> Response:
    response = discovery.handle(CATALOG, path, accept, if_none_match)
    assert response is not None
    assert isinstance(response.body, bytes)
    return response


def test_the_core_group_lists_its_kinds_and_subresources() -> None:
    found = get("/api/v1")
    rows = {row["name"]: row for row in found["resources"]}
    assert (found["kind"], found["groupVersion"]) == ("APIResourceList", "v1")
    pods = rows["pods"]
    assert (pods["singularName"], pods["kind"], pods["namespaced"]) == ("pod", "Pod", True)
    assert (pods["shortNames"], pods["categories"]) == (["po"], ["all"])
    assert pods["verbs"] == [
        "create",
        "delete",
        "deletecollection",
        "get",
        "list",
        "patch",
        "update",
        "watch",
    ]
    assert rows["pods/binding"]["kind"] == "Binding"
    assert rows["pods/log"]["verbs"] == ["get"]
    assert rows["bindings"]["verbs"] == ["create"]
    assert rows["nodes"]["namespaced"] is False


@pytest.mark.parametrize("resource", RESOURCES, ids=lambda r: r.kind)
def test_every_kind_is_discovered_both_ways(resource: Any) -> None:
    path = f"/apis/{resource.group}/{resource.version}" if resource.group else f"/api/{resource.version}"
    names = {row["name"] for row in get(path)["resources"]}
    wanted = {resource.plural, *(f"{resource.plural}/{s}" for s in resource.subresources)}
    assert wanted <= names
    root = get("/apis" if resource.group else "/api", AGGREGATED)
    (group,) = [g for g in root["items"] if g["metadata"].get("name", "") == resource.group]
    (row,) = [r for r in group["versions"][0]["resources"] if r["resource"] == resource.plural]
    assert row["responseKind"] == {
        "group": resource.group,
        "version": resource.version,
        "kind": resource.kind,
    }
    assert row["scope"] == ("Namespaced" if resource.namespaced else "Cluster")
    assert row.get("shortNames", []) == list(resource.short_names)
    assert {s["subresource"] for s in row.get("subresources", [])} == set(resource.subresources)
    assert all(s["responseKind"]["kind"] for s in row.get("subresources", []))


def test_groups_name_their_versions() -> None:
    groups = {g["name"]: g for g in get("/apis")["groups"]}
    assert set(groups) == {r.group for r in RESOURCES if r.group}
    version = {"groupVersion": "kube32.io/v1", "version": "v1"}
    assert groups["kube32.io"]["preferredVersion"] == version
    assert get("/apis/kube32.io/")["versions"] == [version]
    assert get("/api")["versions"] == ["v1"]


def test_the_aggregated_form_is_given_to_those_who_ask() -> None:
    v2 = answer("/apis", AGGREGATED)
    assert v2.content_type == "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"
    assert orjson.loads(v2.body)["apiVersion"] == "apidiscovery.k8s.io/v2"
    beta = "application/json;g=apidiscovery.k8s.io;v=v2beta1;as=APIGroupDiscoveryList,application/json"
    assert get("/api", beta)["apiVersion"] == "apidiscovery.k8s.io/v2beta1"
    later = "application/json;g=apidiscovery.k8s.io;v=v9;as=APIGroupDiscoveryList,application/json"
    assert get("/api", later)["kind"] == "APIVersions"


def test_a_client_that_has_the_document_gets_304() -> None:
    first = answer("/apis/kube32.io/v1")
    again = answer("/apis/kube32.io/v1", "", first.headers["ETag"])
    assert (again.status, again.body) == (304, b"")
    assert answer("/apis/kube32.io/v1", "", '"other"').status == 200


def test_the_version_is_one_that_kubectl_compares() -> None:
    found = get("/version")
    assert found["gitVersion"].startswith(f"v{found['major']}.{found['minor']}.")
    assert "+kube32." in found["gitVersion"]


def test_what_is_no_discovery_is_none_and_protobuf_alone_is_406() -> None:
    assert discovery.handle(CATALOG, "/apis/example.com/v1", "") is None
    assert discovery.handle(CATALOG, "/api/v1/pods", "") is None
    for path in ("/api", "/api/v1"):
        with pytest.raises(ApiFailure) as failure:
            discovery.handle(CATALOG, path, "application/vnd.kubernetes.protobuf")
        assert failure.value.code == 406


def test_the_root_lists_the_paths() -> None:
    paths = get("/")["paths"]
    assert {"/api/v1", "/apis/kube32.io/v1", "/openapi/v3", "/version"} <= set(paths)
