"""A control plane killed under 32 writers loses nothing that it has answered for (issue C, "What must be shown").

KUBE32_KILLS is how often it is killed (default 50), KUBE32_KILL_SEED the seed of the moments.
"""

import http.client
import json
import os
import random
import signal
import threading
import time
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

from tests.conftest import SimCluster

KILLS = int(os.environ.get("KUBE32_KILLS", "50"))
SEED = int(os.environ.get("KUBE32_KILL_SEED", "32"))
WRITERS = 32
KEYS = 4
PATH = "/api/v1/namespaces/default/configmaps"
Obj = dict[str, Any]


@dataclass(eq=False)
class Writer(threading.Thread):
    """Creates, replaces, patches and deletes ConfigMaps of its own, and keeps what it was answered.

    `answered`: by name, the object of the last 2xx (None: deleted). `asked`: the write that has no answer.
    """

    cluster: SimCluster
    number: int
    seed: int
    answered: dict[str, Obj | None]
    stop: threading.Event
    asked: tuple[str, str, str] | None = None
    refused: list[str] = field(default_factory=list)
    count: int = 0

    def __post_init__(self) -> None:
        super().__init__(daemon=True)

    def run(self) -> None:
        host, port, token, context = self.cluster.access
        chance = random.Random(self.seed)
        connection = http.client.HTTPSConnection(host, port, context=context, timeout=30)
        with suppress(OSError, http.client.HTTPException):
            while not self.stop.is_set():
                self.write(connection, token, chance)
        connection.close()

    def write(self, connection: http.client.HTTPSConnection, token: str, chance: random.Random) -> None:
        name = f"w{self.number}-{chance.randrange(KEYS)}"
        current = self.answered.get(name)
        value = f"{self.seed}-{self.count}"
        body: Obj = {
            "kind": "ConfigMap",
            "apiVersion": "v1",
            "metadata": {"name": name},
            "data": {"v": value},
        }
        headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/json"}
        if current is None:
            method, path = "POST", PATH
        else:
            method, path = chance.choice(("PUT", "PATCH", "PATCH", "DELETE")), f"{PATH}/{name}"
            if method == "PATCH":
                headers["Content-Type"] = "application/merge-patch+json"
        self.asked = name, method, value
        payload = None if method == "DELETE" else json.dumps(body).encode()
        connection.request(method, path, payload, headers)
        response = connection.getresponse()
        answer = json.loads(response.read())
        if response.status not in (200, 201):
            self.refused.append(f"{method} {path}: {response.status} {answer.get('message')}")
        else:
            self.answered[name] = None if method == "DELETE" else answer
            self.count += 1
        self.asked = None


def test_what_was_answered_is_there_after_each_kill(own_cluster: SimCluster) -> None:
    chance = random.Random(SEED)
    process = own_cluster.control_plane("control", "--enable-flash")
    address = urlsplit(process.facts["url"])
    answered: list[dict[str, Obj | None]] = [{} for _ in range(WRITERS)]
    highest = writes = 0
    for turn in range(KILLS):
        stop = threading.Event()
        writers = [
            Writer(own_cluster, n, chance.randrange(1 << 30), answered[n], stop) for n in range(WRITERS)
        ]
        for writer in writers:
            writer.start()
        time.sleep(chance.uniform(0.05, 0.6))
        process.popen.send_signal(signal.SIGKILL)
        process.popen.wait()
        stop.set()
        for writer in writers:
            writer.join(60)
            assert not writer.is_alive()
            assert not writer.refused, writer.refused
        writes += sum(writer.count for writer in writers)
        listen = f"{address.hostname}:{address.port}"
        process = own_cluster.start("control", "--listen", listen, "--enable-flash", wait=False)
        own_cluster.until("the API server answers", lambda: serves(own_cluster))
        status, _, body = own_cluster.http("GET", PATH)
        assert status == 200
        listed = json.loads(body)
        found = {item["metadata"]["name"]: item for item in listed["items"]}
        for writer in writers:
            judge(turn, writer, found)
        versions = [int(item["metadata"]["resourceVersion"]) for item in found.values()]
        now = int(listed["metadata"]["resourceVersion"])
        assert now > max(highest, *versions), f"kill {turn}: the revision went back"
        highest = now
    print(f"{KILLS} kills, {writes} writes answered")
    assert writes > KILLS * WRITERS
    assert "damaged" not in process.log


def serves(cluster: SimCluster) -> bool:
    try:
        return cluster.http("GET", "/readyz", timeout_s=5)[0] == 200
    except (TimeoutError, OSError, http.client.HTTPException):
        return False


def judge(turn: int, writer: Writer, found: dict[str, Obj]) -> None:
    """Compares what a writer was answered with what is there; takes over what an unanswered write has done."""
    for name in [f"w{writer.number}-{key}" for key in range(KEYS)]:
        there = found.get(name)
        expected = writer.answered.get(name)
        if writer.asked is not None and writer.asked[0] == name:
            _, method, value = writer.asked
            done = (
                there is None if method == "DELETE" else there is not None and there["data"] == {"v": value}
            )
            if done:
                writer.answered[name] = without_kind(there)
                continue
        assert without_kind(there) == without_kind(expected), f"kill {turn}, {name}: asked {writer.asked}"


def without_kind(obj: Obj | None) -> Obj | None:
    """Items of a list say no kind."""
    return None if obj is None else {k: v for k, v in obj.items() if k not in ("kind", "apiVersion")}
