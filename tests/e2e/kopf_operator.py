"""A kopf operator for CronTab: answers each object with its status, and owns a ConfigMap for each."""

from typing import Any

import kopf
from kubernetes import client, config


@kopf.on.startup()
def start(**_: Any) -> None:
    config.load_kube_config()


@kopf.on.create("stable.example.com", "v1", "crontabs")
@kopf.on.update("stable.example.com", "v1", "crontabs")
def reconcile(spec: Any, patch: Any, name: str, namespace: str, body: Any, **_: Any) -> None:
    patch.status["replicas"] = spec["replicas"]
    child = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": f"{name}-child"},
        "data": {"cron": spec["cronSpec"]},
    }
    kopf.adopt(child, owner=body)
    core = client.CoreV1Api()
    try:
        core.create_namespaced_config_map(namespace, child)
    except client.ApiException as error:
        if error.status != 409:
            raise
        core.patch_namespaced_config_map(child["metadata"]["name"], namespace, child)


@kopf.on.delete("stable.example.com", "v1", "crontabs")
def remove(**_: Any) -> None:
    """kopf's finalizer holds the object until this has run."""
