"""kr8s as its own documentation uses it: create, watch, patch, logs, wait, scale, custom resources."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import kr8s.asyncio
import pytest
from kr8s.asyncio.objects import ConfigMap, Deployment, Pod, Service, new_class

from tests.conftest import ROOT, SimCluster

SPACE = "kr8s"


@pytest.fixture
async def api(cluster: SimCluster) -> AsyncIterator[Any]:
    """kr8s on a namespace of its own."""
    cluster.kubectl("create", "namespace", SPACE)
    cluster.cli("push", str(ROOT / "examples/counter/counter.wasm"))
    yield await kr8s.asyncio.api(kubeconfig=str(cluster.kubeconfig), namespace=SPACE)
    cluster.kubectl("delete", "namespace", SPACE)


def pod(name: str) -> dict[str, Any]:
    container = {"name": "counter", "image": "wasm://counter", "resources": {"limits": {"memory": "64Ki"}}}
    return {"metadata": {"name": name, "namespace": SPACE}, "spec": {"containers": [container]}}


async def test_a_pod_is_created_waited_for_labelled_read_and_deleted(api: Any) -> None:
    made = await Pod(pod("one"), api=api)
    await made.create()
    await made.wait("condition=Ready", timeout=60)
    assert await made.ready()
    await made.label({"tier": "demo"})
    await made.patch({"metadata": {"annotations": {"note": "x"}}})
    listed = [p.name async for p in api.get("pods", namespace=SPACE, label_selector={"tier": "demo"})]
    assert listed == ["one"]
    assert isinstance([line async for line in made.logs()], list)
    await made.delete()
    await made.wait("delete", timeout=60)
    assert not await made.exists()


async def test_a_watch_sees_each_change_once_and_in_order(api: Any) -> None:
    seen: list[tuple[str, str]] = []
    begun, done = asyncio.Event(), asyncio.Event()
    marker = await ConfigMap({"metadata": {"name": "marker", "namespace": SPACE}}, api=api)
    await marker.create()

    async def watch() -> None:
        async for kind, found in api.watch("configmaps", namespace=SPACE):
            begun.set()
            if found.name.startswith("watched"):
                seen.append((kind, str(found.raw.get("data", {}).get("n", ""))))
                if kind == "DELETED":
                    done.set()

    task = asyncio.create_task(watch())
    async with asyncio.timeout(30):
        await begun.wait()
    made = await ConfigMap({"metadata": {"name": "watched", "namespace": SPACE}, "data": {"n": "0"}}, api=api)
    await made.create()
    for number in range(1, 6):
        await made.patch({"data": {"n": str(number)}})
    await made.delete()
    async with asyncio.timeout(30):
        await done.wait()
    task.cancel()
    kinds = [kind for kind, _ in seen]
    assert kinds[0] == "ADDED" and kinds[-1] == "DELETED"
    numbers = [int(n) for kind, n in seen if kind != "DELETED"]
    assert numbers == sorted(set(numbers)) and numbers[-1] == 5


async def test_a_deployment_scales_and_its_service_finds_its_pods(api: Any) -> None:
    labels = {"app": "web"}
    spec = {
        "replicas": 1,
        "selector": {"matchLabels": labels},
        "template": {"metadata": {"labels": labels}, "spec": pod("x")["spec"]},
    }
    made = await Deployment({"metadata": {"name": "web", "namespace": SPACE}, "spec": spec}, api=api)
    await made.create()
    await made.wait("condition=Available", timeout=60)
    await made.scale(2)
    async with asyncio.timeout(60):
        while not await made.ready():  # noqa: ASYNC110 - kr8s has no event for it
            await asyncio.sleep(0.1)
    service = await Service(
        {
            "metadata": {"name": "web", "namespace": SPACE},
            "spec": {"selector": labels, "ports": [{"port": 80}]},
        },
        api=api,
    )
    await service.create()
    pods = await service.ready_pods()
    assert len(pods) == 2


async def test_custom_resources_are_used_like_any_other(api: Any, cluster: SimCluster) -> None:
    crd = ROOT / "tests/conformance/manifests/crontab-crd.yaml"
    cluster.kubectl("apply", "-f", str(crd))
    try:
        cluster.kubectl("wait", "--for=condition=Established", "crd/crontabs.stable.example.com")
        kind = new_class(kind="CronTab", version="stable.example.com/v1", plural="crontabs", namespaced=True)
        made = await kind({"metadata": {"name": "c", "namespace": SPACE}, "spec": {"image": "i"}}, api=api)
        await made.create()
        await made.refresh()
        assert made.spec.replicas == 3
        await made.patch({"spec": {"replicas": 4}})
        assert [c.spec.replicas async for c in kind.list(namespace=SPACE, api=api)] == [4]
    finally:
        cluster.kubectl("delete", "crd", "crontabs.stable.example.com")
