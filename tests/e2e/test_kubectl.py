"""Everyday kubectl, as people type it: tables, writes, waits, logs, explanations, and clear refusals."""

import base64
import json
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import wasmtime

from tests.conftest import BIN, SimCluster

SPACE = "kubectl"
COUNTER = "examples/counter/counter.wasm"
WIDE_POD = "IP NODE NOMINATED_NODE READINESS_GATES"
WIDE_NODE = "INTERNAL-IP EXTERNAL-IP OS-IMAGE KERNEL-VERSION CONTAINER-RUNTIME"
# The columns that a real kube-apiserver prints, then those that -o wide adds: "plain|wide". For events the
# wide ones stand between the others. An underscore stands for a blank within a heading.
HEADINGS = {
    "pods": ("NAME READY STATUS RESTARTS AGE", f"NAME READY STATUS RESTARTS AGE {WIDE_POD}"),
    "nodes": ("NAME STATUS ROLES AGE VERSION", f"NAME STATUS ROLES AGE VERSION {WIDE_NODE}"),
    "namespaces": ("NAME STATUS AGE", "NAME STATUS AGE"),
    "configmaps": ("NAME DATA AGE", "NAME DATA AGE"),
    "secrets": ("NAME TYPE DATA AGE", "NAME TYPE DATA AGE"),
    "leases": ("NAME HOLDER AGE", "NAME HOLDER AGE"),
    "events": (
        "LAST_SEEN TYPE REASON OBJECT MESSAGE",
        "LAST_SEEN TYPE REASON OBJECT SUBOBJECT SOURCE MESSAGE FIRST_SEEN COUNT NAME",
    ),
    "modules": ("NAME SHA256 SIZE AGE", "NAME SHA256 SIZE AGE KIND EXPORTS"),
    "checkpoints": (
        "NAME POD ACTION PHASE NODE SIZE AGE",
        "NAME POD ACTION PHASE NODE SIZE AGE TARGET NEW_POD MESSAGE",
    ),
}
LAST_WORDS = """(module
  (import "env" "k32_log" (func $log (param i32 i32)))
  (memory (export "memory") 1)
  (data (i32.const 0) "last words")
  (func (export "_start") (call $log (i32.const 0) (i32.const 10)) unreachable))"""


class Kubectl:
    """kubectl in a namespace of its own."""

    def __init__(self, cluster: SimCluster) -> None:
        self.cluster = cluster

    def __call__(self, *arguments: str, **options: Any) -> str:
        return self.cluster.kubectl("-n", SPACE, *arguments, **options)

    def json(self, *arguments: str) -> Any:
        """`get ... -o json`, parsed."""
        return json.loads(self("get", *arguments, "-o", "json"))

    def make(self, *names: str, **labels: str) -> None:
        """ConfigMaps with one key."""
        for name in names:
            self("apply", "-f", "-", stdin=config_map(name, labels=labels))


