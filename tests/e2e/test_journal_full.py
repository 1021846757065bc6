"""A full store (user-demand B6): nothing new, but all can be deleted, and the cluster goes on."""

import json
import signal
from typing import Any
from urllib.parse import urlsplit

from tests.conftest import SimCluster

PATH = "/api/v1/namespaces/full/configmaps"
JSON = {"Content-Type": "application/json"}


def config(name: str, size: int, letter: str = "x") -> bytes:
    obj = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": {"v": letter * size}}
    return json.dumps(obj).encode()


def send(cluster: SimCluster, method: str, path: str, body: bytes | None = None) -> tuple[int, Any]:
    status, _, answer = cluster.http(method, path, body, JSON if body else {})
    return status, json.loads(answer)


def fill(cluster: SimCluster) -> list[str]:
    """ConfigMaps of nearly the largest size, then small ones, until there is no room; the large ones' names."""
    large: list[str] = []
    for size in (60_000, 2_000, 100):
        for number in range(1_000):
            status, answer = send(cluster, "POST", PATH, config(f"c{size}-{number}", size))
            if status == 500:
                assert answer["reason"] == "StorageFull"
                assert answer["message"].startswith("the store is full: ")
                assert answer["message"].count("/registry/") == 3
                break
            assert status == 201, answer
            if size == 60_000:
                large.append(f"c{size}-{number}")
    return large


def test_a_full_store_can_be_emptied_and_goes_on(own_cluster: SimCluster) -> None:
    arguments = ["--profile", "board", "--enable-flash"]
    process = own_cluster.control_plane("control", *arguments)
    own_cluster.kubectl("create", "namespace", "full")
    large = fill(own_cluster)
    assert len(large) == 8  # of 491,520 bytes
    assert "500" not in own_cluster.kubectl(
        "apply", "--dry-run=server", "-f", "-", stdin=config("dry", 50).decode()
    )
    # No larger, no smaller; smaller; larger.
    assert send(own_cluster, "PUT", f"{PATH}/{large[0]}", config(large[0], 60_000, "y"))[0] == 200
    assert send(own_cluster, "PUT", f"{PATH}/{large[1]}", config(large[1], 59_990))[0] == 200
    small = own_cluster.get("configmap", "c100-0", "-n", "full")
    status, answer = send(own_cluster, "PUT", f"{PATH}/c100-0", config("c100-0", 60_000))
    assert (status, answer["reason"]) == (500, "StorageFull")
    assert own_cluster.get("configmap", "c100-0", "-n", "full") == small
    message = own_cluster.kubectl("create", "configmap", "more", "--from-literal=a=" + "b" * 1000, code=1)
    assert "the store is full" in message
    # A label still finds room, and the node's status too.
    own_cluster.kubectl("label", "configmap", "c100-0", "-n", "full", "seen=yes")
    own_cluster.kubectl("wait", "--for=condition=Ready", "node/control", "--timeout=30s")

    address = urlsplit(process.facts["url"])
    process.stop(signal.SIGKILL)
    listen = f"{address.hostname}:{address.port}"
    own_cluster.start("control", "--listen", listen, *arguments)
    assert send(own_cluster, "POST", PATH, config("again", 60_000))[1]["reason"] == "StorageFull"
    assert send(own_cluster, "DELETE", f"{PATH}/{large[0]}")[0] == 200
    assert send(own_cluster, "POST", PATH, config("again", 50_000))[0] == 201
    own_cluster.kubectl("delete", "namespace", "full", "--timeout=60s", timeout_s=90)
    assert own_cluster.kubectl("get", "namespace", "full", "--ignore-not-found") == ""
    own_cluster.kubectl("create", "configmap", "more", "--from-literal=a=" + "b" * 1000)
