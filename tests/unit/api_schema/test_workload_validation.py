"""Validation of Deployments, DaemonSets and Jobs: their own rules, those of their pods, and what stays."""

import copy
from collections.abc import Callable
from typing import Any

import pytest

from kube32.api.admission import default, validate_update
from kube32.api.status import ApiFailure
from kube32.contract import resource_of

Refusals = Callable[[dict[str, Any]], list[str]]
Admit = Callable[[dict[str, Any]], dict[str, Any]]
LABELS = {"app": "web"}
GROUPS = {"Deployment": "apps/v1", "DaemonSet": "apps/v1", "Job": "batch/v1"}


def owner(kind: str, **spec: Any) -> dict[str, Any]:
    template = {
        "metadata": {"labels": dict(LABELS)},
        "spec": {"containers": [{"name": "web", "image": "wasm://echo"}]},
    }
    made: dict[str, Any] = {"selector": {"matchLabels": dict(LABELS)}, "template": template}
    if kind == "Job":
        template["spec"]["restartPolicy"] = "Never"
        made["manualSelector"] = True
    made.update(spec)
    return {"apiVersion": GROUPS[kind], "kind": kind, "metadata": {"name": "web", "uid": "u"}, "spec": made}


def put(obj: dict[str, Any], path: str, value: Any) -> dict[str, Any]:
    """Sets "spec.template.spec.containers.0.image"; None takes it away."""
    target: Any = obj
    *parents, last = path.split(".")
    for key in parents:
        target = target[int(key)] if isinstance(target, list) else target.setdefault(key, {})
    if value is None:
        target.pop(last, None)
    else:
        target[last] = value
    return obj


@pytest.mark.parametrize("kind", ["Deployment", "DaemonSet", "Job"])
def test_an_ordinary_owner_is_taken(kind: str, admit: Admit) -> None:
    admit(owner(kind))


TEMPLATE = [
    ("spec.template.spec.containers.0.image", "", "spec.template.spec.containers[0].image: Required value"),
    ("spec.template.spec.containers", [], "spec.template.spec.containers: Required value"),
    (
        "spec.template.metadata.labels",
        {"app": "a b"},
        'spec.template.labels: Invalid value: "a b": a valid label must',
    ),
    (
        "spec.template.metadata.annotations",
        {"kube32.io/migration": "Perhaps"},
        'spec.template.metadata.annotations[kube32.io/migration]: Unsupported value: "Perhaps"',
    ),
    (
        "spec.template.spec.volumes",
        [{"name": "v", "configMap": {}}],
        "spec.template.spec.volumes[0].configMap.name: Required value",
    ),
    (
        "spec.template.metadata.labels",
        {"app": "other"},
        'spec.template.metadata.labels: Invalid value: {"app":"other"}: `selector` does not match template '
        "`labels`",
    ),
]


@pytest.mark.parametrize("kind", ["Deployment", "DaemonSet", "Job"])
@pytest.mark.parametrize(("path", "value", "said"), TEMPLATE)
def test_a_template_is_held_to_the_rules_of_a_pod_at_its_own_path(
    kind: str, path: str, value: Any, said: str, refusals: Refusals
) -> None:
    found = refusals(put(owner(kind), path, value))
    assert any(fault.startswith(said) for fault in found), found


FAULTS = [
    ("Deployment", "spec.selector", None, "spec.selector: Required value"),
    (
        "Deployment",
        "spec.selector",
        {},
        "spec.selector: Invalid value: {}: empty selector is invalid for deployment",
    ),
    (
        "Deployment",
        "spec.selector",
        {"matchExpressions": [{"key": "app", "operator": "In"}]},
        "spec.selector.matchExpressions[0].values: Required value: must be specified when `operator` is 'In' or "
        "'NotIn'",
    ),
    (
        "Deployment",
        "spec.selector",
        {"matchExpressions": [{"key": "app", "operator": "Like"}]},
        'spec.selector.matchExpressions[0].operator: Invalid value: "Like": not a valid selector operator',
    ),
    (
        "Deployment",
        "spec.selector",
        {"matchExpressions": [{"key": "app", "operator": "DoesNotExist"}]},
        "spec.template.metadata.labels: Invalid value",
    ),
    (
        "Deployment",
        "spec.replicas",
        -1,
        "spec.replicas: Invalid value: -1: must be greater than or equal to 0",
    ),
    ("Deployment", "spec.minReadySeconds", -1, "spec.minReadySeconds: Invalid value: -1"),
    (
        "Deployment",
        "spec.progressDeadlineSeconds",
        0,
        "spec.progressDeadlineSeconds: Invalid value: 0: must be greater than minReadySeconds",
    ),
    (
        "Deployment",
        "spec.strategy",
        {"type": "Slow"},
        'spec.strategy.type: Unsupported value: "Slow": supported values: "Recreate", "RollingUpdate"',
    ),
    (
        "Deployment",
        "spec.strategy",
        {"type": "Recreate", "rollingUpdate": {"maxSurge": 1}},
        "spec.strategy.rollingUpdate: Forbidden: may not be specified when strategy `type` is 'Recreate'",
    ),
    (
        "Deployment",
        "spec.strategy",
        {"rollingUpdate": {"maxSurge": 0, "maxUnavailable": "0%"}},
        'spec.strategy.rollingUpdate.maxUnavailable: Invalid value: "0%": may not be 0 when `maxSurge` is 0',
    ),
    (
        "Deployment",
        "spec.strategy",
        {"rollingUpdate": {"maxSurge": "much"}},
        'spec.strategy.rollingUpdate.maxSurge: Invalid value: "much": a valid percent string must be',
    ),
    (
        "Deployment",
        "spec.strategy",
        {"rollingUpdate": {"maxUnavailable": "101%"}},
        'spec.strategy.rollingUpdate.maxUnavailable: Invalid value: "101%": must not be greater than 100%',
    ),
    (
        "Deployment",
        "spec.template.spec.restartPolicy",
        "Never",
        'spec.template.spec.restartPolicy: Unsupported value: "Never": supported values: "Always"',
    ),
    (
        "Deployment",
        "spec.template.spec.activeDeadlineSeconds",
        5,
        "spec.template.spec.activeDeadlineSeconds: Forbidden: activeDeadlineSeconds in ReplicaSet is not Supported",
    ),
    (
        "DaemonSet",
        "spec.selector",
        {},
        "spec.selector: Invalid value: {}: empty selector is invalid for daemonset",
    ),
    (
        "DaemonSet",
        "spec.updateStrategy",
        {"rollingUpdate": {"maxUnavailable": 1, "maxSurge": 1}},
        "spec.updateStrategy.rollingUpdate.maxSurge: Invalid value: 1: may not be set when maxUnavailable is non-zero",
    ),
    (
        "DaemonSet",
        "spec.updateStrategy",
        {"rollingUpdate": {"maxUnavailable": 0}},
        "spec.updateStrategy.rollingUpdate.maxUnavailable: Required value: cannot be 0 when maxSurge is 0",
    ),
    ("Job", "spec.selector", None, "spec.selector: Required value"),
    ("Job", "spec.backoffLimit", -1, "spec.backoffLimit: Invalid value: -1"),
    (
        "Job",
        "spec.template.spec.restartPolicy",
        "Always",
        'spec.template.spec.restartPolicy: Required value: valid values: "OnFailure", "Never"',
    ),
    (
        "Job",
        "spec.template.spec.restartPolicy",
        None,
        'spec.template.spec.restartPolicy: Required value: valid values: "OnFailure", "Never"',
    ),
    (
        "Job",
        "spec.maxFailedIndexes",
        1,
        "spec.maxFailedIndexes: Invalid value: 1: requires indexed completion mode",
    ),
]


