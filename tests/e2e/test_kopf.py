"""A kopf operator works on a custom kind, and goes on after its watches were cut in the middle."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import pytest
import yaml

from tests.conftest import ROOT, SimCluster
from tests.e2e.test_official_client import CuttingProxy

SPACE = "kopf"
CRD = ROOT / "tests/conformance/manifests/crontab-crd.yaml"


class Operator:
    """The operator's process, behind a proxy that cuts its connections."""

    def __init__(self, cluster: SimCluster, folder: Path) -> None:
        self.cluster = cluster
        config = yaml.safe_load(cluster.kubeconfig.read_text())
        url = urlsplit(config["clusters"][0]["cluster"]["server"])
        self.proxy = CuttingProxy(str(url.hostname), int(url.port or 0))
        config["clusters"][0]["cluster"]["server"] = f"https://127.0.0.1:{self.proxy.port}"
        kubeconfig = folder / "kubeconfig"
        kubeconfig.write_text(yaml.safe_dump(config))
        self.log = folder / "operator.log"
        command = [sys.executable, "-m", "kopf", "run", "--standalone", "--namespace", SPACE]
        with self.log.open("wb") as log:
            self.process = subprocess.Popen(
                [*command, str(ROOT / "tests/e2e/kopf_operator.py")],
                env={**os.environ, "KUBECONFIG": str(kubeconfig)},
                stdout=log,
                stderr=log,
            )

    def close(self) -> None:
        self.process.terminate()
        self.process.wait(30)
        self.proxy.close()

    def apply(self, name: str, **spec: object) -> None:
        """Creates or changes a CronTab."""
        made = {
            "apiVersion": "stable.example.com/v1",
            "kind": "CronTab",
            "metadata": {"name": name, "namespace": SPACE},
            "spec": {"cronSpec": "* * * * *", "image": "i", **spec},
        }
        self.cluster.kubectl("apply", "-f", "-", stdin=json.dumps(made))

    def until_status(self, name: str, replicas: int) -> None:
        """Waits until the operator has answered."""

        def answered() -> bool:
            status = self.cluster.get("crontab", name, "-n", SPACE).get("status") or {}
            assert self.process.poll() is None, self.log.read_text()
            return bool(status.get("replicas") == replicas)

        self.cluster.until(f"{name} has replicas {replicas}:\n{self.log.read_text()[-3000:]}", answered, 60)


@pytest.fixture
def operator(cluster: SimCluster, tmp_path: Path) -> Iterator[Operator]:
    cluster.kubectl("create", "namespace", SPACE)
    cluster.kubectl("apply", "-f", str(CRD))
    cluster.kubectl("wait", "--for=condition=Established", "crd/crontabs.stable.example.com")
    made = Operator(cluster, tmp_path)
    yield made
    made.close()
    for name in cluster.kubectl("get", "crontab", "-n", SPACE, "-o", "name").split():
        cluster.kubectl("patch", name, "-n", SPACE, "--type=merge", "-p", '{"metadata":{"finalizers":null}}')
    cluster.kubectl("delete", "namespace", SPACE)
    cluster.kubectl("delete", "crd", "crontabs.stable.example.com")


def test_an_operator_reconciles_across_cut_watches(operator: Operator, cluster: SimCluster) -> None:
    operator.apply("first")
    operator.until_status("first", 3)
    child = cluster.get("configmap", "first-child", "-n", SPACE)
    assert child["metadata"]["ownerReferences"][0]["kind"] == "CronTab"
    for replicas in (4, 5, 6):
        operator.proxy.cut()
        operator.apply("first", replicas=replicas)
        operator.apply(f"more-{replicas}", replicas=replicas)
        operator.until_status("first", replicas)
        operator.until_status(f"more-{replicas}", replicas)
    cluster.kubectl("delete", "crontab", "first", "-n", SPACE, "--timeout=60s")
    cluster.until(
        "the ConfigMap of a deleted owner goes",
        lambda: "first-child" not in cluster.kubectl("get", "configmap", "-n", SPACE, "-o", "name"),
    )
