"""What one rule allows, which rules cover which, and how a rule is told."""

from typing import Any

import pytest

from kube32.api.rbac.rules import Attributes, TooManyParts, compile_rule, compile_rules, missing, shown


def rule(**parts: Any) -> dict[str, Any]:
    return {"apiGroups": [""], "verbs": ["get"], **parts}


ALLOWED = [
    (rule(resources=["pods"]), Attributes("get", "", "pods", "", "ns", "p")),
    (rule(resources=["*"]), Attributes("get", "", "pods", "log", "ns", "p")),
    (rule(resources=["pods/log"]), Attributes("get", "", "pods", "log", "ns", "p")),
    (rule(resources=["*/scale"]), Attributes("get", "", "deployments", "scale", "ns", "p")),
    (rule(resources=["pods"], verbs=["*"]), Attributes("watch", "", "pods")),
    (rule(resources=["pods"], apiGroups=["*"]), Attributes("get", "metrics.k8s.io", "pods")),
    (rule(resources=["pods"], resourceNames=["a", "b"]), Attributes("get", "", "pods", "", "ns", "b")),
    ({"nonResourceURLs": ["/logs"], "verbs": ["get"]}, Attributes("get", path="/logs", is_resource=False)),
    (
        {"nonResourceURLs": ["/logs/*"], "verbs": ["get"]},
        Attributes("get", path="/logs/a/b", is_resource=False),
    ),
    ({"nonResourceURLs": ["*"], "verbs": ["*"]}, Attributes("post", path="/", is_resource=False)),
]

NOT_ALLOWED = [
    (rule(resources=["pods"]), Attributes("list", "", "pods")),
    (rule(resources=["pods"]), Attributes("get", "apps", "pods")),
    (rule(resources=["pods"]), Attributes("get", "", "pods", "log")),
    (rule(resources=["pods/log"]), Attributes("get", "", "pods")),
    (rule(resources=["pods/*"]), Attributes("get", "", "pods", "log")),
    (rule(resources=["*/scale"]), Attributes("get", "", "deployments")),
    (rule(resources=["pods"], resourceNames=["a"]), Attributes("get", "", "pods", "", "ns", "")),
    (rule(resources=["*"], apiGroups=["*"], verbs=["*"]), Attributes("get", path="/x", is_resource=False)),
    ({"nonResourceURLs": ["*"], "verbs": ["*"]}, Attributes("get", "", "pods")),
    ({"nonResourceURLs": ["/logs"], "verbs": ["get"]}, Attributes("get", path="/logs/a", is_resource=False)),
    ({}, Attributes("get", "", "pods")),
    ({"apiGroups": "", "resources": "pods", "verbs": "get"}, Attributes("get", "", "pods")),
]


@pytest.mark.parametrize(("row", "wanted"), ALLOWED)
def test_a_rule_allows(row: dict[str, Any], wanted: Attributes) -> None:
    assert compile_rule(row).allows(wanted)


@pytest.mark.parametrize(("row", "wanted"), NOT_ALLOWED)
def test_a_rule_does_not_allow(row: dict[str, Any], wanted: Attributes) -> None:
    assert not compile_rule(row).allows(wanted)


COVERED = [
    ([rule(resources=["pods", "services"], verbs=["get", "list"])], [rule(resources=["services"])]),
    ([rule(resources=["*"], apiGroups=["*"], verbs=["*"])], [rule(resources=["a/b"], apiGroups=["x"])]),
    ([rule(resources=["pods"])], [rule(resources=["pods"], resourceNames=["a"])]),
    ([rule(resources=["pods"]), rule(resources=["services"])], [rule(resources=["pods", "services"])]),
    ([rule(resources=["*/scale"])], [rule(resources=["deployments/scale"])]),
    ([rule(resources=["pods"], resourceNames=["a", "b"])], [rule(resources=["pods"], resourceNames=["b"])]),
    ([{"nonResourceURLs": ["/a/*"], "verbs": ["get"]}], [{"nonResourceURLs": ["/a/b"], "verbs": ["get"]}]),
    ([{"nonResourceURLs": ["/a/*"], "verbs": ["*"]}], [{"nonResourceURLs": ["/a/*"], "verbs": ["get"]}]),
    ([], []),
    ([], [rule(resources=[])]),
]

NOT_COVERED = [
    (
        [{"nonResourceURLs": ["*"], "verbs": ["*"]}],
        [rule(resources=["secrets"], nonResourceURLs=["/a"])],
    ),
    ([], [rule(resources=["pods"])]),
    ([rule(resources=["pods"])], [rule(resources=["*"])]),
    ([rule(resources=["pods"])], [rule(resources=["pods"], verbs=["*"])]),
    ([rule(resources=["pods"])], [rule(resources=["pods"], apiGroups=["*"])]),
    ([rule(resources=["pods"], resourceNames=["a"])], [rule(resources=["pods"])]),
    ([rule(resources=["deployments/scale"])], [rule(resources=["*/scale"])]),
    ([{"nonResourceURLs": ["/a"], "verbs": ["get"]}], [{"nonResourceURLs": ["*"], "verbs": ["get"]}]),
    ([rule(resources=["*"], verbs=["*"])], [{"nonResourceURLs": ["/a"], "verbs": ["get"]}]),
]


@pytest.mark.parametrize(("held", "wanted"), COVERED)
def test_rules_that_are_held_already_are_not_missing(held: list[Any], wanted: list[Any]) -> None:
    assert missing(compile_rules(held), wanted, 100) == []


@pytest.mark.parametrize(("held", "wanted"), NOT_COVERED)
def test_rules_that_go_further_are_missing(held: list[Any], wanted: list[Any]) -> None:
    assert missing(compile_rules(held), wanted, 100)


def test_what_is_missing_is_told_once_for_all_its_verbs() -> None:
    held = compile_rules([rule(resources=["pods"])])
    wanted = [rule(resources=["pods", "secrets"], verbs=["get", "list"], resourceNames=["a"])]
    assert [shown(row) for row in missing(held, wanted, 100)] == [
        '{APIGroups:[""], Resources:["secrets"], ResourceNames:["a"], Verbs:["get" "list"]}',
        '{APIGroups:[""], Resources:["pods"], ResourceNames:["a"], Verbs:["list"]}',
    ]


def test_rules_that_list_too_much_are_not_taken_apart() -> None:
    many = [str(number) for number in range(1000)]
    wide = rule(verbs=many, apiGroups=many, resources=many, resourceNames=many)
    with pytest.raises(TooManyParts):
        missing(compile_rules([rule(resources=["pods"])]), [wide], 100)
    assert missing(compile_rules([wide]), [wide], 100) == []
    assert missing(compile_rules([rule(verbs=["*"], apiGroups=["*"], resources=["*"])]), [wide], 100) == []
