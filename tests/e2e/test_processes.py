"""kube32-sim as a process: its start, its refusals to start, its end, its restarts, and who gets in."""

import json
import re
import shlex
import signal
import socket
import ssl
import stat
import subprocess
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import BIN, SimCluster
from tests.e2e.raw import Api, assert_status

SIM = str(BIN / "kube32-sim")
COUNTER = "examples/counter/counter.wasm"
ENTRY = "examples/entry/entry.wasm"
DOOMED = "doomed"


@pytest.fixture(scope="module")
def own(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SimCluster]:
    """A control plane with the workers `solo` and `doomed`; the latter was killed at the start."""
    found = SimCluster(tmp_path_factory.mktemp("processes"))
    try:
        found.control_plane()
        found.worker("solo")
        doomed = found.worker(DOOMED)
        doomed.popen.kill()
        doomed.popen.wait()
        yield found
    finally:
        found.close()


def mode(path: Path) -> int:
    """The permission bits."""
    return stat.S_IMODE(path.stat().st_mode)


def refused(*arguments: str, timeout_s: float = 30) -> str:
    """What a kube32-sim that does not start says: one line, exit code 2, nothing on stdout."""
    done = subprocess.run([SIM, *arguments], capture_output=True, text=True, timeout=timeout_s)
    assert done.returncode == 2, done
    assert done.stdout == "" and len(done.stderr.splitlines()) == 1, done
    assert done.stderr.startswith("kube32-sim: ")
    return done.stderr


def test_the_start_is_one_line_with_the_url_and_the_export_to_type(own: SimCluster) -> None:
    control = own.processes["control"]
    lines = control.log.splitlines()
    assert len(lines) == 1
    url = control.facts["url"]
    kubeconfig = control.folder / "kubeconfig"
    assert lines[0] == f"kube32-sim: serving {url}; export KUBECONFIG={kubeconfig}"
    export = lines[0].partition("; ")[2]
    kubectl = shlex.quote(str(BIN / "kubectl"))
    typed = subprocess.run(
        ["/bin/sh", "-c", f"{export}\n{kubectl} get node control -o name"],
        capture_output=True,
        text=True,
        env={"HOME": str(own.folder), "PATH": "/usr/bin:/bin"},
    )
    assert typed.stdout == "node/control\n", typed.stderr
    assert len(own.processes["solo"].log.splitlines()) == 1


def test_what_lies_on_disk_is_the_users_alone(own: SimCluster) -> None:
    folder = own.folder / "control"
    for name in ("kubeconfig", "worker.kubeconfig", "ready.json", "lock"):
        assert mode(folder / name) == 0o600
    keys = [*(folder / "pki").iterdir(), own.folder / "solo" / "node" / "credentials.json"]
    assert len(keys) > 3 and all(mode(path) == 0o600 for path in keys)
    assert mode(folder / "pki") == 0o700
    admin, worker = (Api.of(folder / name).token for name in ("kubeconfig", "worker.kubeconfig"))
    assert admin not in (folder / "worker.kubeconfig").read_text() and admin != worker


def test_a_port_that_is_taken_is_named_with_what_to_do(own: SimCluster, tmp_path: Path) -> None:
    listen = own.processes["control"].facts["url"].removeprefix("https://")
    output = refused("--name", "second", "--listen", listen, "--data-dir", str(tmp_path))
    assert f"{listen} is in use; choose another with --listen" in output


def test_a_data_directory_serves_one_process(own: SimCluster) -> None:
    folder = str(own.folder / "control")
    output = refused("--name", "second", "--listen", "127.0.0.1:0", "--data-dir", folder)
    assert f"is in use by process {own.processes['control'].popen.pid}" in output
    assert "choose another --data-dir" in output


def test_a_directory_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    for place in (tmp_path / "file" / "below", Path("/proc/kube32")):
        output = refused("--name", "x", "--listen", "127.0.0.1:0", "--data-dir", str(place))
        assert f"--data-dir {place}" in output and "choose another directory" in output


@pytest.mark.parametrize("name", ["solo", "control"])
def test_a_worker_cannot_take_the_name_of_a_live_node(own: SimCluster, tmp_path: Path, name: str) -> None:
    kubeconfig = str(own.folder / "control" / "worker.kubeconfig")
    output = refused("--worker", "--name", name, "--kubeconfig", kubeconfig, "--data-dir", str(tmp_path))
    assert f"a node named {name} is alive; join under another name" in output


