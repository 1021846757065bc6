"""Cells: what kubectl shows for pods, nodes, events, Checkpoints and Modules in each of their states."""

from datetime import UTC, datetime
from typing import Any

import pytest

from kube32.api import tables
from kube32.contract import resource_of

NOW = 1_800_000_000.0


def stamp(seconds_ago: float) -> str:
    return datetime.fromtimestamp(NOW - seconds_ago, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def cells(kind: str, obj: dict[str, Any], now: float = NOW) -> dict[str, Any]:
    table = tables.row(resource_of(kind), obj, now=now)
    names = [c["name"] for c in table["columnDefinitions"]]
    return dict(zip(names, table["rows"][0]["cells"], strict=True))


def pod(status: dict[str, Any], **metadata: Any) -> dict[str, Any]:
    return {
        "metadata": {"name": "echo", **metadata},
        "spec": {"containers": [{"name": "c"}]},
        "status": status,
    }


def container(state: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"phase": "Running", "containerStatuses": [{"name": "c", "state": state, **more}]}


READY = {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}
READY["containerStatuses"] = [{"ready": True, "state": {"running": {}}}]


@pytest.mark.parametrize(
    ("status", "ready", "shown"),
    [
        ({"phase": "Pending"}, "0/1", "Pending"),
        (READY, "1/1", "Running"),
        (container({"running": {}}, ready=False), "0/1", "Running"),
        (container({"waiting": {"reason": "ContainerCreating"}}), "0/1", "ContainerCreating"),
        (container({"waiting": {"reason": "ImagePullBackOff"}}), "0/1", "ImagePullBackOff"),
        (container({"waiting": {"reason": "CrashLoopBackOff"}}), "0/1", "CrashLoopBackOff"),
        (container({"terminated": {"reason": "Completed", "exitCode": 0}}), "0/1", "Completed"),
        (container({"terminated": {"reason": "RestoreError", "exitCode": 1}}), "0/1", "RestoreError"),
        (container({"terminated": {"exitCode": 3}}), "0/1", "ExitCode:3"),
        (container({"terminated": {"exitCode": 137, "signal": 9}}), "0/1", "Signal:9"),
        ({"phase": "Failed", "reason": "Evicted"}, "0/1", "Evicted"),
        (
            {
                "phase": "Pending",
                "conditions": [{"type": "PodScheduled", "status": "False", "reason": "SchedulingGated"}],
            },
            "0/1",
            "SchedulingGated",
        ),
    ],
)
def test_a_pods_ready_and_status_say_what_its_container_does(status: dict, ready: str, shown: str) -> None:
    found = cells("Pod", pod(status))
    assert (found["Ready"], found["Status"]) == (ready, shown)


@pytest.mark.parametrize(
    ("init", "shown"),
    [
        ([{"state": {"running": {}}}], "Init:0/2"),
        ([{"state": {"terminated": {"exitCode": 0}}}, {"state": {"running": {}}}], "Init:1/2"),
        ([{"state": {"terminated": {"exitCode": 2}}}], "Init:ExitCode:2"),
        ([{"state": {"terminated": {"exitCode": 2, "reason": "Error"}}}], "Init:Error"),
        ([{"state": {"waiting": {"reason": "CrashLoopBackOff"}}}], "Init:CrashLoopBackOff"),
        ([{"state": {"waiting": {"reason": "PodInitializing"}}}], "Init:0/2"),
    ],
)
def test_a_pod_of_a_mixed_cluster_shows_its_init_containers(init: list, shown: str) -> None:
    obj = pod({"phase": "Pending", "initContainerStatuses": init})
    obj["spec"]["initContainers"] = [{}, {}]
    assert cells("Pod", obj)["Status"] == shown


def test_a_deleted_pod_is_terminating_until_it_has_ended() -> None:
    assert cells("Pod", pod(READY, deletionTimestamp=stamp(0)))["Status"] == "Terminating"
    lost = {"phase": "Running", "reason": "NodeLost"}
    assert cells("Pod", pod(lost, deletionTimestamp=stamp(0)))["Status"] == "Unknown"
    assert cells("Pod", pod({"phase": "Succeeded"}, deletionTimestamp=stamp(0)))["Status"] == "Succeeded"


def test_restarts_tell_when_the_last_one_was() -> None:
    ended = {"terminated": {"finishedAt": stamp(300)}}
    assert cells("Pod", pod(container({}, restartCount=2, lastState=ended)))["Restarts"] == "2 (5m ago)"
    assert cells("Pod", pod(container({}, restartCount=2)))["Restarts"] == "2"
    assert cells("Pod", pod({"phase": "Pending"}))["Restarts"] == "0"


def test_wide_cells_of_a_pod_say_none_where_nothing_is() -> None:
    found = cells("Pod", pod({"phase": "Pending"}))
    assert [found[c] for c in ("IP", "Node", "Nominated Node", "Readiness Gates")] == ["<none>"] * 4
    obj = pod({"podIP": "10.0.0.1", "conditions": [{"type": "example.com/x", "status": "True"}]})
    obj["spec"].update(
        nodeName="a", readinessGates=[{"conditionType": "example.com/x"}, {"conditionType": "y"}]
    )
    found = cells("Pod", obj)
    assert [found[c] for c in ("IP", "Node", "Readiness Gates")] == ["10.0.0.1", "a", "1/2"]


@pytest.mark.parametrize(
    ("seconds", "age"),
    [
        (5, "5s"),
        (119, "119s"),
        (120, "2m"),
        (190, "3m10s"),
        (600, "10m"),
        (3 * 3600 + 60, "3h1m"),
        (8 * 3600, "8h"),
        (52 * 3600, "2d4h"),
        (10 * 86400, "10d"),
        (800 * 86400, "2y70d"),
        (-1, "0s"),
        (-60, "<invalid>"),
    ],
)
def test_ages_are_written_as_kubectl_writes_them(seconds: int, age: str) -> None:
    assert cells("Pod", pod({}, creationTimestamp=stamp(seconds)))["Age"] == age


@pytest.mark.parametrize(
    "created", [None, "", "1970-01-01T00:00:07Z", "not a time", "2026-01-01T00:00:00", 5]
)
def test_an_age_without_a_clock_is_unknown_and_never_56y(created: Any) -> None:
    assert cells("Pod", pod({}, creationTimestamp=created))["Age"] == "<unknown>"


def test_a_server_without_a_clock_shows_no_ages() -> None:
    assert cells("Pod", pod({}, creationTimestamp=stamp(5)), now=12.0)["Age"] == "<unknown>"


def test_a_node_shows_readiness_cordon_roles_and_addresses() -> None:
    node = {
        "metadata": {
            "name": "devkit",
            "labels": {
                "node-role.kubernetes.io/control-plane": "",
                "node-role.kubernetes.io/": "",
                "kubernetes.io/role": "board",
            },
        },
        "spec": {"unschedulable": True},
        "status": {
            "conditions": [
                {"type": "MemoryPressure", "status": "False"},
                {"type": "Ready", "status": "True"},
            ],
            "addresses": [
                {"type": "Hostname", "address": "devkit"},
                {"type": "InternalIP", "address": "10.0.0.2"},
            ],
            "nodeInfo": {"kubeletVersion": "v1", "osImage": "Kube32"},
        },
    }
    found = cells("Node", node)
    assert found["Status"] == "Ready,SchedulingDisabled"
    assert found["Roles"] == "board,control-plane"
    assert [found[c] for c in ("Version", "Internal-IP", "External-IP")] == ["v1", "10.0.0.2", "<none>"]
    assert [found[c] for c in ("OS-Image", "Kernel-Version")] == ["Kube32", "<unknown>"]
    node["status"]["conditions"] = [{"type": "Ready", "status": "Unknown"}]
    assert cells("Node", node)["Status"] == "NotReady,SchedulingDisabled"
    assert cells("Node", {})["Status"] == "Unknown"
    assert cells("Node", {})["Roles"] == "<none>"


def test_an_event_shows_when_what_and_who() -> None:
    event = {
        "metadata": {"name": "echo.1"},
        "involvedObject": {"kind": "Pod", "name": "echo", "fieldPath": "spec.containers{echo}"},
        "type": "Normal",
        "reason": "Moved",
        "message": " Moved \n",
        "source": {"component": "kubelet", "host": "devkit"},
        "firstTimestamp": stamp(600),
        "lastTimestamp": stamp(30),
        "count": 4,
    }
    found = cells("Event", event)
    assert list(found.values()) == [
        "30s",
        "Normal",
        "Moved",
        "pod/echo",
        "spec.containers{echo}",
        "kubelet, devkit",
        "Moved",
        "10m",
        4,
        "echo.1",
    ]


def test_an_event_of_the_newer_form_shows_its_series() -> None:
    event = {
        "eventTime": "2027-01-15T07:59:00.000000Z",
        "reportingComponent": "k",
        "series": {"count": 9, "lastObservedTime": stamp(5)},
    }
    found = cells("Event", event)
    assert (found["Last Seen"], found["First Seen"], found["Count"], found["Source"]) == ("5s", "60s", 9, "k")
    del event["series"]
    assert cells("Event", event)["Last Seen"] == "60s"
    assert cells("Event", event)["Count"] == 1


def test_data_is_counted() -> None:
    assert cells("ConfigMap", {"data": {"a": "", "b": ""}, "binaryData": {"c": ""}})["Data"] == 3
    assert cells("Secret", {"data": {"a": ""}, "type": "Opaque"})["Data"] == 1


def test_a_checkpoint_shows_its_outcome_and_nothing_where_there_is_none() -> None:
    checkpoint = {
        "metadata": {"name": "m", "creationTimestamp": stamp(5)},
        "spec": {"podName": "echo", "action": "Move"},
        "status": {
            "phase": "Completed",
            "nodeName": "a",
            "sizeBytes": 66_764,
            "targetNode": "b",
            "newPodName": "echo",
            "message": "moved",
        },
    }
    found = list(cells("Checkpoint", checkpoint).values())
    assert found == ["m", "echo", "Move", "Completed", "a", "65.2Ki", "5s", "b", "echo", "moved"]
    fresh = {"metadata": {"name": "m"}, "spec": {"podName": "echo", "action": "Save"}}
    assert list(cells("Checkpoint", fresh).values()) == [
        "m",
        "echo",
        "Save",
        *[""] * 3,
        "<unknown>",
        *[""] * 3,
    ]


def test_a_module_shows_the_beginning_of_its_digest() -> None:
    module = {
        "metadata": {"name": "echo"},
        "status": {
            "sha256": "ab" * 32,
            "sizeBytes": 512,
            "podKind": "request",
            "exports": ["k32_handle", "k32_tick"],
        },
    }
    found = cells("Module", module)
    assert (found["Sha256"], found["Size"]) == ("abababababab", "512")
    assert (found["Kind"], found["Exports"]) == ("request", "k32_handle,k32_tick")
