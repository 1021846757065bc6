"""Defaults of the kinds that make pods or reach them: what a kube-apiserver would fill in."""

import copy
from typing import Any

import pytest

from kube32.api.admission import default
from kube32.contract import resource_of


def filled(kind: str, **parts: Any) -> dict[str, Any]:
    obj = {"kind": kind, "metadata": {"name": "x"}, **parts}
    default(resource_of(kind), obj)
    again = copy.deepcopy(obj)
    default(resource_of(kind), again)
    assert again == obj
    return obj


def template() -> dict[str, Any]:
    return {
        "metadata": {"labels": {"app": "x"}},
        "spec": {"containers": [{"name": "c", "resources": {"limits": {"cpu": "1"}}}]},
    }


def test_a_deployment() -> None:
    made = filled("Deployment", spec={"template": template()})
    spec = made["spec"]
    assert spec["replicas"] == 1
    assert spec["strategy"] == {
        "type": "RollingUpdate",
        "rollingUpdate": {"maxUnavailable": "25%", "maxSurge": "25%"},
    }
    assert (spec["revisionHistoryLimit"], spec["progressDeadlineSeconds"]) == (10, 600)
    assert made["status"] == {}


def test_numbers_that_are_zero_stay() -> None:
    strategy = {"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": 0}}
    spec = filled("Deployment", spec={"replicas": 0, "revisionHistoryLimit": 0, "strategy": strategy})["spec"]
    assert (spec["replicas"], spec["revisionHistoryLimit"]) == (0, 0)
    assert spec["strategy"]["rollingUpdate"] == {"maxUnavailable": 0, "maxSurge": "25%"}
    recreate = filled("Deployment", spec={"strategy": {"type": "Recreate"}})["spec"]["strategy"]
    assert recreate == {"type": "Recreate"}


def test_a_template_gets_what_a_pod_gets_but_for_what_only_new_pods_get() -> None:
    spec = filled("Deployment", spec={"template": template()})["spec"]["template"]["spec"]
    assert spec["restartPolicy"] == "Always" and spec["dnsPolicy"] == "ClusterFirst"
    assert spec["terminationGracePeriodSeconds"] == 30 and spec["securityContext"] == {}
    container = spec["containers"][0]
    assert container["terminationMessagePolicy"] == "File"
    assert container["resources"] == {"limits": {"cpu": "1"}}
    for field in ("tolerations", "enableServiceLinks", "serviceAccountName", "priority"):
        assert field not in spec


def test_a_pod_gets_an_account_and_a_priority() -> None:
    spec = filled("Pod", spec={"containers": []})["spec"]
    assert spec["serviceAccountName"] == spec["serviceAccount"] == "default"
    assert (spec["priority"], spec["preemptionPolicy"]) == (0, "PreemptLowerPriority")
    older = filled("Pod", spec={"serviceAccount": "robot"})["spec"]
    assert older["serviceAccountName"] == older["serviceAccount"] == "robot"


def test_a_daemon_set() -> None:
    made = filled("DaemonSet", spec={"template": template()})
    assert made["spec"]["updateStrategy"] == {
        "type": "RollingUpdate",
        "rollingUpdate": {"maxUnavailable": 1, "maxSurge": 0},
    }
    assert made["spec"]["revisionHistoryLimit"] == 10
    assert made["status"]["desiredNumberScheduled"] == 0


def test_a_job() -> None:
    made = filled("Job", spec={"template": template()})
    spec = made["spec"]
    assert (spec["completions"], spec["parallelism"], spec["backoffLimit"]) == (1, 1, 6)
    assert (spec["completionMode"], spec["suspend"], spec["manualSelector"]) == ("NonIndexed", False, False)
    assert spec["podReplacementPolicy"] == "TerminatingOrFailed"
    assert made["metadata"]["labels"] == {"app": "x"}


def test_a_job_that_is_a_work_queue_has_no_completions() -> None:
    assert "completions" not in filled("Job", spec={"parallelism": 3})["spec"]
    indexed = filled("Job", spec={"backoffLimitPerIndex": 1})["spec"]
    assert indexed["backoffLimit"] == 2**31 - 1
    failures = {"rules": [{"action": "Ignore", "onPodConditions": [{"type": "DisruptionTarget"}]}]}
    spec = filled("Job", spec={"podFailurePolicy": failures})["spec"]
    assert spec["podReplacementPolicy"] == "Failed"
    assert spec["podFailurePolicy"]["rules"][0]["onPodConditions"][0]["status"] == "True"


def test_a_service() -> None:
    spec = filled("Service", spec={"ports": [{"port": 80}, {"port": 81, "targetPort": "http"}]})["spec"]
    assert spec == {
        "type": "ClusterIP",
        "sessionAffinity": "None",
        "internalTrafficPolicy": "Cluster",
        "ports": [
            {"port": 80, "protocol": "TCP", "targetPort": 80},
            {"port": 81, "protocol": "TCP", "targetPort": "http"},
        ],
    }


@pytest.mark.parametrize(
    ("given", "made"),
    [
        ({"type": "NodePort"}, {"externalTrafficPolicy": "Cluster", "internalTrafficPolicy": "Cluster"}),
        ({"type": "LoadBalancer"}, {"allocateLoadBalancerNodePorts": True}),
        (
            {"sessionAffinity": "ClientIP"},
            {"sessionAffinityConfig": {"clientIP": {"timeoutSeconds": 10800}}},
        ),
    ],
)
def test_a_services_type_and_affinity_bring_defaults(given: dict[str, Any], made: dict[str, Any]) -> None:
    spec = filled("Service", spec=given)["spec"]
    assert {key: spec[key] for key in made} == made
    assert "internalTrafficPolicy" not in filled("Service", spec={"type": "ExternalName"})["spec"]


def test_a_claim_is_of_the_nodes_own_storage() -> None:
    claim = filled("PersistentVolumeClaim")
    assert claim["spec"] == {"volumeMode": "Filesystem", "storageClassName": "kube32-node"}
    assert claim["status"] == {"phase": "Pending"}
    none = filled("PersistentVolumeClaim", spec={"storageClassName": ""})
    assert none["spec"]["storageClassName"] == ""


def test_bindings_name_the_group_of_roles_and_users() -> None:
    group = "rbac.authorization.k8s.io"
    subjects = [
        {"kind": "User", "name": "u"},
        {"kind": "Group", "name": "g"},
        {"kind": "ServiceAccount", "name": "s"},
    ]
    made = filled("RoleBinding", roleRef={"kind": "Role", "name": "r"}, subjects=subjects)
    assert made["roleRef"]["apiGroup"] == group
    assert [s.get("apiGroup") for s in made["subjects"]] == [group, group, None]
