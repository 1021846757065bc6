"""Deployments, Jobs and DaemonSets as people use them, with the real kubectl on real nodes."""

import json
import subprocess
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest

from tests.conftest import BIN, SimCluster

SPACE = "workloads"


class Space:
    """kubectl in a namespace of its own."""

    def __init__(self, cluster: SimCluster) -> None:
        self.cluster = cluster

    def __call__(self, *arguments: str, **options: Any) -> str:
        return self.cluster.kubectl("-n", SPACE, *arguments, **options)

    def json(self, *arguments: str) -> Any:
        """`get ... -o json`, parsed."""
        return json.loads(self("get", *arguments, "-o", "json"))

    def images(self, selector: str) -> list[str]:
        """The images of pods, sorted."""
        return sorted(p["spec"]["containers"][0]["image"] for p in self.json("pods", "-l", selector)["items"])


@pytest.fixture(scope="module")
def space(cluster: SimCluster) -> Iterator[Space]:
    """A namespace, and the example modules."""
    found = Space(cluster)
    for module in ("echo", "counter", "entry"):
        cluster.cli("push", f"examples/{module}/{module}.wasm", "--name", module)
    cluster.kubectl("create", "namespace", SPACE)
    yield found
    cluster.kubectl("delete", "namespace", SPACE, "--timeout=60s")


class PodCount:
    """How many pods of a selector exist at each event of a watch, and which uids each name had."""

    def __init__(self, space: Space, selector: str) -> None:
        command = [str(BIN / "kubectl"), "-n", SPACE, "get", "pods", "-l", selector, "--watch", "-o", "json"]
        command += ["--output-watch-events"]
        self._popen = subprocess.Popen(
            command, env=space.cluster.environment, stdout=subprocess.PIPE, text=True
        )
        self.pods: dict[str, str] = {}
        self.most = 0
        self.events = 0
        self._thread = threading.Thread(target=self._read, daemon=True)
        self._thread.start()

    def _read(self) -> None:
        decoder, text = json.JSONDecoder(), ""
        assert self._popen.stdout is not None
        for line in self._popen.stdout:
            text += line
            try:
                event, end = decoder.raw_decode(text.lstrip())
            except json.JSONDecodeError:
                continue
            text = text.lstrip()[end:]
            meta = event["object"]["metadata"]
            self.events += 1
            if event["type"] == "DELETED" or meta.get("deletionTimestamp"):
                self.pods.pop(meta["name"], None)
            else:
                self.pods[meta["name"]] = meta["uid"]
            self.most = max(self.most, len(self.pods))

    def stop(self) -> None:
        """Ends the watch."""
        self._popen.terminate()
        self._popen.wait(10)
        self._thread.join(10)


def test_a_deployment_from_its_creation_to_its_rollback(space: Space) -> None:
    space("create", "deployment", "web", "--image=wasm://echo", "--replicas=2")
    out = space("rollout", "status", "deployment/web", "--timeout=60s")
    assert 'deployment "web" successfully rolled out' in out
    space("wait", "--for=condition=Available", "deployment/web", "--timeout=30s")
    space("scale", "deployment/web", "--replicas=3")
    space("rollout", "status", "deployment/web", "--timeout=60s")
    assert space.images("app=web") == ["wasm://echo"] * 3
    space("annotate", "deployment/web", "kubernetes.io/change-cause=first", "note=kept")
    container = space.json("deployment", "web")["spec"]["template"]["spec"]["containers"][0]["name"]
    space("set", "image", "deployment/web", f"{container}=wasm://counter")
    space("rollout", "status", "deployment/web", "--timeout=60s")
    space("annotate", "deployment/web", "kubernetes.io/change-cause=second", "--overwrite")

    def rows() -> list[list[str]]:
        lines = space("rollout", "history", "deployment/web").splitlines()[2:]
        return [line.split() for line in lines if line.strip()]

    space.cluster.until("the causes", lambda: rows() == [["1", "first"], ["2", "second"]])
    assert "wasm://echo" in space("rollout", "history", "deployment/web", "--revision=1")
    out = space("rollout", "undo", "deployment/web")
    assert "rolled back" in out
    space("rollout", "status", "deployment/web", "--timeout=60s")
    space.cluster.until("old pods are gone", lambda: space.images("app=web") == ["wasm://echo"] * 3)
    assert rows() == [["2", "second"], ["3", "first"]]
    assert space.json("deployment", "web")["metadata"]["annotations"]["note"] == "kept"
    space("rollout", "undo", "deployment/web", "--to-revision=2")
    space("rollout", "status", "deployment/web", "--timeout=60s")
    assert set(space.images("app=web")) == {"wasm://counter"}


