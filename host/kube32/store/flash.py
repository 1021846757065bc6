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
        self._blank = _BLANK * geometry.sector_bytes
        # What is not synced: by offset of the first byte, pieces that do not overlap, in the order of operations.
        self._pieces: list[tuple[int, bytearray]] = []
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
        data = self._read(offset, length)
        for at, piece in self._pieces:
            if at < offset + length and offset < at + len(piece):
                over = bytearray(data)
                first, last = max(at, offset), min(at + len(piece), offset + length)
                over[first - offset : last - offset] = piece[first - at : last - at]
                data = bytes(over)
        return data

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
        self._put(slot * self.geometry.sector_bytes, self._blank)

    def program(self, offset: int, data: bytes) -> None:
        """See Flash."""
        self._check()
        self._put(offset, data)

    def _put(self, offset: int, data: bytes) -> None:
        """Keeps bytes: within the last piece, behind it, or as a piece of their own."""
        if self._pieces:
            at, last = self._pieces[-1]
            if at <= offset <= at + len(last):
                last[offset - at : offset - at + len(data)] = data
                return
        self._pieces.append((offset, bytearray(data)))

    def sync(self) -> None:
        """See Flash."""
        self._check()
        try:
            for offset, data in self._pieces:
                self._write(offset, data)
        except OSError as error:
            self._failure = FlashError(f"{self._path}: {_cause(error)}")
            raise self._failure from None
        self._pieces.clear()

    def _write(self, offset: int, data: bytearray) -> None:
        written = os.pwrite(self._fd, data, offset)
        while written < len(data):
            written += os.pwrite(self._fd, memoryview(data)[written:], offset + written)

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
