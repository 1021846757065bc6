"""Publishing: to each node with subscribers once, in order, and no node waits for a dead one."""

import asyncio
from typing import Any

import orjson
import pytest
from aiohttp import web

from kube32.api.status import ApiFailure
from kube32.api.topics import handle
from kube32.contract import LIMITS, Limits

TOPIC = "/apis/kube32.io/v1/namespaces/default/topics/alarm"


@pytest.fixture
def limits() -> Limits:
    return LIMITS.replace(topic_delivery_ms=300)


class Subscriber:
    """A kubelet that notes the events it gets."""

    def __init__(self, delivered: int = 1) -> None:
        self.delivered = delivered
        self.events: list[tuple[str, bytes]] = []
        self.has_five = asyncio.Event()

    async def __call__(self, request: web.Request) -> web.Response:
        self.events.append((request.raw_path, await request.read()))
        if len(self.events) == 5:
            self.has_five.set()
        return web.json_response({"delivered": self.delivered})


async def publish(world: Any, payload: bytes = b"x", target: str = TOPIC, token: str | None = None) -> int:
    response = await world.call(handle, "POST", target, token, body=payload)
    assert response.status == 200
    count: int = orjson.loads(response.body)["delivered"]
    return count


async def refused(world: Any, payload: bytes = b"x", target: str = TOPIC) -> ApiFailure:
    with pytest.raises(ApiFailure) as failure:
        await publish(world, payload, target)
    return failure.value


def subscribe(world: Any, pod: str, node: str, topics: str = "alarm", **parts: Any) -> None:
    world.pod(pod, node, annotations={"kube32.io/topics": topics}, **parts)


async def test_each_node_with_subscribers_gets_the_event_once(world: Any) -> None:
    nodes = {name: Subscriber(count) for name, count in (("a", 2), ("b", 1), ("c", 1))}
    for name, kubelet in nodes.items():
        await world.kubelet(name, kubelet)
    subscribe(world, "p1", "a")
    subscribe(world, "p2", "a", "other, alarm")
    subscribe(world, "p3", "b", "alarm,other")
    subscribe(world, "p4", "c", "alarms,ala,other")
    subscribe(world, "p5", "c", namespace="elsewhere")
    subscribe(world, "p6", "c", phase="Succeeded")
    subscribe(world, "p7", "")
    world.pod("p8", "c")
    assert await publish(world, b"fire") == 3
    assert nodes["a"].events == nodes["b"].events == [("/events/default/alarm", b"fire")]
    assert nodes["c"].events == []


async def test_nobody_subscribed_is_no_fault(world: Any) -> None:
    assert await publish(world) == 0


async def test_an_event_handed_on_goes_to_one_pod(world: Any) -> None:
    kubelet = Subscriber()
    await world.kubelet("a", kubelet)
    subscribe(world, "p1", "a")
    subscribe(world, "p2", "a")
    assert await publish(world, b"held", f"{TOPIC}?pod=p2") == 1
    assert kubelet.events == [("/events/default/alarm?pod=p2", b"held")]
    assert (await refused(world, target=f"{TOPIC}?pod=absent")).code == 404


async def test_an_event_handed_on_that_may_have_arrived_is_not_told_as_lost(world: Any) -> None:
    release = asyncio.Event()

    async def taken(request: web.Request) -> web.Response:
        await request.read()
        await release.wait()
        return web.json_response({"delivered": 1})

    await world.kubelet("a", taken)
    world.node("b", 1)
    subscribe(world, "p1", "a")
    subscribe(world, "p2", "b")
    assert (await refused(world, target=f"{TOPIC}?pod=p1")).code == 504
    assert await publish(world, target=f"{TOPIC}?pod=p2") == 0
    release.set()


async def test_a_pod_that_is_being_restored_may_hold_the_event(world: Any) -> None:
    kubelet = Subscriber()
    await world.kubelet("a", kubelet)
    subscribe(world, "p1", "a", phase="Pending")
    assert await publish(world) == 1


async def test_a_topic_may_have_any_characters(world: Any) -> None:
    kubelet = Subscriber()
    await world.kubelet("a", kubelet)
    subscribe(world, "p1", "a", "a b+c?d#é")
    assert await publish(world, b"x", TOPIC.replace("alarm", "a%20b%2Bc%3Fd%23%C3%A9")) == 1
    assert kubelet.events[0][0] == "/events/default/a%20b%2Bc%3Fd%23%C3%A9"


