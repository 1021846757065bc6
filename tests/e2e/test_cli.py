"""kube32-cli as a user types it: what works, and one clear line for what does not."""

import json
from pathlib import Path

import pytest

from tests.conftest import SimCluster

COUNTER = "examples/counter/counter.wasm"
ECHO = "examples/echo/echo.wasm"


def test_push_stores_a_module_and_says_what_it_is(cluster: SimCluster) -> None:
    assert "module/echo pushed" in cluster.cli("push", ECHO)
    module = json.loads(cluster.cli("push", ECHO, "--name", "echo-two", "-o", "json"))
    assert module["status"]["podKind"] == "request" and "k32_handle" in module["status"]["exports"]
    status, headers, data = cluster.http("GET", "/apis/kube32.io/v1/modules/echo-two/data")
    assert (status, data) == (200, Path(ECHO).read_bytes())
    assert headers["X-Kube32-Image-Sha256"] == module["status"]["sha256"]


def test_deploy_passes_its_options_into_the_pod(cluster: SimCluster) -> None:
    options = ["--env", "GREETING=hello=you", "--topics", "a,b", "--tick", "750ms", "--memory", "64Ki"]
    pod = json.loads(cluster.cli("deploy", ECHO, "--name", "opted", *options, "--embed", "-o", "json"))
    container = pod["spec"]["containers"][0]
    assert container["image"] == "wasm://embedded"
    assert container["env"] == [{"name": "GREETING", "value": "hello=you"}]
    assert container["resources"]["limits"]["memory"] == "64Ki"
    assert {"name": "tmp", "mountPath": "/tmp"} in container["volumeMounts"]
    annotations = pod["metadata"]["annotations"]
    assert annotations["kube32.io/topics"] == "a,b" and annotations["kube32.io/tick-interval"] == "750ms"
    cluster.kubectl("wait", "--for=condition=Ready", "pod/opted", "--timeout=30s")
    cluster.kubectl("delete", "pod", "opted")


def test_deploy_of_a_name_that_is_taken_is_refused(cluster: SimCluster) -> None:
    cluster.cli("deploy", ECHO, "--name", "twice")
    assert 'pods "twice" already exists' in cluster.cli("deploy", ECHO, "--name", "twice", code=1)
    cluster.kubectl("delete", "pod", "twice")


@pytest.mark.parametrize(
    ("content", "cause"),
    [
        (b"", "not a WebAssembly module"),
        (b"\0asm\1\0\0\0\1\xff", "ends too early"),
        (b"#!/bin/sh\n", "not a Web"),
    ],
    ids=["empty", "cut", "script"],
)
def test_push_of_a_file_that_is_no_module_names_the_cause(
    cluster: SimCluster, tmp_path: Path, content: bytes, cause: str
) -> None:
    file = tmp_path / "x.wasm"
    file.write_bytes(content)
    output = cluster.cli("push", str(file), code=2)
    assert cause in output and str(file) in output and len(output.splitlines()) == 1


def test_wrong_calls_end_with_2_and_one_line(cluster: SimCluster, tmp_path: Path) -> None:
    for arguments in (
        ["push", str(tmp_path / "none.wasm")],
        ["push", ECHO, "--name", "Not A Name"],
        ["deploy", ECHO, "--name", "x", "--env", "NOVALUE"],
        ["move", "x", "--to", "a", "--selector", "b=c"],
        ["inspect", str(tmp_path / "none.k32s")],
        ["--kubeconfig", str(tmp_path / "none"), "move", "x"],
        ["--context", "nowhere", "move", "x"],
        ["push", ECHO, "-o", "yaml"],
    ):
        output = cluster.cli(*arguments, code=2)
        assert len(output.splitlines()) == 1 and output.startswith("kube32-cli: "), output


def test_a_cluster_that_does_not_answer_is_named(cluster: SimCluster, tmp_path: Path) -> None:
    host, port, *_ = cluster.access
    broken = tmp_path / "kubeconfig"
    broken.write_text(cluster.kubeconfig.read_text().replace(f"{host}:{port}", "127.0.0.1:9"))
    output = cluster.cli("--kubeconfig", str(broken), "checkpoint", "x", code=2)
    assert "127.0.0.1:9 does not answer" in output and len(output.splitlines()) == 1


def test_a_snapshot_file_that_cannot_be_written_leaves_nothing_behind(
    cluster: SimCluster, tmp_path: Path
) -> None:
    cluster.cli("deploy", COUNTER, "--name", "unsaved", "--memory", "64Ki")
    cluster.kubectl("wait", "--for=condition=Ready", "pod/unsaved", "--timeout=30s")
    target = tmp_path / "missing" / "x.k32s"
    assert "No such file" in cluster.cli("checkpoint", "unsaved", "-o", str(target), code=2)
    assert list(tmp_path.iterdir()) == []
    cluster.kubectl("delete", "pod", "unsaved")


def test_move_speaks_json(cluster: SimCluster) -> None:
    cluster.cli("deploy", COUNTER, "--name", "spoken", "--memory", "64Ki", "--node", "node-a")
    cluster.kubectl("wait", "--for=condition=Ready", "pod/spoken", "--timeout=30s")
    done = json.loads(cluster.cli("move", "spoken", "--to", "node-b", "-o", "json"))
    assert done["status"]["phase"] == "Completed" and done["status"]["targetNode"] == "node-b"
    refused = json.loads(cluster.cli("move", "spoken", "--to", "node-b", "-o", "json", code=1))
    assert refused["status"]["phase"] == "Failed"
    cluster.kubectl("delete", "pod", "spoken")


@pytest.mark.parametrize("verb", ["push", "deploy", "checkpoint", "move", "inspect"])
def test_every_verb_has_help(cluster: SimCluster, verb: str) -> None:
    output = cluster.cli(verb, "--help")
    assert "Usage: kube32-cli" in output and verb in output
