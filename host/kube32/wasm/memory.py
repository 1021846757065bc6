"""A pod's memory as the host functions see it: every pointer and length is unsigned and checked, nothing
wraps around.
"""

from kube32.contract import ABI
from kube32.wasm.native import Memory

EFAULT = ABI.errors["K32_EFAULT"]


class PodMemory:
    """Reads, writes and copy-outs. A range that ends past the memory, as it is at that moment, is refused."""

    __slots__ = ("_memory",)

    _memory: Memory

    def attach(self, memory: Memory) -> None:
        """The memory is there: the module has been instantiated."""
        self._memory = memory

    def holds(self, pointer: int, length: int) -> bool:
        """Whether the range is inside the memory."""
        return self._memory.holds(pointer, length)

    def read(self, pointer: int, length: int) -> bytes:
        """A copy of a range that `holds`."""
        return bytes(self._memory.view[pointer : pointer + length])

    def view(self, pointer: int, length: int) -> memoryview:
        """The range itself, for use within the host call only."""
        return self._memory.view[pointer : pointer + length]

    def write(self, pointer: int, data: bytes) -> None:
        """Writes to a range that `holds`."""
        self._memory.view[pointer : pointer + len(data)] = data

    def copy_out(self, data: bytes, pointer: int, capacity: int) -> int:
        """Writes at most `capacity` bytes and gives the full length (pod ABI, "copy-out"); -14 for a bad
        range.
        """
        memory = self._memory
        if not memory.holds(pointer, capacity):
            return EFAULT
        length = len(data)
        if length <= capacity:
            memory.view[pointer : pointer + length] = data
        else:
            memory.view[pointer : pointer + capacity] = data[:capacity]
        return length
