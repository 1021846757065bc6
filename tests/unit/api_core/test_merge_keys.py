"""Strategic merge patch of the built-in kinds: the merge keys that Kubernetes documents, and its directives."""

from typing import Any

import pytest

from kube32.api import patch_strategic, schemas
from kube32.contract import RESOURCES, resource_of

APPS = "/apis/apps/v1/namespaces/default/deployments"
DEPLOYMENT = resource_of("Deployment")
POD_LISTS = {
    "containers": "name",
    "initContainers": "name",
    "ephemeralContainers": "name",
    "volumes": "name",
    "imagePullSecrets": "name",
    "hostAliases": "ip",
    "topologySpreadConstraints": "topologyKey",
    "schedulingGates": "name",
    "tolerations": None,
    "readinessGates": None,
    "containers.env": "name",
    "containers.envFrom": None,
    "containers.ports": "containerPort",
    "containers.volumeMounts": "mountPath",
    "containers.volumeDevices": "devicePath",
    "containers.args": None,
    "containers.command": None,
    "volumes.projected.sources": None,
    "volumes.configMap.items": None,
}
POD_PLACES = {
    "Pod": "spec",
    "Deployment": "spec.template.spec",
    "DaemonSet": "spec.template.spec",
    "Job": "spec.template.spec",
}
LISTS = {
    "Service": {"spec.ports": "port", "status.conditions": "type", "spec.externalIPs": None},
    "ServiceAccount": {"secrets": "name", "imagePullSecrets": None},
    "Ingress": {"spec.rules": None, "spec.tls": None},
    "Node": {
        "spec.taints": None,
        "status.conditions": "type",
        "status.addresses": "type",
        "status.images": None,
    },
    "Pod": {"status.conditions": "type", "status.podIPs": "ip", "status.containerStatuses": None},
    "Deployment": {"status.conditions": "type"},
    "Job": {"status.conditions": "type"},
    "PersistentVolumeClaim": {"status.conditions": "type", "spec.accessModes": None},
    "Role": {"rules": None},
    "RoleBinding": {"subjects": None},
    "CustomResourceDefinition": {"spec.versions": None, "status.conditions": "type"},
}


@pytest.mark.parametrize(("kind", "where"), POD_PLACES.items())
def test_lists_of_pods_and_of_templates_have_the_merge_keys_of_kubernetes(kind: str, where: str) -> None:
    for path, key in POD_LISTS.items():
        found = schemas.merge_key(resource_of(kind), f"{where}.{path}".split("."))
        assert found == key, path


@pytest.mark.parametrize(("kind", "lists"), LISTS.items())
def test_lists_of_other_kinds_have_the_merge_keys_of_kubernetes(kind: str, lists: dict[str, Any]) -> None:
    for path, key in lists.items():
        assert schemas.merge_key(resource_of(kind), path.split(".")) == key, path


@pytest.mark.parametrize("resource", RESOURCES, ids=lambda resource: resource.kind)
def test_metadata_is_joined_alike_in_all_kinds(resource: Any) -> None:
    if "patch" in resource.verbs:
        assert schemas.merge_key(resource, ["metadata", "finalizers"]) == ""
        assert schemas.merge_key(resource, ["metadata", "ownerReferences"]) == "uid"


def deployment(**pod: Any) -> dict[str, Any]:
    containers = [{"name": "a", "image": "1", "args": ["x"]}, {"name": "b", "image": "1"}]
    return {"spec": {"template": {"spec": {"containers": containers, **pod}}}}


def patched(patch: dict[str, Any], **pod: Any) -> dict[str, Any]:
    made = patch_strategic.apply(DEPLOYMENT, deployment(**pod), {"spec": {"template": {"spec": patch}}})
    result: dict[str, Any] = made["spec"]["template"]["spec"]
    return result


@pytest.mark.parametrize(
    ("patch", "expected"),
    [
        (
            {"containers": [{"name": "b", "image": "2"}]},
            [{"name": "a", "image": "1", "args": ["x"]}, {"name": "b", "image": "2"}],
        ),
        ({"containers": [{"name": "a", "$patch": "delete"}]}, [{"name": "b", "image": "1"}]),
        ({"containers": [{"$patch": "replace"}, {"name": "c"}]}, [{"name": "c"}]),
        ({"containers": [{"name": "a", "$patch": "replace"}]}, []),
        (
            {"containers": [{"name": "a", "args": None}]},
            [{"name": "a", "image": "1"}, {"name": "b", "image": "1"}],
        ),
        (
            {"$setElementOrder/containers": [{"name": "b"}, {"name": "a"}]},
            [{"name": "b", "image": "1"}, {"name": "a", "image": "1", "args": ["x"]}],
        ),
        (
            {
                "$setElementOrder/containers": [{"name": "c"}, {"name": "a"}, {"name": "b"}],
                "containers": [{"name": "c"}],
            },
            [{"name": "c"}, {"name": "a", "image": "1", "args": ["x"]}, {"name": "b", "image": "1"}],
        ),
    ],
)
def test_directives_work_in_templates(patch: dict[str, Any], expected: list[Any]) -> None:
    assert patched(patch)["containers"] == expected


def test_retain_keys_change_the_source_of_a_volume() -> None:
    volumes = [{"name": "v", "emptyDir": {}}]
    patch = {"volumes": [{"name": "v", "$retainKeys": ["name", "configMap"], "configMap": {"name": "c"}}]}
    assert patched(patch, volumes=volumes)["volumes"] == [{"name": "v", "configMap": {"name": "c"}}]


def test_values_are_taken_out_of_lists_of_scalars() -> None:
    obj = {"metadata": {"finalizers": ["a/a", "b/b", "c/c"]}}
    patch = {"metadata": {"$deleteFromPrimitiveList/finalizers": ["b/b"], "finalizers": ["d/d"]}}
    assert patch_strategic.apply(DEPLOYMENT, obj, patch)["metadata"]["finalizers"] == ["a/a", "c/c", "d/d"]


def test_a_map_is_replaced_or_emptied() -> None:
    obj = {"spec": {"strategy": {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 1}}}}
    patch = {"spec": {"strategy": {"$patch": "replace", "type": "Recreate"}}}
    assert patch_strategic.apply(DEPLOYMENT, obj, patch)["spec"]["strategy"] == {"type": "Recreate"}
    patch = {"spec": {"strategy": {"$patch": "delete"}}}
    assert patch_strategic.apply(DEPLOYMENT, obj, patch)["spec"]["strategy"] == {}


async def test_the_strategy_changes_with_retain_keys(api: Any) -> None:
    template = {
        "metadata": {"labels": {"app": "x"}},
        "spec": {"containers": [{"name": "main", "image": "wasm://echo"}]},
    }
    body = {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "web"},
        "spec": {"selector": {"matchLabels": {"app": "x"}}, "template": template},
    }
    made = await api.create(APPS, body)
    assert made["spec"]["strategy"]["type"] == "RollingUpdate"
    patch = {"spec": {"strategy": {"$retainKeys": ["type"], "type": "Recreate"}}}
    answer = await api.patch(f"{APPS}/web", patch, "strategic")
    assert answer.status == 200 and answer.json["spec"]["strategy"] == {"type": "Recreate"}
    without = await api.patch(f"{APPS}/web", {"spec": {"strategy": {"type": "RollingUpdate"}}}, "strategic")
    assert without.json["spec"]["strategy"]["rollingUpdate"] == {"maxSurge": "25%", "maxUnavailable": "25%"}
