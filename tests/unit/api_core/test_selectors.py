"""Label and field selectors."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kube32.api.selectors import match_of
from kube32.api.status import ApiFailure
from kube32.contract import resource_of

POD = resource_of("Pod")


def labelled(**labels: str) -> dict[str, Any]:
    return {"metadata": {"name": "p", "labels": labels}}


@pytest.mark.parametrize(
    ("selector", "yes", "no"),
    [
        ("a=b", [{"a": "b"}], [{"a": "c"}, {}]),
        ("a==b", [{"a": "b"}], [{"a": "c"}, {}]),
        ("a!=b", [{"a": "c"}, {}], [{"a": "b"}]),
        ("a=", [{"a": ""}], [{"a": "b"}, {}]),
        ("a", [{"a": ""}, {"a": "x"}], [{"b": "a"}]),
        ("!a", [{"b": "a"}, {}], [{"a": ""}]),
        (" a in ( b , c ) ", [{"a": "b"}, {"a": "c"}], [{"a": "d"}, {}]),
        ("a in (b,)", [{"a": "b"}, {"a": ""}], [{"a": "c"}]),
        ("a notin (b,c)", [{"a": "d"}, {}], [{"a": "b"}]),
        ("a=b,c!=d,!e,f", [{"a": "b", "f": "1"}], [{"a": "b"}, {"a": "b", "f": "", "e": "1"}]),
        ("a>1", [{"a": "2"}], [{"a": "1"}, {"a": "x"}, {}]),
        ("a<1", [{"a": "-2"}], [{"a": "1"}]),
        ("kubernetes.io/os=linux", [{"kubernetes.io/os": "linux"}], [{}]),
        ("in=in,in in (in)", [{"in": "in"}], [{}]),
        ("notin notin (notin)", [{}], [{"notin": "notin"}]),
    ],
)
def test_label_selectors_accept_what_kubernetes_accepts(
    selector: str, yes: list[dict[str, str]], no: list[dict[str, str]]
) -> None:
    match = match_of(POD, selector, "")
    assert match is not None
    assert all(match(labelled(**labels)) for labels in yes)
    assert not any(match(labelled(**labels)) for labels in no)


@pytest.mark.parametrize(
    "selector",
    [
        "a=b,",
        ",a",
        "a=b=c",
        "a in b",
        "a in (b",
        "a in",
        "=b",
        "!a=b",
        "a b",
        "a/b/c",
        "-a",
        "a=-b",
        "a>x",
        "(",
        "!",
    ],
)
def test_malformed_label_selectors_are_400(selector: str) -> None:
    with pytest.raises(ApiFailure) as failure:
        match_of(POD, selector, "")
    assert failure.value.code == 400
    assert failure.value.message.startswith("unable to parse requirement:")


@given(st.text(max_size=40), st.text(max_size=40))
def test_any_text_is_a_selector_or_a_400(labels: str, fields: str) -> None:
    try:
        match = match_of(POD, labels, fields)
    except ApiFailure as failure:
        assert failure.code == 400
    else:
        assert match is None or match({"metadata": {"name": "p"}}) in (True, False)


@pytest.mark.parametrize(
    ("kind", "selector", "obj", "expected"),
    [
        ("Pod", "metadata.name=p", {}, True),
        ("Pod", "metadata.name!=p", {}, False),
        ("Pod", "spec.nodeName=", {"spec": {}}, True),
        ("Pod", "spec.nodeName==n", {"spec": {"nodeName": "n"}}, True),
        ("Pod", "status.phase!=Failed,spec.nodeName=n", {"spec": {"nodeName": "n"}, "status": {}}, True),
        ("Pod", "spec.hostNetwork=false", {"spec": {}}, True),
        ("Node", "spec.unschedulable=true", {"spec": {"unschedulable": True}}, True),
        ("Node", "spec.unschedulable=false", {}, True),
        ("Namespace", "status.phase=Active", {"status": {"phase": "Active"}}, True),
        (
            "Event",
            "involvedObject.name=x,reason=Moved",
            {"involvedObject": {"name": "x"}, "reason": "Moved"},
            True,
        ),
        ("Event", "source=kubelet", {"source": {"component": "kubelet"}}, True),
        ("Event", "source=kubelet", {"reportingComponent": "kubelet"}, True),
        ("Event", "type=Warning", {"type": "Normal"}, False),
        ("Secret", "type=Opaque", {"type": "Opaque"}, True),
        ("Checkpoint", "spec.podName=echo", {"spec": {"podName": "echo"}}, True),
        ("Event", r"reason=a\,b\=c\\d", {"reason": r"a,b=c\d"}, True),
    ],
)
def test_field_selectors_of_each_kind(kind: str, selector: str, obj: dict[str, Any], expected: bool) -> None:
    match = match_of(resource_of(kind), "", selector)
    assert match is not None
    assert match({"metadata": {"name": "p", "namespace": "d"}, **obj}) is expected


@pytest.mark.parametrize(
    ("kind", "field"),
    [
        ("Pod", "spec.foo"),
        ("ConfigMap", "data.x"),
        ("Node", "metadata.namespace"),
        ("Secret", "metadata.labels"),
    ],
)
def test_fields_that_a_kind_does_not_offer_are_named(kind: str, field: str) -> None:
    with pytest.raises(ApiFailure) as failure:
        match_of(resource_of(kind), "", f"{field}=x")
    assert (failure.value.code, failure.value.message) == (400, f"field label not supported: {field}")
