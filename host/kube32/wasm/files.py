"""A pod's open files (pod ABI, k32_fs_*). Descriptors are the lowest free number from 1.

Errors: no mount -2; a read-only mount, a directory, anything but a plain file -22; a full emptyDir -28.
"""

import errno
import os
import stat
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from kube32.contract import ABI, Limits, text
from kube32.wasm.mounts import Mount, MountTable, NoRoom, NoSuchPath, Place, Room

__all__ = ["FileTable", "Mount"]

_ENOENT = ABI.errors["K32_ENOENT"]
_EBADF = ABI.errors["K32_EBADF"]
_ENOMEM = ABI.errors["K32_ENOMEM"]
_EINVAL = ABI.errors["K32_EINVAL"]
_ENOSPC = ABI.errors["K32_ENOSPC"]
_READ, _WRITE, _CREATE, _TRUNCATE, _APPEND = (
    ABI.file_flags[f"K32_{n}"] for n in ("READ", "WRITE", "CREATE", "TRUNCATE", "APPEND")
)
_ALL_FLAGS = sum(ABI.file_flags.values())
_WRITING_FLAGS = _CREATE | _TRUNCATE | _APPEND
_SET, _CURRENT, _END = (ABI.seek[f"K32_SEEK_{n}"] for n in ("SET", "CUR", "END"))
_LARGEST = 0x7FFFFFFF
_FILE_MODE = 0o600
_ERRNO = {
    errno.ENOENT: _ENOENT,
    errno.ENOTDIR: _ENOENT,
    errno.ELOOP: _ENOENT,
    errno.ENOSPC: _ENOSPC,
    errno.EDQUOT: _ENOSPC,
    errno.EMFILE: _ENOMEM,
    errno.ENFILE: _ENOMEM,
    errno.ENOMEM: _ENOMEM,
}


@dataclass(slots=True)
class _File:
    """An open file. `fd` is the OS's; `position` is the pod's."""

    fd: int
    room: Room
    path: str
    flags: int
    position: int = 0

    @property
    def identity(self) -> tuple[int, int]:
        found = os.fstat(self.fd)
        return found.st_dev, found.st_ino


