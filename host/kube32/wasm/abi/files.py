"""Host functions of files (k32_fs_*)."""

from collections.abc import Callable

from kube32.contract import ABI, Limits
from kube32.wasm.abi.state import signed, utf8
from kube32.wasm.files import FileTable
from kube32.wasm.memory import EFAULT, PodMemory

_EINVAL = ABI.errors["K32_EINVAL"]


class FileFunctions:
    """k32_fs_open to k32_fs_remove."""

    def __init__(self, files: FileTable, memory: PodMemory, limits: Limits) -> None:
        self._files = files
        self._memory = memory
        self._path_bytes = limits.pod_path_bytes

    def functions(self) -> dict[str, Callable[..., int | None]]:
        """By ABI name."""
        return {
            "k32_fs_open": self._open,
            "k32_fs_read": self._read,
            "k32_fs_write": self._write,
            "k32_fs_seek": lambda fd, offset, whence: self._files.seek(fd, signed(offset), whence),
            "k32_fs_size": self._files.size,
            "k32_fs_close": self._files.close,
            "k32_fs_remove": self._remove,
        }

    def _open(self, path: int, path_length: int, flags: int) -> int:
        if not self._memory.holds(path, path_length):
            return EFAULT
        shown = self._path(path, path_length)
        return _EINVAL if shown is None else self._files.open(shown, flags)

    def _read(self, descriptor: int, pointer: int, length: int) -> int:
        if not self._memory.holds(pointer, length):
            return EFAULT
        return self._files.read(descriptor, self._memory.view(pointer, length))

    def _write(self, descriptor: int, pointer: int, length: int) -> int:
        if not self._memory.holds(pointer, length):
            return EFAULT
        return self._files.write(descriptor, self._memory.view(pointer, length))

    def _remove(self, path: int, path_length: int) -> int:
        if not self._memory.holds(path, path_length):
            return EFAULT
        shown = self._path(path, path_length)
        return _EINVAL if shown is None else self._files.remove(shown)

    def _path(self, pointer: int, length: int) -> str | None:
        return None if length > self._path_bytes else utf8(self._memory.read(pointer, length))
