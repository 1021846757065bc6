"""Addresses and node ports of Services: unique, kept over updates, honoured or refused with a reason."""

import ipaddress
from typing import Any

import pytest
from tests.unit.api_core.conftest import Api, make_server

from kube32.contract import LIMITS, NAMES

SERVICES = "/api/v1/namespaces/default/services"
RANGE = ipaddress.ip_network(NAMES.service_cidr)


def service(name: str, *ports: dict[str, Any], **spec: Any) -> dict[str, Any]:
    found = list(ports) or [{"port": 80}]
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": name},
        "spec": {"ports": found, **spec},
    }


async def test_every_cluster_has_the_service_of_its_api(api: Any) -> None:
    found = (await api.get(f"{SERVICES}/kubernetes")).json
    assert found["metadata"]["labels"] == {"component": "apiserver", "provider": "kubernetes"}
    assert found["spec"]["clusterIP"] == str(RANGE[1]) and found["spec"]["type"] == "ClusterIP"
    assert found["spec"]["ports"] == [{"name": "https", "port": 443, "protocol": "TCP", "targetPort": 6443}]
    (made,) = (await api.get("/apis/networking.k8s.io/v1/ingressclasses")).json["items"]
    assert made["metadata"]["name"] == "kube32" and made["spec"]["controller"] == "kube32.io/ingress"
    assert made["metadata"]["annotations"] == {"ingressclass.kubernetes.io/is-default-class": "true"}


async def test_a_second_start_leaves_them_alone(api: Any) -> None:
    before = (await api.get(f"{SERVICES}/kubernetes")).body
    await api.server.start()
    assert (await api.get(f"{SERVICES}/kubernetes")).body == before


async def test_it_comes_back_when_it_is_deleted(api: Any) -> None:
    before = (await api.get(f"{SERVICES}/kubernetes")).json["metadata"]["uid"]
    await api.create(SERVICES, service("a"))
    assert (await api.send("DELETE", SERVICES)).status == 200
    (left,) = (await api.get(SERVICES)).json["items"]
    assert left["metadata"]["name"] == "kubernetes" and left["metadata"]["uid"] != before
    assert left["spec"]["clusterIP"] == str(RANGE[1])


async def test_addresses_are_in_the_range_and_unique(api: Any) -> None:
    made = [await api.create(SERVICES, service(f"s{n}")) for n in range(20)]
    addresses = {s["spec"]["clusterIP"] for s in made} | {str(RANGE[1])}
    assert len(addresses) == 21
    assert all(ipaddress.ip_address(a) in RANGE for a in addresses)
    assert all(s["spec"]["clusterIPs"] == [s["spec"]["clusterIP"]] for s in made)
    assert made[0]["spec"]["ipFamilies"] == ["IPv4"] and made[0]["spec"]["ipFamilyPolicy"] == "SingleStack"


async def test_an_address_that_is_asked_for_is_given_or_refused(api: Any) -> None:
    made = await api.create(SERVICES, service("a", clusterIP="10.96.7.7"))
    assert made["spec"]["clusterIPs"] == ["10.96.7.7"]
    for asked, why in (
        ("10.96.7.7", "failed to allocate IP 10.96.7.7: provided IP is already allocated"),
        (
            "10.1.2.3",
            "failed to allocate IP 10.1.2.3: the provided IP (10.1.2.3) is not in the valid range. "
            "The range of valid IPs is 10.96.0.0/16",
        ),
        ("10.96.0.0", "is not in the valid range"),
    ):
        answer = await api.send("POST", SERVICES, service("b", clusterIP=asked))
        assert answer.status == 422
        assert f'spec.clusterIPs: Invalid value: ["{asked}"]: ' in answer.message and why in answer.message
    await api.send("DELETE", f"{SERVICES}/a")
    await api.create(SERVICES, service("b", clusterIP="10.96.7.7"))


async def test_headless_and_external_services_have_no_address(api: Any) -> None:
    headless = await api.create(SERVICES, service("h", clusterIP="None"))
    assert headless["spec"]["clusterIPs"] == ["None"]
    external = await api.create(SERVICES, service("e", type="ExternalName", externalName="example.com"))
    assert "clusterIP" not in external["spec"] and "ipFamilies" not in external["spec"]


async def test_an_update_keeps_the_address(api: Any) -> None:
    made = await api.create(SERVICES, service("a"))
    answer = await api.send("PUT", f"{SERVICES}/a", service("a", {"port": 81}))
    assert answer.status == 200 and answer.json["spec"]["clusterIP"] == made["spec"]["clusterIP"]
    assert answer.json["spec"]["ipFamilies"] == ["IPv4"]
    answer = await api.patch(f"{SERVICES}/a", {"spec": {"clusterIP": "10.96.9.9"}})
    assert answer.status == 422
    assert 'spec.clusterIPs[0]: Invalid value: ["10.96.9.9"]: may not change once set' in answer.message
    answer = await api.patch(f"{SERVICES}/a", {"spec": {"clusterIP": None, "clusterIPs": None}})
    assert answer.json["spec"]["clusterIP"] == made["spec"]["clusterIP"]


async def test_an_update_that_changes_nothing_makes_no_revision(api: Any) -> None:
    made = await api.create(SERVICES, service("a", type="NodePort"))
    answer = await api.send("PUT", f"{SERVICES}/a", service("a", type="NodePort"))
    assert answer.json["metadata"]["resourceVersion"] == made["metadata"]["resourceVersion"]


