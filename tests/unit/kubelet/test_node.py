"""The Node object: what it reports, when it writes, how it comes back."""

from typing import Any

import pytest

from kube32.contract import LIMITS, Limits
from kube32.kubelet.values import duration_ms, unix_ns, whole_quantity

BUSY = '(module (memory (export "memory") 1) (func (export "main") (result i32) (loop (br 0)) (i32.const 0)))'


@pytest.fixture
def limits() -> Limits:
    return LIMITS.replace(node_status_ms=30, node_lease_renew_ms=30)


async def test_a_node_reports_what_a_kubelet_reports(bench: Any, tools: Any) -> None:
    resources = {"hardware.kube32.io/display": "1"}
    node = await bench.node(resources=resources, capabilities=("DISPLAY", "SD"), labels={"zone": "a"})
    found = bench.cluster.objects["Node"]["", "one"]
    status, meta = found["status"], found["metadata"]
    assert status["capacity"] == {"cpu": "2", "memory": "1048576Ki", "pods": "110", **resources}
    assert status["allocatable"] == status["capacity"]
    assert {"type": "InternalIP", "address": "127.0.0.1"} in status["addresses"]
    assert status["daemonEndpoints"]["kubeletEndpoint"]["Port"] == node.kubelet.port
    assert status["nodeInfo"]["kubeletVersion"].startswith("v")
    assert status["nodeInfo"]["containerRuntimeVersion"].startswith("wasmtime://")
    conditions = {c["type"]: c["status"] for c in status["conditions"]}
    assert conditions == {
        "Ready": "True",
        "MemoryPressure": "False",
        "DiskPressure": "False",
        "PIDPressure": "False",
    }
    assert meta["labels"].items() >= {"kubernetes.io/hostname": "one", "zone": "a"}.items()
    assert {"kubernetes.io/os", "kubernetes.io/arch"} <= meta["labels"].keys()
    assert float(meta["annotations"]["kube32.io/interp-mops"]) > 0
    assert meta["annotations"]["kube32.io/capabilities"] == "DISPLAY,SD"
    await tools.until(lambda: bench.cluster.events("Starting"))


async def test_a_node_says_what_it_is_and_what_it_has_cached(bench: Any, tools: Any) -> None:
    await bench.node()
    info = bench.cluster.objects["Node"]["", "one"]["status"]["nodeInfo"]
    assert all(value for field, value in info.items() if field != "kubeProxyVersion"), info
    annotations = bench.cluster.objects["Node"]["", "one"]["metadata"]["annotations"]
    assert "kube32.io/capabilities" not in annotations
    bench.cluster.module("hello", tools.wasm(tools.counter))
    bench.pod("echo", container={"image": "wasm://hello"}, annotations={"kube32.io/wasm-sha256": ""})
    await bench.until_ready("echo")

    def listed() -> Any:
        return bench.cluster.objects["Node"]["", "one"]["status"]["images"]

    (image,) = await tools.until(listed)
    digest = bench.cluster.pod("echo")["metadata"]["annotations"]["kube32.io/wasm-sha256"]
    assert image["names"] == [f"wasm-sha256:{digest}", "wasm://hello"]
    assert image["sizeBytes"] == len(tools.wasm(tools.counter))


async def test_capabilities_that_are_gone_are_taken_off_the_node(bench: Any) -> None:
    old = {"name": "one", "annotations": {"kube32.io/capabilities": "DISPLAY"}}
    bench.cluster.put("Node", {"metadata": old, "spec": {}, "status": {}})
    await bench.node()
    assert "kube32.io/capabilities" not in bench.cluster.objects["Node"]["", "one"]["metadata"]["annotations"]


async def test_a_pod_in_a_long_call_is_seen_to_use_the_processor(bench: Any, tools: Any) -> None:
    node = await bench.node()
    bench.pod("busy", BUSY)
    await bench.until_phase("busy", "Running")

    async def used() -> int:
        (pod,) = (await node.get("/stats")).json["pods"]
        return int(pod["containers"][0]["cpuNanos"])

    before = await used()
    for _ in range(200):
        if await used() > before + 20_000_000:
            break
        await tools.pause(0.02)
    assert await used() > before + 20_000_000


async def test_an_unchanged_status_is_not_sent_again(bench: Any, tools: Any) -> None:
    await bench.node()
    seen = len([r for r in bench.cluster.requests if r == ("GET", "nodes/one")])
    await tools.until(
        lambda: len([r for r in bench.cluster.requests if r == ("GET", "nodes/one")]) > seen + 3
    )
    assert bench.cluster.requests.count(("PATCH", "nodes/one/status")) <= 1


async def test_a_deleted_node_registers_again(bench: Any, tools: Any) -> None:
    await bench.node()
    uid = bench.cluster.objects["Node"]["", "one"]["metadata"]["uid"]
    bench.cluster.remove("Node", "one")
    found = await tools.until(lambda: bench.cluster.objects["Node"].get(("", "one")))
    assert found["metadata"]["uid"] != uid
    assert {c["type"] for c in found["status"]["conditions"]} >= {"Ready"}


async def test_little_free_memory_is_pressure(bench: Any, tools: Any) -> None:
    node = await bench.node()
    await bench.running("echo")
    node.kubelet._node_status._options.memory_bytes = 65536 + LIMITS.node_memory_pressure_bytes - 1
    nodes = bench.cluster.objects["Node"]
    await tools.until(lambda: tools.condition(nodes["", "one"], "MemoryPressure")["status"] == "True")


async def test_a_worker_that_had_left_is_not_cordoned_any_more(bench: Any, tools: Any) -> None:
    left = {"name": "one", "annotations": {"kube32.io/left": "true"}}
    bench.cluster.put("Node", {"metadata": left, "spec": {"unschedulable": True}, "status": {}})
    await bench.node()
    found = bench.cluster.objects["Node"]["", "one"]
    assert "kube32.io/left" not in found["metadata"]["annotations"]
    assert "unschedulable" not in found["spec"]


async def test_a_cordon_by_somebody_else_stays(bench: Any) -> None:
    bench.cluster.put("Node", {"metadata": {"name": "one"}, "spec": {"unschedulable": True}, "status": {}})
    await bench.node()
    assert bench.cluster.objects["Node"]["", "one"]["spec"]["unschedulable"] is True


async def test_a_node_that_lost_its_api_server_keeps_its_pods_and_comes_back(bench: Any, tools: Any) -> None:
    node = await bench.node()
    await bench.running("echo")
    bench.cluster.cut = True
    await tools.until(lambda: node.kubelet._lease.age_s() > 0.2)
    assert (await node.ask("echo")).body == b"100"
    bench.cluster.cut = False
    await tools.until(lambda: node.kubelet._lease.age_s() < 0.2)
    assert (await node.ask("echo")).body == b"200"
    assert tools.status(bench.cluster.pod("echo"))["restartCount"] == 0


def test_values_that_are_none_are_not_read() -> None:
    assert duration_ms("500ms") == 500 and duration_ms("1m30s") == 90000
    assert duration_ms("soon") is None and duration_ms(None) is None and duration_ms("") is None
    assert whole_quantity("32Ki") == 32768 and whole_quantity("much") is None
    assert unix_ns("1970-01-01T00:00:01Z") == 1_000_000_000 and unix_ns("x") is None
