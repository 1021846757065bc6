"""Endpoints and EndpointSlices say what Kubernetes' controllers would say of the same Services and Pods."""

from typing import Any

import pytest
from tests.unit.api_computed.conftest import CREATED, SLICES, SPACE, Cluster


def ips(subset: dict[str, Any], part: str = "addresses") -> list[str]:
    return [a["ip"] for a in subset.get(part, [])]


async def test_ready_pods_are_addresses_and_others_are_not_ready_ones(cluster: Cluster) -> None:
    cluster.service()
    cluster.pod("b", "10.0.0.2")
    cluster.pod("a", "10.0.0.1", ready=False)
    cluster.pod("c", "10.0.0.3", node="other")
    cluster.pod("elsewhere", "10.0.0.9", app="db")
    found = await cluster.endpoints()
    assert found["kind"] == "Endpoints" and found["apiVersion"] == "v1"
    (subset,) = found["subsets"]
    assert ips(subset) == ["10.0.0.2", "10.0.0.3"]
    assert ips(subset, "notReadyAddresses") == ["10.0.0.1"]
    assert subset["ports"] == [{"port": 8080, "protocol": "TCP"}]
    assert subset["addresses"][1] == {
        "ip": "10.0.0.3",
        "nodeName": "other",
        "targetRef": {"kind": "Pod", "namespace": "default", "name": "c", "uid": "uid-c"},
    }


@pytest.mark.parametrize(
    "pod",
    [
        {"ip": ""},
        {"ip": "not-an-address"},
        {"phase": "Succeeded"},
        {"phase": "Failed"},
        {"deletionTimestamp": CREATED},
    ],
)
async def test_pods_without_address_ended_or_deleted_are_no_endpoints(
    cluster: Cluster, pod: dict[str, Any]
) -> None:
    cluster.service()
    cluster.pod("a", **{"ip": "10.0.0.1", **pod})
    assert "subsets" not in await cluster.endpoints()


async def test_a_frozen_pod_is_not_ready(cluster: Cluster) -> None:
    cluster.service()
    cluster.pod("a", ready=False, reason="Frozen")
    (subset,) = (await cluster.endpoints())["subsets"]
    assert ips(subset) == [] and ips(subset, "notReadyAddresses") == ["10.0.0.1"]


async def test_named_ports_are_each_pods_own(cluster: Cluster) -> None:
    ports = [
        {"name": "http", "port": 80, "targetPort": "web", "protocol": "TCP", "appProtocol": "http"},
        {"name": "admin", "port": 81, "targetPort": 9000, "protocol": "TCP"},
    ]
    cluster.service(ports=ports)
    cluster.pod("old", "10.0.0.1", ports=(("web", 8080),))
    cluster.pod("new", "10.0.0.2", ports=(("web", 8081),))
    cluster.pod("bare", "10.0.0.3")
    subsets = (await cluster.endpoints())["subsets"]
    assert [(ips(s), [(p["name"], p["port"]) for p in s["ports"]]) for s in subsets] == [
        (["10.0.0.3"], [("admin", 9000)]),
        (["10.0.0.1"], [("admin", 9000), ("http", 8080)]),
        (["10.0.0.2"], [("admin", 9000), ("http", 8081)]),
    ]
    assert subsets[1]["ports"][1]["appProtocol"] == "http"
    slices = await cluster.slices()
    assert sorted([p["port"] for p in s["ports"]] for s in slices) == [[9000], [9000, 8080], [9000, 8081]]


async def test_pods_that_know_none_of_the_named_ports_are_no_endpoints(cluster: Cluster) -> None:
    cluster.service(ports=[{"port": 80, "targetPort": "web", "protocol": "TCP"}])
    cluster.pod("a")
    assert "subsets" not in await cluster.endpoints()


