"""Events: subscriptions, what is held while a pod is frozen, what the snapshot carries, what is handed
over.
"""

import asyncio
from typing import Any

import pytest

from kube32.contract import ABI, LIMITS, Limits
from kube32.formats.k32s import decode

TOPICS = {"kube32.io/topics": "news, weather"}
PUBLISHES = """
(module
  (import "env" "k32_publish" (func $publish (param i32 i32 i32 i32) (result i32)))
  (import "env" "k32_resp_status" (func $status (param i32)))
  (memory (export "memory") 1) (data (i32.const 0) "news")
  (func (export "k32_handle")
    (call $status (i32.add (i32.const 300)
      (call $publish (i32.const 0) (i32.const 4) (i32.const 0) (i32.const 4))))))
"""


@pytest.fixture
def limits() -> Limits:
    return LIMITS.replace(pod_publish_per_s=1, pod_publish_burst=3)


async def post(node: Any, topic: str, query: str = "", namespace: str = "default") -> int:
    """Posts an event to a kubelet; how many pods took it."""
    reply = await node.request("POST", f"/events/{namespace}/{topic}{query}", data=b"payload")
    assert reply.status == 200
    return int(reply.json["delivered"])


async def digits(bench: Any, tools: Any, node: Any, pod: str, wanted: int) -> None:
    """Waits until the pod has counted `wanted` events."""
    thread = node.kubelet.registry.worker("default", pod).containers[0].thread
    await tools.until(lambda: not len(thread._backlog.events) and thread.running_call is None)
    assert (await node.ask(pod)).body[1:2] == str(wanted).encode()


async def test_an_event_goes_to_the_pods_that_subscribe_to_its_topic(bench: Any, tools: Any) -> None:
    node = await bench.node()
    await bench.running("a", annotations=TOPICS)
    await bench.running("b")
    assert await post(node, "weather") == 1
    assert await post(node, "sports") == 0
    assert await post(node, "news", namespace="other") == 0
    await digits(bench, tools, node, "a", 1)
    await digits(bench, tools, node, "b", 0)


async def test_eight_events_are_held_for_a_frozen_pod_and_more_are_dropped_and_counted(
    bench: Any, tools: Any
) -> None:
    node = await bench.node()
    await bench.running("a", annotations=TOPICS)
    await node.checkpoint("a", "?leave=frozen")
    taken = [await post(node, "news") for _ in range(10)]
    assert taken == [1] * 8 + [0] * 2
    thread = node.kubelet.registry.worker("default", "a").containers[0].thread
    assert thread.dropped_events == 2
    await node.thaw("a")
    # Held events come before anything else.
    assert (await node.ask("a")).body == b"180"


async def test_the_list_of_held_events_is_sealed_at_the_first_snapshot(bench: Any) -> None:
    node = await bench.node()
    await bench.running("a", annotations=TOPICS)
    worker = node.kubelet.registry.worker("default", "a")
    thread = worker.containers[0].thread
    assert await thread.freeze("test")
    await post(node, "news")
    first = decode((await node.checkpoint("a", "?leave=frozen")).body, limits=LIMITS)
    await post(node, "weather")
    again = decode((await node.checkpoint("a", "?leave=frozen")).body, limits=LIMITS)
    assert [e.topic for e in first.events] == [e.topic for e in again.events] == ["news"]
    assert first.events[0].payload == b"payload"


async def test_events_after_the_seal_are_handed_to_the_replacement(bench: Any, tools: Any) -> None:
    one, two = await bench.node(), await bench.node("two")
    by_name = {"one": one, "two": two}

    def publish(namespace: str, topic: str, payload: bytes, pod: str) -> int:
        node = by_name[bench.cluster.pod(pod)["spec"]["nodeName"]]
        return int(node.kubelet.registry.deliver(namespace, topic, payload, pod))

    bench.cluster.on_publish = publish
    await bench.running("a", annotations=TOPICS)
    thread = one.kubelet.registry.worker("default", "a").containers[0].thread
    assert await thread.freeze("test")
    await post(one, "news")
    reply = await one.checkpoint("a", "?leave=frozen")
    for _ in range(2):
        await post(one, "weather")
    bench.cluster.data["Checkpoint", "m"] = reply.body
    bench.cluster.replace_pod("a", "two", **{"kube32.io/restore-from": "m"})
    await tools.until(lambda: len([p for p in bench.cluster.published if p[3] == "a"]) >= 2)
    await bench.until_ready("a")
    await digits(bench, tools, two, "a", 3)
    assert (await two.ask("a")).body == b"231"


async def test_events_of_a_deleted_pod_are_handed_to_nobody(bench: Any, tools: Any) -> None:
    node = await bench.node()
    pod = await bench.running("a", annotations=TOPICS)
    await node.checkpoint("a", "?leave=frozen")
    await post(node, "news")
    pod = bench.cluster.pod("a")
    pod["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    bench.cluster.put("Pod", pod, "default")
    await tools.until(lambda: ("default", "a") not in bench.cluster.objects["Pod"])
    await asyncio.sleep(0.05)
    assert not [p for p in bench.cluster.published if p[3]]


async def test_a_published_event_goes_to_the_control_plane_and_tells_the_local_receivers(
    bench: Any, tools: Any
) -> None:
    node = await bench.node()
    await bench.running("teller", PUBLISHES)
    assert (await node.ask("teller")).status == 300
    await bench.running("a", annotations=TOPICS)
    await tools.until(lambda: node.kubelet.registry.receivers("default", "news") == 1)
    assert (await node.ask("teller")).status == 301
    await tools.until(lambda: bench.cluster.published == [("default", "news", b"news", "")] * 2)


async def test_a_pod_that_publishes_too_much_is_told_no_room(bench: Any) -> None:
    node = await bench.node()
    await bench.running("teller", PUBLISHES)
    found = [(await node.ask("teller")).status for _ in range(4)]
    assert found == [300, 300, 300, 300 + ABI.errors["K32_ENOMEM"]]


async def test_a_pod_that_waits_in_a_queue_of_events_still_answers_requests(bench: Any) -> None:
    node = await bench.node()
    await bench.running("a", annotations=TOPICS)
    await asyncio.gather(*(post(node, "news") for _ in range(30)))
    assert (await node.ask("a")).status == 200


@pytest.mark.parametrize(("topic", "size", "status"), [("x" * 129, 1, 400), ("news", 65537, 413)])
async def test_an_event_that_is_too_large_is_refused(bench: Any, topic: str, size: int, status: int) -> None:
    node = await bench.node()
    reply = await node.request("POST", f"/events/default/{topic}", data=b"x" * size)
    assert reply.status == status
