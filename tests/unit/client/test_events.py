"""Events: the contract's words, counted when they repeat, and never in the way."""

import asyncio
from typing import Any

import pytest
from tests.unit.client.scripted import Answer, Scripted, status

from kube32.client import events as events_module
from kube32.client.api import ApiClient
from kube32.client.events import EventRecorder
from kube32.client.transport import TransportError

POD = {
    "kind": "Pod",
    "apiVersion": "v1",
    "metadata": {"name": "p", "namespace": "default", "uid": "u", "resourceVersion": "7"},
}


def recorder(*answers: Any) -> tuple[EventRecorder, Scripted]:
    """A recorder whose writes are answered by the script, then all with 200."""
    transport = Scripted([*answers], lambda: Answer(200, [b"{}"]))
    return EventRecorder(ApiClient(transport), "tester", "host"), transport


async def test_an_event_names_its_object_and_has_the_contracts_words() -> None:
    events, transport = recorder()
    events.event(POD, "Moved", source="a", target="b", ms=12)
    await events.close()
    sent = transport.sent[0]
    assert (sent.method, sent.path) == ("POST", "/api/v1/namespaces/default/events")
    body = sent.body
    assert body["reason"] == "Moved" and body["message"] == "Moved from a to b in 12 ms from the freeze"
    assert body["type"] == "Normal" and body["count"] == 1
    assert body["source"] == {"component": "tester", "host": "host"}
    assert body["involvedObject"] == {
        "kind": "Pod",
        "apiVersion": "v1",
        "namespace": "default",
        "name": "p",
        "uid": "u",
        "resourceVersion": "7",
    }
    assert body["metadata"]["name"].startswith("p.") and body["firstTimestamp"] == body["lastTimestamp"]


async def test_an_event_about_a_node_stands_in_the_default_namespace() -> None:
    events, transport = recorder()
    events.event({"kind": "Node", "apiVersion": "v1", "metadata": {"name": "n"}}, "NodeReady", node="n")
    await events.close()
    assert transport.sent[0].path == "/api/v1/namespaces/default/events"
    assert "namespace" not in transport.sent[0].body["involvedObject"]


async def test_the_same_again_is_counted_and_another_message_is_another_event() -> None:
    events, transport = recorder()
    for cause in ("x", "x", "y", "x"):
        events.event(POD, "Failed", cause=cause)
    await events.close()
    assert [s.method for s in transport.sent] == ["POST", "PATCH", "POST", "PATCH"]
    first = transport.sent[0].body["metadata"]["name"]
    assert transport.sent[1].path.endswith(first) and transport.sent[1].body["count"] == 2
    assert transport.sent[3].body["count"] == 3


async def test_an_event_that_expired_meanwhile_begins_anew() -> None:
    events, transport = recorder(Answer(200, [b"{}"]), status(404, "NotFound"))
    for _ in range(2):
        events.event(POD, "Failed", cause="x")
    await events.close()
    assert [s.method for s in transport.sent] == ["POST", "PATCH", "POST"]
    assert transport.sent[2].body["count"] == 1


async def test_a_lost_connection_is_tried_again_and_a_refusal_is_not(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kube32.client.events.random.uniform", lambda low, high: 0.0)
    events, transport = recorder(
        TransportError("x"), status(503, "x"), Answer(200, [b"{}"]), status(403, "Forbidden")
    )
    events.event(POD, "Failed", cause="x")
    events.event(POD, "Failed", cause="y")
    events.event(POD, "Failed", cause="z")
    await events.close()
    assert [s.body["message"] for s in transport.sent] == ["x", "x", "x", "y", "z"]


async def test_too_many_waiting_are_dropped_and_the_caller_never_waits() -> None:
    events, transport = recorder()
    for number in range(events_module._QUEUE + 50):
        events.event(POD, "Failed", cause=number)
    await events.close()
    assert len(transport.sent) == events_module._QUEUE


async def test_memory_of_past_events_is_bounded() -> None:
    events, _ = recorder()
    for number in range(events_module._REMEMBERED + 100):
        events.event(POD, "Failed", cause=number)
        if number % 100 == 0 and events._worker is not None:
            await asyncio.wait([events._worker])
    await events.close()
    assert len(events._written) <= events_module._REMEMBERED


async def test_many_messages_for_one_reason_become_one_event_that_shows_the_last() -> None:
    events, transport = recorder()
    for number in range(14):
        events.event(POD, "Failed", cause=f"cause {number}")
    events.event(POD, "Failed", cause="cause 3")
    await events.close()
    created = [sent.body["message"] for sent in transport.sent if sent.method == "POST"]
    combined = "(combined from similar events): cause"
    assert created == [*(f"cause {n}" for n in range(10)), f"{combined} 10"]
    patched = [sent.body for sent in transport.sent if sent.method == "PATCH"]
    assert [(p["count"], p.get("message")) for p in patched] == [
        (2, f"{combined} 11"),
        (3, f"{combined} 12"),
        (4, f"{combined} 13"),
        (2, None),
    ]
