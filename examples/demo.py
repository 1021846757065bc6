"""make demo: a pod compiled from C serves requests, moves to another node with its state and counts on.

Starts a control plane and two workers as processes of their own, drives them with the real kubectl and
kube32-cli, checks each step, and exits with 0 only if every one was as it should be.
"""

import argparse
import http.client
import json
import os
import shutil
import signal
import ssl
import subprocess
import sys
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).resolve().parent.parent
BIN = Path(sys.executable).parent
PROXY = "/api/v1/namespaces/default/pods/counter/proxy"
START_S = 30.0


class DemoFailed(Exception):
    """A step that cannot be gone on from."""


def say(text: str) -> None:
    """A heading, in bold on a terminal."""
    print(f"\n\033[1m{text}\033[0m" if sys.stdout.isatty() else f"\n== {text}", flush=True)


@dataclass
class Access:
    """URL, CA and token of the admin kubeconfig, for the stream of requests."""

    host: str
    port: int
    token: str
    context: ssl.SSLContext

    @classmethod
    def read(cls, path: Path) -> "Access":
        """From a kubeconfig that kube32-sim wrote."""
        import base64

        config = yaml.safe_load(path.read_text())
        cluster, user = config["clusters"][0]["cluster"], config["users"][0]["user"]
        ca = base64.b64decode(cluster["certificate-authority-data"]).decode()
        host, port = cluster["server"].removeprefix("https://").rsplit(":", 1)
        return cls(host, int(port), user["token"], ssl.create_default_context(cadata=ca))

    def connect(self) -> http.client.HTTPSConnection:
        """A new connection."""
        return http.client.HTTPSConnection(self.host, self.port, context=self.context, timeout=20)

    def ask(self, connection: http.client.HTTPSConnection, path: str) -> tuple[int, dict[str, str], bytes]:
        """One GET through the API server's pod proxy."""
        connection.request("GET", PROXY + path, headers={"Authorization": f"Bearer {self.token}"})
        response = connection.getresponse()
        return response.status, dict(response.headers), response.read()


@dataclass
class Stream:
    """Requests to the counter, one after the other, until stopped."""

    access: Access
    counts: list[int] = field(default_factory=list)
    refused: int = 0
    retry_after: set[str] = field(default_factory=set)
    others: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        connection = self.access.connect()
        while not self._stop.is_set():
            try:
                status, headers, body = self.access.ask(connection, "/")
            except (OSError, http.client.HTTPException) as error:
                self.others.append(repr(error))
                connection.close()
                connection = self.access.connect()
                continue
            if status == 200:
                self.counts.append(json.loads(body)["count"])
            elif status == 503:
                self.refused += 1
                self.retry_after.add(headers.get("Retry-After", "none"))
            else:
                self.others.append(f"{status} {body[:80]!r}")
            time.sleep(0.002)
        connection.close()

    def stop(self) -> None:
        """Ends the stream and waits for its last answer."""
        self._stop.set()
        self._thread.join(30)


