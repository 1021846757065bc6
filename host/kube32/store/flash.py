"""The flash under a log: what a log needs of it, and the make that is a file."""

import errno
import fcntl
import os
import stat
from contextlib import suppress
from pathlib import Path
from typing import Protocol

from kube32.contract import K32L
from kube32.formats.k32l import Geometry

_BLANK = bytes([K32L.blank])
_CREATE_BYTES = 1 << 20


class FlashError(Exception):
    """The flash cannot be used, or an operation failed; str() is one sentence that names it and the cause."""


class Flash(Protocol):
    """Sectors that are erased as a whole (to 0xFF), then programmed in places that are still erased."""

    @property
    def geometry(self) -> Geometry:
        """The sizes."""
        ...

    def read(self, offset: int, length: int) -> bytes:
        """Bytes of the image; operations that are not synced are seen. FlashError."""
        ...

    def erase(self, slot: int) -> None:
        """Sets a sector to 0xFF. FlashError."""
        ...

    def program(self, offset: int, data: bytes) -> None:
        """Writes within one sector, where it is erased. FlashError."""
        ...

    def sync(self) -> None:
        """Returns when all operations until now are durable. FlashError: they may be or not."""
        ...

    def close(self) -> None:
        """Gives the flash up."""
        ...


class FileFlash:
    """A preallocated file. Operations are kept in memory until `sync`, which writes and syncs what they touch.

    After a failed sync every call fails: what the operating system does with such pages is not known.
    """

    def __init__(self, path: Path, geometry: Geometry, fd: int) -> None:
        self.geometry = geometry
        self._path = path
        self._fd = fd
        self._dirty: dict[int, bytearray] = {}
        self._touched: dict[int, tuple[int, int]] = {}
        self._failure: FlashError | None = None

    @classmethod
    def open(cls, path: Path, geometry: Geometry, *, read_only: bool = False) -> "FileFlash":
        """Opens the image, which is made whole if it is not there. FlashError.

        It is locked against other processes unless `read_only`.
        """
        try:
            if not read_only and not path.exists():
                _create(path, geometry.size)
            fd = os.open(path, os.O_RDONLY if read_only else os.O_RDWR | os.O_DSYNC)
        except OSError as error:
            raise FlashError(f"{path}: {_cause(error)}") from None
        try:
            status = os.fstat(fd)
            if not stat.S_ISREG(status.st_mode):
                raise FlashError(f"{path} is not a file")
            if status.st_size != geometry.size:
                raise FlashError(
                    f"{path} has {status.st_size} bytes, a journal of {geometry.size} was expected"
                )
            if not read_only:
                _lock(fd, path)
        except BaseException:
            os.close(fd)
            raise
        return cls(path, geometry, fd)

    def read(self, offset: int, length: int) -> bytes:
        """See Flash."""
        self._check()
        size = self.geometry.sector_bytes
        if any(slot in self._dirty for slot in range(offset // size, (offset + length - 1) // size + 1)):
            parts = []
            while length > 0:
                slot, begin = divmod(offset, size)
                taken = min(length, size - begin)
                held = self._dirty.get(slot)
                data = self._read(offset, taken) if held is None else bytes(held[begin : begin + taken])
                parts.append(data)
                offset, length = offset + taken, length - taken
            return b"".join(parts)
        return self._read(offset, length)

    def _read(self, offset: int, length: int) -> bytes:
        try:
            data = os.pread(self._fd, length, offset)
        except OSError as error:
            raise FlashError(f"{self._path}: {_cause(error)}") from None
        if len(data) != length:
            raise FlashError(f"{self._path} ends at byte {offset + len(data)}")
        return data

    def erase(self, slot: int) -> None:
        """See Flash."""
        self._check()
        size = self.geometry.sector_bytes
        self._dirty[slot] = bytearray(_BLANK * size)
        self._touched[slot] = (0, size)

    def program(self, offset: int, data: bytes) -> None:
        """See Flash."""
        self._check()
        slot, begin = divmod(offset, self.geometry.sector_bytes)
        end = begin + len(data)
        held = self._dirty.get(slot)
        if held is None:
            held = self._dirty[slot] = bytearray(
                self._read(slot * self.geometry.sector_bytes, self.geometry.sector_bytes)
            )
            self._touched[slot] = (begin, end)
        else:
            first, last = self._touched[slot]
            self._touched[slot] = (min(first, begin), max(last, end))
        held[begin:end] = data

    def sync(self) -> None:
        """See Flash."""
        self._check()
        size = self.geometry.sector_bytes
        at, run = 0, b""
        try:
            for slot in sorted(self._dirty):
                first, last = self._touched[slot]
                piece = bytes(self._dirty[slot][first:last])
                if run and slot * size + first == at + len(run):
                    run += piece
                    continue
                self._write(at, run)
                at, run = slot * size + first, piece
            self._write(at, run)
        except OSError as error:
            self._failure = FlashError(f"{self._path}: {_cause(error)}")
            raise self._failure from None
        self._dirty.clear()
        self._touched.clear()

    def _write(self, offset: int, data: bytes) -> None:
        while data:
            written = os.pwrite(self._fd, data, offset)
            offset, data = offset + written, data[written:]

    def close(self) -> None:
        """Gives the file and its lock up. What was not synced is dropped."""
        self._failure = FlashError(f"{self._path} is closed")
        with suppress(OSError):
            os.close(self._fd)

    def _check(self) -> None:
        if self._failure is not None:
            raise self._failure


def _create(path: Path, size: int) -> None:
    """Makes an erased image, whole or not at all. OSError."""
    draft = path.with_name(path.name + ".new")
    try:
        with draft.open("wb") as file:
            for begin in range(0, size, _CREATE_BYTES):
                file.write(_BLANK * min(_CREATE_BYTES, size - begin))
            file.flush()
            os.fsync(file.fileno())
        draft.chmod(0o600)
        draft.rename(path)
    except OSError:
        with suppress(OSError):
            draft.unlink()
        raise
    directory = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(directory)
    finally:
        os.close(directory)


def _lock(fd: int, path: Path) -> None:
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        if error.errno in (errno.EACCES, errno.EAGAIN):
            raise FlashError(f"{path} is in use by another process") from None
        raise FlashError(f"{path} cannot be locked: {_cause(error)}") from None


def _cause(error: OSError) -> str:
    return error.strerror or str(error)