def test_a_worker_names_what_is_wrong_with_its_kubeconfig(own: SimCluster, tmp_path: Path) -> None:
    text = (own.folder / "control" / "worker.kubeconfig").read_text()
    port = own.processes["control"].facts["url"].rpartition(":")[2]
    faults: dict[str, tuple[str | None, list[str]]] = {
        "missing": (None, ["missing.kubeconfig", "No such file"]),
        "garbage": ("no: [kubeconfig", ["garbage.kubeconfig"]),
        "no-server": (re.sub(r"server: .*", "", text), ["no-server.kubeconfig", "server"]),
        "nobody": (text.replace(f":{port}", ":1"), ["https://127.0.0.1:1", "is the control plane running?"]),
        "token": (
            re.sub(r"token: .*", "token: wrong", text),
            ["does not let this node join", "Unauthorized"],
        ),
    }

    def start(fault: str) -> str:
        path = tmp_path / f"{fault}.kubeconfig"
        content = faults[fault][0]
        if content is not None:
            path.write_text(content)
        data_dir = str(tmp_path / fault)
        return refused("--worker", "--name", "x", "--kubeconfig", str(path), "--data-dir", data_dir)

    with ThreadPoolExecutor() as pool:
        for fault, output in zip(faults, pool.map(start, faults), strict=True):
            assert all(word in output for word in faults[fault][1]), (fault, output)


def test_a_wrong_flag_is_named_with_its_value(tmp_path: Path) -> None:
    flags = {
        '--listen "6443": give HOST:PORT': ["--listen", "6443"],
        '--name "No_Name"': ["--name", "No_Name"],
        "--worker needs --kubeconfig FILE": ["--worker"],
        "the profiles are sim, board-psram, board": ["--profile", "huge"],
        "--label": ["--listen", "127.0.0.1:0", "--label", "a b=c"],
        "give one of DISPLAY": ["--listen", "127.0.0.1:0", "--capability", "WIFI"],
    }

    def start(words: str) -> str:
        data_dir = tmp_path / str(list(flags).index(words))
        return refused("--data-dir", str(data_dir), *flags[words])

    with ThreadPoolExecutor() as pool:
        for words, output in zip(flags, pool.map(start, flags), strict=True):
            assert words in output


