"""The cluster under test: any that KUBE32_CONFORMANCE_KUBECONFIG names, else a simulator of two nodes.

Scenarios know nothing of the cluster but its kubeconfig; what discovery does not list is not asked for.
"""

import os
import shutil
import socket
import uuid
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.conftest import BIN, ROOT, SimCluster

VARIABLE = "KUBE32_CONFORMANCE_KUBECONFIG"
MODULES = ("echo", "counter", "entry", "hello")


@dataclass
class Namespace:
    """A namespace of its own on the cluster under test, and kubectl there."""

    cluster: SimCluster
    name: str
    kubeconfig: Path
    served: set[str] = field(default_factory=set)

    @property
    def environment(self) -> dict[str, str]:
        """KUBECONFIG with the namespace as its default."""
        return {**self.cluster.environment, "KUBECONFIG": str(self.kubeconfig)}

    @cached_property
    def node(self) -> str:
        """A Ready node, a worker if there is one."""
        names = self.cluster.kubectl("get", "nodes", "-o", "name").split()
        return sorted(n.removeprefix("node/") for n in names)[-1]

    def offers(self, what: str) -> bool:
        """Whether discovery lists a resource ("roles.rbac.authorization.k8s.io") or a subresource of pods."""
        if not self.served:
            resources = self.cluster.kubectl("api-resources", "-o", "name").split()
            core = yaml.safe_load(self.cluster.kubectl("get", "--raw", "/api/v1"))
            pods = [r["name"].partition("/")[2] for r in core["resources"] if r["name"].startswith("pods/")]
            self.served = {*resources, *pods}
            if "customresourcedefinitions.apiextensions.k8s.io" in self.served:
                self.served.add("server-side-apply")
        return what in self.served

    def need(self, what: str) -> None:
        """Skips the test where the cluster does not offer `what`."""
        if not self.offers(what):
            pytest.skip(f"this cluster does not offer {what}")

    def kubectl(self, *arguments: str, **options: Any) -> str:
        """kubectl in the namespace."""
        return self.cluster.run(
            str(BIN / "kubectl"), "--kubeconfig", str(self.kubeconfig), *arguments, **options
        )


class GivenCluster(SimCluster):
    """A cluster that is there already."""

    @property
    def kubeconfig(self) -> Path:
        return Path(os.environ[VARIABLE])


@pytest.fixture(scope="session")
def tested(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SimCluster]:
    """The cluster under test, with the example modules."""
    folder = tmp_path_factory.mktemp("conformance")
    made: SimCluster = GivenCluster(folder) if VARIABLE in os.environ else SimCluster(folder)
    try:
        if not isinstance(made, GivenCluster):
            made.control_plane()
            made.worker("worker")
        for name in MODULES:
            made.cli("push", str(ROOT / "examples" / name / f"{name}.wasm"))
        yield made
    finally:
        for process in reversed(made.processes.values()):
            process.stop()


@pytest.fixture
def space(tested: SimCluster, tmp_path: Path) -> Iterator[Namespace]:
    """A fresh namespace, deleted afterwards."""
    name = f"conformance-{uuid.uuid4().hex[:6]}"
    kubeconfig = tmp_path / "kubeconfig"
    shutil.copy(tested.kubeconfig, kubeconfig)
    made = Namespace(tested, name, kubeconfig)
    made.kubectl("create", "namespace", name)
    made.kubectl("config", "set-context", "--current", "--namespace", name)
    yield made
    tested.kubectl("delete", "namespace", name, "--wait=false", "--ignore-not-found")


@pytest.fixture
def free_port() -> int:
    """A port of this machine that nobody has."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
