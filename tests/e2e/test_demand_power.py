"""Power failures (user-demand B5): control plane and workers are killed in any order, and all comes back.

KUBE32_POWER_FAILURES is how often (default 6), KUBE32_POWER_SEED the seed of who is killed.
"""

import os
import random
import signal
from pathlib import Path
from urllib.parse import urlsplit

from tests.conftest import SimCluster
from tests.e2e.test_journal_kill import serves
from tests.e2e.world import WITNESS

FAILURES = int(os.environ.get("KUBE32_POWER_FAILURES", "6"))
SEED = int(os.environ.get("KUBE32_POWER_SEED", "5"))
PODS = 3


def test_the_cluster_comes_back_without_a_hand(own_cluster: SimCluster, tmp_path: Path) -> None:
    chance = random.Random(SEED)
    process = own_cluster.control_plane("control", "--enable-flash")
    address = urlsplit(process.facts["url"])
    listen = ["--listen", f"{address.hostname}:{address.port}", "--enable-flash"]
    worker = ["--worker", "--kubeconfig", str(own_cluster.folder / "control" / "worker.kubeconfig")]
    for name in ("node-a", "node-b"):
        own_cluster.worker(name)
    for number in range(PODS):
        own_cluster.deploy_wat(tmp_path, f"pod{number}", WITNESS, "--tick", "100ms")
    own_cluster.kubectl("create", "deployment", "web", "--image=wasm://pod0", "--replicas=3")
    own_cluster.kubectl("wait", "--for=condition=Available", "deployment/web", "--timeout=60s", timeout_s=90)
    for turn in range(FAILURES):
        killed = [name for name in own_cluster.processes if chance.random() < 0.6] or ["control"]
        if turn == 0:
            killed = list(own_cluster.processes)  # all at once
        for name in killed:
            own_cluster.processes[name].popen.send_signal(signal.SIGKILL)
        for name in killed:
            own_cluster.processes[name].popen.wait()
        chance.shuffle(killed)
        for name in killed:
            own_cluster.start(name, *(listen if name == "control" else worker), wait=False)
        own_cluster.until("the API server answers", lambda: serves(own_cluster))
        nodes = [f"node/{name}" for name in own_cluster.processes]
        own_cluster.kubectl("wait", "--for=condition=Ready", *nodes, "--timeout=90s", timeout_s=120)
        own_cluster.until(f"all pods run after {killed}", lambda: all_run(own_cluster), timeout_s=90)
        own_cluster.kubectl("create", "configmap", f"turn{turn}")
    assert len(own_cluster.get("configmaps")["items"]) == FAILURES + 1
    assert "is damaged" not in own_cluster.processes["control"].log


def all_run(cluster: SimCluster) -> bool:
    """Whether the pods are there, and Ready."""
    pods = cluster.get("pods")["items"]
    ready = [
        any(c["type"] == "Ready" and c["status"] == "True" for c in pod["status"].get("conditions", ()))
        for pod in pods
        if not pod["metadata"].get("deletionTimestamp")
    ]
    return len(ready) == PODS + 3 and all(ready)
