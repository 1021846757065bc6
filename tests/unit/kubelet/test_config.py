"""Environment and volumes: values, references, fields; what is missing is said in the kubelet's words."""

from pathlib import Path
from typing import Any

import pytest

from kube32.contract import LIMITS, Limits
from kube32.kubelet.config import expand

READS_ENV = """
(module
  (import "env" "k32_env" (func $env (param i32 i32 i32 i32) (result i32)))
  (import "env" "k32_req_query" (func $query (param i32 i32) (result i32)))
  (import "env" "k32_resp_write" (func $write (param i32 i32) (result i32)))
  (memory (export "memory") 1)
  (func (export "k32_handle") (local i32)
    (local.set 0
      (call $env (i32.const 0) (call $query (i32.const 0) (i32.const 256)) (i32.const 512) (i32.const 512)))
    (if (i32.ge_s (local.get 0) (i32.const 0)) (then (drop (call $write (i32.const 512) (local.get 0)))))))
"""
READS_FILE = """
(module
  (import "env" "k32_fs_open" (func $open (param i32 i32 i32) (result i32)))
  (import "env" "k32_fs_read" (func $read (param i32 i32 i32) (result i32)))
  (import "env" "k32_fs_close" (func $close (param i32) (result i32)))
  (import "env" "k32_req_query" (func $query (param i32 i32) (result i32)))
  (import "env" "k32_resp_write" (func $write (param i32 i32) (result i32)))
  (memory (export "memory") 1)
  (func (export "k32_handle") (local i32)
    (local.set 0 (call $open (i32.const 0) (call $query (i32.const 0) (i32.const 256)) (i32.const 1)))
    (if (i32.gt_s (local.get 0) (i32.const 0)) (then
      (drop (call $write (i32.const 512) (call $read (local.get 0) (i32.const 512) (i32.const 512))))
      (drop (call $close (local.get 0)))))))
"""

# Opens the file at its first request and reads it again, from the beginning, at each.
KEEPS_OPEN = """
(module
  (import "env" "k32_fs_open" (func $open (param i32 i32 i32) (result i32)))
  (import "env" "k32_fs_read" (func $read (param i32 i32 i32) (result i32)))
  (import "env" "k32_fs_seek" (func $seek (param i32 i32 i32) (result i32)))
  (import "env" "k32_resp_write" (func $write (param i32 i32) (result i32)))
  (memory (export "memory") 1)
  (data (i32.const 0) "/v/note")
  (global $file (mut i32) (i32.const 0))
  (func (export "k32_handle")
    (if (i32.eqz (global.get $file)) (then
      (global.set $file (call $open (i32.const 0) (i32.const 7) (i32.const 1)))))
    (drop (call $seek (global.get $file) (i32.const 0) (i32.const 0)))
    (drop (call $write (i32.const 512) (call $read (global.get $file) (i32.const 512) (i32.const 512))))))
"""


@pytest.fixture
def limits() -> Limits:
    return LIMITS.replace(pod_image_retry_ms=50, volume_refresh_ms=50)


def config_map(bench: Any, name: str = "conf", **data: str) -> None:
    """A ConfigMap."""
    bench.cluster.put("ConfigMap", {"metadata": {"name": name}, "data": data, "spec": {}}, "default")


async def env_of(node: Any, pod: str, name: str) -> str:
    """A variable as the pod sees it."""
    return str((await node.get(f"/proxy/default/{pod}/?{name}")).body.decode())


