"""Reads the contents of the small sections. Each lie is a SnapshotRefused; counts are checked before use."""

import struct
import sys
from array import array

from kube32.contract import K32S, Limits
from kube32.formats.k32s.records import Buffer, Channel, Expectation, Global, HeldEvent, Table, refused

_U16 = struct.Struct("<H")
_U32 = struct.Struct("<I")
_NARROW = ("i32", "f32", "funcref")
_HANDLE_MAX = 0x7FFFFFFF


def largest(name: str, limits: Limits) -> int:
    """The most bytes that section `name` can have within the contract's limits."""
    bound = limits.k32s_small_section_bytes
    if name == "TABLE":
        return min(bound, K32S.table_header.size + 4 * limits.pod_table_elements)
    if name == "CHANNELS":
        return min(bound, limits.pod_channels * (_U32.size + _U16.size + limits.pod_channel_name_bytes))
    if name == "EVENTS":
        event = _U16.size + limits.pod_topic_bytes + _U32.size + limits.pod_payload_bytes
        return min(bound, limits.pod_held_events * event)
    return bound


def check_length(name: str, length: int, limits: Limits, expect: Expectation | None) -> None:
    """Refuses a section by its announced length alone."""
    if name == "GLOBALS" and expect is not None and length % K32S.global_entry.size == 0:
        found, wanted = length // K32S.global_entry.size, len(expect.mutable_globals)
        if found != wanted:
            raise refused("globals_count", found=found, expected=wanted)
    limit = largest(name, limits)
    if length > limit:
        raise refused("section_limit", name=name, found=length, unit="bytes", limit=limit)
    if name == "GLOBALS" and length % K32S.global_entry.size:
        raise refused("section_length", name=name, length=length)
    if name == "TABLE" and (length < K32S.table_header.size or length % 4):
        raise refused("section_length", name=name, length=length)


def read_globals(content: Buffer, expect: Expectation | None) -> list[Global]:
    """GLOBALS: ascending by index; with an Expectation exactly the module's mutable globals."""
    found: list[Global] = []
    previous = -1
    for place, (index, code, bits) in enumerate(K32S.global_entry.iter_unpack(content)):
        type_name = K32S.value_type_names.get(code)
        shown = type_name or f"0x{code:02X}"
        if type_name is None or (expect is not None and expect.mutable_globals[place] != (index, type_name)):
            raise refused("global_mismatch", index=index, found=shown)
        if index <= previous:
            raise refused("global_order", index=index)
        if type_name in _NARROW and bits > 0xFFFFFFFF:
            raise refused("global_bits", index=index, type=type_name, bits=f"0x{bits:016X}")
        if type_name == "funcref" and not _restorable(bits, expect):
            raise refused("global_function", index=index, function=bits)
        found.append(Global(index, type_name, bits))
        previous = index
    return found


def read_table(content: Buffer, limits: Limits, expect: Expectation | None) -> Table:
    """TABLE: index, size and exactly that many entries; with an Expectation a table of the module."""
    index, size = K32S.table_header.unpack_from(content)
    if K32S.table_header.size + 4 * size != len(content):
        raise refused("section_length", name="TABLE", length=len(content))
    if size > limits.pod_table_elements:
        raise refused(
            "section_limit", name="TABLE", found=size, unit="entries", limit=limits.pod_table_elements
        )
    if expect is not None:
        declared = expect.tables[index] if index < len(expect.tables) else None
        if (
            declared is None
            or size < declared.minimum
            or (declared.maximum is not None and size > declared.maximum)
        ):
            raise refused("table_mismatch", index=index, found=size)
    entries = array("I", bytes(content[K32S.table_header.size :]))
    if sys.byteorder == "big":
        entries.byteswap()
    if expect is not None:
        for function in set(entries):
            if not _restorable(function, expect):
                raise refused("table_entry", index=index, entry=entries.index(function), function=function)
    return Table(index, entries)


def read_channels(content: Buffer, limits: Limits) -> list[Channel]:
    """CHANNELS: positive handles and names, neither twice."""
    found: list[Channel] = []
    handles: set[int] = set()
    names: set[str] = set()
    walk = _Walk("CHANNELS", content)
    while walk.more():
        _room("CHANNELS", len(found), limits.pod_channels, "entries")
        handle, raw = walk.number(_U32), walk.sized(_U16)
        name = walk.text(raw, limits.pod_channel_name_bytes)
        if handle == 0 or handle in handles:
            raise refused("channel_handle", handle=handle)
        if handle > _HANDLE_MAX:
            raise refused("channel_range", handle=handle)
        if name in names:
            raise refused("channel_name", name=name)
        handles.add(handle)
        names.add(name)
        found.append(Channel(handle, name))
    return found


def read_events(content: Buffer, limits: Limits) -> list[HeldEvent]:
    """EVENTS: no more than a frozen pod holds."""
    found: list[HeldEvent] = []
    walk = _Walk("EVENTS", content)
    while walk.more():
        _room("EVENTS", len(found), limits.pod_held_events, "entries")
        topic = walk.text(walk.sized(_U16), limits.pod_topic_bytes)
        payload = walk.sized(_U32)
        if len(payload) > limits.pod_payload_bytes:
            raise walk.too_long(len(payload), "payload bytes", limits.pod_payload_bytes)
        found.append(HeldEvent(topic, bytes(payload)))
    return found


class _Walk:
    """Walks over counted entries of a section that is all there."""

    __slots__ = ("_content", "_name", "_position")

    def __init__(self, name: str, content: Buffer) -> None:
        self._name = name
        self._content = memoryview(content)
        self._position = 0

    def more(self) -> bool:
        return self._position < len(self._content)

    def number(self, form: struct.Struct) -> int:
        return int(form.unpack(self._take(form.size))[0])

    def sized(self, form: struct.Struct) -> memoryview:
        return self._take(self.number(form))

    def text(self, raw: memoryview, limit: int) -> str:
        if len(raw) > limit:
            raise self.too_long(len(raw), "name bytes", limit)
        try:
            return str(raw, "utf-8")
        except UnicodeDecodeError:
            raise refused("text_utf8", name=self._name) from None

    def too_long(self, found: int, unit: str, limit: int) -> Exception:
        return refused("section_limit", name=self._name, found=found, unit=unit, limit=limit)

    def _take(self, length: int) -> memoryview:
        if length > len(self._content) - self._position:
            raise refused("section_length", name=self._name, length=len(self._content))
        start = self._position
        self._position += length
        return self._content[start : self._position]


def _room(name: str, taken: int, limit: int, unit: str) -> None:
    """Refuses one entry more than the limit."""
    if taken >= limit:
        raise refused("section_limit", name=name, found=f"more than {limit}", unit=unit, limit=limit)


def _restorable(function: int, expect: Expectation | None) -> bool:
    return function == K32S.null_funcref or expect is None or expect.has_function(function)
