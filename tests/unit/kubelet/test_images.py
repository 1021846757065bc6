"""Images: embedded and named modules, pinned by digest, cached on disk, waited for when they are missing."""

import hashlib
import os
from pathlib import Path
from typing import Any

import pytest

from kube32.client.api import ApiClient
from kube32.contract import LIMITS, Limits
from kube32.kubelet.images import Images

PIN = "kube32.io/wasm-sha256"
OTHER = '(module (memory (export "memory") 1) (func (export "k32_tick")))'


@pytest.fixture
def limits() -> Limits:
    return LIMITS.replace(pod_image_retry_ms=50, pod_call_timeout_ms=1000)


def named(name: str, **fields: Any) -> dict[str, Any]:
    """Fields of a pod with a named image and no pin."""
    annotations = {"kube32.io/wasm": "", PIN: fields.get("pin", "")}
    return {"container": {"image": f"wasm://{name}"}, "annotations": annotations}


def push(bench: Any, name: str, binary: bytes) -> str:
    """A Module with data; its digest."""
    digest = hashlib.sha256(binary).hexdigest()
    bench.cluster.put("Module", {"metadata": {"name": name}, "spec": {}})
    bench.cluster.data["Module", name] = bench.cluster.data["Module", digest] = binary
    return digest


async def test_a_named_module_is_pinned_when_admission_could_not(
    bench: Any, tools: Any, tmp_path: Path
) -> None:
    node = await bench.node()
    digest = push(bench, "counter", tools.wasm(tools.counter))
    await bench.running("echo", **named("counter"))
    assert bench.cluster.pod("echo")["metadata"]["annotations"][PIN] == digest
    assert (tmp_path / "one" / "modules" / f"{digest}.wasm").exists()
    assert (await node.ask("echo")).status == 200


async def test_a_pod_keeps_its_module_when_the_name_gets_another(bench: Any, tools: Any) -> None:
    node = await bench.node()
    digest = push(bench, "counter", tools.wasm(tools.counter))
    await bench.running("echo", **named("counter", pin=digest))
    push(bench, "counter", tools.wasm(OTHER))
    bench.cluster.replace_pod("echo", "one")
    await bench.until_ready("echo")
    assert (await node.ask("echo")).body == b"100"


async def test_a_cached_module_needs_no_api_server(bench: Any, tools: Any) -> None:
    await bench.node()
    digest = push(bench, "counter", tools.wasm(tools.counter))
    await bench.running("echo", **named("counter", pin=digest))
    await bench.stop("one")
    bench.cluster.data.clear()
    await bench.node()
    await tools.until(lambda: tools.status(bench.cluster.pod("echo"))["restartCount"] == 1)
    await bench.until_ready("echo")


async def test_a_damaged_cached_module_is_fetched_again(bench: Any, tools: Any, tmp_path: Path) -> None:
    digest = push(bench, "counter", tools.wasm(tools.counter))
    cached = tmp_path / "one" / "modules" / f"{digest}.wasm"
    cached.parent.mkdir(parents=True)
    cached.write_bytes(tools.wasm(OTHER))
    node = await bench.node()
    await bench.running("echo", **named("counter", pin=digest))
    assert (await node.ask("echo")).status == 200


async def test_a_missing_module_is_waited_for(bench: Any, tools: Any) -> None:
    node = await bench.node()
    bench.pod("echo", **named("counter"))
    waiting = await bench.until_waiting("echo", "ImagePullBackOff")
    assert waiting["message"] == 'Back-off pulling image "wasm://counter": module "counter" not found'
    assert bench.cluster.pod("echo")["status"]["phase"] == "Pending"
    await tools.until(lambda: bench.cluster.events("Failed"))
    push(bench, "counter", tools.wasm(tools.counter))
    await bench.until_ready("echo")
    assert (await node.ask("echo")).body == b"100"