class FileTable:
    """The files of one container run. `close_all` at its end; the mounts' files stay."""

    def __init__(self, limits: Limits, mounts: Iterable[Mount] = ()) -> None:
        self._limits = limits
        self._mounts = MountTable(mounts, limits.pod_empty_dir_files)
        self._open: dict[int, _File] = {}

    def open(self, path: str, flags: int) -> int:
        """A descriptor. CREATE makes a file, not directories; CREATE, TRUNCATE and APPEND need WRITE."""
        if flags & ~_ALL_FLAGS or not flags & (_READ | _WRITE):
            return _EINVAL
        if flags & _WRITING_FLAGS and not flags & _WRITE:
            return _EINVAL
        if not path or "\0" in path:
            return _EINVAL
        if len(self._open) >= self._limits.pod_files:
            return _ENOMEM
        return _guarded(lambda: self._add(self._open_file(path, flags)))

    def read(self, descriptor: int, into: memoryview) -> int:
        """Reads at the position into `into`; the bytes read, 0 at the end."""
        file = self._open.get(descriptor)
        if file is None or not file.flags & _READ:
            return _EBADF

        def read() -> int:
            count = os.preadv(file.fd, [into], file.position) if len(into) else 0
            file.position += count
            return count

        return _guarded(read)

    def write(self, descriptor: int, data: memoryview) -> int:
        """Writes at the position, or at the end with APPEND; all of it, or nothing with -28."""
        file = self._open.get(descriptor)
        if file is None or not file.flags & _WRITE:
            return _EBADF
        return _guarded(lambda: _write(file, data))

    def seek(self, descriptor: int, offset: int, whence: int) -> int:
        """The new position; past the end is allowed, before the beginning is -22."""
        file = self._open.get(descriptor)
        if file is None:
            return _EBADF
        if whence not in (_SET, _CURRENT, _END):
            return _EINVAL
        start = {_SET: 0, _CURRENT: file.position}.get(whence)
        position = offset + (os.fstat(file.fd).st_size if start is None else start)
        if not 0 <= position <= _LARGEST:
            return _EINVAL
        file.position = position
        return position

    def size(self, descriptor: int) -> int:
        """The file's size in bytes."""
        file = self._open.get(descriptor)
        return _EBADF if file is None else min(os.fstat(file.fd).st_size, _LARGEST)

    def close(self, descriptor: int) -> int:
        """0, or -9."""
        file = self._open.pop(descriptor, None)
        if file is None:
            return _EBADF
        os.close(file.fd)
        return 0

    def remove(self, path: str) -> int:
        """Removes a file that is not open; -22 for one that is, and for a directory."""
        if not path or "\0" in path:
            return _EINVAL
        return _guarded(lambda: self._remove(path))

    def blockers(self) -> list[str]:
        """The open files as the specification's blockers, by descriptor."""
        return [text("blockers", "open_file", path=self._open[fd].path, fd=fd) for fd in sorted(self._open)]

    def close_all(self) -> None:
        """The container has ended."""
        while self._open:
            os.close(self._open.popitem()[1].fd)

    def _add(self, file: _File) -> int:
        descriptor = next(n for n in range(1, len(self._open) + 2) if n not in self._open)
        self._open[descriptor] = file
        return descriptor

    def _open_file(self, path: str, flags: int) -> _File:
        place = self._mounts.resolve(path)
        room = place.room
        if flags & _WRITE and room.mount.read_only:
            raise PermissionError(errno.EROFS, path)
        access = (
            os.O_RDWR if flags & _WRITE and flags & _READ else os.O_WRONLY if flags & _WRITE else os.O_RDONLY
        )
        fd = _create(place, access) if flags & _CREATE else place.open(access, 0)
        try:
            found = os.fstat(fd)
            if not stat.S_ISREG(found.st_mode):
                raise IsADirectoryError(errno.EISDIR, path)
            if flags & _TRUNCATE:
                os.ftruncate(fd, 0)
                room.resize(found.st_size, 0)
            return _File(fd, room, path, flags)
        except BaseException:
            os.close(fd)
            raise

    def _remove(self, path: str) -> int:
        place = self._mounts.resolve(path)
        if place.room.mount.read_only:
            return _EINVAL
        found = place.stat()
        if not stat.S_ISREG(found.st_mode):
            return _EINVAL
        # Its bytes would stay until the last descriptor closes, uncounted.
        if any(f.identity == (found.st_dev, found.st_ino) for f in self._open.values()):
            return _EINVAL
        place.remove()
        place.room.remove_file(found.st_size)
        return 0


def _create(place: Place, access: int) -> int:
    try:
        return place.open(access, 0)
    except FileNotFoundError:
        place.room.add_file()
    try:
        return place.open(access | os.O_CREAT | os.O_EXCL, _FILE_MODE)
    except BaseException:
        place.room.remove_file(0)
        raise


def _write(file: _File, data: memoryview) -> int:
    size = os.fstat(file.fd).st_size
    start = size if file.flags & _APPEND else file.position
    end = start + len(data)
    if end > _LARGEST:
        raise OSError(errno.ENOSPC, file.path)
    if not len(data):
        return 0
    file.room.resize(size, max(size, end))
    try:
        written = os.pwritev(file.fd, [data], start)
    except OSError:
        file.room.resize(max(size, end), size)
        raise
    if written < len(data):
        file.room.resize(max(size, end), max(size, start + written))
    file.position = start + written
    return written


def _guarded(operation: Callable[[], int]) -> int:
    """The operation's result, or the ABI's error for what it raised."""
    try:
        return operation()
    except NoSuchPath:
        return _ENOENT
    except NoRoom:
        return _ENOSPC
    except OSError as fault:
        return _ERRNO.get(fault.errno or 0, _EINVAL)
