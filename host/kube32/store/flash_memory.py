"""A flash in memory whose power can be cut at and inside every operation, as nastily as real ones fail.

It is what tests of a log stand on; the same model holds for the firmware's log (decisions, "Store, watches,
journal").
"""

from random import Random

from kube32.contract import K32L
from kube32.formats.k32l import Geometry

_NEIGHBOURHOOD_BYTES = 16384
# Blocks that a block device writes as one, in a sector.
_BLOCKS = 8
Saved = tuple[bytes, dict[int, tuple[bytes, bytes]]]


class PowerCut(Exception):
    """The power failed inside an operation; nothing works until `reboot`."""


class MemoryFlash:
    """An array of sectors. Operations count as one for an erased sector and one for each programmed page.

    In mode "flash" they happen in order. A cut leaves any bits in the page being programmed, and each bit old
    or 1 in the sector being erased; what was torn reads differently after each `reboot`, until it is erased.
    In mode "block", a file on a disk or card, a cut leaves any part of what was written since the last `sync`,
    in blocks that are whole and stay as they are.

    A program that would set a bit, or that comes twice to one place, is an AssertionError: the log's fault.
    """

    def __init__(self, geometry: Geometry, mode: str = "flash", seed: int = 0) -> None:
        self.geometry = geometry
        self.mode = mode
        self.random = Random(seed)
        self.image = bytearray([K32L.blank]) * geometry.size
        self.erases = [0] * geometry.sectors
        self.programmed_bytes = 0
        self.operations = 0
        self.read_bytes = 0
        self._blank_sector = bytes([K32L.blank]) * geometry.sector_bytes
        self._torn: dict[int, tuple[bytes, bytes]] = {}
        self._synced: dict[int, bytes] = {}
        self._block_bytes = max(64, geometry.sector_bytes // _BLOCKS)
        self._cut_in = 0
        self._off = False

    def read(self, offset: int, length: int) -> bytes:
        """See Flash."""
        self.read_bytes += length
        return bytes(self.image[offset : offset + length])

    def erase(self, slot: int) -> None:
        """See Flash."""
        size, page = self.geometry.sector_bytes, self.geometry.page_bytes
        begin = slot * size
        self._keep(begin, size)
        self.erases[slot] += 1
        if self._cut() and self.mode == "flash":
            old = bytes(self.image[begin : begin + size])
            for at in range(0, size, page):
                self._torn[begin + at] = old[at : at + page], self._blank_sector[:page]
            self.image[begin : begin + size] = self._either(old, self._blank_sector)
            raise PowerCut
        self.image[begin : begin + size] = self._blank_sector
        if self._torn:
            for at in range(begin, begin + size, page):
                self._torn.pop(at, None)
        self._check()

    def program(self, offset: int, data: bytes) -> None:
        """See Flash."""
        size, page = self.geometry.sector_bytes, self.geometry.page_bytes
        assert offset // size == (offset + len(data) - 1) // size, "a program crosses the end of a sector"
        assert self.image.startswith(self._blank_sector[: len(data)], offset), "a place is programmed twice"
        self._keep(offset, len(data))
        self.programmed_bytes += len(data)
        done = 0
        while done < len(data):
            at = offset + done
            count = min(len(data) - done, page - at % page)
            assert at - at % page not in self._torn, "a torn page is programmed"
            if self._cut() and self.mode == "flash":
                begin = at - at % page
                old = bytes(self.image[begin : begin + page])
                new = bytearray(old)
                new[at - begin : at - begin + count] = data[done : done + count]
                self._torn[begin] = old, bytes(new)
                self.image[begin : begin + page] = self._any(old, bytes(new))
                raise PowerCut
            self.image[at : at + count] = data[done : done + count]
            done += count
            self._check()

    def sync(self) -> None:
        """See Flash."""
        self._check()
        self._synced.clear()

    def close(self) -> None:
        """Nothing to give up."""

    # --- what tests do to it ---

    def cut_after(self, operations: int) -> None:
        """The power fails inside the operation of this number, counted from now; 0: never."""
        self._cut_in = operations

    def reboot(self) -> None:
        """The power is back. Torn pages read in some other way than before."""
        self._off = False
        self._cut_in = 0
        self._synced.clear()
        for at, (old, new) in self._torn.items():
            self.image[at : at + len(old)] = self._any(old, new)

    def flip(self, bit: int) -> None:
        """Turns one bit of the image over."""
        self.image[bit // 8] ^= 1 << bit % 8

    def lose_neighbourhood(self, offset: int, old: bytes) -> None:
        """The 16 KiB around an offset are as they were in an older image."""
        begin = offset - offset % _NEIGHBOURHOOD_BYTES
        self.image[begin : begin + _NEIGHBOURHOOD_BYTES] = old[begin : begin + _NEIGHBOURHOOD_BYTES]

    def save(self) -> Saved:
        """The image with what is torn in it, for `load`."""
        return bytes(self.image), dict(self._torn)

    def load(self, saved: Saved, seed: int) -> None:
        """Goes back to a saved state; what chance does from here on follows from `seed`."""
        self.image[:] = saved[0]
        self._torn = dict(saved[1])
        self._synced.clear()
        self.random.seed(seed)
        self._off = False
        self._cut_in = 0

    # --- the power ---

    def _cut(self) -> bool:
        """Counts an operation; true when the power fails in it."""
        self._check()
        self.operations += 1
        if self._cut_in:
            self._cut_in -= 1
            self._off = self._cut_in == 0
        return self._off

    def _check(self) -> None:
        if self._off:
            if self.mode == "block":
                for at, old in self._synced.items():
                    if self.random.random() < 0.5:
                        self.image[at : at + len(old)] = old
                self._synced.clear()
            raise PowerCut

    def _keep(self, offset: int, length: int) -> None:
        """Block mode: remembers what is durable of the blocks that are being written."""
        if self.mode == "block":
            size = self._block_bytes
            for at in range(offset - offset % size, offset + length, size):
                if at not in self._synced:
                    self._synced[at] = bytes(self.image[at : at + size])

    def _any(self, old: bytes, new: bytes) -> bytes:
        """What a torn page may read as: one of the two, some of each, or anything."""
        chance = self.random.random()
        if chance < 0.25:
            return old
        if chance < 0.5:
            return new
        if chance < 0.7:
            cut = self.random.randrange(len(old) + 1)
            return new[:cut] + old[cut:]
        if chance < 0.85:
            return self._either(old, new)
        return self.random.randbytes(len(old))

    def _either(self, old: bytes, new: bytes) -> bytes:
        """Each bit from one of two contents."""
        mask = int.from_bytes(self.random.randbytes(len(old)), "little")
        if self.random.random() < 0.5:
            mask &= int.from_bytes(self.random.randbytes(len(old)), "little")
            mask &= int.from_bytes(self.random.randbytes(len(old)), "little")
        first, second = int.from_bytes(old, "little"), int.from_bytes(new, "little")
        return (first ^ ((first ^ second) & mask)).to_bytes(len(old), "little")
