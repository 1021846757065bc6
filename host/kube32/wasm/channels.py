"""Channels: messages between the pods of one node and namespace (pod ABI, kube32_channel_*).

Handles are the lowest free number from 1. Queued messages are not carried by snapshots, names and handles
are.
"""

import threading
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field

from kube32.contract import ABI, Limits
from kube32.formats.k32s import Channel

_EBADF = ABI.errors["K32_EBADF"]
_ENOMEM = ABI.errors["K32_ENOMEM"]
_EINVAL = ABI.errors["K32_EINVAL"]


@dataclass(slots=True)
class _Open:
    """A channel that one pod has open, with the messages that wait in it."""

    name: str
    queue: deque[bytes] = field(default_factory=deque)


class ChannelHub:
    """All channels of a node. Thread-safe."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._lock = threading.Lock()
        self._tables: dict[str, dict[str, ChannelTable]] = {}

    def attach(self, namespace: str, pod_key: str) -> "ChannelTable":
        """A new, empty table for a pod; one that was attached under the same key is cut off."""
        table = ChannelTable(self, self._lock, self._limits, namespace, pod_key)
        with self._lock:
            self._tables.setdefault(namespace, {})[pod_key] = table
        return table

    def detach(self, table: "ChannelTable") -> None:
        """Takes a pod's table out; its messages are lost."""
        with self._lock:
            tables = self._tables.get(table.namespace, {})
            if tables.get(table.pod_key) is table:
                del tables[table.pod_key]
                if not tables:
                    del self._tables[table.namespace]

    def others(self, table: "ChannelTable") -> Iterable["ChannelTable"]:
        """The tables of the other pods of the namespace. Called with the lock held."""
        return [t for t in self._tables.get(table.namespace, {}).values() if t is not table]


class ChannelTable:
    """The channels of one pod. Results below zero are the ABI's errors."""

    def __init__(
        self, hub: ChannelHub, lock: threading.Lock, limits: Limits, namespace: str, pod_key: str
    ) -> None:
        self.namespace = namespace
        self.pod_key = pod_key
        self._hub = hub
        self._lock = lock
        self._limits = limits
        self._open: dict[int, _Open] = {}
        self._handles: dict[str, int] = {}
        self._queued_bytes = 0

    def open(self, name: str) -> int:
        """The handle of a channel, the same for the same name; -22 for a bad name, -12 when too many are
        open.
        """
        if not name or len(name.encode()) > self._limits.pod_channel_name_bytes:
            return _EINVAL
        with self._lock:
            if name in self._handles:
                return self._handles[name]
            if len(self._open) >= self._limits.pod_channels:
                return _ENOMEM
            handle = next(h for h in range(1, len(self._open) + 2) if h not in self._open)
            self._add(handle, name)
            return handle

    def send(self, handle: int, message: bytes) -> int:
        """The number of pods that got the message; -12 when there are receivers and none has room.

        An empty message is -22: the receiver could not tell it from none.
        """
        with self._lock:
            channel = self._open.get(handle)
            if channel is None:
                return _EBADF
            if not message or len(message) > self._limits.pod_channel_message_bytes:
                return _EINVAL
            receivers = [t for t in self._hub.others(self) if channel.name in t._handles]
            taken = sum(table._take(channel.name, message) for table in receivers)
            return _ENOMEM if receivers and not taken else taken

    def peek(self, handle: int) -> bytes | int:
        """The oldest message, b"" when there is none, or -9."""
        with self._lock:
            channel = self._open.get(handle)
            if channel is None:
                return _EBADF
            return channel.queue[0] if channel.queue else b""

    def drop(self, handle: int) -> None:
        """Takes the oldest message out, after `peek` gave it to the pod."""
        with self._lock:
            self._queued_bytes -= len(self._open[handle].queue.popleft())

    def close(self, handle: int) -> int:
        """0, or -9. Messages that wait are lost."""
        with self._lock:
            channel = self._open.pop(handle, None)
            if channel is None:
                return _EBADF
            del self._handles[channel.name]
            self._queued_bytes -= sum(map(len, channel.queue))
            return 0

    def snapshot(self) -> list[Channel]:
        """The open channels by handle."""
        with self._lock:
            return [Channel(handle, self._open[handle].name) for handle in sorted(self._open)]

    def reopen(self, channels: Iterable[Channel]) -> None:
        """Opens a snapshot's channels under their handles, before k32_restored."""
        with self._lock:
            self._open.clear()
            self._handles.clear()
            self._queued_bytes = 0
            for channel in channels:
                self._add(channel.handle, channel.name)

    def detach(self) -> None:
        """The pod has ended."""
        self._hub.detach(self)

    def _add(self, handle: int, name: str) -> None:
        self._open[handle] = _Open(name)
        self._handles[name] = handle

    def _take(self, name: str, message: bytes) -> bool:
        """Queues a message of another pod; False without room. Called with the lock held."""
        queue = self._open[self._handles[name]].queue
        if len(queue) >= self._limits.pod_channel_queue:
            return False
        if self._queued_bytes + len(message) > self._limits.pod_channel_bytes:
            return False
        queue.append(message)
        self._queued_bytes += len(message)
        return True
