"""Where a pod's paths lead: mounts, `..` never leaves one, no symlink is followed, an emptyDir's room."""

import os
import stat
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path


class NoSuchPath(Exception):
    """The path is outside every mount, or `..` would leave one."""


class NoRoom(Exception):
    """A write or a new file goes past what the mount may hold."""


@dataclass(slots=True)
class Mount:
    """A volume in a container. `path` is where the pod sees it; `quota` is in bytes, None for no limit."""

    path: str
    source: Path
    read_only: bool
    quota: int | None = None


@dataclass(frozen=True, slots=True)
class Place:
    """A file's place: the mount, and the names below its source."""

    room: "Room"
    names: tuple[str, ...]

    def open(self, flags: int, mode: int) -> int:
        """An OS descriptor. Directories on the way are opened one by one, and none of the names may be a
        symlink.
        """
        flags |= os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK
        if not self.names:
            return os.open(self.room.mount.source, flags, mode)
        parent = self._parent()
        try:
            return os.open(self.names[-1], flags, mode, dir_fd=parent)
        finally:
            os.close(parent)

    def stat(self) -> os.stat_result:
        """What is there, a symlink itself."""
        if not self.names:
            return os.lstat(self.room.mount.source)
        parent = self._parent()
        try:
            return os.stat(self.names[-1], dir_fd=parent, follow_symlinks=False)
        finally:
            os.close(parent)

    def remove(self) -> None:
        """Removes a file."""
        if not self.names:
            raise IsADirectoryError
        parent = self._parent()
        try:
            os.unlink(self.names[-1], dir_fd=parent)
        finally:
            os.close(parent)

    def _parent(self) -> int:
        flags = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
        parent = os.open(self.room.mount.source, flags)
        for name in self.names[:-1]:
            try:
                below = os.open(name, flags | os.O_NOFOLLOW, dir_fd=parent)
            finally:
                os.close(parent)
            parent = below
        return parent


class Room:
    """A mount and what its files take: bytes and their number, counted from what is there at first."""

    def __init__(self, mount: Mount, files_limit: int) -> None:
        self.mount = mount
        self._files_limit = files_limit
        self._bytes = 0
        self._files = 0
        if mount.quota is not None:
            self._count(mount.source)

    def resize(self, before: int, after: int) -> None:
        """A file goes from `before` to `after` bytes; NoRoom when it may not."""
        if (
            self.mount.quota is not None
            and after > before
            and self._bytes + after - before > self.mount.quota
        ):
            raise NoRoom
        self._bytes += after - before

    def add_file(self) -> None:
        """A file is made; NoRoom when there are too many."""
        if self.mount.quota is not None and self._files >= self._files_limit:
            raise NoRoom
        self._files += 1

    def remove_file(self, size: int) -> None:
        """A file of `size` bytes is gone."""
        self._files -= 1
        self._bytes -= size

    def _count(self, source: Path) -> None:
        if not source.is_dir():  # a single file, there or not yet
            if source.is_file():
                self._files, self._bytes = 1, source.stat().st_size
            return
        for _, _, names, fd in os.fwalk(source):
            for name in names:
                found = os.stat(name, dir_fd=fd, follow_symlinks=False)
                if stat.S_ISREG(found.st_mode):
                    self._files += 1
                    self._bytes += found.st_size


class MountTable:
    """A container's mounts by path."""

    def __init__(self, mounts: Iterable[Mount], files_limit: int) -> None:
        self._rooms = {_names(m.path): Room(m, files_limit) for m in mounts}

    def resolve(self, path: str) -> Place:
        """The place of a path; NoSuchPath when no mount has it. Relative paths count from "/"."""
        stack: list[str] = []
        for name in path.split("/"):
            if name in ("", "."):
                continue
            if name != "..":
                stack.append(name)
                continue
            if tuple(stack) in self._rooms:
                raise NoSuchPath(path)
            del stack[-1:]
        for depth in range(len(stack), -1, -1):
            room = self._rooms.get(tuple(stack[:depth]))
            if room is not None:
                return Place(room, tuple(stack[depth:]))
        raise NoSuchPath(path)


def _names(path: str) -> tuple[str, ...]:
    return tuple(n for n in path.split("/") if n not in ("", "."))
