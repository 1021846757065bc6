"""A whole API server without a socket, and CronTab, the custom kind of Kubernetes' documentation."""

import copy
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from tests.unit.api_core.conftest import Api, make_server

from kube32.api.security import Security
from kube32.contract import Limits, limits_for

CRDS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
GROUP = "/apis/stable.example.com/v1"
TABS = f"{GROUP}/namespaces/default/crontabs"
SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {
        "spec": {
            "type": "object",
            "properties": {
                "cronSpec": {"type": "string", "pattern": r"^(\d+|\*)(/\d+)?(\s+(\d+|\*)(/\d+)?){4}$"},
                "image": {"type": "string", "default": "wasm://cron"},
                "replicas": {"type": "integer", "minimum": 1, "maximum": 10},
            },
        },
        "status": {
            "type": "object",
            "properties": {"replicas": {"type": "integer"}, "labelSelector": {"type": "string"}},
        },
    },
}
CRONTAB: dict[str, Any] = {
    "apiVersion": "apiextensions.k8s.io/v1",
    "kind": "CustomResourceDefinition",
    "metadata": {"name": "crontabs.stable.example.com"},
    "spec": {
        "group": "stable.example.com",
        "scope": "Namespaced",
        "names": {
            "plural": "crontabs",
            "singular": "crontab",
            "kind": "CronTab",
            "shortNames": ["ct"],
            "categories": ["all"],
        },
        "versions": [
            {
                "name": "v1",
                "served": True,
                "storage": True,
                "schema": {"openAPIV3Schema": SCHEMA},
                "subresources": {
                    "status": {},
                    "scale": {
                        "specReplicasPath": ".spec.replicas",
                        "statusReplicasPath": ".status.replicas",
                        "labelSelectorPath": ".status.labelSelector",
                    },
                },
                "additionalPrinterColumns": [
                    {"name": "Spec", "type": "string", "jsonPath": ".spec.cronSpec"},
                    {"name": "Replicas", "type": "integer", "jsonPath": ".spec.replicas", "priority": 1},
                    {"name": "Age", "type": "date", "jsonPath": ".metadata.creationTimestamp"},
                ],
            }
        ],
    },
}


def definition(**changes: Any) -> dict[str, Any]:
    """CronTab's definition with fields of its spec changed."""
    made = copy.deepcopy(CRONTAB)
    made["spec"].update(copy.deepcopy(changes))
    return made


def with_schema(spec: dict[str, Any], **more: Any) -> dict[str, Any]:
    """CronTab's definition with another schema of `spec`; `more` goes into the version."""
    made = copy.deepcopy(CRONTAB)
    version = made["spec"]["versions"][0]
    version["schema"]["openAPIV3Schema"]["properties"]["spec"] = copy.deepcopy(spec)
    version.update(copy.deepcopy(more))
    return made


def crontab(name: str = "tab", spec: dict[str, Any] | None = None, **more: Any) -> dict[str, Any]:
    """A CronTab."""
    metadata = {"name": name, **more.pop("metadata", {})}
    spec = {"cronSpec": "* * * * */5", "replicas": 3} if spec is None else spec
    return {
        "apiVersion": "stable.example.com/v1",
        "kind": "CronTab",
        "metadata": metadata,
        "spec": spec,
        **more,
    }


@pytest.fixture(scope="session")
def pki_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Keys and certificates, made once."""
    directory = tmp_path_factory.mktemp("server")
    Security.create(directory, limits_for("sim"), advertise=[])
    return directory


@pytest.fixture
def limits() -> Limits:
    return limits_for("sim")


@pytest.fixture
async def api(pki_dir: Path, limits: Limits) -> AsyncIterator[Api]:
    server = make_server(pki_dir, limits)
    await server.start()
    yield Api(server)
    await server.close()


@pytest.fixture
async def tabs(api: Api) -> Api:
    """A server on which CronTab is defined."""
    await api.create(CRDS, definition())
    return api
