"""A walk over function bodies of our feature set: where each instruction stands. For modules that wasmtime
validated.
"""

from collections.abc import Iterator

_NONE, _LEB, _LEB2, _BLOCK, _BR_TABLE, _SELECT, _BYTE, _F32, _F64, _PREFIX = range(10)

SELECT_TYPED = 0x1C
MEMORY_SIZE = 0x3F
MEMORY_GROW = 0x40
_BLOCKS = (0x02, 0x03, 0x04)
_PREFIXED = 0xFC


def _kinds() -> bytes:
    """The kind of immediates by opcode."""
    kinds = bytearray(256)
    for op in (0x0C, 0x0D, 0x10, *range(0x20, 0x27), 0x41, 0x42, 0xD2):
        kinds[op] = _LEB
    for op in (0x11, *range(0x28, 0x3F)):
        kinds[op] = _LEB2
    for op in (MEMORY_SIZE, MEMORY_GROW, 0xD0):
        kinds[op] = _BYTE
    for op in _BLOCKS:
        kinds[op] = _BLOCK
    kinds[0x0E], kinds[SELECT_TYPED] = _BR_TABLE, _SELECT
    kinds[0x43], kinds[0x44], kinds[_PREFIXED] = _F32, _F64, _PREFIX
    return bytes(kinds)


_KINDS = _kinds()
# memory.init, memory.copy, table.init and table.copy have two immediates, memory.fill, data.drop and so on
# one.
_PREFIX_TWO = (8, 10, 12, 14)
_PREFIX_ONE = (9, 11, 13, 15, 16, 17)


def leb(data: bytes, position: int) -> tuple[int, int]:
    """An unsigned LEB128 and the position after it."""
    value = shift = 0
    while True:
        group = data[position]
        position += 1
        value |= (group & 0x7F) << shift
        if group < 0x80:
            return value, position
        shift += 7


def encode_leb(value: int) -> bytes:
    """The shortest unsigned LEB128."""
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def bodies(data: bytes, start: int, end: int) -> Iterator[tuple[int, int]]:
    """Start and end of each function body in the code section's payload, without its size."""
    count, position = leb(data, start)
    for _ in range(count):
        size, position = leb(data, position)
        yield position, position + size
        position += size
    if position != end:
        raise ValueError(f"the code section ends at {position}, not at {end}")


def locals_of(data: bytes, start: int) -> tuple[list[int], int]:
    """The types of a body's groups of locals, by their first byte, and where the instructions begin."""
    groups, position = leb(data, start)
    types = []
    for _ in range(groups):
        _, position = leb(data, position)
        types.append(data[position])
        # A reference type of two bytes, (ref null func), is not of our feature set, but has to be passed.
        position += 2 if data[position] in (0x63, 0x64) else 1
    return types, position


def instructions(data: bytes, start: int, end: int) -> Iterator[tuple[int, int, int]]:
    """(opcode, start, next) of each instruction between `start` and `end`."""
    position = start
    while position < end:
        at, op = position, data[position]
        position += 1
        kind = _KINDS[op]
        if kind == _LEB:
            position = _past_leb(data, position)
        elif kind == _LEB2:
            position = _past_leb(data, _past_leb(data, position))
        elif kind == _BYTE:
            position += 1
        elif kind == _BLOCK:
            position = _past_block_type(data, position)
        elif kind != _NONE:
            position = _past_rare(data, position, kind)
        yield op, at, position


def _past_leb(data: bytes, position: int) -> int:
    while data[position] > 0x7F:
        position += 1
    return position + 1


def _past_block_type(data: bytes, position: int) -> int:
    return (
        position + 2
        if data[position] in (0x63, 0x64) and data[position + 1] == 0x70
        else _past_leb(data, position)
    )


def _past_rare(data: bytes, position: int, kind: int) -> int:
    if kind == _F32:
        return position + 4
    if kind == _F64:
        return position + 8
    if kind == _BR_TABLE:
        count, position = leb(data, position)
        for _ in range(count + 1):
            position = _past_leb(data, position)
        return position
    if kind == _SELECT:
        count, position = leb(data, position)
        for _ in range(count):
            position += 2 if data[position] in (0x63, 0x64) else 1
        return position
    operation, position = leb(data, position)
    if operation in _PREFIX_TWO:
        return _past_leb(data, _past_leb(data, position))
    return _past_leb(data, position) if operation in _PREFIX_ONE else position