async def test_a_wait_for_a_module_does_not_wake_itself_with_its_own_status(bench: Any, tools: Any) -> None:
    bench.limits = bench.limits.replace(pod_image_retry_ms=60_000)
    await bench.node()
    bench.pod("echo", **named("counter"))
    await bench.until_waiting("echo", "ImagePullBackOff")
    bench.pod("other")
    await bench.until_ready("other")
    assert bench.cluster.requests.count(("GET", "modules/counter/data")) == 1


async def test_a_module_without_data_and_a_lost_digest_are_told_apart(bench: Any, tools: Any) -> None:
    await bench.node()
    bench.cluster.put("Module", {"metadata": {"name": "empty"}, "spec": {}})
    bench.pod("a", **named("empty"))
    assert "has no data yet" in (await bench.until_waiting("a", "ImagePullBackOff"))["message"]
    bench.pod("b", **named("empty", pin="1" * 64))
    assert (
        f"with digest {'1' * 64} is not stored"
        in (await bench.until_waiting("b", "ImagePullBackOff"))["message"]
    )


async def test_an_image_of_another_kind_has_an_invalid_name(bench: Any, tools: Any) -> None:
    await bench.node()
    bench.pod("web", container={"image": "nginx:1.27"})
    waiting = await bench.until_waiting("web", "InvalidImageName")
    assert waiting["message"] == 'image "nginx:1.27" is not a module: it must begin with wasm://'
    await tools.until(lambda: bench.cluster.events("InspectFailed"))


@pytest.mark.parametrize(
    ("annotations", "message"),
    [
        ({"kube32.io/wasm": None}, "module refused: image wasm://embedded without annotation kube32.io/wasm"),
        ({"kube32.io/wasm": "%%%"}, "module refused: annotation kube32.io/wasm is not base64"),
        ({"kube32.io/wasm": "AAAA"}, "module refused: its SHA-256 is "),
    ],
)
async def test_a_bad_embedded_module_is_named(
    bench: Any, tools: Any, annotations: dict[str, Any], message: str
) -> None:
    await bench.node()
    pod = bench.pod("bad", node="nowhere")
    pod = tools.merge(pod, {"spec": {"nodeName": "one"}, "metadata": {"annotations": annotations}})
    bench.cluster.put("Pod", pod, "default")
    waiting = await bench.until_waiting("bad", "CreateContainerConfigError")
    assert waiting["message"].startswith(message)


async def test_a_module_that_needs_more_than_the_memory_limit_is_refused_at_start(bench: Any) -> None:
    await bench.node()
    two_pages = '(module (memory (export "memory") 2) (func (export "k32_handle")))'
    bench.pod("big", two_pages, container={"resources": {"limits": {"memory": "64Ki"}}})
    waiting = await bench.until_waiting("big", "CreateContainerConfigError")
    assert waiting["message"] == (
        "module refused: declares 2 pages of memory, the memory limit of 65536 bytes gives 1"
    )


async def test_a_start_function_that_never_ends_does_not_keep_other_pods_from_starting(
    bench: Any, tools: Any
) -> None:
    await bench.node()
    endless = """(module (memory (export "memory") 1) (func (export "k32_handle"))
      (func $f (loop (br 0))) (start $f))"""
    for number in range(12):
        bench.pod(f"bad-{number}", endless)
    await bench.running("good")


async def test_modules_that_no_pod_uses_leave_the_cache_when_it_is_full(
    bench: Any, limits: Limits, engine: Any, tmp_path: Path
) -> None:
    images = Images(ApiClient(bench.cluster), engine, limits.replace(node_cached_modules=2), tmp_path)
    for number in range(4):
        images._store(f"{number:064x}", bytes(number + 1))
        os.utime(tmp_path / f"{number:064x}.wasm", (number, number))
    assert sorted(int(p.stem, 16) for p in tmp_path.glob("*.wasm")) == [2, 3]
    assert [image["sizeBytes"] for image in await images.listed()] == [4, 3]