def test_what_describe_says_of_a_deployment(space: Space) -> None:
    space("create", "deployment", "said", "--image=wasm://echo", "--replicas=2")
    space("rollout", "status", "deployment/said", "--timeout=60s")
    text = space("describe", "deployment", "said")
    name = space.json("replicasets", "-l", "app=said")["items"][0]["metadata"]["name"]
    assert "2 desired | 2 updated | 2 total | 2 available | 0 unavailable" in text
    assert f"NewReplicaSet:   {name} (2/2 replicas created)" in text
    assert "Available      True    MinimumReplicasAvailable" in text
    assert "Progressing    True    NewReplicaSetAvailable" in text
    assert f"Scaled up replica set {name} from 0 to 2" in text
    row = space("get", "rs", name).splitlines()[1].split()
    assert row[1:4] == ["2", "2", "2"]


def test_restart_pause_and_resume(space: Space) -> None:
    space("create", "deployment", "paced", "--image=wasm://echo")
    space("rollout", "status", "deployment/paced", "--timeout=60s")
    first = space.json("pods", "-l", "app=paced")["items"][0]["metadata"]["uid"]
    space("rollout", "restart", "deployment/paced")
    space("rollout", "status", "deployment/paced", "--timeout=60s")
    space.cluster.until("one pod", lambda: len(space.json("pods", "-l", "app=paced")["items"]) == 1)
    assert space.json("pods", "-l", "app=paced")["items"][0]["metadata"]["uid"] != first
    space("rollout", "pause", "deployment/paced")
    container = space.json("deployment", "paced")["spec"]["template"]["spec"]["containers"][0]["name"]
    space("set", "image", "deployment/paced", f"{container}=wasm://counter")
    assert "paused" in space("rollout", "undo", "deployment/paced", code=1)
    time.sleep(0.5)
    assert space.images("app=paced") == ["wasm://echo"]
    space("rollout", "resume", "deployment/paced")
    space("rollout", "status", "deployment/paced", "--timeout=60s")
    space.cluster.until("new pods", lambda: space.images("app=paced") == ["wasm://counter"])


def test_a_pod_of_a_deployment_moves_ten_times_and_none_is_added(space: Space) -> None:
    space("create", "deployment", "mover", "--image=wasm://counter", "--replicas=2")
    space("rollout", "status", "deployment/mover", "--timeout=60s")
    count = PodCount(space, "app=mover")
    name = space.json("pods", "-l", "app=mover")["items"][0]["metadata"]["name"]
    for _ in range(10):
        node = space.json("pod", name)["spec"]["nodeName"]
        target = "node-b" if node == "node-a" else "node-a"
        space.cluster.cli("-n", SPACE, "move", name, "--to", target)
    count.stop()
    assert count.most == 2 and count.events >= 20
    status = space.json("deployment", "mover")["status"]
    assert status["replicas"] == status["updatedReplicas"] == 2
    space("wait", "--for=condition=Available", "deployment/mover", "--timeout=10s")
    conditions = {c["type"]: c["reason"] for c in status["conditions"]}
    assert conditions["Progressing"] == "NewReplicaSetAvailable"


def entry_job(name: str, beats: int = 1, **spec: Any) -> str:
    """The manifest of a Job whose pods end after some beats."""
    environment = [{"name": "BEATS", "value": str(beats)}]
    container = {"name": "main", "image": "wasm://entry", "env": environment}
    template = {"spec": {"restartPolicy": "Never", "containers": [container]}}
    return json.dumps(
        {
            "apiVersion": "batch/v1",
            "kind": "Job",
            "metadata": {"name": name},
            "spec": {"template": template, **spec},
        }
    )


