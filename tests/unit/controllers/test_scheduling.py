"""Which node takes a pod, and the words when none does."""

from typing import Any

import pytest

from kube32.contract import NAMES
from kube32.controllers.resources import requests
from kube32.controllers.scheduling import choose

Obj = dict[str, Any]


def node(name: str, *, ready: str = "True", labels: dict[str, str] | None = None, **more: Any) -> Obj:
    """A node with 1 cpu, 64Ki of memory and 4 pods, unless `offered` says otherwise."""
    offered = {"cpu": "1", "memory": "64Ki", "pods": "4", **more.pop("offered", {})}
    return {
        "metadata": {"name": name, "labels": labels or {}, "annotations": more.pop("annotations", {})},
        "spec": more,
        "status": {"allocatable": offered, "conditions": [{"type": "Ready", "status": ready}]},
    }


def pod(name: str = "p", on: str = "", **spec: Any) -> Obj:
    """A pod; `asks` are its requests."""
    asks = spec.pop("asks", {})
    container = {"name": "main", "resources": {"requests": asks}, **spec.pop("container", {})}
    meta = {"name": name, "namespace": "default", "uid": name}
    return {"metadata": meta, "spec": {"containers": [container], "nodeName": on, **spec}, "status": {}}


def reason(wanted: Obj, *nodes: Obj, pods: tuple[Obj, ...] = (), **options: Any) -> str:
    """Why no node takes the pod."""
    placement = choose(wanted, nodes, pods, **options)
    assert placement.node is None
    return placement.reason


def test_without_nodes_there_is_nothing_to_choose() -> None:
    assert reason(pod()) == "no nodes available to schedule pods"


def test_every_reason_is_counted_and_sorted_as_kubernetes_does() -> None:
    nodes = (
        node("a", unschedulable=True),
        node("b", unschedulable=True),
        node("c", offered={"memory": "16Ki"}),
        node("d", ready="Unknown"),
    )
    assert reason(pod(asks={"memory": "32Ki"}), *nodes) == (
        "0/4 nodes are available: 1 Insufficient memory, 1 node(s) were not ready, "
        "2 node(s) were unschedulable."
    )


def test_requests_of_the_pods_there_count_and_finished_ones_do_not() -> None:
    full = (pod("one", "a", asks={"memory": "40Ki"}),)
    assert reason(pod(asks={"memory": "32Ki"}), node("a"), pods=full) == (
        "0/1 nodes are available: 1 Insufficient memory."
    )
    full[0]["status"]["phase"] = "Succeeded"
    assert choose(pod(asks={"memory": "32Ki"}), [node("a")], full).node == "a"


def test_each_resource_that_is_short_is_named() -> None:
    wanted = pod(asks={"cpu": "1500m", "memory": "1Mi", "esp32.io/gpio": "1"})
    assert reason(wanted, node("a")) == (
        "0/1 nodes are available: 1 Insufficient cpu, 1 Insufficient esp32.io/gpio, 1 Insufficient memory."
    )


def test_a_limit_without_a_request_is_a_request_and_init_containers_raise_it() -> None:
    limited = pod(container={"resources": {"limits": {"memory": "128Ki"}}})
    assert "Insufficient memory" in reason(limited, node("a"))
    init = {"name": "i", "resources": {"requests": {"memory": "128Ki"}}}
    assert "Insufficient memory" in reason(pod(initContainers=[init]), node("a"))


def test_an_init_container_that_keeps_running_counts_beside_the_others() -> None:
    sidecar = {"name": "s", "restartPolicy": "Always", "resources": {"requests": {"memory": "20Ki"}}}
    init = {"name": "i", "resources": {"requests": {"memory": "30Ki"}}}
    wanted = pod(asks={"memory": "10Ki"}, initContainers=[sidecar, init])
    assert requests(wanted)["memory"] == 50 * 1024
    assert requests(pod(asks={"memory": "40Ki"}, initContainers=[sidecar, init]))["memory"] == 60 * 1024
    assert requests(pod(asks={"memory": "10Ki"}, initContainers=[init, sidecar]))["memory"] == 30 * 1024


def test_extended_resources_are_taken_by_pods() -> None:
    offering = node("a", offered={"hardware.kube32.io/led": "1"})
    wanted = pod(asks={"hardware.kube32.io/led": "1"})
    assert choose(wanted, [offering], []).node == "a"
    taken = (pod("other", "a", asks={"hardware.kube32.io/led": "1"}),)
    assert "Insufficient hardware.kube32.io/led" in reason(wanted, offering, pods=taken)


def test_a_node_takes_so_many_pods_and_no_more() -> None:
    there = tuple(pod(f"p{n}", "a") for n in range(4))
    assert reason(pod(), node("a"), pods=there) == "0/1 nodes are available: 1 Too many pods."


def test_node_selector_extra_selector_and_affinity_must_match() -> None:
    nodes = [node("a", labels={"zone": "a"}), node("b", labels={"zone": "b", "fast": "3"})]
    assert choose(pod(nodeSelector={"zone": "b"}), nodes, []).node == "b"
    assert choose(pod(), nodes, [], extra_selector={"zone": "b"}).node == "b"
    both = reason(pod(nodeSelector={"zone": "a"}), *nodes, extra_selector={"zone": "b"})
    assert both == "0/2 nodes are available: 2 node(s) didn't match Pod's node affinity/selector."