class Demo:
    """The cluster's processes, the checks, and the commands shown."""

    def __init__(self, state: Path) -> None:
        self.state = state
        self.processes: list[subprocess.Popen[bytes]] = []
        self.failed: list[str] = []
        self.environment = {
            **os.environ,
            "KUBECONFIG": str(state / "control" / "kubeconfig"),
            "COLUMNS": "160",
        }
        self.environment["PATH"] = f"{BIN}{os.pathsep}{self.environment.get('PATH', '')}"

    def check(self, what: str, fine: bool) -> None:
        """Prints and counts one check."""
        print(f"  {'ok    ' if fine else 'FAILED'} {what}", flush=True)
        if not fine:
            self.failed.append(what)

    def start(self, name: str, *arguments: str) -> dict[str, Any]:
        """Starts one kube32-sim and waits for its ready file."""
        folder = self.state / name
        folder.mkdir(parents=True)
        ready = folder / "ready.json"
        command = [
            str(BIN / "kube32-sim"),
            "--name",
            name,
            "--data-dir",
            str(folder),
            "--ready-file",
            str(ready),
        ]
        log = (folder / "log.txt").open("wb")
        process = subprocess.Popen([*command, *arguments], stdout=log, stderr=log, start_new_session=True)
        self.processes.append(process)
        deadline = time.monotonic() + START_S
        while not ready.exists():
            if process.poll() is not None or time.monotonic() > deadline:
                raise DemoFailed(f"{name} did not start:\n{(folder / 'log.txt').read_text()}")
            time.sleep(0.02)
        facts: dict[str, Any] = json.loads(ready.read_text())
        return facts

    def run(self, *command: str, expect: int = 0, show: bool = True) -> str:
        """Runs one command, shown with what it printed."""
        if show:
            print(f"$ {' '.join(command)}", flush=True)
        done = subprocess.run(
            command, env=self.environment, cwd=ROOT, capture_output=True, text=True, timeout=60
        )
        output = done.stdout + done.stderr
        if show:
            print(output.rstrip(), flush=True)
        if done.returncode != expect:
            raise DemoFailed(f"exit code {done.returncode}, expected {expect}: {' '.join(command)}\n{output}")
        return output

    def stop(self) -> None:
        """Ends every process, workers first."""
        for process in reversed(self.processes):
            if process.poll() is None:
                process.send_signal(signal.SIGTERM)
        for process in reversed(self.processes):
            try:
                process.wait(20)
            except subprocess.TimeoutExpired:
                process.kill()
                self.failed.append("a process had to be killed")

    def cluster(self) -> None:
        """Control plane and two workers."""
        say("A control plane and two workers, each a process of its own")
        begun = time.monotonic()
        facts = self.start("control", "--listen", "127.0.0.1:0")
        print(f"control plane at {facts['url']}, Ready after {(time.monotonic() - begun) * 1000:.0f} ms")
        worker = ["--worker", "--kubeconfig", str(self.state / "control" / "worker.kubeconfig")]
        self.start("node-a", *worker, "--resource", "hardware.kube32.io/led=1")
        self.start("node-b", *worker)
        nodes = self.run("kubectl", "get", "nodes", "-o", "wide")
        self.check("three nodes are Ready", nodes.count(" Ready ") == 3)

    def deploy(self, access: Access) -> dict[str, Any]:
        """The counter on node-a."""
        say("A pod compiled from C (examples/counter) on node-a")
        wasm = "examples/counter/counter.wasm"
        options = ["--node", "node-a", "--tick", "200ms", "--memory", "64Ki"]
        self.run("kube32-cli", "deploy", wasm, "--name", "counter", *options)
        self.run("kubectl", "wait", "--for=condition=Ready", "pod/counter", "--timeout=20s")
        self.run("kubectl", "get", "pods", "-o", "wide")
        for _ in range(3):
            self.run("kubectl", "get", "--raw", f"{PROXY}/")
        connection = access.connect()
        before: dict[str, Any] = json.loads(access.ask(connection, "/state")[2])
        connection.close()
        self.check("three requests counted to 3", before["count"] == 3)
        return before

    def move(self, access: Access, before: dict[str, Any]) -> None:
        """The counter to node-b, under a steady stream of requests."""
        say("It moves to node-b while requests keep coming")
        stream = Stream(access)
        time.sleep(0.5)
        self.run("kube32-cli", "move", "counter", "--to", "node-b")
        time.sleep(0.5)
        stream.stop()
        connection = access.connect()
        after: dict[str, Any] = json.loads(access.ask(connection, "/state")[2])
        connection.close()
        answered = len(stream.counts)
        print(
            f"{answered} requests answered, {stream.refused} got 503 during the freeze, {len(stream.others)} failed"
        )
        print(f"before: {json.dumps(before)}\nafter:  {json.dumps(after)}")
        expected = list(range(4, 4 + answered))
        self.check(
            "every answered request was counted once, in order, across the move", stream.counts == expected
        )
        self.check("no request failed otherwise", not stream.others or print(stream.others[:3]) is not None)
        self.check("each 503 said Retry-After: 1", stream.retry_after <= {"1"})
        self.check("the counter went on from where it was", after["count"] == 3 + answered)
        self.check("the mutable global came along", after["global"] == before["global"] + answered)
        self.check("the pod's clock went on", after["time_ms"] > before["time_ms"])
        self.check("the channel kept its handle", after["channel"] == before["channel"] > 0)
        self.check("k32_restored ran once", after["restored"] == before["restored"] + 1)
        self.check("k32_restored reseeded the random state", after["seed"] != before["seed"])
        node = self.run("kubectl", "get", "pod", "counter", "-o", "jsonpath={.spec.nodeName}", show=False)
        self.check("the pod runs on node-b", node == "node-b")

    def refuse(self) -> None:
        """A pod that must not move, and why."""
        say("A pod that cannot move is refused with every reason, and keeps running")
        self.run("kube32-cli", "push", "examples/entry/entry.wasm")
        self.run("kubectl", "apply", "-f", "examples/demo-entry.yaml")
        self.run("kubectl", "wait", "--for=condition=Ready", "pod/entry", "--timeout=20s")
        output = self.run("kube32-cli", "move", "entry", "--to", "node-b", expect=1)
        for blocker in ("grant hardware.kube32.io/led", "entry point _start runs on its own thread"):
            self.check(f'blocker "{blocker}" is named', blocker in output)
        phase = self.run(
            "kubectl", "get", "pod", "entry", "-o", "jsonpath={.status.phase} {.spec.nodeName}", show=False
        )
        self.check("it still runs on node-a", phase == "Running node-a")

    def tell(self) -> None:
        """What the cluster says of it afterwards."""
        say("What kubectl says afterwards")
        table = self.run("kubectl", "get", "checkpoints", "-o", "wide")
        self.check("one move Completed, one Failed", "Completed" in table and "Failed" in table)
        events = self.run("kubectl", "get", "events", "--sort-by=.lastTimestamp")
        self.check("Moved and MoveFailed are among the events", "Moved " in events and "MoveFailed" in events)

    def play(self) -> None:
        """All steps."""
        self.cluster()
        access = Access.read(self.state / "control" / "kubeconfig")
        before = self.deploy(access)
        self.move(access, before)
        self.refuse()
        self.tell()