def test_ctrl_c_ends_a_cluster_in_order(own_cluster: SimCluster) -> None:
    control = own_cluster.control_plane()
    worker = own_cluster.worker("helper")
    own_cluster.cli("deploy", COUNTER, "--name", "left", "--node", "helper")
    own_cluster.kubectl("wait", "--for=condition=Ready", "pod/left", "--timeout=30s")
    watcher = subprocess.Popen(
        [str(BIN / "kubectl"), "get", "pods", "-w"],
        env=own_cluster.environment,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        api = Api.of(own_cluster.kubeconfig)
        with api.watching("/api/v1/namespaces/default/pods?watch=1&resourceVersion=0") as events:
            next(events)
            assert worker.stop(signal.SIGINT, 40) == 0
            assert control.stop(signal.SIGINT, 20) == 0
            for _ in events:  # The open watch ends as it should, with its last chunk.
                pass
    finally:
        watcher.kill()
        watcher.wait()
    for process in (control, worker):
        assert "Traceback" not in process.log, process.log
    assert control.log.splitlines()[-1] == "kube32-sim: stopping"


def test_a_control_plane_that_comes_again_knows_its_users(own_cluster: SimCluster) -> None:
    port = socket_port()
    control = own_cluster.start("control", "--listen", f"127.0.0.1:{port}")
    before = own_cluster.kubeconfig.read_text()
    control.popen.kill()
    control.popen.wait()
    own_cluster.start("control", "--listen", f"127.0.0.1:{port}")
    assert own_cluster.kubeconfig.read_text() == before
    assert own_cluster.kubectl("get", "nodes", "-o", "name") == "node/control\n"


def socket_port() -> int:
    """A free port of loopback."""
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        return int(sock.getsockname()[1])


def test_a_worker_that_comes_again_is_the_same_node(own: SimCluster) -> None:
    def uid() -> Any:
        return own.get("node", "solo")["metadata"]["uid"]

    before = uid()
    for number in (signal.SIGKILL, signal.SIGTERM):
        process = own.processes["solo"]
        process.popen.send_signal(number)
        process.popen.wait(40)
        own.worker("solo")
        assert uid() == before
        assert "Ready" in own.kubectl("get", "node", "solo", "--no-headers").split()[1]
    own.cli("deploy", COUNTER, "--name", "again", "--node", "solo")
    own.kubectl("wait", "--for=condition=Ready", "pod/again", "--timeout=30s")
    own.kubectl("delete", "pod", "again", "--now")


# --- who gets in ---

PATHS = [
    "/",
    "/api",
    "/api/v1",
    "/apis",
    "/apis/kube32.io/v1",
    "/openapi/v2",
    "/openapi/v3",
    "/openapi/v3/api/v1",
    "/metrics",
    "/api/v1/pods",
    "/api/v1/pods?watch=1",
    "/api/v1/secrets",
    "/api/v1/namespaces/default/pods/x/log",
    "/api/v1/namespaces/default/pods/x/proxy/",
    "/api/v1/nodes/node-a/proxy/pods",
    "/apis/kube32.io/v1/modules/x/data",
    "/apis/kube32.io/v1/namespaces/default/checkpoints/x/data",
    "/apis/kube32.io/v1/namespaces/default/topics/x",
    "/apis/kube32.io/v1/join",
    "/healthz/etcd",
    "/healthz/../api/v1/secrets",
    "/nowhere",
]


@pytest.fixture(scope="module")
def api(cluster: SimCluster) -> Api:
    """The server of the session's cluster, as the admin."""
    return Api.of(cluster.kubeconfig)


def test_without_a_credential_nothing_but_health_and_the_version_answer(api: Api) -> None:
    anonymous = api.with_token(None)
    for path in ("/healthz", "/livez", "/readyz", "/readyz?verbose", "/version"):
        assert anonymous.ask("GET", path).status == 200
    for path in PATHS:
        for method in ("GET", "POST", "PUT", "PATCH", "DELETE", "HEAD", "OPTIONS", "PROPFIND"):
            answer = anonymous.ask(method, path, body=b"{}" if method in ("POST", "PUT", "PATCH") else None)
            assert answer.status in (400, 403, 405), (method, path, answer)
            if answer.status == 403 and method != "HEAD":
                assert 'User "system:anonymous" cannot' in assert_status(answer, 403, "Forbidden")["message"]


@pytest.mark.parametrize(
    "credential",
    [
        "Bearer wrong",
        "Bearer ",
        "Bearer",
        "Basic YWRtaW46YWRtaW4=",
        "bearer\twrong",
        "Bearer " + "x" * 4000,
        "Token \u00e9",
    ],
)
def test_a_wrong_credential_is_none(api: Api, credential: str) -> None:
    anonymous = api.with_token(None)
    for path in ("/api/v1/secrets", "/version"):
        header = {"Authorization": credential.encode("latin-1").decode("latin-1")}
        assert_status(anonymous.ask("GET", path, headers=header), 401, "Unauthorized")


def test_the_right_token_in_any_case_of_its_scheme(api: Api) -> None:
    anonymous = api.with_token(None)
    for scheme in ("Bearer", "bearer", "BEARER"):
        header = {"Authorization": f"{scheme} {api.token}"}
        assert anonymous.ask("GET", "/version", headers=header).status == 200


def test_the_join_token_joins_and_nothing_else(cluster: SimCluster) -> None:
    joiner = Api.of(cluster.folder / "control" / "worker.kubeconfig")
    for method, path in (
        ("GET", "/api/v1/pods"),
        ("GET", "/api/v1/nodes/node-a"),
        ("POST", "/api/v1/namespaces/default/configmaps"),
        ("GET", "/apis/kube32.io/v1/modules/x/data"),
        ("DELETE", "/api/v1/nodes/node-a"),
    ):
        answer = joiner.ask(method, path, body={} if method == "POST" else None)
        assert_status(answer, 403, "Forbidden")
    assert joiner.ask("POST", "/apis/kube32.io/v1/join", {"spec": {}}).status in (400, 422)


def test_a_nodes_token_reaches_its_own_things_only(cluster: SimCluster, api: Api) -> None:
    credentials = json.loads((cluster.folder / "node-a" / "node" / "credentials.json").read_text())
    node = api.with_token(credentials["token"])
    secret = {"metadata": {"name": "guarded"}, "data": {}}
    assert api.ask("POST", "/api/v1/namespaces/default/secrets", secret).status == 201
    pods = "/api/v1/namespaces/default/pods"
    kube32 = "/apis/kube32.io/v1"
    leases = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases"
    merge = {"Content-Type": "application/merge-patch+json"}
    pod = {"metadata": {"name": "x"}, "spec": {"containers": [{"name": "x", "image": "wasm://x"}]}}
    for method, path, body in (
        ("GET", "/api/v1/secrets", None),
        ("GET", "/api/v1/namespaces/default/secrets/guarded", None),
        ("POST", pods, pod),
        ("DELETE", "/api/v1/nodes/node-b", None),
        ("PATCH", "/api/v1/nodes/node-b/status", {"status": {"conditions": []}}),
        ("PATCH", "/api/v1/nodes/node-b", {"spec": {"unschedulable": True}}),
        ("PATCH", f"{leases}/node-b", {"spec": {"holderIdentity": "node-a"}}),
        ("GET", "/api/v1/nodes/node-b/proxy/pods", None),
        ("GET", "/api/v1/nodes/node-a/proxy/pods", None),
        ("GET", f"{pods}/x/proxy/", None),
        ("POST", f"{pods}/x/binding", {"target": {"name": "node-a"}}),
        ("POST", f"{pods}/x/replacement", {}),
        ("POST", f"{kube32}/namespaces/default/checkpoints", {"spec": {"podName": "x"}}),
        ("GET", f"{kube32}/namespaces/default/checkpoints/x/data", None),
        ("PUT", f"{kube32}/namespaces/default/checkpoints/x/data", {}),
        ("POST", f"{kube32}/modules", {"metadata": {"name": "x"}}),
        ("PUT", f"{kube32}/modules/x/data", {}),
        ("POST", "/api/v1/namespaces", {"metadata": {"name": "x"}}),
        ("DELETE", f"{pods}", None),
    ):
        answer = node.ask(method, path, body, merge if method == "PATCH" else None)
        assert answer.status == 403, (method, path, answer)
        status = assert_status(answer, 403, "Forbidden")
        assert "system:node:node-a" in status["message"] or "node" in status["message"]
    assert node.ask("GET", "/api/v1/nodes/node-a").status == 200
    assert node.ask("GET", f"{leases}/node-a").status == 200
    assert node.ask("GET", "/api/v1/pods?fieldSelector=spec.nodeName=node-a").status == 200
    api.ask("DELETE", "/api/v1/namespaces/default/secrets/guarded")


def kubelet_port(cluster: SimCluster, node: str) -> int:
    """Where the node's kubelet listens, as the Node says."""
    return int(cluster.get("node", node)["status"]["daemonEndpoints"]["kubeletEndpoint"]["Port"])


def ask_kubelet(port: int, path: str, certificate: Path | None) -> bytes:
    """The raw answer to a GET, b"" when the connection was ended without one."""
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    if certificate is not None:
        context.load_cert_chain(certificate)
    answer = b""
    try:
        with (
            socket.create_connection(("127.0.0.1", port), 10) as plain,
            context.wrap_socket(plain, server_hostname="127.0.0.1") as tls,
        ):
            tls.sendall(f"GET {path} HTTP/1.1\r\nHost: kubelet\r\nConnection: close\r\n\r\n".encode())
            while data := tls.recv(65536):
                answer += data
    except (ssl.SSLError, ConnectionError):
        pass
    return answer


def test_a_kubelet_answers_the_api_servers_certificate_only(cluster: SimCluster, tmp_path: Path) -> None:
    port = kubelet_port(cluster, "node-a")
    own = tmp_path / "own.pem"
    credentials = json.loads((cluster.folder / "node-b" / "node" / "credentials.json").read_text())
    own.write_text(credentials["key_pem"] + credentials["cert_pem"])
    serving = tmp_path / "serving.pem"
    serving.write_text(credentials["serving_key_pem"] + credentials["serving_cert_pem"])
    pki = cluster.folder / "control" / "pki"
    for path in ("/pods", "/healthz", "/containerLogs/default/x/x"):
        assert ask_kubelet(port, path, None) == b""
        for certificate in (own, serving, pki / "apiserver.pem"):
            head = ask_kubelet(port, path, certificate).partition(b"\r\n")[0]
            assert head == b"" or b" 403 " in head or b" 401 " in head, (certificate.name, head)
    answer = ask_kubelet(port, "/pods", pki / "apiserver-kubelet-client.pem")
    assert answer.startswith(b"HTTP/1.1 200") and b"PodList" in answer
    assert cluster.kubectl("get", "--raw", "/api/v1/nodes/node-a/proxy/healthz") == "ok"


def test_a_killed_worker_becomes_not_ready_and_ready_again(own: SimCluster) -> None:
    def condition() -> dict[str, Any]:
        conditions = own.get("node", DOOMED)["status"]["conditions"]
        return {c["type"]: c for c in conditions}["Ready"]

    own.until("a lost node", lambda: condition()["status"] == "Unknown", timeout_s=60)
    assert condition()["reason"] == "NodeStatusUnknown"
    assert own.kubectl("get", "node", DOOMED, "--no-headers").split()[1] == "NotReady"
    assert own.kubectl("get", "node", "solo", "--no-headers").split()[1] == "Ready"
    begun = time.monotonic()
    own.worker(DOOMED)
    own.until("a node that is back", lambda: condition()["status"] == "True", timeout_s=30)
    assert time.monotonic() - begun < 30