async def test_published_pods_need_not_be_ready_nor_stay(cluster: Cluster) -> None:
    cluster.service(publishNotReadyAddresses=True)
    cluster.pod("a", "10.0.0.1", ready=False)
    cluster.pod("b", "10.0.0.2", ready=False, deletionTimestamp=CREATED)
    (subset,) = (await cluster.endpoints())["subsets"]
    assert ips(subset) == ["10.0.0.1", "10.0.0.2"]
    (found,) = await cluster.slices()
    assert [e["conditions"] for e in found["endpoints"]] == [
        {"ready": True, "serving": False, "terminating": False},
        {"ready": True, "serving": False, "terminating": True},
    ]


async def test_a_slice_keeps_pods_that_end_their_work_and_says_so(cluster: Cluster) -> None:
    cluster.service()
    cluster.pod("a", "10.0.0.1")
    cluster.pod("b", "10.0.0.2", deletionTimestamp=CREATED)
    cluster.pod("c", "10.0.0.3", ready=False)
    (found,) = await cluster.slices()
    assert [tuple(e["conditions"].values()) for e in found["endpoints"]] == [
        (True, True, False),
        (False, True, True),
        (False, False, False),
    ]


async def test_a_slice_names_its_service_and_its_controller(cluster: Cluster) -> None:
    service = cluster.service()
    cluster.pod("a")
    (found,) = await cluster.slices()
    metadata = found["metadata"]
    assert found["addressType"] == "IPv4"
    assert found["ports"] == [{"name": "", "port": 8080, "protocol": "TCP"}]
    assert metadata["name"].startswith("web-") and len(metadata["name"]) == len("web-") + 5
    assert metadata["generateName"] == "web-" and metadata["creationTimestamp"] == CREATED
    assert metadata["labels"] == {
        "kubernetes.io/service-name": "web",
        "endpointslice.kubernetes.io/managed-by": "endpointslice-controller.k8s.io",
    }
    (owner,) = metadata["ownerReferences"]
    assert (owner["kind"], owner["name"], owner["uid"]) == ("Service", "web", service["metadata"]["uid"])
    assert owner["controller"] is True


async def test_a_service_without_pods_has_empty_endpoints_and_one_empty_slice(cluster: Cluster) -> None:
    cluster.service()
    found = await cluster.endpoints()
    assert found["metadata"]["name"] == "web" and "subsets" not in found
    (empty,) = await cluster.slices()
    assert (empty["endpoints"], empty["ports"]) == ([], [])
    name = empty["metadata"]["name"]
    cluster.pod("a")
    (full,) = await cluster.slices()
    assert full["metadata"]["name"] == name and len(full["endpoints"]) == 1


async def test_addresses_of_both_families_are_in_slices_of_their_own(cluster: Cluster) -> None:
    cluster.service()
    cluster.pod("a", "10.0.0.1")
    cluster.pod("b", "fd00::1")
    slices = await cluster.slices()
    assert {s["addressType"]: [e["addresses"] for e in s["endpoints"]] for s in slices} == {
        "IPv4": [["10.0.0.1"]],
        "IPv6": [["fd00::1"]],
    }


async def test_a_headless_service_says_so_and_names_its_pods(cluster: Cluster) -> None:
    cluster.service(clusterIP="None", ports=[])
    pod = cluster.pod("a")
    pod["spec"] |= {"hostname": "first", "subdomain": "web"}
    cluster.put("Pod", {**pod, "metadata": {**pod["metadata"]}})
    found = await cluster.endpoints()
    assert found["metadata"]["labels"] == {
        "endpoints.kubernetes.io/managed-by": "endpoint-controller",
        "service.kubernetes.io/headless": "",
    }
    assert found["subsets"] == [{"addresses": [found["subsets"][0]["addresses"][0]]}]
    assert found["subsets"][0]["addresses"][0]["hostname"] == "first"
    (row,) = await cluster.slices()
    assert row["metadata"]["labels"]["service.kubernetes.io/headless"] == ""
    assert row["endpoints"][0]["hostname"] == "first"