async def test_the_environment_comes_from_values_references_and_fields(bench: Any) -> None:
    node = await bench.node()
    config_map(bench, mode="fast", size="3")
    secret = {"metadata": {"name": "keys"}, "data": {"token": "czNjcmV0"}, "spec": {}}
    bench.cluster.put("Secret", secret, "default")

    def ref(kind: str, **what: Any) -> dict[str, Any]:
        return {"valueFrom": {kind: what}}

    env = [
        {"name": "PLAIN", "value": "a"},
        {"name": "JOINED", "value": "$(PLAIN)-$(NONE)-$$(PLAIN)"},
        {"name": "MODE", **ref("configMapKeyRef", name="conf", key="mode")},
        {"name": "TOKEN", **ref("secretKeyRef", name="keys", key="token")},
        {"name": "GONE", **ref("secretKeyRef", name="nope", key="token", optional=True)},
        {"name": "POD", **ref("fieldRef", fieldPath="metadata.name")},
        {"name": "NODE", **ref("fieldRef", fieldPath="spec.nodeName")},
        {"name": "IP", **ref("fieldRef", fieldPath="status.podIP")},
        {"name": "APP", **ref("fieldRef", fieldPath="metadata.labels['app']")},
    ]
    container = {"env": env, "envFrom": [{"prefix": "C_", "configMapRef": {"name": "conf"}}]}
    await bench.running("env", READS_ENV, container=container, labels={"app": "shop"})
    wanted = {
        "PLAIN": "a",
        "JOINED": "a-$(NONE)-$(PLAIN)",
        "MODE": "fast",
        "TOKEN": "s3cret",
        "GONE": "",
        "POD": "env",
        "NODE": "one",
        "IP": "127.0.0.1",
        "APP": "shop",
        "C_size": "3",
    }
    assert {name: await env_of(node, "env", name) for name in wanted} == wanted


def test_expansion_follows_kubernetes() -> None:
    assert expand("$(A)$(B)$$(A)$A$", {"A": "1"}) == "1$(B)$(A)$A$"


@pytest.mark.parametrize(
    ("env", "message"),
    [
        ({"configMapKeyRef": {"name": "conf", "key": "k"}}, 'configmap "conf" not found'),
        ({"secretKeyRef": {"name": "keys", "key": "k"}}, 'secret "keys" not found'),
        (
            {"configMapKeyRef": {"name": "there", "key": "k"}},
            "couldn't find key k in ConfigMap default/there",
        ),
        ({"fieldRef": {"fieldPath": "spec.secrets"}}, "unsupported fieldPath: spec.secrets"),
    ],
)
async def test_a_missing_reference_is_a_config_error_in_the_kubelets_words(
    bench: Any, env: dict[str, Any], message: str
) -> None:
    await bench.node()
    config_map(bench, "there", other="x")
    bench.pod("env", READS_ENV, container={"env": [{"name": "X", "valueFrom": env}]})
    assert (await bench.until_waiting("env", "CreateContainerConfigError"))["message"] == message


async def test_a_config_map_that_appears_starts_the_pod(bench: Any) -> None:
    await bench.node()
    env = [{"name": "X", "valueFrom": {"configMapKeyRef": {"name": "conf", "key": "k"}}}]
    bench.pod("env", READS_ENV, container={"env": env})
    await bench.until_waiting("env", "CreateContainerConfigError")
    config_map(bench, k="v")
    await bench.until_ready("env")


async def test_config_map_and_secret_volumes_are_files(bench: Any, tools: Any) -> None:
    node = await bench.node()
    config_map(bench, page="hello", other="x")
    bench.cluster.put("Secret", {"metadata": {"name": "keys"}, "data": {"k": "czNj"}, "spec": {}}, "default")
    items = [{"key": "page", "path": "www/index"}]
    volumes = [
        {"name": "site", "configMap": {"name": "conf", "items": items}},
        {"name": "keys", "secret": {"secretName": "keys"}},
    ]
    mounts = [
        {"name": "site", "mountPath": "/site"},
        {"name": "site", "mountPath": "/one/page", "subPath": "www/index"},
        {"name": "keys", "mountPath": "/keys"},
    ]
    await bench.running("files", READS_FILE, container={"volumeMounts": mounts}, spec={"volumes": volumes})
    found = {
        p: (await node.get(f"/proxy/default/files/?{p}")).body
        for p in ("/site/www/index", "/one/page", "/keys/k")
    }
    assert found == {"/site/www/index": b"hello", "/one/page": b"hello", "/keys/k": b"s3c"}
    assert (await node.get("/proxy/default/files/?/site/other")).body == b""


