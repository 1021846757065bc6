"""ReplicaSets are a Deployment's history and its pods, in the form in which kubectl reads them."""

from typing import Any

import pytest
from tests.unit.api_computed.conftest import CREATED, Cluster

from kube32.formats.template_hash import template_hash

Obj = dict[str, Any]
SETS = "/apis/apps/v1/namespaces/default/replicasets"
NEVER = "9999-01-01T00:00:00Z"


def template(image: str) -> Obj:
    return {
        "metadata": {"labels": {"app": "web"}},
        "spec": {"containers": [{"name": "main", "image": image}]},
    }


OLD, NEW = template("wasm://echo"), template("wasm://counter")


def deployment(cluster: Cluster, *, history: list[Obj] | None = None, **spec: Any) -> Obj:
    rows = [
        {
            "revision": 1,
            "hash": template_hash(OLD),
            "template": OLD,
            "changeCause": "first",
            "createdAt": CREATED,
        },
        {
            "revision": 2,
            "hash": template_hash(NEW),
            "template": NEW,
            "createdAt": "2026-01-01T00:01:00Z",
            "replicas": 2,
        },
    ]
    metadata = {
        "name": "web",
        "namespace": "default",
        "uid": "uid-deployment",
        "creationTimestamp": CREATED,
        "annotations": {
            "deployment.kubernetes.io/revision": "2",
            "team": "blue",
            "kubectl.kubernetes.io/last-applied-configuration": "{}",
        },
    }
    spec = {
        "replicas": 2,
        "selector": {"matchLabels": {"app": "web"}},
        "template": NEW,
        "strategy": {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": "25%", "maxUnavailable": "25%"}},
        **spec,
    }
    status = {"history": rows if history is None else history}
    return cluster.put("Deployment", {"metadata": metadata, "spec": spec, "status": status})


def pod(cluster: Cluster, name: str, of: Obj, owner: str = "uid-deployment", **more: Any) -> None:
    owners = [
        {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web", "uid": owner, "controller": True}
    ]
    labels = {"pod-template-hash": template_hash(of)}
    cluster.pod(name, labels=labels, ownerReferences=owners, **more)


async def sets(cluster: Cluster) -> dict[int, Obj]:
    items = (await cluster.get(SETS)).json["items"]
    return {int(i["metadata"]["annotations"]["deployment.kubernetes.io/revision"]): i for i in items}


async def test_each_template_so_far_is_a_replica_set(cluster: Cluster) -> None:
    deployment(cluster)
    found = await sets(cluster)
    assert sorted(found) == [1, 2]
    metadata, spec = found[1]["metadata"], found[1]["spec"]
    hash_ = template_hash(OLD)
    assert metadata["name"] == f"web-{hash_}" and metadata["creationTimestamp"] == CREATED
    assert metadata["labels"] == {"app": "web", "pod-template-hash": hash_}
    assert spec["selector"] == {"matchLabels": {"app": "web", "pod-template-hash": hash_}}
    assert (spec["replicas"], found[2]["spec"]["replicas"]) == (0, 2)
    (owner,) = metadata["ownerReferences"]
    assert owner == {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "name": "web",
        "uid": "uid-deployment",
        "controller": True,
        "blockOwnerDeletion": True,
    }


async def test_a_template_is_the_deployments_but_for_its_hash(cluster: Cluster) -> None:
    """kubectl finds the newest ReplicaSet so."""
    deployment(cluster)
    found = (await sets(cluster))[2]["spec"]["template"]
    assert found["metadata"]["labels"].pop("pod-template-hash") == template_hash(NEW)
    assert found == NEW


async def test_annotations_are_those_that_rollout_history_prints(cluster: Cluster) -> None:
    deployment(cluster)
    found = await sets(cluster)
    assert found[1]["metadata"]["annotations"] == {
        "team": "blue",
        "deployment.kubernetes.io/revision": "1",
        "deployment.kubernetes.io/desired-replicas": "2",
        "deployment.kubernetes.io/max-replicas": "3",
        "kubernetes.io/change-cause": "first",
    }
    assert "kubernetes.io/change-cause" not in found[2]["metadata"]["annotations"]


@pytest.mark.parametrize(
    ("strategy", "most"),
    [
        ({"type": "Recreate"}, "2"),
        ({"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 3}}, "5"),
        ({"type": "RollingUpdate", "rollingUpdate": {"maxSurge": "100%"}}, "4"),
        ({}, "3"),
    ],
)
async def test_max_replicas_are_those_of_the_strategy(cluster: Cluster, strategy: Obj, most: str) -> None:
    deployment(cluster, strategy=strategy)
    annotations = (await sets(cluster))[2]["metadata"]["annotations"]
    assert annotations["deployment.kubernetes.io/max-replicas"] == most


async def test_the_counts_are_those_of_the_pods(cluster: Cluster) -> None:
    deployment(cluster)
    pod(cluster, "old", OLD)
    pod(cluster, "new-1", NEW)
    pod(cluster, "new-2", NEW, ready=False)
    pod(cluster, "going", NEW, deletionTimestamp=CREATED)
    pod(cluster, "ended", NEW, phase="Failed")
    pod(cluster, "foreign", NEW, owner="uid-of-another")
    found = await sets(cluster)
    assert found[1]["status"] == {
        "replicas": 1,
        "fullyLabeledReplicas": 1,
        "readyReplicas": 1,
        "availableReplicas": 1,
        "observedGeneration": 1,
    }
    assert found[2]["status"] == {
        "replicas": 2,
        "fullyLabeledReplicas": 2,
        "readyReplicas": 1,
        "availableReplicas": 1,
        "observedGeneration": 1,
    }


async def test_a_pod_is_available_when_it_was_ready_for_long_enough(cluster: Cluster) -> None:
    deployment(cluster, minReadySeconds=60)
    pod(cluster, "long", NEW)
    pod(cluster, "short", NEW)
    entry = cluster.server.store.get("/registry/pods/default/short")
    assert entry is not None
    status = {**entry.obj["status"], "conditions": [{**entry.obj["status"]["conditions"][0]}]}
    status["conditions"][0]["lastTransitionTime"] = NEVER
    cluster.put("Pod", {**entry.obj, "status": status})
    found = (await sets(cluster))[2]
    assert (found["status"]["readyReplicas"], found["status"]["availableReplicas"]) == (2, 1)
    assert found["spec"]["minReadySeconds"] == 60


async def test_a_present_template_that_had_no_room_in_the_history_is_shown(cluster: Cluster) -> None:
    deployment(cluster, history=[{"revision": 1, "hash": template_hash(NEW), "createdAt": CREATED}])
    found = (await sets(cluster))[1]
    assert found["spec"]["template"]["spec"] == NEW["spec"]


async def test_a_deployment_without_a_history_yet_has_none_and_a_deleted_one_none_left(
    cluster: Cluster,
) -> None:
    deployment(cluster, history=[])
    assert await sets(cluster) == {}
    deployment(cluster)
    before = await sets(cluster)
    pod(cluster, "new-1", NEW)
    assert (await sets(cluster))[2]["metadata"]["uid"] == before[2]["metadata"]["uid"]
    cluster.drop("Deployment", "web")
    assert await sets(cluster) == {}


async def test_a_template_that_left_the_history_is_gone_from_watches(cluster: Cluster) -> None:
    made = deployment(cluster)
    version = (await cluster.get(SETS)).json["metadata"]["resourceVersion"]
    frames = await cluster.watch(f"{SETS}?watch=1&resourceVersion={version}")
    deployment(cluster, history=made["status"]["history"][1:])
    frame = await frames.next()
    assert (frame["type"], frame["object"]["metadata"]["name"]) == ("DELETED", f"web-{template_hash(OLD)}")
    await frames.close()