def test_a_job_runs_to_its_end(space: Space) -> None:
    space("apply", "-f", "-", stdin=entry_job("once"))
    space("wait", "--for=condition=complete", "job/once", "--timeout=60s")
    row = space("get", "job", "once").splitlines()[1].split()
    assert row[:3] == ["once", "Complete", "1/1"]
    text = space("describe", "job", "once")
    assert "1 Succeeded" in text and "Job completed" in text
    pod = space.json("pods", "-l", "job-name=once")["items"][0]
    assert pod["status"]["phase"] == "Succeeded" and not pod["metadata"].get("finalizers")
    assert space("logs", "job/once").strip() == "beat 1"
    space("delete", "job", "once", "--timeout=30s")
    space.cluster.until("no pods", lambda: not space.json("pods", "-l", "job-name=once")["items"])


def test_an_indexed_job_does_each_index_and_goes_after_its_time(space: Space) -> None:
    spec = {"completions": 3, "parallelism": 3, "completionMode": "Indexed", "ttlSecondsAfterFinished": 3}
    space("apply", "-f", "-", stdin=entry_job("numbers", **spec))
    space("wait", "--for=condition=complete", "job/numbers", "--timeout=60s")
    assert space.json("job", "numbers")["status"]["completedIndexes"] == "0-2"
    space("wait", "--for=delete", "job/numbers", "--timeout=30s")


def test_a_job_that_takes_too_long_fails_and_ends_its_pods(space: Space) -> None:
    space("apply", "-f", "-", stdin=entry_job("long", beats=0, activeDeadlineSeconds=2))
    space("wait", "--for=condition=failed", "job/long", "--timeout=60s")
    assert "DeadlineExceeded" in space("describe", "job", "long")
    space.cluster.until("no pods", lambda: not space.json("pods", "-l", "job-name=long")["items"])


def test_a_job_is_suspended_and_resumed(space: Space) -> None:
    space("apply", "-f", "-", stdin=entry_job("held", beats=2, suspend=True))
    space("wait", "--for=condition=suspended", "job/held", "--timeout=30s")
    assert not space.json("pods", "-l", "job-name=held")["items"]
    space("patch", "job", "held", "-p", '{"spec": {"suspend": false}}')
    space("wait", "--for=condition=complete", "job/held", "--timeout=60s")


def test_a_daemon_set_runs_on_every_node_and_restarts_one_after_the_other(space: Space) -> None:
    manifest = {
        "apiVersion": "apps/v1",
        "kind": "DaemonSet",
        "metadata": {"name": "agent"},
        "spec": {
            "selector": {"matchLabels": {"app": "agent"}},
            "template": {
                "metadata": {"labels": {"app": "agent"}},
                "spec": {"containers": [{"name": "main", "image": "wasm://echo"}]},
            },
        },
    }
    space("apply", "-f", "-", stdin=json.dumps(manifest))
    out = space("rollout", "status", "ds/agent", "--timeout=60s")
    assert "successfully rolled out" in out
    nodes = {n["metadata"]["name"] for n in space.json("nodes")["items"]}
    pods = space.json("pods", "-l", "app=agent")["items"]
    assert {p["spec"]["nodeName"] for p in pods} == nodes and len(pods) == len(nodes)
    space("rollout", "restart", "ds/agent")
    space("rollout", "status", "ds/agent", "--timeout=60s")
    space("label", "node", "node-b", "agent=no")
    manifest["spec"]["template"]["spec"]["affinity"] = {  # type: ignore[index]
        "nodeAffinity": {
            "requiredDuringSchedulingIgnoredDuringExecution": {
                "nodeSelectorTerms": [{"matchExpressions": [{"key": "agent", "operator": "DoesNotExist"}]}]
            }
        }
    }
    space("apply", "-f", "-", stdin=json.dumps(manifest))
    space("rollout", "status", "ds/agent", "--timeout=60s")
    here = nodes - {"node-b"}
    space.cluster.until(
        "it left node-b",
        lambda: {p["spec"]["nodeName"] for p in space.json("pods", "-l", "app=agent")["items"]} == here,
    )
    space("label", "node", "node-b", "agent-")
