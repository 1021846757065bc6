"""A whole API server without a socket, and the objects that computed kinds are made of."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from tests.unit.api_core.conftest import Api, make_server

from kube32.api.security import Security
from kube32.contract import Limits, limits_for, resource_of

Obj = dict[str, Any]
SPACE = "/api/v1/namespaces/default"
SLICES = "/apis/discovery.k8s.io/v1/namespaces/default/endpointslices"
CREATED = "2026-01-01T00:00:00Z"


class Cluster(Api):
    """Puts objects into the store as their controllers and kubelets would."""

    def put(self, kind: str, obj: Obj) -> Obj:
        metadata = obj["metadata"]
        resource = resource_of(kind)
        obj = {"apiVersion": resource.api_version, "kind": kind, **obj}
        key = resource.object_key(metadata.get("namespace", ""), metadata["name"])
        return self.server.store.put(key, obj).obj

    def drop(self, kind: str, name: str) -> None:
        self.server.store.delete(resource_of(kind).object_key("default", name))

    def service(self, name: str = "web", **spec: Any) -> Obj:
        """A Service that selects app=<name>."""
        metadata = {"name": name, "namespace": "default", "uid": f"uid-{name}", "creationTimestamp": CREATED}
        ports = [{"port": 80, "targetPort": 8080, "protocol": "TCP"}]
        return self.put(
            "Service",
            {"metadata": metadata, "spec": {"selector": {"app": name}, "ports": ports, **spec}},
        )

    def pod(
        self,
        name: str,
        ip: str = "10.0.0.1",
        *,
        ready: bool = True,
        app: str = "web",
        uid: str = "",
        node: str = "devkit",
        phase: str = "Running",
        ports: tuple[tuple[str, int], ...] = (),
        reason: str = "",
        **metadata: Any,
    ) -> Obj:
        """A pod with one container; `ports` are named ones."""
        spec: Obj = {"containers": [{"name": "main", "image": "wasm://echo"}]}
        if ports:
            spec["containers"][0]["ports"] = [
                {"name": n, "containerPort": p, "protocol": "TCP"} for n, p in ports
            ]
        if node:
            spec["nodeName"] = node
        condition = {"type": "Ready", "status": str(ready), "lastTransitionTime": CREATED}
        if reason:
            condition["reason"] = reason
        status: Obj = {"phase": phase, "conditions": [condition]}
        if ip:
            status["podIP"] = ip
        made = {
            "name": name,
            "namespace": "default",
            "uid": uid or f"uid-{name}",
            "labels": {"app": app, **metadata.pop("labels", {})},
            **metadata,
        }
        return self.put("Pod", {"metadata": made, "spec": spec, "status": status})

    async def endpoints(self, name: str = "web") -> Any:
        return (await self.get(f"{SPACE}/endpoints/{name}")).json

    async def slices(self, name: str = "web") -> Any:
        path = f"{SLICES}?labelSelector=kubernetes.io/service-name%3D{name}"
        return (await self.get(path)).json["items"]


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
async def cluster(pki_dir: Path, limits: Limits) -> AsyncIterator[Cluster]:
    server = make_server(pki_dir, limits)
    await server.start()
    yield Cluster(server)
    await server.close()
