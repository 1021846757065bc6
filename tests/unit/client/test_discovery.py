"""Kinds from aggregated discovery: the contract's own rows, and custom kinds that can be used like them."""

from typing import Any

import orjson
import pytest
from tests.unit.client.scripted import Answer, Scripted, listed, obj

from kube32.client.api import ApiClient, ApiError
from kube32.client.discovery import served
from kube32.contract import resource_of

Obj = dict[str, Any]


def row(plural: str, group: str, version: str, kind: str, scope: str = "Namespaced", **more: Any) -> Obj:
    return {
        "resource": plural,
        "responseKind": {"group": group, "version": version, "kind": kind},
        "scope": scope,
        "verbs": ["get", "list", "watch", "delete"],
        **more,
    }


def groups(*items: Obj) -> Answer:
    body = {"kind": "APIGroupDiscoveryList", "apiVersion": "apidiscovery.k8s.io/v2", "items": list(items)}
    return Answer(200, [orjson.dumps(body)])


def custom() -> Answer:
    status = {"subresource": "status", "responseKind": {}, "verbs": ["get", "patch", "update"]}
    newer = row("widgets", "example.com", "v2", "Widget", shortNames=["wd"], subresources=[status])
    older = row("widgets", "example.com", "v1", "Widget")
    only = row("gadgets", "example.com", "v1", "Gadget", "Cluster")
    versions = [{"version": "v2", "resources": [newer]}, {"version": "v1", "resources": [older, only]}]
    return groups({"metadata": {"name": "example.com"}, "versions": versions})


def core() -> Answer:
    return groups({"versions": [{"version": "v1", "resources": [row("pods", "", "v1", "Pod")]}]})


async def test_each_kind_is_there_once_in_its_preferred_version() -> None:
    transport = Scripted([core(), custom()])
    pods, widgets, gadgets = await served(ApiClient(transport))
    assert pods is resource_of("Pod")
    assert (widgets.api_version, widgets.kind, widgets.namespaced) == ("example.com/v2", "Widget", True)
    assert widgets.short_names == ("wd",) and set(widgets.subresources) == {"status"}
    assert (gadgets.api_version, gadgets.namespaced) == ("example.com/v1", False)
    assert [sent.path for sent in transport.sent] == ["/api", "/apis"]
    assert all("as=APIGroupDiscoveryList" in sent.headers["Accept"] for sent in transport.sent)


async def test_a_custom_kind_is_used_like_any_other_and_its_metadata_alone_can_be_had() -> None:
    partial = obj("a", 3)
    partial |= {"kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1"}
    transport = Scripted([core(), custom(), listed(9, partial)])
    client = ApiClient(transport)
    widgets = (await served(client))[1]
    found = await client.list(widgets, "default", metadata_only=True)
    assert transport.sent[-1].path == "/apis/example.com/v2/namespaces/default/widgets"
    assert "as=PartialObjectMetadataList" in transport.sent[-1].headers["Accept"]
    assert [(o["kind"], o["apiVersion"]) for o in found.items] == [("Widget", "example.com/v2")]


async def test_a_server_without_aggregated_discovery_is_told_from_one_that_refuses() -> None:
    plain = Answer(200, [orjson.dumps({"kind": "APIVersions", "versions": ["v1"]})])
    with pytest.raises(ValueError, match="/api: the server offers no aggregated discovery"):
        await served(ApiClient(Scripted([plain])))
    with pytest.raises(ApiError):
        await served(ApiClient(Scripted([Answer(503, [b"{}"])])))
