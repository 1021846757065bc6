"""Tables: the columns of a real kube-apiserver, the forms an Accept header may ask for, rows and their
objects.
"""

import pytest

from kube32.api import tables
from kube32.api.status import ApiFailure
from kube32.api.tables import View
from kube32.contract import RESOURCES, resource_of

NOW = 1_800_000_000.0

# Name(type[,format]) as a kube-apiserver 1.20.2 gives them; "wide" columns have priority 1.
COLUMNS = {
    "Pod": "Name(string,name); Ready(string); Status(string); Restarts(integer); Age(string); "
    "IP(string) wide; Node(string) wide; Nominated Node(string) wide; Readiness Gates(string) wide",
    "Node": "Name(string,name); Status(string); Roles(string); Age(string); Version(string); "
    "Internal-IP(string) wide; External-IP(string) wide; OS-Image(string) wide; Kernel-Version(string) wide; "
    "Container-Runtime(string) wide",
    "Namespace": "Name(string,name); Status(string); Age(string)",
    "Event": "Last Seen(string); Type(string); Reason(string); Object(string); Subobject(string) wide; "
    "Source(string) wide; Message(string); First Seen(string) wide; Count(string) wide; "
    "Name(string,name) wide",
    "ConfigMap": "Name(string,name); Data(string); Age(string)",
    "Secret": "Name(string,name); Type(string); Data(string); Age(string)",
    "Lease": "Name(string,name); Holder(string); Age(string)",
    "Checkpoint": "Name(string,name); Pod(string); Action(string); Phase(string); Node(string); "
    "Size(string); Age(string); Target(string) wide; New Pod(string) wide; Message(string) wide",
}


def _written(table: dict) -> str:
    parts = []
    for c in table["columnDefinitions"]:
        kind = f"{c['type']},{c['format']}" if c["format"] else c["type"]
        parts.append(f"{c['name']}({kind}){' wide' if c['priority'] else ''}")
    return "; ".join(parts)


@pytest.mark.parametrize("kind", COLUMNS)
def test_each_kind_has_the_columns_of_a_kube_apiserver(kind: str) -> None:
    assert _written(tables.table(resource_of(kind), [])) == COLUMNS[kind]


@pytest.mark.parametrize("resource", RESOURCES, ids=lambda r: r.kind)
@pytest.mark.parametrize(
    "obj",
    [
        {},
        {"metadata": None, "spec": [], "status": "x"},
        {
            "metadata": {"labels": 3, "creationTimestamp": 7},
            "spec": {"containers": {}},
            "status": {"conditions": [1]},
        },
        {
            "status": {"containerStatuses": [{"state": {"terminated": "x"}, "restartCount": "y"}]},
            "series": [],
        },
        {
            "status": {
                "podIPs": [{}],
                "addresses": [{"type": "InternalIP"}],
                "sizeBytes": "many",
                "exports": {},
            }
        },
    ],
)
def test_every_kind_prints_an_object_of_any_shape(resource, obj: dict) -> None:
    table = tables.table(resource, [obj], 5, "None", now=NOW)
    (row,) = table["rows"]
    assert len(row["cells"]) == len(table["columnDefinitions"])
    assert all(isinstance(cell, (str, int)) for cell in row["cells"])


KUBECTL = (
    "application/json;as=Table;v=v1;g=meta.k8s.io,application/json;as=Table;v=v1beta1;g=meta.k8s.io,"
    "application/json"
)


@pytest.mark.parametrize(
    ("accept", "view"),
    [
        ("", View.JSON),
        ("*/*", View.JSON),
        ("application/json, */*", View.JSON),
        ("application/vnd.kubernetes.protobuf,application/json", View.JSON),
        ("application/json;stream=watch", View.JSON),
        ("text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8", View.JSON),
        (KUBECTL, View.TABLE),
        ("application/json;as=Table;v=v1beta1;g=meta.k8s.io", View.TABLE_V1BETA1),
        ("application/json;as=Table;v=v2;g=meta.k8s.io, application/json", View.JSON),
        ("application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1", View.PARTIAL),
        ("application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1beta1", View.PARTIAL_V1BETA1),
        ("application/json;q=0.1, application/json;as=Table;v=v1;g=meta.k8s.io", View.TABLE),
    ],
)
def test_the_first_form_that_is_offered_is_given(accept: str, view: View) -> None:
    assert tables.negotiate(accept) is view


@pytest.mark.parametrize(
    "accept",
    [
        "application/vnd.kubernetes.protobuf",
        "application/json;as=Table;v=v1;g=example.com",
        "application/json;q=0",
        "x" * 5000,
    ],
)
def test_an_accept_header_without_an_offered_form_is_406(accept: str) -> None:
    with pytest.raises(ApiFailure) as failure:
        tables.negotiate(accept)
    assert failure.value.code == 406


def test_rows_carry_the_object_as_include_object_says() -> None:
    pod = {"metadata": {"name": "echo", "resourceVersion": "7"}, "spec": {"nodeName": "a"}}
    pod_kind = resource_of("Pod")
    bare = tables.row(pod_kind, pod, "None", now=NOW)["rows"][0]
    meta = tables.row(pod_kind, pod, tables.include_of(""), now=NOW)
    whole = tables.row(pod_kind, pod, "Object", now=NOW)["rows"][0]
    assert bare["object"] is None
    assert meta["metadata"] == {"resourceVersion": "7"}
    assert meta["rows"][0]["object"] == {
        "kind": "PartialObjectMetadata",
        "apiVersion": "meta.k8s.io/v1",
        "metadata": pod["metadata"],
    }
    assert whole["object"] == pod
    with pytest.raises(ApiFailure) as failure:
        tables.include_of("Everything")
    assert failure.value.code == 400


def test_a_v1beta1_table_is_v1beta1_throughout() -> None:
    table = tables.row(resource_of("Pod"), {"metadata": {"name": "a"}}, view=View.TABLE_V1BETA1, now=NOW)
    assert table["apiVersion"] == "meta.k8s.io/v1beta1"
    assert table["rows"][0]["object"]["apiVersion"] == "meta.k8s.io/v1beta1"


def test_later_events_of_a_watch_carry_no_columns() -> None:
    table = tables.row(resource_of("Pod"), {"metadata": {"name": "a"}}, headers=False, now=NOW)
    assert table["columnDefinitions"] is None
    assert table["rows"][0]["cells"][0] == "a"


def test_lists_carry_revision_continue_token_and_what_remains() -> None:
    meta = {"resourceVersion": "9", "continue": "token", "remainingItemCount": 3}
    table = tables.table(resource_of("Pod"), [], 9, continue_token="token", remaining=3, now=NOW)
    partial = tables.partial_list([{"metadata": {"name": "a"}}], 9, continue_token="token", remaining=3)
    assert table["metadata"] == meta
    assert partial["metadata"] == meta
    assert partial["kind"] == "PartialObjectMetadataList"
    assert partial["items"][0]["metadata"] == {"name": "a"}


def test_a_pod_that_has_ended_is_marked_in_its_row() -> None:
    ended = tables.row(resource_of("Pod"), {"status": {"phase": "Succeeded"}}, now=NOW)["rows"][0]
    running = tables.row(resource_of("Pod"), {"status": {"phase": "Running"}}, now=NOW)["rows"][0]
    assert ended["conditions"] == [
        {
            "type": "Completed",
            "status": "True",
            "reason": "Succeeded",
            "message": "The pod has completed successfully.",
        }
    ]
    assert "conditions" not in running