@pytest.mark.parametrize(
    ("volume", "message"),
    [
        ({"configMap": {"name": "conf"}}, 'configmap "conf" not found'),
        ({"hostPath": {"path": "/"}}, 'volume "v" has a type that this node does not offer'),
        ({"csi": {"driver": "x.y"}}, 'volume "v" has a type that this node does not offer'),
        (
            {"persistentVolumeClaim": {"claimName": "c"}},
            'volume "v" needs node storage, and node one has none',
        ),
        ({"csi": {"driver": "kube32.io/sd"}}, 'volume "v" needs node storage, and node one has none'),
    ],
)
async def test_a_volume_that_the_node_cannot_give_is_told_as_a_failed_mount(
    bench: Any, tools: Any, volume: dict[str, Any], message: str
) -> None:
    await bench.node()
    mounts = {"volumeMounts": [{"name": "v", "mountPath": "/v"}]}
    bench.pod("files", READS_FILE, container=mounts, spec={"volumes": [{"name": "v", **volume}]})
    await tools.until(lambda: bench.cluster.events("FailedMount"))
    words = bench.cluster.events("FailedMount")[0]["message"]
    assert words == f'MountVolume.SetUp failed for volume "v" : {message}'
    assert (await bench.until_waiting("files", "ContainerCreating"))["message"] == message


@pytest.mark.parametrize("path", ["../../etc/x", "/etc/x", "a/../../x"])
async def test_a_volume_item_never_leaves_its_volume(
    bench: Any, tools: Any, tmp_path: Path, path: str
) -> None:
    await bench.node()
    config_map(bench, page="hello")
    volume = {"name": "v", "configMap": {"name": "conf", "items": [{"key": "page", "path": path}]}}
    mounts = {"volumeMounts": [{"name": "v", "mountPath": "/v"}]}
    bench.pod("files", READS_FILE, container=mounts, spec={"volumes": [volume]})
    await tools.until(lambda: bench.cluster.events("FailedMount"))
    waiting = await bench.until_waiting("files", "ContainerCreating")
    assert waiting["message"] == f'volume "v": "{path}" leaves the volume'


async def test_a_claim_on_node_storage_outlives_its_pod(bench: Any, tools: Any, tmp_path: Path) -> None:
    storage = tmp_path / "storage"
    file = storage / "claims" / "one-pvc-1" / "note"
    file.parent.mkdir(parents=True)
    file.write_text("kept")
    node = await bench.node(storage=storage)
    volume = {"name": "v", "persistentVolumeClaim": {"claimName": "data"}}
    mounts = {"volumeMounts": [{"name": "v", "mountPath": "/v"}]}
    claim = {
        "metadata": {"name": "data"},
        "spec": {"volumeName": "one-pvc-1"},
        "status": {"phase": "Pending"},
    }
    bench.cluster.put("PersistentVolumeClaim", claim, "default")
    bench.pod("files", READS_FILE, container=mounts, spec={"volumes": [volume]})
    await tools.until(lambda: bench.cluster.events("FailedMount"))
    waiting = await bench.until_waiting("files", "ContainerCreating")
    assert waiting["message"] == 'persistentvolumeclaim "data" is not bound'
    claim["status"] = {"phase": "Bound"}
    bench.cluster.put("PersistentVolumeClaim", claim, "default")
    await bench.until_ready("files")
    assert (await node.get("/proxy/default/files/?/v/note")).body == b"kept"
    bench.cluster.remove("Pod", "files", "default")
    await tools.until(lambda: not list((tmp_path / "one" / "pods").iterdir()))
    assert file.read_text() == "kept"
    assert (await node.request("DELETE", "/claims/..")).status in (400, 404)
    assert (await node.request("DELETE", "/claims/one-pvc-1")).status == 200
    assert not file.exists()


