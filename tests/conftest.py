"""Fixtures: real kube32-sim processes, the real kubectl, and what the examples hold."""

import base64
import http.client
import json
import os
import signal
import ssl
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
import wasmtime
import yaml

ROOT = Path(__file__).resolve().parents[1]
BIN = Path(sys.executable).parent


@dataclass
class Process:
    """One kube32-sim: its ready file's facts, its log, its end."""

    name: str
    folder: Path
    popen: subprocess.Popen[bytes]
    facts: dict[str, Any] = field(default_factory=dict)

    @property
    def log(self) -> str:
        """What it printed so far."""
        return (self.folder / "log.txt").read_text()

    def stop(self, number: signal.Signals = signal.SIGTERM, timeout_s: float = 30) -> int:
        """Signals it and returns its exit code."""
        if self.popen.poll() is None:
            self.popen.send_signal(number)
        return self.popen.wait(timeout_s)


@dataclass
class SimCluster:
    """kube32-sim processes below one folder, and clients for them."""

    folder: Path
    processes: dict[str, Process] = field(default_factory=dict)

    def start(self, name: str, *arguments: str, wait: bool = True, timeout_s: float = 60) -> Process:
        """Starts kube32-sim --name NAME and waits until it is Ready."""
        folder = self.folder / name
        folder.mkdir(parents=True, exist_ok=True)
        ready = folder / "ready.json"
        ready.unlink(missing_ok=True)
        command = [
            str(BIN / "kube32-sim"),
            "--name",
            name,
            "--data-dir",
            str(folder),
            "--ready-file",
            str(ready),
        ]
        with (folder / "log.txt").open("ab") as log:
            popen = subprocess.Popen([*command, *arguments], stdout=log, stderr=log, start_new_session=True)
        process = Process(name, folder, popen)
        self.processes[name] = process
        deadline = time.monotonic() + timeout_s
        while wait and not ready.exists():
            assert popen.poll() is None and time.monotonic() < deadline, (
                f"{name} did not start:\n{process.log}"
            )
            time.sleep(0.02)
        if wait:
            process.facts = json.loads(ready.read_text())
        return process

    def control_plane(self, name: str = "control", *arguments: str) -> Process:
        """A control plane on a free port."""
        return self.start(name, "--listen", "127.0.0.1:0", *arguments)

    def worker(self, name: str, *arguments: str) -> Process:
        """A worker of the control plane "control"."""
        kubeconfig = self.folder / "control" / "worker.kubeconfig"
        return self.start(name, "--worker", "--kubeconfig", str(kubeconfig), *arguments)

    @property
    def kubeconfig(self) -> Path:
        """The admin's kubeconfig."""
        return self.folder / "control" / "kubeconfig"

    @property
    def environment(self) -> dict[str, str]:
        """For commands that find the cluster by KUBECONFIG; kubectl's cache stays in the folder."""
        home = self.folder / "home"
        home.mkdir(exist_ok=True)
        path = f"{BIN}{os.pathsep}{os.environ.get('PATH', '')}"
        return {
            **os.environ,
            "KUBECONFIG": str(self.kubeconfig),
            "HOME": str(home),
            "PATH": path,
            "COLUMNS": "200",
        }

    def run(
        self, *command: str, code: int | None = 0, stdin: str | None = None, timeout_s: float = 60
    ) -> str:
        """Runs a command; its stdout (and stderr, when another code than 0 is expected). `code` None: any."""
        done = subprocess.run(
            command,
            env=self.environment,
            cwd=ROOT,
            input=stdin,
            capture_output=True,
            text=True,
            timeout=timeout_s,
        )
        assert code is None or done.returncode == code, (
            f"{' '.join(command)}: exit code {done.returncode}\n{done.stdout}{done.stderr}"
        )
        return done.stdout if code == 0 else done.stdout + done.stderr

    def kubectl(self, *arguments: str, **options: Any) -> str:
        """Runs the real kubectl."""
        return self.run(str(BIN / "kubectl"), *arguments, **options)

    def cli(self, *arguments: str, **options: Any) -> str:
        """Runs kube32-cli."""
        return self.run(str(BIN / "kube32-cli"), *arguments, **options)

    def get(self, *arguments: str) -> Any:
        """`kubectl get ... -o json`, parsed."""
        return json.loads(self.kubectl("get", *arguments, "-o", "json"))

    @cached_property
    def access(self) -> tuple[str, int, str, ssl.SSLContext]:
        """Host, port, admin token and TLS context of the API server."""
        config = yaml.safe_load(self.kubeconfig.read_text())
        cluster, user = config["clusters"][0]["cluster"], config["users"][0]["user"]
        url = urlsplit(cluster["server"])
        ca = base64.b64decode(cluster["certificate-authority-data"]).decode()
        return str(url.hostname), int(url.port or 443), user["token"], ssl.create_default_context(cadata=ca)

    def http(
        self,
        method: str,
        path: str,
        body: bytes | None = None,
        headers: dict[str, str] | None = None,
        token: str | None = None,
        timeout_s: float = 60,
    ) -> tuple[int, dict[str, str], bytes]:
        """One request as it is, with the admin's token ("" for none): status, headers, body."""
        host, port, admin, context = self.access
        token = admin if token is None else token
        connection = http.client.HTTPSConnection(host, port, context=context, timeout=timeout_s)
        try:
            authorization = {"Authorization": f"Bearer {token}"} if token else {}
            connection.request(method, path, body, {**authorization, **(headers or {})})
            response = connection.getresponse()
            return response.status, dict(response.headers), response.read()
        finally:
            connection.close()

    def deploy_wat(self, tmp_path: Path, name: str, wat: str, *arguments: str, ready: bool = True) -> None:
        """Assembles a module and deploys it as pod `name`."""
        file = tmp_path / f"{name}.wasm"
        file.write_bytes(wasmtime.wat2wasm(wat))
        self.cli("deploy", str(file), "--name", name, *arguments)
        if ready:
            self.kubectl("wait", "--for=condition=Ready", f"pod/{name}", "--timeout=30s")

    def until(self, what: str, check: Callable[[], Any], timeout_s: float = 30) -> Any:
        """Waits until `check` gives something true and returns it."""
        deadline = time.monotonic() + timeout_s
        while True:
            found = check()
            if found:
                return found
            assert time.monotonic() < deadline, f"not within {timeout_s} s: {what}"
            time.sleep(0.05)

    def close(self) -> None:
        """Ends every process; one that does not end is killed and is a failure."""
        stuck = []
        for process in reversed(list(self.processes.values())):
            if process.popen.poll() is None:
                process.popen.send_signal(signal.SIGTERM)
        for process in self.processes.values():
            try:
                process.popen.wait(30)
            except subprocess.TimeoutExpired:
                process.popen.kill()
                stuck.append(process.name)
        assert not stuck, f"had to be killed: {stuck}"


@pytest.fixture(scope="session")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SimCluster]:
    """A control plane with two workers, for all tests that do not break it. node-a has resources to grant."""
    found = SimCluster(tmp_path_factory.mktemp("cluster"))
    try:
        found.control_plane()
        storage = found.folder / "storage"
        storage.mkdir()
        grants = ["--resource", "hardware.kube32.io/led=4", "--resource", "esp32.io/gpio=4", "--i2c", "2"]
        capabilities = ["--capability", "DISPLAY", "--capability", "SD"]
        found.worker("node-a", *grants, *capabilities, "--storage", str(storage), "--label", "zone=a")
        found.worker("node-b", "--label", "zone=b")
        yield found
    finally:
        found.close()


@pytest.fixture
def own_cluster(tmp_path: Path) -> Iterator[SimCluster]:
    """An empty cluster folder for a test that starts and breaks processes of its own."""
    found = SimCluster(tmp_path)
    try:
        yield found
    finally:
        found.close()
