"""The records of a snapshot, what a restoring pod expects of one, and the one error of reading."""

from array import array
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

from kube32.contract import text
from kube32.formats.wasm_module import TableDecl

Buffer: TypeAlias = bytes | bytearray | memoryview


class SnapshotRefused(Exception):
    """A snapshot that is not taken. `cause` and str() are the contract's text (messages, "refusals")."""

    def __init__(self, cause: str) -> None:
        super().__init__(cause)
        self.cause = cause


def refused(name: str, /, **fields: object) -> SnapshotRefused:
    """The refusal with the contract's text `name`."""
    return SnapshotRefused(text("refusals", name, **fields))


@dataclass(frozen=True, slots=True)
class Header:
    """The 68 bytes at the front. Times in ms; `unix_time_ms` is 0 when the node's clock was unset."""

    version: int
    flags: int
    image_sha256: bytes
    memory_bytes: int
    memory_pages: int
    pod_time_ms: int
    unix_time_ms: int
    section_count: int


@dataclass(slots=True)
class Global:
    """A mutable global. `bits`: i32 and f32 zero-extended, NaN bits kept, funcref an index or 0xFFFFFFFF."""

    index: int
    type: str
    bits: int


@dataclass(slots=True, eq=False)
class Table:
    """A table's entries: function indexes as u32, 0xFFFFFFFF for null. Equal whatever sequence holds them."""

    index: int
    entries: Sequence[int] = field(default_factory=lambda: array("I"))

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Table):
            return NotImplemented
        return self.index == other.index and list(self.entries) == list(other.entries)

    __hash__ = None  # type: ignore[assignment]


@dataclass(slots=True)
class Channel:
    """A channel that the pod has open."""

    handle: int
    name: str


@dataclass(slots=True)
class HeldEvent:
    """An event that arrived while the pod was frozen."""

    topic: str
    payload: bytes


@dataclass(slots=True)
class Snapshot:
    """A pod's state between two calls. `memory` may be a live view of linear memory; it is not copied.

    Memory stays out of repr: it may hold secrets and ends up in no log.
    """

    image_sha256: bytes
    memory_bytes: int
    memory_pages: int
    pod_time_ms: int
    unix_time_ms: int
    memory: Buffer = field(repr=False)
    globals: list[Global] = field(default_factory=list)
    tables: list[Table] = field(default_factory=list)
    channels: list[Channel] = field(default_factory=list)
    events: list[HeldEvent] = field(default_factory=list)


@dataclass(slots=True)
class Expectation:
    """What the module and the pod spec allow a snapshot to be. Sizes in bytes or 64 KiB pages as named.

    `restorable_functions` are the indexes that a funcref may have; None allows each below `function_count`.
    """

    image_sha256: bytes
    memory_limit_bytes: int
    memory_maximum_pages: int | None
    memory_minimum_pages: int
    mutable_globals: list[tuple[int, str]]
    tables: list[TableDecl]
    function_count: int
    restorable_functions: frozenset[int] | None = None

    def has_function(self, index: int) -> bool:
        """Whether a funcref of the module may name function `index`."""
        if self.restorable_functions is not None:
            return index in self.restorable_functions
        return index < self.function_count


@dataclass(frozen=True, slots=True)
class SectionSeen:
    """A section as it stands in the stream: where its header begins and how long its content is, in bytes."""

    type: int
    offset: int
    length: int