async def test_files_of_a_config_map_are_renewed_in_a_running_pod(bench: Any, tools: Any) -> None:
    node = await bench.node()
    bench.cluster.put("ConfigMap", {"metadata": {"name": "settings"}, "data": {"note": "old"}}, "default")
    volume = {
        "name": "v",
        "projected": {"sources": [{"configMap": {"name": "settings"}}, {"downwardAPI": LABELS}]},
    }
    mounts = {"volumeMounts": [{"name": "v", "mountPath": "/v"}]}
    await bench.running("files", READS_FILE, container=mounts, spec={"volumes": [volume]}, labels={"a": "b"})
    assert (await node.get("/proxy/default/files/?/v/note")).body == b"old"
    assert (await node.get("/proxy/default/files/?/v/labels")).body == b'a="b"'
    bench.cluster.put(
        "ConfigMap", {"metadata": {"name": "settings"}, "data": {"note": "new", "more": "1"}}, "default"
    )

    async def renewed() -> bool:
        return bool((await node.get("/proxy/default/files/?/v/note")).body == b"new")

    for _ in range(200):
        if await renewed():
            break
        await tools.pause(0.02)
    assert await renewed()
    assert (await node.get("/proxy/default/files/?/v/more")).body == b"1"
    pod = bench.cluster.pod("files")
    assert tools.status(pod)["restartCount"] == 0


async def test_what_is_immutable_is_read_once_and_a_token_is_kept(bench: Any, tools: Any) -> None:
    node = await bench.node()
    fixed = {"metadata": {"name": "fixed"}, "data": {"note": "for ever"}, "immutable": True}
    bench.cluster.put("ConfigMap", fixed, "default")
    config_map(bench, "open", more="1")
    sources = [
        {"configMap": {"name": "fixed"}},
        {"configMap": {"name": "open"}},
        {"serviceAccountToken": {"path": "token", "expirationSeconds": 3600}},
    ]
    volume = {"name": "v", "projected": {"sources": sources}}
    mounts = {"volumeMounts": [{"name": "v", "mountPath": "/v"}]}
    await bench.running("files", READS_FILE, container=mounts, spec={"volumes": [volume]})
    requests = bench.cluster.requests
    await tools.until(lambda: requests.count(("GET", "configmaps/open")) > 3)
    assert requests.count(("GET", "configmaps/fixed")) == 1
    assert (await node.get("/proxy/default/files/?/v/token")).body == b"token-1"
    assert bench.cluster.tokens == 1


async def test_a_file_that_is_open_keeps_its_content_while_the_volume_is_renewed(
    bench: Any, tools: Any
) -> None:
    node = await bench.node()
    config_map(bench, note="old")
    volume = {"name": "v", "configMap": {"name": "conf"}}
    mounts = {"volumeMounts": [{"name": "v", "mountPath": "/v"}]}
    await bench.running("files", KEEPS_OPEN, container=mounts, spec={"volumes": [volume]})
    assert (await node.ask("files")).body == b"old"
    config_map(bench, note="new")
    directory = node.kubelet._services.volumes.directory(bench.cluster.pod("files")["metadata"]["uid"])
    await tools.until(lambda: any(f.read_text() == "new" for f in directory.rglob("note")))
    assert (await node.ask("files")).body == b"old"


async def test_a_sub_path_is_made_of_the_environment_and_limits_of_the_node(bench: Any) -> None:
    node = await bench.node()
    config_map(bench, one="first")
    limits = {"resourceFieldRef": {"resource": "limits.cpu", "divisor": "1m"}}
    env = [{"name": "KEY", "value": "one"}, {"name": "CPU", "valueFrom": limits}]
    volume = {"name": "v", "configMap": {"name": "conf"}}
    mount = {"name": "v", "mountPath": "/one", "subPathExpr": "$(KEY)"}
    container = {"volumeMounts": [mount], "env": env}
    await bench.running("files", READS_FILE, container=container, spec={"volumes": [volume]})
    assert (await node.get("/proxy/default/files/?/one")).body == b"first"
    await bench.running("env", READS_ENV, container={"env": env})
    assert await env_of(node, "env", "CPU") == "2000"


async def test_binary_data_is_files_and_no_variables(bench: Any) -> None:
    node = await bench.node()
    bench.cluster.put("ConfigMap", {"metadata": {"name": "bin"}, "binaryData": {"raw": "czNj"}}, "default")
    container = {"envFrom": [{"configMapRef": {"name": "bin"}}]}
    await bench.running("env", READS_ENV, container=container)
    assert await env_of(node, "env", "raw") == ""


LABELS = {"items": [{"path": "labels", "fieldRef": {"fieldPath": "metadata.labels"}}]}