def main() -> int:
    """Exit code 0 only if each step was as it should be."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--state", type=Path, default=ROOT / "build" / "demo", help="a directory to start from empty"
    )
    parser.add_argument("--keep", action="store_true", help="leave the cluster running")
    options = parser.parse_args()
    marker = options.state / ".kube32-demo"
    if options.state.exists() and any(options.state.iterdir()) and not marker.exists():
        print(f"{options.state} is not empty and not of an earlier demo", file=sys.stderr)
        return 2
    shutil.rmtree(options.state, ignore_errors=True)
    options.state.mkdir(parents=True)
    marker.touch()
    demo = Demo(options.state.resolve())
    begun = time.monotonic()
    try:
        demo.play()
    except DemoFailed as error:
        demo.failed.append(str(error))
        print(f"\n{error}", file=sys.stderr)
    except KeyboardInterrupt:
        demo.failed.append("interrupted")
    finally:
        if options.keep and not demo.failed:
            pids = " ".join(str(p.pid) for p in demo.processes)
            print(f"\nThe cluster goes on. To use it:\n  export KUBECONFIG={demo.environment['KUBECONFIG']}")
            print(f"  export PATH={BIN}:$PATH\nTo end it:\n  kill {pids}")
        else:
            demo.stop()
    verdict = f"{len(demo.failed)} step(s) failed" if demo.failed else "all as it should be"
    print(f"\n{verdict}, {time.monotonic() - begun:.1f} s")
    return 1 if demo.failed else 0


if __name__ == "__main__":
    raise SystemExit(main())
