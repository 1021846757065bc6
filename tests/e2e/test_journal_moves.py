"""A control plane killed in the middle of a move finishes or undoes it after its restart (architecture, "A move").

KUBE32_MOVE_KILLS is how often (default 5), KUBE32_MOVE_KILL_SEED the seed of the moments.
"""

import json
import os
import random
import signal
import subprocess
import time
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from tests.conftest import BIN, SimCluster
from tests.e2e.test_journal_kill import serves
from tests.e2e.world import WITNESS

KILLS = int(os.environ.get("KUBE32_MOVE_KILLS", "5"))
SEED = int(os.environ.get("KUBE32_MOVE_KILL_SEED", "3"))
Obj = dict[str, Any]
FINAL = {"Completed", "Failed", "Saved"}


def test_a_move_that_loses_its_control_plane_has_an_end(own_cluster: SimCluster, tmp_path: Path) -> None:
    chance = random.Random(SEED)
    process = own_cluster.control_plane("control", "--enable-flash")
    address = urlsplit(process.facts["url"])
    for name in ("node-a", "node-b"):
        own_cluster.worker(name)
    own_cluster.deploy_wat(tmp_path, "mover", WITNESS, "--tick", "20ms", "--node", "node-a")
    for turn in range(KILLS):
        target = "node-b" if node_of(own_cluster) == "node-a" else "node-a"
        command = [str(BIN / "kube32-cli"), "move", "mover", "--to", target]
        move = subprocess.Popen(
            command, env=own_cluster.environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        own_cluster.until("the move has begun", lambda n=turn: len(checkpoints(own_cluster)) > n)
        time.sleep(chance.uniform(0, 0.06))
        process.popen.send_signal(signal.SIGKILL)
        process.popen.wait()
        move.wait(60)
        listen = f"{address.hostname}:{address.port}"
        process = own_cluster.start("control", "--listen", listen, "--enable-flash", wait=False)
        own_cluster.until("the API server answers", lambda: serves(own_cluster))
        own_cluster.until(
            f"every move has an end (kill {turn})", lambda: all_ended(own_cluster), timeout_s=120
        )
        own_cluster.until(f"the pod answers (kill {turn})", lambda: answers(own_cluster), timeout_s=120)


def checkpoints(cluster: SimCluster) -> list[Obj]:
    path = "/apis/kube32.io/v1/namespaces/default/checkpoints"
    found: list[Obj] = json.loads(cluster.http("GET", path)[2])["items"]
    return found


def node_of(cluster: SimCluster) -> str:
    return str(cluster.get("pod/mover")["spec"].get("nodeName"))


def all_ended(cluster: SimCluster) -> bool:
    phases = [(c.get("status") or {}).get("phase") for c in checkpoints(cluster)]
    return all(phase in FINAL for phase in phases)


def answers(cluster: SimCluster) -> bool:
    return cluster.http("GET", "/api/v1/namespaces/default/pods/mover/proxy/")[0] == 200
