"""Cells of workloads, Services, Ingresses, claims, bindings and metrics, as kube-apiserver prints them."""

from datetime import UTC, datetime
from typing import Any

import pytest

from kube32.api import tables
from kube32.contract import resource_of

NOW = 1_800_000_000.0


def stamp(seconds_ago: float) -> str:
    return datetime.fromtimestamp(NOW - seconds_ago, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def cells(kind: str, **parts: Any) -> dict[str, Any]:
    obj = {"metadata": {"name": "x"}, **parts}
    table = tables.row(resource_of(kind), obj, now=NOW)
    names = [c["name"] for c in table["columnDefinitions"]]
    return dict(zip(names, table["rows"][0]["cells"], strict=True))


TEMPLATE = {
    "spec": {
        "containers": [{"name": "a", "image": "wasm://a"}, {"name": "b", "image": "wasm://b"}],
        "nodeSelector": {"disk": "flash", "a": "b"},
    }
}


def test_a_deployment() -> None:
    shown = cells(
        "Deployment",
        spec={"replicas": 3, "template": TEMPLATE, "selector": {"matchLabels": {"app": "x"}}},
        status={"readyReplicas": 2, "updatedReplicas": 1, "availableReplicas": 2},
    )
    assert (shown["Ready"], shown["Up-to-date"], shown["Available"]) == ("2/3", 1, 2)
    assert (shown["Containers"], shown["Images"]) == ("a,b", "wasm://a,wasm://b")
    assert shown["Selector"] == "app=x"
    assert cells("Deployment", spec={"replicas": 1})["Ready"] == "0/1"


def test_a_daemon_set() -> None:
    shown = cells(
        "DaemonSet",
        spec={"template": TEMPLATE, "selector": {}},
        status={"desiredNumberScheduled": 3, "currentNumberScheduled": 2, "numberReady": 1},
    )
    assert [shown[c] for c in ("Desired", "Current", "Ready", "Up-to-date", "Available")] == [3, 2, 1, 0, 0]
    assert (shown["Node Selector"], shown["Selector"]) == ("a=b,disk=flash", "<none>")
    assert cells("DaemonSet")["Node Selector"] == "<none>"


def test_a_selector_is_written_as_on_a_command_line() -> None:
    rules = [
        {"key": "tier", "operator": "In", "values": ["b", "a"]},
        {"key": "zone", "operator": "NotIn", "values": ["c"]},
        {"key": "gone", "operator": "DoesNotExist"},
        {"key": "here", "operator": "Exists"},
    ]
    selector = {"matchLabels": {"app": "x"}, "matchExpressions": rules}
    shown = cells("ReplicaSet", spec={"selector": selector})["Selector"]
    assert shown == "app=x,!gone,here,tier in (a,b),zone notin (c)"


def condition(kind: str) -> dict[str, Any]:
    return {"conditions": [{"type": kind, "status": "True"}]}


@pytest.mark.parametrize(
    ("status", "deleted", "shown"),
    [
        ({}, False, "Running"),
        (condition("Complete"), True, "Complete"),
        (condition("Failed"), False, "Failed"),
        (condition("Suspended"), True, "Terminating"),
        (condition("Suspended"), False, "Suspended"),
        (condition("FailureTarget"), False, "FailureTarget"),
        (condition("SuccessCriteriaMet"), False, "SuccessCriteriaMet"),
    ],
)
def test_the_status_of_a_job(status: dict[str, Any], deleted: bool, shown: str) -> None:
    metadata = {"name": "x", **({"deletionTimestamp": stamp(1)} if deleted else {})}
    assert cells("Job", metadata=metadata, status=status)["Status"] == shown


def test_the_completions_and_duration_of_a_job() -> None:
    assert cells("Job", spec={"completions": 3}, status={"succeeded": 1})["Completions"] == "1/3"
    assert cells("Job", spec={"parallelism": 1})["Completions"] == "0/1"
    assert cells("Job", spec={"parallelism": 4})["Completions"] == "0/1 of 4"
    assert cells("Job")["Duration"] == ""
    assert cells("Job", status={"startTime": stamp(90)})["Duration"] == "90s"
    ended = {"startTime": stamp(600), "completionTime": stamp(300)}
    assert cells("Job", status=ended)["Duration"] == "5m"


@pytest.mark.parametrize(
    ("spec", "status", "address", "external"),
    [
        ({"type": "ClusterIP", "clusterIPs": ["10.96.0.9"]}, {}, "10.96.0.9", "<none>"),
        ({"type": "ClusterIP", "clusterIPs": ["None"]}, {}, "None", "<none>"),
        ({"type": "NodePort", "externalIPs": ["1.2.3.4", "1.2.3.5"]}, {}, "<none>", "1.2.3.4,1.2.3.5"),
        ({"type": "LoadBalancer"}, {}, "<none>", "<pending>"),
        (
            {"type": "LoadBalancer", "externalIPs": ["1.1.1.1"]},
            {"loadBalancer": {"ingress": [{"ip": "9.9.9.9"}, {"hostname": "lb"}]}},
            "<none>",
            "9.9.9.9,lb,1.1.1.1",
        ),
        ({"type": "ExternalName", "externalName": "example.com"}, {}, "<none>", "example.com"),
        ({}, {}, "<none>", "<unknown>"),
    ],
)
def test_the_addresses_of_a_service(
    spec: dict[str, Any], status: dict[str, Any], address: str, external: str
) -> None:
    shown = cells("Service", spec=spec, status=status)
    assert (shown["Cluster-IP"], shown["External-IP"]) == (address, external)


def test_the_ports_and_selector_of_a_service() -> None:
    ports = [{"port": 80, "protocol": "TCP", "nodePort": 30080}, {"port": 53, "protocol": "UDP"}]
    shown = cells("Service", spec={"ports": ports, "selector": {"b": "1", "a": "2"}})
    assert (shown["Port(s)"], shown["Selector"]) == ("80:30080/TCP,53/UDP", "a=2,b=1")
    assert cells("Service")["Port(s)"] == cells("Service")["Selector"] == "<none>"


def test_endpoints_show_three_and_count_the_others() -> None:
    addresses = [{"ip": f"10.0.0.{n}"} for n in range(1, 6)]
    assert cells("Endpoints")["Endpoints"] == "<none>"
    assert cells("Endpoints", subsets=[{"addresses": addresses[:1], "ports": [{"port": 80}]}])[
        "Endpoints"
    ] == ("10.0.0.1:80")
    many = cells("Endpoints", subsets=[{"addresses": addresses, "ports": [{"port": 80}]}])["Endpoints"]
    assert many == "10.0.0.1:80,10.0.0.2:80,10.0.0.3:80 + 2 more..."
    assert cells("Endpoints", subsets=[{"addresses": addresses[:2]}])["Endpoints"] == "10.0.0.1,10.0.0.2"
    assert cells("Endpoints", subsets=[{"notReadyAddresses": addresses}])["Endpoints"] == ""
    six = [{"addresses": [{"ip": "fd00::1"}], "ports": [{"port": 80}]}]
    assert cells("Endpoints", subsets=six)["Endpoints"] == "[fd00::1]:80"


def test_endpoint_slices() -> None:
    shown = cells("EndpointSlice", addressType="IPv4")
    assert (shown["Ports"], shown["Endpoints"]) == ("<unset>", "<unset>")
    ports = [{"port": 80}, {"name": "http"}, {}, {"port": 4}]
    endpoints = [{"addresses": ["10.0.0.1"]}, {"addresses": ["10.0.0.2"]}]
    shown = cells("EndpointSlice", ports=ports, endpoints=endpoints)
    assert (shown["Ports"], shown["Endpoints"]) == ("80,http,* + 1 more...", "10.0.0.1,10.0.0.2")


def test_ingresses() -> None:
    rules = [{"host": f"{n}.example"} for n in "abcde"]
    shown = cells("Ingress", spec={"rules": rules, "ingressClassName": "kube32"})
    assert (shown["Class"], shown["Hosts"]) == ("kube32", "a.example,b.example,c.example + 2 more...")
    assert (shown["Address"], shown["Ports"]) == ("", "80")
    status = {"loadBalancer": {"ingress": [{"ip": "10.0.0.2"}, {"ip": "10.0.0.1"}]}}
    shown = cells("Ingress", spec={"rules": [{}], "tls": [{}]}, status=status)
    assert (shown["Class"], shown["Hosts"]) == ("<none>", "*")
    assert (shown["Address"], shown["Ports"]) == ("10.0.0.1,10.0.0.2", "80, 443")


def test_an_ingress_class() -> None:
    assert cells("IngressClass", spec={"controller": "a/b"})["Parameters"] == "<none>"
    parameters = {"apiGroup": "a.example", "kind": "Setting", "name": "s"}
    shown = cells("IngressClass", spec={"parameters": parameters})
    assert shown["Parameters"] == "Setting.a.example/s"


def test_claims() -> None:
    spec = {"volumeName": "v", "storageClassName": "kube32-node", "volumeMode": "Filesystem"}
    modes = ["ReadOnlyMany", "ReadWriteOnce"]
    status = {"phase": "Bound", "capacity": {"storage": "1Gi"}, "accessModes": modes}
    shown = cells("PersistentVolumeClaim", spec=spec, status=status)
    assert (shown["Status"], shown["Capacity"], shown["Access Modes"]) == ("Bound", "1Gi", "RWO,ROX")
    assert (shown["Volume"], shown["VolumeMode"]) == ("v", "Filesystem")
    unbound = cells("PersistentVolumeClaim", spec={}, status={"phase": "Pending", "accessModes": modes})
    assert (unbound["Status"], unbound["Capacity"], unbound["Access Modes"]) == ("Pending", "", "")
    assert unbound["VolumeMode"] == "<unset>"
    gone = cells("PersistentVolumeClaim", metadata={"deletionTimestamp": stamp(1)}, status=status)
    assert gone["Status"] == "Terminating"


def test_bindings_and_accounts() -> None:
    subjects = [
        {"kind": "User", "name": "u"},
        {"kind": "User", "name": "v"},
        {"kind": "Group", "name": "g"},
        {"kind": "ServiceAccount", "name": "s", "namespace": "n"},
    ]
    shown = cells("RoleBinding", roleRef={"kind": "ClusterRole", "name": "view"}, subjects=subjects)
    assert shown["Role"] == "ClusterRole/view"
    assert (shown["Users"], shown["Groups"], shown["ServiceAccounts"]) == ("u, v", "g", "n/s")
    assert cells("ServiceAccount")["Secrets"] == 0


def test_metrics_are_summed_over_containers() -> None:
    containers = [{"usage": {"cpu": "5m", "memory": "8Mi"}}, {"usage": {"cpu": "2", "memory": "512Ki"}}]
    shown = cells("PodMetrics", containers=containers, window="30s")
    assert (shown["cpu"], shown["memory"], shown["window"]) == ("2005m", "8704Ki", "30s")
    assert cells("NodeMetrics", usage={"cpu": "250m", "memory": "12Mi"})["memory"] == "12Mi"


def init_pod(states: list[dict[str, Any]], **more: Any) -> dict[str, Any]:
    names = [f"i{index}" for index in range(len(states))]
    return {
        "spec": {"containers": [{"name": "c"}], "initContainers": [{"name": name} for name in names]},
        "status": {
            "phase": "Pending",
            "initContainerStatuses": [
                {"name": name, **state} for name, state in zip(names, states, strict=True)
            ],
            **more,
        },
    }


DONE = {"state": {"terminated": {"exitCode": 0}}}


@pytest.mark.parametrize(
    ("states", "shown"),
    [
        ([{"state": {"running": {}}}, {}], "Init:0/2"),
        ([DONE, {"state": {"waiting": {"reason": "PodInitializing"}}}], "Init:1/2"),
        ([DONE, {"state": {"waiting": {"reason": "CrashLoopBackOff"}}}], "Init:CrashLoopBackOff"),
        ([{"state": {"terminated": {"exitCode": 1}}}], "Init:ExitCode:1"),
        ([{"state": {"terminated": {"exitCode": 1, "reason": "Error"}}}], "Init:Error"),
        ([{"state": {"terminated": {"exitCode": 1, "signal": 9}}}], "Init:Signal:9"),
    ],
)
def test_a_pod_that_prepares_says_how_far_it_is(states: list[dict[str, Any]], shown: str) -> None:
    waiting = [{"name": "c", "state": {"waiting": {"reason": "PodInitializing"}}}]
    pod = init_pod(states, containerStatuses=waiting)
    assert (cells("Pod", **pod)["Status"], cells("Pod", **pod)["Ready"]) == (shown, "0/1")


def test_restarts_of_init_containers_count_while_they_run() -> None:
    ended = {"terminated": {"finishedAt": stamp(300)}}
    crashed = {"state": {"running": {}}, "restartCount": 2, "lastState": ended}
    assert cells("Pod", **init_pod([crashed]))["Restarts"] == "2 (5m ago)"
    running = [{"name": "c", "state": {"running": {}}, "ready": True, "restartCount": 1}]
    done = {**DONE, "restartCount": 2}
    pod = init_pod([done], containerStatuses=running, phase="Running")
    assert (cells("Pod", **pod)["Restarts"], cells("Pod", **pod)["Status"]) == ("1", "Running")
    pending = init_pod([done], containerStatuses=[{"state": {"waiting": {"reason": "PodInitializing"}}}])
    assert cells("Pod", **pending)["Status"] == "PodInitializing"


@pytest.mark.parametrize("value", [None, "x", 5, [], [5], {}, {"a": 5}])
@pytest.mark.parametrize(
    "kind",
    [
        "Deployment",
        "DaemonSet",
        "Job",
        "Service",
        "Ingress",
        "RoleBinding",
        "PersistentVolumeClaim",
        "Endpoints",
    ],
)
def test_objects_of_any_shape_are_printed(kind: str, value: Any) -> None:
    for part in ("spec", "status", "subsets", "roleRef", "subjects"):
        tables.row(resource_of(kind), {"metadata": {}, part: value}, now=NOW)
    for part in ("template", "selector", "ports", "rules", "loadBalancer", "clusterIPs", "conditions", "tls"):
        obj = {"metadata": {"name": "x"}, "spec": {part: value}, "status": {part: value}}
        tables.row(resource_of(kind), obj, now=NOW)
