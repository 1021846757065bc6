"""The route table that nodes get: Services with their Ready pods, Ingresses of our class, nothing else."""

from typing import Any

import orjson

from kube32.contract import NAMES
from kube32.controllers.routes.table import Cluster, make


def obj(name: str, namespace: str = "default", **parts: Any) -> dict[str, Any]:
    return {"metadata": {"name": name, "namespace": namespace, **parts.pop("metadata", {})}, **parts}


def service(name: str, *ports: dict[str, Any], **spec: Any) -> dict[str, Any]:
    return obj(name, spec={"ports": list(ports) or [{"port": 80, "protocol": "TCP"}], **spec})


def endpoints(service: str, *rows: tuple[str, str, bool], ports: tuple[str, ...] = ("",)) -> dict[str, Any]:
    return obj(
        f"{service}-abcde",
        metadata={"labels": {"kubernetes.io/service-name": service}},
        ports=[{"name": name, "port": 8080} for name in ports],
        endpoints=[
            {
                "nodeName": node,
                "conditions": {"ready": ready},
                "targetRef": {"kind": "Pod", "name": pod},
            }
            for pod, node, ready in rows
        ],
    )


def ingress(name: str, **spec: Any) -> dict[str, Any]:
    return obj(name, spec=spec)


def rule(service: str, port: dict[str, Any], **path: Any) -> dict[str, Any]:
    return {
        "host": "web.example",
        "http": {
            "paths": [
                {
                    "path": "/",
                    "pathType": "Prefix",
                    "backend": {"service": {"name": service, "port": port}},
                    **path,
                }
            ]
        },
    }


OURS = obj("kube32", "", spec={"controller": NAMES.ingress_controller})


def table(**parts: Any) -> dict[str, Any]:
    cluster = Cluster(
        parts.get("services", ()),
        parts.get("slices", ()),
        parts.get("ingresses", ()),
        parts.get("classes", (OURS,)),
        parts.get("pods", {}),
    )
    found: dict[str, Any] = orjson.loads(make(cluster))
    return found


def test_only_ready_endpoints_are_listed_with_their_nodes() -> None:
    rows = endpoints("web", ("b", "two", True), ("a", "one", True), ("c", "one", False))
    (port,) = table(services=[service("web", {"port": 80, "nodePort": 30080})], slices=[rows])["services"][0][
        "ports"
    ]
    assert port == {
        "name": "",
        "port": 80,
        "nodePort": 30080,
        "endpoints": [{"pod": "a", "node": "one"}, {"pod": "b", "node": "two"}],
    }


def test_the_table_depends_on_the_content_alone() -> None:
    services = [service("b"), service("a")]
    slices = [endpoints("a", ("p", "n", True), ("o", "n", True)), endpoints("b", ("q", "n", True))]
    turned = [endpoints("b", ("q", "n", True)), endpoints("a", ("o", "n", True), ("p", "n", True))]
    one = Cluster(services, slices, (), (), {})
    two = Cluster(list(reversed(services)), turned, (), (), {})
    assert make(one) == make(two)


def test_a_port_has_the_endpoints_of_its_name() -> None:
    ports = ({"port": 80, "name": "http"}, {"port": 81, "name": "admin"})
    rows = endpoints("web", ("a", "one", True), ports=("http",))
    http, admin = table(services=[service("web", *ports)], slices=[rows])["services"][0]["ports"]
    assert [e["pod"] for e in http["endpoints"]] == ["a"]
    assert admin["endpoints"] == []


def test_a_service_waits_for_a_pod_that_is_frozen_or_restores() -> None:
    frozen = obj("a", status={"conditions": [{"type": "Ready", "status": "False", "reason": "Frozen"}]})
    restoring = obj("a", metadata={"annotations": {NAMES.ann_restore_from: "x"}})
    starting = obj("a", status={"conditions": [{"type": "Ready", "status": "False"}]})
    gone = obj("a", metadata={"annotations": {NAMES.ann_restore_from: "x"}, "deletionTimestamp": "now"})
    rows = endpoints("web", ("a", "one", False))
    for pod, waits in ((frozen, True), (restoring, True), (starting, False), (gone, False)):
        made = table(services=[service("web")], slices=[rows], pods={("default", "a"): pod})
        assert made["services"][0]["ports"][0].get("waits", False) is waits


def test_external_names_and_udp_are_not_served() -> None:
    services = [service("out", type="ExternalName"), service("dns", {"port": 53, "protocol": "UDP"})]
    assert table(services=services)["services"] == []


def test_rules_name_the_port_by_its_number() -> None:
    services = [service("web", {"port": 8080, "name": "http"})]
    made = table(
        services=services,
        ingresses=[
            ingress("a", rules=[rule("web", {"name": "http"})]),
            ingress("b", rules=[rule("web", {"number": 9})]),
            ingress("c", rules=[rule("gone", {"name": "http"})]),
        ],
    )
    assert [i["rules"][0]["port"] for i in made["ingresses"]] == [8080, 9, 0]


def test_a_default_backend_takes_what_its_rules_do_not() -> None:
    backend = {"service": {"name": "web", "port": {"number": 80}}}
    made = table(ingresses=[ingress("a", defaultBackend=backend, rules=[{"host": "bare.example"}])])
    assert made["ingresses"][0]["rules"] == [
        {"host": "", "path": "", "pathType": "Prefix", "service": "web", "port": 80},
        {"host": "bare.example", "path": "", "pathType": "Prefix", "service": "web", "port": 80},
    ]


def test_ingresses_of_another_class_are_not_ours() -> None:
    nginx = obj("nginx", "", spec={"controller": "k8s.io/ingress-nginx"})
    rules = [rule("web", {"number": 80})]
    made = table(
        classes=(OURS, nginx),
        ingresses=[
            ingress("none", rules=rules),
            ingress("ours", rules=rules, ingressClassName="kube32"),
            ingress("theirs", rules=rules, ingressClassName="nginx"),
            ingress("unknown", rules=rules, ingressClassName="missing"),
            obj(
                "old",
                metadata={"annotations": {"kubernetes.io/ingress.class": "nginx"}},
                spec={"rules": rules},
            ),
        ],
    )
    assert [i["name"] for i in made["ingresses"]] == ["none", "ours"]