@pytest.mark.parametrize("topic", ["%2e%2e", "..", "a%2Fb", "%ff", "%00", "t" * (LIMITS.pod_topic_bytes + 1)])
async def test_a_topic_that_is_none_is_400(world: Any, topic: str) -> None:
    assert (await refused(world, target=TOPIC.replace("alarm", topic))).code == 400


async def test_a_payload_that_is_too_large_is_413(world: Any) -> None:
    failure = await refused(world, b"x" * (LIMITS.pod_payload_bytes + 1))
    assert (failure.code, failure.message) == (
        413,
        f"the payload has more than {LIMITS.pod_payload_bytes} bytes",
    )


async def test_a_namespace_that_is_not_there_is_404(world: Any) -> None:
    failure = await refused(world, target=TOPIC.replace("default", "absent"))
    assert (failure.code, failure.message) == (404, 'namespaces "absent" not found')


async def test_events_of_one_publisher_keep_their_order(world: Any) -> None:
    received: list[bytes] = []

    async def handler(request: web.Request) -> web.Response:
        payload = await request.read()
        # The first ones take longest: only the queue can keep them in front.
        await asyncio.sleep(0.01 if payload < b"3" else 0)
        received.append(payload)
        return web.json_response({"delivered": 1})

    await world.kubelet("a", handler)
    subscribe(world, "p1", "a")
    sent = [str(n).encode() for n in range(10)]
    await asyncio.gather(*(publish(world, payload) for payload in sent))
    assert received == sent


async def test_a_node_that_hangs_or_is_away_costs_the_others_nothing(world: Any) -> None:
    release = asyncio.Event()

    async def hanging(request: web.Request) -> web.Response:
        await release.wait()
        return web.json_response({"delivered": 1})

    good = Subscriber()
    await world.kubelet("a", hanging)
    world.node("b", 1)
    await world.kubelet("c", good)
    for name in "abc":
        subscribe(world, f"p-{name}", name)
    sent = [str(n).encode() for n in range(5)]
    tasks = [asyncio.ensure_future(publish(world, payload)) for payload in sent]
    await asyncio.wait_for(good.has_five.wait(), 10)
    assert not any(task.done() for task in tasks)
    assert [payload for _, payload in good.events] == sent
    assert await asyncio.gather(*tasks) == [1] * 5
    release.set()


async def test_a_node_that_let_an_event_time_out_is_not_waited_for_with_the_next(world: Any) -> None:
    release = asyncio.Event()
    asked: list[str] = []

    async def hanging(request: web.Request) -> web.Response:
        asked.append(request.path)
        await release.wait()
        return web.json_response({"delivered": 1})

    await world.kubelet("a", hanging)
    subscribe(world, "p1", "a")
    for _ in range(2):
        assert await publish(world) == 0
    assert len(asked) == 1
    world.kubelets._resting.clear()
    release.set()
    assert await publish(world) == 1


async def test_a_node_that_is_known_to_be_lost_is_not_waited_for(world: Any) -> None:
    release = asyncio.Event()
    asked: list[str] = []

    async def hanging(request: web.Request) -> web.Response:
        asked.append(request.path)
        await release.wait()
        return web.Response()

    port = await world.kubelet("a", hanging)
    world.node("a", port, ready="Unknown")
    subscribe(world, "p1", "a")
    assert await publish(world) == 0
    assert not asked


@pytest.mark.parametrize(
    "answer", ["", "x", "[]", "{}", '{"delivered": "x"}', '{"delivered": null}', "9" * 5000]
)
async def test_a_kubelet_that_answers_nonsense_delivered_nothing(world: Any, answer: str) -> None:
    async def handler(request: web.Request) -> web.Response:
        return web.Response(text=answer)

    await world.kubelet("a", handler)
    subscribe(world, "p1", "a")
    assert await publish(world) == 0


async def test_a_node_may_publish(world: Any) -> None:
    kubelet = Subscriber()
    await world.kubelet("a", kubelet)
    subscribe(world, "p1", "a")
    token = world.security.local_node_credentials("z", ["127.0.0.1"]).token
    assert await publish(world, token=token) == 1