@pytest.mark.parametrize(("kind", "path", "value", "said"), FAULTS)
def test_faults_are_named_in_kubernetes_words(
    kind: str, path: str, value: Any, said: str, refusals: Refusals
) -> None:
    found = refusals(put(owner(kind), path, value))
    assert any(fault.startswith(said) for fault in found), found


def test_an_indexed_job_needs_completions(refusals: Refusals) -> None:
    job = owner("Job", completionMode="Indexed", parallelism=2)
    assert refusals(job) == ["spec.completions: Required value: when completion mode is Indexed"]


def changed(obj: dict[str, Any], path: str, value: Any, status: dict[str, Any] | None = None) -> str:
    """What an update says; "" when it is taken."""
    resource = resource_of(obj["kind"])
    default(resource, obj)
    obj["status"] = status or {}
    new = put(copy.deepcopy(obj), path, value)
    default(resource, new)
    try:
        validate_update(resource, obj, new)
    except ApiFailure as failure:
        return failure.message
    return ""


@pytest.mark.parametrize("kind", ["Deployment", "DaemonSet", "Job"])
def test_the_selector_stays(kind: str) -> None:
    said = changed(owner(kind), "spec.selector", {"matchExpressions": [{"key": "app", "operator": "Exists"}]})
    assert "spec.selector: Invalid value: " in said and "field is immutable" in said


def test_the_template_of_a_deployment_changes() -> None:
    assert changed(owner("Deployment"), "spec.template.spec.containers.0.image", "wasm://other") == ""


def test_the_template_and_completions_of_a_job_stay() -> None:
    said = changed(owner("Job"), "spec.template.spec.containers.0.image", "wasm://other")
    assert "spec.template: Invalid value: " in said and "field is immutable" in said
    said = changed(owner("Job"), "spec.completions", 3)
    assert "spec.completions: Invalid value: 3: field is immutable" in said
    for path, value in (("spec.parallelism", 2), ("spec.suspend", True), ("spec.ttlSecondsAfterFinished", 5)):
        assert changed(owner("Job"), path, value) == ""


def test_a_suspended_job_that_never_ran_may_be_placed() -> None:
    path, wanted = "spec.template.spec.nodeSelector", {"disk": "flash"}
    assert changed(owner("Job", suspend=True), path, wanted) == ""
    began = {"startTime": "2026-01-01T00:00:00Z"}
    assert "field is immutable" in changed(owner("Job", suspend=True), path, wanted, began)


def test_an_indexed_job_grows_with_its_parallelism() -> None:
    job = owner("Job", completionMode="Indexed", completions=2, parallelism=2)
    grown = copy.deepcopy(job)
    assert "in tandem" in changed(job, "spec.completions", 3)
    grown["spec"]["parallelism"] = 3
    assert changed(grown, "spec.completions", 3) == ""


def test_a_broken_embedded_module_is_refused_when_the_template_is_written(refusals: Refusals) -> None:
    deployment = owner("Deployment")
    put(deployment, "spec.template.spec.containers.0.image", "wasm://embedded")
    path = "spec.template.metadata.annotations[kube32.io/wasm]"
    assert refusals(copy.deepcopy(deployment))[0].startswith(f"{path}: Required value")
    deployment["spec"]["template"]["metadata"]["annotations"] = {"kube32.io/wasm": "AAAA"}
    assert refusals(deployment)[0].startswith(f'{path}: Invalid value: "AAAA"')
