"""Clocks of single processes that a test sets: a board that has no wall clock, a laptop that slept."""

import shutil
import struct
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from importlib.util import find_spec
from pathlib import Path

import pytest

_SOURCE = Path(__file__).with_name("clocks.c")


@dataclass
class Clocks:
    """The clocks of the processes that are started within `used`; they follow while these run."""

    library: Path
    file: Path
    wall_ahead_s: float = 0
    boot_ahead_s: float = 0

    def set(self, *, wall_ahead_s: float | None = None, boot_ahead_s: float | None = None) -> None:
        """How far the clocks stand ahead of this machine's."""
        self.wall_ahead_s = self.wall_ahead_s if wall_ahead_s is None else wall_ahead_s
        self.boot_ahead_s = self.boot_ahead_s if boot_ahead_s is None else boot_ahead_s
        with self.file.open("r+b" if self.file.exists() else "w+b") as file:
            file.write(struct.pack("<qq", int(self.wall_ahead_s * 1e9), int(self.boot_ahead_s * 1e9)))

    def unset(self) -> None:
        """The wall clock of a board that was just switched on: the second minute of 1970."""
        self.set(wall_ahead_s=60 - time.time())

    @contextmanager
    def used(self) -> Iterator[None]:
        """Processes that are started inside have these clocks."""
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("LD_PRELOAD", str(self.library))
            patch.setenv("KUBE32_TEST_CLOCKS", str(self.file))
            yield


@cache
def _compiler() -> tuple[str, ...]:
    if find_spec("ziglang") is not None:
        return sys.executable, "-m", "ziglang", "cc"
    found = next((name for name in ("cc", "clang", "gcc") if shutil.which(name)), None)
    return (found,) if found else ()


def make_clocks(folder: Path, name: str) -> Clocks:
    """New clocks, which go as this machine's do. Skips the test where nothing can be preloaded."""
    if sys.platform != "linux" or not _compiler():
        pytest.skip("a process's clocks are set by LD_PRELOAD, on Linux and with a C compiler")
    library = folder / "clocks.so"
    if not library.exists():
        flags = ["-O1", "-shared", "-fPIC", "-nostdlib", "-fno-builtin", "-o", str(library)]
        subprocess.run([*_compiler(), *flags, str(_SOURCE)], check=True, capture_output=True, timeout=120)
    clocks = Clocks(library, folder / f"{name}.clocks")
    clocks.set()
    return clocks