def config_map(name: str, labels: dict[str, str] | None = None, **data: str) -> str:
    """A ConfigMap's manifest."""
    metadata = {"name": name, "labels": labels or {}}
    return json.dumps(
        {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": data or {"key": "value"}}
    )


def embedded_pod(name: str, wasm: bytes, **spec: Any) -> str:
    """The manifest of a pod that brings its module along."""
    annotations = {"kube32.io/wasm": base64.b64encode(wasm).decode()}
    container = {"name": "main", "image": "wasm://embedded", **spec.pop("container", {})}
    return json.dumps(
        {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": name, "annotations": annotations},
            "spec": {"containers": [container], **spec},
        }
    )


@pytest.fixture(scope="module")
def kubectl(cluster: SimCluster) -> Iterator[Kubectl]:
    """A namespace with an object of every kind in it."""
    cluster.kubectl("create", "namespace", SPACE)
    run = Kubectl(cluster)
    run.make("settings")
    run("create", "secret", "generic", "password", "--from-literal=word=sesame")
    flags = ["--memory", "64Ki", "--node", "node-a"]
    cluster.cli("-n", SPACE, "deploy", COUNTER, "--name", "shop", *flags)
    run("wait", "--for=condition=Ready", "pod/shop", "--timeout=30s")
    cluster.cli("-n", SPACE, "checkpoint", "shop")
    yield run
    cluster.kubectl("delete", "namespace", SPACE, "--wait=false")


def headings(line: str) -> list[str]:
    """The columns of a header line."""
    return [column.replace(" ", "_") for column in re.split(r" {2,}", line.strip())]


@pytest.mark.parametrize("plural", HEADINGS)
def test_tables_have_the_columns_of_a_real_api_server(kubectl: Kubectl, plural: str) -> None:
    space = ["-n", "kube-node-lease"] if plural == "leases" else []
    plain, wide = (columns.split() for columns in HEADINGS[plural])
    for columns, extra in ((plain, []), (wide, ["-o", "wide"])):
        output = kubectl("get", plural, *space, *extra)
        assert headings(output.splitlines()[0]) == columns
        assert len(output.splitlines()) > 1 and "<unknown>" not in output
    everywhere = kubectl("get", plural, "-A").splitlines()[0]
    namespaced = plural not in ("nodes", "namespaces", "modules")
    assert headings(everywhere) == (["NAMESPACE", *plain] if namespaced else plain)


def test_rows_say_what_is_the_case(kubectl: Kubectl) -> None:
    row = kubectl("get", "pod", "shop", "-o", "wide", "--no-headers").split()
    assert row[:4] == ["shop", "1/1", "Running", "0"] and row[6] == "node-a"
    assert kubectl("get", "cm", "settings", "--no-headers").split()[:2] == ["settings", "1"]
    assert kubectl("get", "secret", "password", "--no-headers").split()[:3] == ["password", "Opaque", "1"]
    assert kubectl("get", "node", "node-a", "--no-headers").split()[:3] == ["node-a", "Ready", "<none>"]
    assert kubectl("get", "ns", SPACE, "--no-headers").split()[:2] == [SPACE, "Active"]
    assert kubectl("get", "ckpt", "--no-headers").split()[1:5] == ["shop", "Save", "Saved", "node-a"]
    lease = kubectl("get", "lease", "node-a", "-n", "kube-node-lease", "--no-headers").split()
    assert lease[:2] == ["node-a", "node-a"]


def test_labels_selectors_and_sorting(kubectl: Kubectl) -> None:
    kubectl.make("sorted-c", "sorted-a", tier="one")
    kubectl.make("sorted-b", tier="two")
    shown = kubectl("get", "cm", "-l", "tier", "--show-labels")
    assert headings(shown.splitlines()[0])[-1] == "LABELS" and shown.count("tier=one") == 2
    column = kubectl("get", "cm", "-L", "tier", "-l", "tier in (two)").splitlines()
    assert headings(column[0]) == ["NAME", "DATA", "AGE", "TIER"] and column[1].split()[-1] == "two"
    ordered = kubectl("get", "cm", "-l", "tier", "--sort-by=.metadata.name", "-o", "name").split()
    assert ordered == [f"configmap/sorted-{letter}" for letter in "abc"]
    by_label = kubectl("get", "cm", "-l", "tier", "--sort-by=.metadata.labels.tier").splitlines()
    assert by_label[-1].startswith("sorted-b")
    named = kubectl("get", "cm", "--field-selector", "metadata.name=sorted-b", "-o", "name")
    assert named.split() == ["configmap/sorted-b"]
    paged = kubectl("get", "cm", "--chunk-size=1", "-l", "tier", "-o", "name").split()
    assert sorted(paged) == ordered
    kubectl("delete", "cm", "-l", "tier=one")
    assert kubectl("get", "cm", "-l", "tier", "-o", "name").split() == ["configmap/sorted-b"]


def test_several_kinds_at_once_and_all(kubectl: Kubectl) -> None:
    output = kubectl("get", "pods,cm,secrets,nodes")
    for row in ("pod/shop ", "configmap/settings ", "secret/password ", "node/node-a "):
        assert row in output
    columns = kubectl("get", "pods,cm", "-o", "custom-columns=KIND:.kind,NAME:.metadata.name")
    assert ["Pod", "shop"] in [line.split() for line in columns.splitlines()]
    assert "shop" in kubectl("get", "all")
    several = kubectl("get", "pod/shop", "cm/settings", "-o", "jsonpath={.items[*].metadata.name}")
    assert several == "shop settings"


def test_watched_rows_are_tables_too(kubectl: Kubectl) -> None:
    command = [str(BIN / "kubectl"), "-n", SPACE, "get", "pods", "-w", "--output-watch-events"]
    selector = ["--field-selector", "metadata.name=watched"]
    process = subprocess.Popen(
        [*command, *selector], env=kubectl.cluster.environment, stdout=subprocess.PIPE, text=True
    )
    try:
        manifest = embedded_pod("watched", kubectl_wasm(), nodeName="node-b")
        kubectl("apply", "-f", "-", stdin=manifest)
        kubectl("wait", "--for=condition=Ready", "pod/watched", "--timeout=30s")
        kubectl("delete", "pod", "watched", "--now")
        assert process.stdout is not None
        lines = []
        for line in process.stdout:
            lines.append(line.split())
            if line.startswith("DELETED"):
                break
    finally:
        process.kill()
        process.wait()
    assert lines[0] == ["EVENT", "NAME", "READY", "STATUS", "RESTARTS", "AGE"]
    assert lines[1][:3] == ["ADDED", "watched", "0/1"]
    assert any(line[:4] == ["MODIFIED", "watched", "1/1", "Running"] for line in lines)
    assert all(len(line) == 6 for line in lines[1:])


def kubectl_wasm() -> bytes:
    """A small request pod."""
    return Path(COUNTER).read_bytes()


def test_apply_patch_replace_label_annotate_and_edit(kubectl: Kubectl) -> None:
    def data() -> Any:
        return kubectl.json("cm", "changed")["data"]

    first = config_map("changed", a="1", b="2")
    assert "created" in kubectl("apply", "-f", "-", stdin=first)
    version = kubectl.json("cm", "changed")["metadata"]["resourceVersion"]
    assert "unchanged" in kubectl("apply", "-f", "-", stdin=first)
    assert kubectl.json("cm", "changed")["metadata"]["resourceVersion"] == version
    assert "configured" in kubectl("apply", "-f", "-", stdin=config_map("changed", a="1", c="3"))
    assert data() == {"a": "1", "c": "3"}
    kubectl("patch", "cm", "changed", "-p", '{"data":{"d":"4"}}')
    kubectl("patch", "cm", "changed", "--type=merge", "-p", '{"data":{"c":null}}')
    operations = [{"op": "test", "path": "/data/a", "value": "1"}, {"op": "remove", "path": "/data/a"}]
    kubectl("patch", "cm", "changed", "--type=json", "-p", json.dumps(operations))
    assert data() == {"d": "4"}
    wrong = kubectl("patch", "cm", "changed", "--type=json", "-p", json.dumps(operations), code=1)
    assert "Invalid" in wrong or "invalid" in wrong
    kubectl("label", "cm", "changed", "tier=one")
    kubectl("annotate", "cm", "changed", "note=seen")
    assert "--overwrite" in kubectl("label", "cm", "changed", "tier=two", code=1)
    metadata = kubectl.json("cm", "changed")["metadata"]
    assert metadata["labels"]["tier"] == "one" and metadata["annotations"]["note"] == "seen"
    kubectl("replace", "-f", "-", stdin=config_map("changed", e="former"))
    assert data() == {"e": "former"}
    assert "tier" not in kubectl.json("cm", "changed")["metadata"].get("labels", {})
    editor = {**kubectl.cluster.environment, "KUBE_EDITOR": "sed -i s/former/latter/"}
    edit = [str(BIN / "kubectl"), "-n", SPACE, "edit", "cm", "changed"]
    done = subprocess.run(edit, env=editor, capture_output=True, text=True, timeout=30)
    assert "configmap/changed edited" in done.stdout, done.stderr
    assert data() == {"e": "latter"}
    assert "already exists" in kubectl("create", "-f", "-", stdin=first, code=1)
    kubectl("delete", "cm", "changed")
    assert 'configmaps "changed" not found' in kubectl("get", "cm", "changed", code=1)


def test_strategic_patches_merge_lists_by_their_keys(kubectl: Kubectl) -> None:
    toleration = {"key": "extra", "operator": "Exists", "effect": "NoSchedule"}
    before = kubectl.json("pod", "shop")["spec"]["tolerations"]
    merged = json.dumps({"spec": {"tolerations": [*before, toleration]}})
    kubectl("patch", "pod", "shop", "-p", merged)
    condition = {"status": {"conditions": [{"type": "example.com/seen", "status": "True"}]}}
    kubectl("patch", "pod", "shop", "--subresource=status", "-p", json.dumps(condition))
    pod = kubectl.json("pod", "shop")
    assert toleration in pod["spec"]["tolerations"]
    types = {c["type"] for c in pod["status"]["conditions"]}
    assert {"Ready", "example.com/seen"} <= types


def test_a_dry_run_and_a_diff_store_nothing(kubectl: Kubectl) -> None:
    manifest = config_map("settings", key="another")
    before = kubectl.json("cm", "settings")
    output = kubectl("apply", "--dry-run=server", "-f", "-", stdin=manifest)
    assert "configured (server dry run)" in output
    shown = kubectl("diff", "-f", "-", stdin=manifest, code=1)
    assert "-  key: value" in shown and "+  key: another" in shown
    assert kubectl.json("cm", "settings") == before
    kubectl("diff", "-f", "-", stdin=config_map("settings"))
    kubectl("create", "--dry-run=server", "-f", "-", stdin=config_map("never"))
    assert "not found" in kubectl("get", "cm", "never", code=1)
    kubectl("delete", "--dry-run=server", "cm", "settings")
    assert kubectl.json("cm", "settings") == before


def test_an_unknown_field_is_named(kubectl: Kubectl) -> None:
    manifest = json.loads(embedded_pod("typo", kubectl_wasm()))
    manifest["spec"]["containers"][0]["imagee"] = "x"
    manifest["spec"]["nodename"] = "node-a"
    for validate in ("strict", "true"):
        output = kubectl("apply", f"--validate={validate}", "-f", "-", stdin=json.dumps(manifest), code=1)
        assert 'unknown field "spec.containers[0].imagee"' in output
        assert 'unknown field "spec.nodename"' in output
    assert "not found" in kubectl("get", "pod", "typo", code=1)
    command = [str(BIN / "kubectl"), "-n", SPACE, "create", "--validate=warn", "--dry-run=server", "-f", "-"]
    done = subprocess.run(
        command,
        env=kubectl.cluster.environment,
        input=json.dumps(manifest),
        capture_output=True,
        text=True,
        timeout=30,
    )
    assert done.returncode == 0 and 'Warning: unknown field "spec.nodename"' in done.stderr


def test_server_side_apply_follows_client_side_apply_without_conflicts(kubectl: Kubectl) -> None:
    kubectl("apply", "-f", "-", stdin=config_map("settings"))
    assert "serverside-applied" in kubectl("apply", "--server-side", "-f", "-", stdin=config_map("settings"))
    assert "unchanged" in kubectl("apply", "-f", "-", stdin=config_map("settings"))


def test_delete_and_wait_see_the_end_of_a_pod(kubectl: Kubectl) -> None:
    manifest = embedded_pod("brief", kubectl_wasm(), nodeName="node-a")
    kubectl("apply", "-f", "-", stdin=manifest)
    kubectl("wait", "--for=jsonpath={.status.phase}=Running", "pod/brief", "--timeout=30s")
    kubectl("delete", "pod", "brief", "--wait=false")
    kubectl("wait", "--for=delete", "pod/brief", "--timeout=30s")
    kubectl("apply", "-f", "-", stdin=manifest)
    kubectl("delete", "pod", "brief", "--now", timeout_s=15)
    kubectl("apply", "-f", "-", stdin=manifest)
    kubectl("delete", "pod", "brief", "--force", "--grace-period=0", timeout_s=15)
    assert "not found" in kubectl("get", "pod", "brief", code=1)
    assert "timed out" in kubectl("wait", "--for=delete", "pod/shop", "--timeout=1s", code=1)


@pytest.mark.parametrize(
    ("what", "words"),
    [
        ("pod/shop", ["Node: node-a/", "Status: Running", "Image: wasm://shop", "Pulled"]),
        ("node/node-a", ["HolderIdentity: node-a", "KubeletReady", "shop", "Allocatable:"]),
        ("namespace/kubectl", ["Status: Active"]),
        ("cm/settings", ["key:", "value"]),
        ("secret/password", ["word: 6 bytes"]),
        ("ckpt", ["Pod Name: shop", "Phase: Saved", "Size Bytes:"]),
        ("module/shop", ["Pod Kind: request", "k32_handle"]),
    ],
)
def test_describe_tells_of_every_kind(kubectl: Kubectl, what: str, words: list[str]) -> None:
    output = re.sub(r"[ \t]+", " ", kubectl("describe", what))
    assert "<unknown>" not in output
    for word in words:
        assert word in output


def test_logs_follow_to_the_end_cut_and_stamp(kubectl: Kubectl) -> None:
    entry = Path("examples/entry/entry.wasm").read_bytes()
    container = {"env": [{"name": "BEATS", "value": "2"}]}
    manifest = embedded_pod("beats", entry, restartPolicy="Never", nodeName="node-a", container=container)
    kubectl("apply", "-f", "-", stdin=manifest)
    kubectl.cluster.until(
        "a started container",
        lambda: kubectl("get", "pod", "beats", "-o", "jsonpath={.status.phase}") in ("Running", "Succeeded"),
    )
    assert kubectl("logs", "-f", "beats").splitlines() == ["beat 1", "beat 2"]
    assert kubectl("logs", "beats", "--tail=1") == "beat 2\n"
    assert kubectl("logs", "beats", "--limit-bytes=4") == "beat"
    stamped = kubectl("logs", "beats", "-c", "main", "--timestamps").splitlines()
    assert all(re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d+Z beat \d", line) for line in stamped)
    assert kubectl("logs", "beats", "--since=1h").count("beat") == 2
    assert kubectl("logs", "--since-time=2999-01-01T00:00:00Z", "beats") == ""
    assert "container other is not valid for pod beats" in kubectl("logs", "beats", "-c", "other", code=1)
    none = kubectl("logs", "beats", "--previous", code=1)
    assert 'previous terminated container "main" in pod "beats" not found' in none
    kubectl("delete", "pod", "beats", "--now")


def test_logs_of_the_previous_container_are_its_last_words(kubectl: Kubectl) -> None:
    wasm = bytes(wasmtime.wat2wasm(LAST_WORDS))
    kubectl("apply", "-f", "-", stdin=embedded_pod("dying", wasm, nodeName="node-b"))
    kubectl.cluster.until(
        "a restart",
        lambda: kubectl("get", "pod", "dying", "-o", "jsonpath={.status.containerStatuses[0].lastState}"),
    )
    assert kubectl("logs", "dying", "--previous").strip() == "last words"
    row = kubectl("get", "pod", "dying", "--no-headers").split()
    assert row[2] in ("Error", "CrashLoopBackOff", "Running")
    kubectl("delete", "pod", "dying", "--now")


def test_explain_and_discovery_need_no_fallback(kubectl: Kubectl) -> None:
    for what, words in {
        "pod.spec.containers": ["image", "volumeMounts", "-required-"],
        "checkpoint.spec": ["podName", "enum: Save, Move"],
        "ckpt.status.phase": ["FIELD: phase"],
        "module": ["GROUP:      kube32.io"],
        "lease.spec": ["holderIdentity"],
        "node.status.conditions": ["lastHeartbeatTime"],
    }.items():
        output = kubectl("explain", what)
        assert all(word in output for word in words), output
        assert "openapi" not in output
    assert "image\t<string>" in kubectl("explain", "pod", "--recursive")
    resources = kubectl("api-resources", "-o", "wide")
    for row in (
        r"pods +po +v1 +true +Pod +create,delete,deletecollection,get,list,patch,update,watch +all",
        r"checkpoints +ckpt +kube32.io/v1 +true +Checkpoint ",
        r"modules +mod +kube32.io/v1 +false +Module ",
        r"leases +coordination.k8s.io/v1 +true +Lease ",
    ):
        assert re.search(row, resources), resources
    served = kubectl("api-versions").split()
    assert {
        "apps/v1",
        "batch/v1",
        "coordination.k8s.io/v1",
        "kube32.io/v1",
        "metrics.k8s.io/v1beta1",
        "v1",
    } <= set(served)
    version = kubectl("version")
    assert "Server Version: v1." in version and "WARNING" not in version


def test_raw_paths_answer(kubectl: Kubectl) -> None:
    assert [kubectl("get", "--raw", path) for path in ("/healthz", "/livez", "/readyz")] == ["ok"] * 3
    assert "check passed" in kubectl("get", "--raw", "/readyz?verbose")
    assert json.loads(kubectl("get", "--raw", "/version"))["major"] == "1"
    assert json.loads(kubectl("get", "--raw", "/openapi/v3"))["paths"]


@pytest.mark.parametrize(
    "command",
    [
        ["exec", "shop", "--", "ls"],
        ["exec", "-it", "shop", "--", "sh"],
        ["attach", "shop"],
        ["cp", "pyproject.toml", "shop:/tmp/x"],
    ],
    ids=["exec", "shell", "attach", "cp"],
)
def test_what_needs_a_process_in_the_pod_is_refused_with_a_sentence(
    kubectl: Kubectl, command: list[str]
) -> None:
    output = kubectl(*command, code=1)
    assert "pods are WebAssembly modules without processes or a shell" in output


def test_cordon_and_taint_show_in_the_table(kubectl: Kubectl) -> None:
    kubectl("cordon", "node-b")
    try:
        assert "Ready,SchedulingDisabled" in kubectl("get", "node", "node-b")
    finally:
        kubectl("uncordon", "node-b")
    kubectl("taint", "node", "node-b", "only=some:NoSchedule")
    assert kubectl.json("node", "node-b")["spec"]["taints"][0]["key"] == "only"
    kubectl("taint", "node", "node-b", "only-")
    assert "taints" not in kubectl.json("node", "node-b")["spec"]


@pytest.mark.parametrize(
    ("command", "message"),
    [
        (["get", "pod", "ghost"], 'Error from server (NotFound): pods "ghost" not found'),
        (["get", "widgets"], 'the server doesn\'t have a resource type "widgets"'),
        (["get", "pods", "--token=wrong"], "must be logged in to the server"),
        (["delete", "node", "ghost"], 'nodes "ghost" not found'),
        (["label", "cm", "settings", "no spaces=x"], "name part must consist of"),
        (["create", "namespace", "Bad_Name"], "Invalid value"),
        (["get", "pods", "-l", "a in b"], "unable to parse"),
        (["get", "pods", "--field-selector", "spec.colour=red"], "field label not supported"),
    ],
    ids=lambda value: value[1] if isinstance(value, list) else "",
)
def test_mistakes_get_the_usual_message(kubectl: Kubectl, command: list[str], message: str) -> None:
    assert message in kubectl(*command, code=1)


def test_an_invalid_pod_names_field_value_and_rule(kubectl: Kubectl) -> None:
    manifest = json.loads(embedded_pod("wrong", kubectl_wasm()))
    manifest["spec"]["containers"][0]["resources"] = {"limits": {"memory": "much"}}
    manifest["spec"]["restartPolicy"] = "Sometimes"
    output = kubectl("apply", "-f", "-", stdin=json.dumps(manifest), code=1)
    assert 'Pod "wrong" is invalid' in output or "quantities must match" in output
    manifest["spec"]["containers"][0]["resources"] = {}
    output = kubectl("apply", "-f", "-", stdin=json.dumps(manifest), code=1)
    assert 'The Pod "wrong" is invalid: spec.restartPolicy: Unsupported value: "Sometimes"' in output


def test_a_namespace_takes_its_objects_with_it(kubectl: Kubectl) -> None:
    kubectl("create", "namespace", "passing")
    kubectl("apply", "-n", "passing", "-f", "-", stdin=config_map("inside"))
    manifest = embedded_pod("inside", kubectl_wasm())
    kubectl("apply", "-n", "passing", "-f", "-", stdin=manifest)
    kubectl("delete", "namespace", "passing", "--timeout=40s")
    assert "not found" in kubectl("get", "namespace", "passing", code=1)
    assert kubectl("get", "pods,cm", "-n", "passing", "-o", "name") == ""