async def test_node_ports_are_in_the_range_and_unique(api: Any) -> None:
    low, high = LIMITS.node_port_min, LIMITS.node_port_max
    ports = [{"port": n, "name": f"p{n}"} for n in range(1, 11)]
    for name, kind in (("a", "NodePort"), ("b", "LoadBalancer")):
        await api.create(SERVICES, service(name, *ports, type=kind))
    found = [
        p["nodePort"] for name in "ab" for p in (await api.get(f"{SERVICES}/{name}")).json["spec"]["ports"]
    ]
    assert len(set(found)) == 20 and all(low <= port <= high for port in found)


async def test_one_port_of_two_protocols_has_one_node_port(api: Any) -> None:
    ports = [{"port": 53, "name": "tcp"}, {"port": 53, "name": "udp", "protocol": "UDP"}]
    made = await api.create(SERVICES, service("dns", *ports, type="NodePort"))
    assert len({p["nodePort"] for p in made["spec"]["ports"]}) == 1


async def test_a_node_port_that_is_asked_for_is_given_or_refused(api: Any) -> None:
    made = await api.create(SERVICES, service("a", {"port": 80, "nodePort": 30080}, type="NodePort"))
    assert made["spec"]["ports"][0]["nodePort"] == 30080
    for asked, why in (
        (30080, "provided port is already allocated"),
        (80, "provided port is not in the valid range. The range of valid ports is 30000-32767"),
    ):
        body = service("b", {"port": 80, "nodePort": asked}, type="NodePort")
        answer = await api.send("POST", SERVICES, body)
        assert answer.status == 422
        assert f"spec.ports[0].nodePort: Invalid value: {asked}: {why}" in answer.message
    assert (await api.send("PUT", f"{SERVICES}/a", service("a", type="NodePort"))).json["spec"]["ports"] == (
        made["spec"]["ports"]
    )


async def test_a_changed_type_brings_and_takes_away_ports_and_addresses(api: Any) -> None:
    made = await api.create(SERVICES, service("a"))
    path = f"{SERVICES}/a"
    found = (await api.patch(path, {"spec": {"type": "NodePort"}})).json["spec"]
    assert found["ports"][0]["nodePort"] and found["externalTrafficPolicy"] == "Cluster"
    found = (await api.patch(path, {"spec": {"type": "ClusterIP"}})).json["spec"]
    assert "nodePort" not in found["ports"][0] and "externalTrafficPolicy" not in found
    assert found["clusterIP"] == made["spec"]["clusterIP"]
    found = (await api.patch(path, {"spec": {"type": "LoadBalancer"}})).json["spec"]
    assert found["ports"][0]["nodePort"] and found["allocateLoadBalancerNodePorts"] is True
    found = (await api.patch(path, {"spec": {"type": "NodePort"}})).json["spec"]
    assert "allocateLoadBalancerNodePorts" not in found and found["ports"][0]["nodePort"]
    away = {"spec": {"type": "ExternalName", "externalName": "example.com"}}
    found = (await api.patch(path, away)).json["spec"]
    for field in ("clusterIP", "clusterIPs", "ipFamilies", "internalTrafficPolicy", "externalTrafficPolicy"):
        assert field not in found
    assert "nodePort" not in found["ports"][0]
    found = (await api.patch(path, {"spec": {"type": "ClusterIP", "externalName": None}})).json["spec"]
    assert found["clusterIP"] and found["ipFamilies"] == ["IPv4"]


async def test_a_load_balancer_may_go_without_node_ports(api: Any) -> None:
    made = await api.create(SERVICES, service("a", type="LoadBalancer", allocateLoadBalancerNodePorts=False))
    assert "nodePort" not in made["spec"]["ports"][0]


async def test_a_dry_run_says_what_would_be_given_and_holds_nothing(api: Any) -> None:
    body = service("a", {"port": 80, "nodePort": 30080}, type="NodePort", clusterIP="10.96.7.7")
    answer = await api.send("POST", f"{SERVICES}?dryRun=All", body)
    assert answer.status == 201 and answer.json["spec"]["clusterIPs"] == ["10.96.7.7"]
    await api.create(SERVICES, body)


async def test_when_the_node_ports_are_all_taken_there_is_a_500_that_says_so(
    pki_dir: Any, limits: Any
) -> None:
    server = make_server(pki_dir, limits)
    await server.start()
    api = Api(server)
    low, high = LIMITS.node_port_min, LIMITS.node_port_max
    for name, first in (("a", low), ("b", (low + high) // 2)):
        last = (low + high) // 2 if name == "a" else high + 1
        ports = [{"port": n - low + 1, "nodePort": n, "name": f"p{n}"} for n in range(first, last)]
        stored = {**service(name, *ports, type="NodePort", clusterIP="None")}
        stored["metadata"]["namespace"] = "default"
        # Larger than what the store takes in one piece: put as several.
        for part in range(0, len(ports), 400):
            piece = {**stored, "metadata": {"name": f"{name}{part}", "namespace": "default"}}
            piece["spec"] = {**stored["spec"], "ports": ports[part : part + 400]}
            server.store.put(f"/registry/services/default/{name}{part}", piece)
    answer = await api.send("POST", SERVICES, service("x", type="NodePort"))
    assert (answer.status, answer.message) == (
        500,
        "Internal error occurred: failed to allocate a nodePort: range is full",
    )
    await server.close()


@pytest.mark.parametrize("plural", ["services", "services/status"])
async def test_writes_of_the_status_change_no_address(api: Any, plural: str) -> None:
    made = await api.create(SERVICES, service("a", type="LoadBalancer"))
    balancer = {"status": {"loadBalancer": {"ingress": [{"ip": "1.2.3.4"}]}}}
    path = f"{SERVICES}/a/status" if plural.endswith("status") else f"{SERVICES}/a"
    answer = await api.patch(path, balancer)
    assert answer.status == 200 and answer.json["spec"] == made["spec"]
    assert (answer.json["status"] == balancer["status"]) is plural.endswith("status")