@pytest.mark.parametrize(
    ("expression", "found"),
    [
        ({"key": "n", "operator": "In", "values": ["1", "2"]}, True),
        ({"key": "n", "operator": "NotIn", "values": ["1"]}, True),
        ({"key": "absent", "operator": "NotIn", "values": ["1"]}, True),
        ({"key": "n", "operator": "Exists"}, True),
        ({"key": "n", "operator": "DoesNotExist"}, False),
        ({"key": "n", "operator": "Gt", "values": ["1"]}, True),
        ({"key": "n", "operator": "Lt", "values": ["2"]}, False),
        ({"key": "absent", "operator": "Gt", "values": ["1"]}, False),
        ({"key": "n", "operator": "Unheard"}, False),
    ],
)
def test_required_affinity_knows_every_operator(expression: Obj, found: bool) -> None:
    terms = {"nodeSelectorTerms": [{"matchExpressions": [expression]}]}
    affinity = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": terms}}
    wanted = pod(affinity=affinity)
    assert (choose(wanted, [node("a", labels={"n": "2"})], []).node == "a") is found


def test_terms_are_alternatives_and_match_fields_name_nodes() -> None:
    field = {"key": "metadata.name", "operator": "In", "values": ["b"]}
    terms = {"nodeSelectorTerms": [{}, {"matchFields": [field]}]}
    affinity = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": terms}}
    assert choose(pod(affinity=affinity), [node("a"), node("b")], []).node == "b"


@pytest.mark.parametrize(
    ("tolerations", "fits"),
    [
        ([], False),
        ([{"key": "k", "operator": "Equal", "value": "v", "effect": "NoSchedule"}], True),
        ([{"key": "k", "value": "v"}], True),
        ([{"key": "k", "operator": "Exists"}], True),
        ([{"operator": "Exists"}], True),
        ([{"key": "k", "value": "other"}], False),
        ([{"key": "k", "value": "v", "effect": "NoExecute"}], False),
    ],
)
def test_taints_keep_off_whoever_does_not_tolerate_them(tolerations: list[Obj], fits: bool) -> None:
    tainted = node("a", taints=[{"key": "k", "value": "v", "effect": "NoSchedule"}])
    placement = choose(pod(tolerations=tolerations), [tainted], [])
    assert (placement.node == "a") is fits
    if not fits:
        assert placement.reason == "0/1 nodes are available: 1 node(s) had untolerated taint {k: v}."


def test_a_pod_may_tolerate_a_cordon_but_a_move_never_does() -> None:
    cordoned = node(
        "a", unschedulable=True, taints=[{"key": NAMES.taint_unschedulable, "effect": "NoSchedule"}]
    )
    wanted = pod(tolerations=[{"key": NAMES.taint_unschedulable, "operator": "Exists"}])
    assert choose(wanted, [cordoned], []).node == "a"
    assert "1 node(s) were unschedulable" in reason(wanted, cordoned, allow_cordoned=False)


def test_the_excluded_node_is_never_chosen() -> None:
    assert choose(pod(on="a"), [node("a"), node("b")], [], exclude=("a",)).node == "b"
    assert "1 node(s) already run the pod" in reason(pod(on="a"), node("a"), exclude=("a",))


def test_capabilities_and_storage_are_looked_up_in_the_nodes_annotations() -> None:
    shown = pod(container={"securityContext": {"capabilities": {"add": ["DISPLAY"]}}})
    able = node("b", annotations={NAMES.ann_capabilities: "SD, DISPLAY"})
    assert choose(shown, [node("a"), able], []).node == "b"
    assert "1 node(s) didn't have capability DISPLAY" in reason(shown, node("a"))
    stored = pod(volumes=[{"name": "v", "persistentVolumeClaim": {"claimName": "c"}}])
    without = node("a", annotations={NAMES.ann_storage: "false"})
    assert "1 node(s) had no node storage" in reason(stored, without)
    assert choose(stored, [without, node("b", annotations={NAMES.ann_storage: "true"})], []).node == "b"


def test_the_emptier_node_wins_and_siblings_spread() -> None:
    nodes = [node("a"), node("b")]
    there = [pod("big", "a", asks={"memory": "32Ki"})]
    assert choose(pod(asks={"memory": "8Ki"}), nodes, there).node == "b"
    owner = [{"kind": "Deployment", "name": "d", "uid": "1"}]
    sibling, wanted = pod("s", "a"), pod("w")
    sibling["metadata"]["ownerReferences"] = wanted["metadata"]["ownerReferences"] = owner
    assert choose(wanted, nodes, [sibling, pod("x", "b")]).node == "b"


def test_preferences_count_and_soft_taints_are_avoided() -> None:
    preference = {"matchExpressions": [{"key": "fast", "operator": "Exists"}]}
    preferred = [{"weight": 10, "preference": preference}]
    affinity = {"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": preferred}}
    nodes = [node("a"), node("b", labels={"fast": ""})]
    assert choose(pod(affinity=affinity), nodes, []).node == "b"
    soft = node("a", taints=[{"key": "k", "effect": "PreferNoSchedule"}])
    assert choose(pod(), [soft, node("b")], []).node == "b"
