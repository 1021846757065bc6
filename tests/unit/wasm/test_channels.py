"""Channels: node and namespace, lowest free handles, bounded queues (pod ABI; decisions, "K32S")."""

import threading

import pytest

from kube32.contract import LIMITS
from kube32.formats.k32s import Channel
from kube32.wasm import ChannelHub

SMALL = LIMITS.replace(
    pod_channels=3, pod_channel_queue=2, pod_channel_message_bytes=100, pod_channel_bytes=250
)


@pytest.fixture
def hub() -> ChannelHub:
    return ChannelHub(SMALL)


def test_a_handle_is_the_lowest_free_one_and_the_same_for_the_same_name(hub: ChannelHub) -> None:
    table = hub.attach("ns", "a")
    assert [table.open(n) for n in ("one", "two", "one", "three", "four")] == [1, 2, 1, 3, -12]
    assert table.close(2) == 0
    assert table.open("four") == 2
    assert table.snapshot() == [Channel(1, "one"), Channel(2, "four"), Channel(3, "three")]


@pytest.mark.parametrize("name", ["", "x" * 65, "ü" * 33])
def test_a_bad_name_is_a_bad_argument(hub: ChannelHub, name: str) -> None:
    assert hub.attach("ns", "a").open(name) == -22


def test_a_message_reaches_the_others_of_the_namespace_that_have_it_open(hub: ChannelHub) -> None:
    sender, reader, deaf, foreign = (
        hub.attach(ns, key) for ns, key in (("ns", "a"), ("ns", "b"), ("ns", "c"), ("other", "b"))
    )
    handle, at = sender.open("news"), reader.open("news")
    deaf.open("else")
    foreign.open("news")
    assert sender.send(handle, b"hello") == 1
    assert (sender.peek(handle), foreign.peek(1), deaf.peek(1)) == (b"", b"", b"")
    assert reader.peek(at) == b"hello"
    reader.drop(at)
    assert reader.peek(at) == b""


def test_messages_come_in_order_until_the_queue_is_full(hub: ChannelHub) -> None:
    sender, reader = hub.attach("ns", "a"), hub.attach("ns", "b")
    handle, at = sender.open("q"), reader.open("q")
    assert [sender.send(handle, bytes([i])) for i in range(3)] == [1, 1, -12]
    assert reader.peek(at) == b"\0"
    reader.drop(at)
    assert (reader.peek(at), sender.send(handle, b"!")) == (b"\1", 1)


def test_all_channels_of_a_pod_share_its_bytes(hub: ChannelHub) -> None:
    sender, reader = hub.attach("ns", "a"), hub.attach("ns", "b")
    for name in ("p", "q"):
        sender.open(name)
        reader.open(name)
    assert [sender.send(1, b"x" * 100), sender.send(2, b"x" * 100), sender.send(1, b"x" * 60)] == [1, 1, -12]
    assert reader.close(2) == 0
    assert sender.send(1, b"x" * 60) == 1


def test_bad_handles_and_bad_messages(hub: ChannelHub) -> None:
    table = hub.attach("ns", "a")
    table.open("c")
    assert [table.send(9, b"x"), table.peek(0), table.close(-1 & 0xFFFFFFFF)] == [-9, -9, -9]
    assert [table.send(1, b""), table.send(1, b"x" * 101), table.send(1, b"x")] == [-22, -22, 0]


def test_channels_are_reopened_under_their_handles_with_nothing_queued(hub: ChannelHub) -> None:
    sender, table = hub.attach("ns", "a"), hub.attach("ns", "b")
    sender.open("far")
    table.open("far")
    sender.send(1, b"lost")
    table.reopen([Channel(7, "far"), Channel(2, "near")])
    assert table.snapshot() == [Channel(2, "near"), Channel(7, "far")]
    assert (table.peek(7), table.open("far"), table.open("new")) == (b"", 7, 1)
    assert sender.send(1, b"again") == 1


def test_a_pod_that_ended_gets_nothing_and_its_successor_does(hub: ChannelHub) -> None:
    sender, old = hub.attach("ns", "a"), hub.attach("ns", "b")
    sender.open("c")
    old.open("c")
    new = hub.attach("ns", "b")
    new.open("c")
    old.detach()
    assert (sender.send(1, b"m"), new.peek(1), old.peek(1)) == (1, b"m", b"")
    new.detach()
    assert sender.send(1, b"m") == 0


def test_pods_on_many_threads_lose_no_message(hub: ChannelHub) -> None:
    hub = ChannelHub(LIMITS.replace(pod_channel_queue=4000))
    reader = hub.attach("ns", "reader")
    reader.open("c")

    def send(key: str) -> None:
        table = hub.attach("ns", key)
        table.open("c")
        for _ in range(500):
            assert table.send(1, key.encode()) >= 1

    threads = [threading.Thread(target=send, args=(f"t{i}",)) for i in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    count = 0
    while reader.peek(1):
        reader.drop(1)
        count += 1
    assert count == 2000