async def test_services_without_selector_have_none_but_for_the_api_servers(cluster: Cluster) -> None:
    cluster.service("bare", selector={})
    cluster.service("far", type="ExternalName", externalName="example.com")
    cluster.server.views.set_api_server("192.0.2.7", 6443)
    listed = (await cluster.get("/api/v1/endpoints")).json["items"]
    assert [e["metadata"]["name"] for e in listed] == ["kubernetes"]
    (subset,) = listed[0]["subsets"]
    assert subset == {
        "addresses": [{"ip": "192.0.2.7"}],
        "ports": [{"name": "https", "port": 6443, "protocol": "TCP"}],
    }
    (found,) = await cluster.slices("kubernetes")
    assert found["endpoints"][0]["addresses"] == ["192.0.2.7"]


async def test_a_service_takes_its_objects_with_it(cluster: Cluster) -> None:
    cluster.service()
    cluster.pod("a")
    before = await cluster.endpoints()
    cluster.drop("Service", "web")
    assert (await cluster.get(f"{SPACE}/endpoints/web")).status == 404
    assert await cluster.slices() == []
    cluster.service()
    assert (await cluster.endpoints())["metadata"]["uid"] == before["metadata"]["uid"]


async def test_a_changed_selector_or_label_is_followed(cluster: Cluster) -> None:
    cluster.service()
    cluster.pod("a", "10.0.0.1")
    cluster.pod("b", "10.0.0.2", app="db")
    cluster.pod("a", "10.0.0.1", app="db")
    assert "subsets" not in await cluster.endpoints()
    cluster.service(selector={"app": "db"})
    assert ips((await cluster.endpoints())["subsets"][0]) == ["10.0.0.1", "10.0.0.2"]
    cluster.drop("Pod", "a")
    assert ips((await cluster.endpoints())["subsets"][0]) == ["10.0.0.2"]


async def test_a_large_service_has_slices_of_100_and_one_pod_changes_one_of_them(cluster: Cluster) -> None:
    cluster.service()
    for number in range(250):
        cluster.pod(f"p{number}", f"10.0.{number // 100}.{number % 100}")
    before = {s["metadata"]["name"]: s for s in await cluster.slices()}
    assert sorted(len(s["endpoints"]) for s in before.values()) == [50, 100, 100]
    cluster.pod("p17", "10.0.0.17", ready=False)
    cluster.drop("Pod", "p203")
    after = {s["metadata"]["name"]: s for s in await cluster.slices()}
    assert after.keys() == before.keys()
    changed = [n for n in after if after[n] != before[n]]
    gone = next(n for n, s in before.items() if any(e["targetRef"]["name"] == "p203" for e in s["endpoints"]))
    off = next(n for n, s in before.items() if any(e["targetRef"]["name"] == "p17" for e in s["endpoints"]))
    assert sorted(changed) == sorted({gone, off})
    rows = [e["targetRef"]["name"] for s in after.values() for e in s["endpoints"]]
    assert len(rows) == len(set(rows)) == 249


async def test_endpoints_name_1000_pods_at_most_and_say_so(cluster: Cluster) -> None:
    cluster.service()
    for number in range(1010):
        cluster.pod(f"p{number}", f"10.1.{number // 250}.{number % 250}", ready=number >= 20)
    found = await cluster.endpoints()
    (subset,) = found["subsets"]
    assert (len(ips(subset)), len(ips(subset, "notReadyAddresses"))) == (990, 10)
    assert found["metadata"]["annotations"] == {"endpoints.kubernetes.io/over-capacity": "truncated"}


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("POST", f"{SPACE}/endpoints"),
        ("PUT", f"{SPACE}/endpoints/web"),
        ("PATCH", f"{SPACE}/endpoints/web"),
        ("DELETE", f"{SPACE}/endpoints/web"),
        ("DELETE", f"{SPACE}/endpoints"),
        ("POST", SLICES),
        ("DELETE", "/apis/apps/v1/namespaces/default/replicasets/web-abc"),
    ],
)
async def test_nobody_writes_what_is_computed(cluster: Cluster, method: str, path: str) -> None:
    cluster.service()
    answer = await cluster.send(method, path, {"metadata": {"name": "web"}} if method != "DELETE" else None)
    assert answer.status == 405
    assert answer.message == "the server does not allow this method on the requested resource"
    assert answer.json["reason"] == "MethodNotAllowed"
