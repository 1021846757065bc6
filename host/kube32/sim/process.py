"""What surrounds the work of every kube32-sim process: data directory lock, ready file, signals, loop."""

import asyncio
import ctypes
import fcntl
import os
import signal
import sys
from collections.abc import Callable, Coroutine
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import orjson

from kube32.sim.options import StartError

# malloc.h of glibc
_M_TRIM_THRESHOLD = -1
_M_MMAP_THRESHOLD = -3


class DataDirLock:
    """Holds DIR/lock for the process's life, so that two processes never share a data directory."""

    def __init__(self, data_dir: Path) -> None:
        self._path = data_dir / "lock"
        self._fd = -1

    def __enter__(self) -> Self:
        try:
            self._fd = os.open(self._path, os.O_RDWR | os.O_CREAT, 0o600)
        except OSError as error:
            raise StartError(f"{self._path}: {error.strerror}; choose another --data-dir") from None
        try:
            fcntl.flock(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            owner = os.read(self._fd, 32).decode("ascii", "replace").strip() or "another process"
            os.close(self._fd)
            raise StartError(
                f"{self._path.parent} is in use by process {owner}; choose another --data-dir"
            ) from None
        os.ftruncate(self._fd, 0)
        os.write(self._fd, f"{os.getpid()}\n".encode())
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        os.close(self._fd)


def write_private(path: Path, content: str) -> None:
    """Writes a file of mode 0600, whole or not at all."""
    draft = path.with_name(path.name + ".new")
    draft.unlink(missing_ok=True)
    fd = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(fd, "w", encoding="utf-8") as file:
        file.write(content)
    draft.replace(path)


def write_ready_file(path: Path | None, facts: dict[str, Any]) -> None:
    """Tells whoever waits for it that the process serves; `facts` as JSON."""
    if path is None:
        return
    try:
        write_private(
            path, orjson.dumps({"pid": os.getpid(), **facts}, option=orjson.OPT_INDENT_2).decode() + "\n"
        )
    except OSError as error:
        raise StartError(f"--ready-file {path}: {error.strerror}") from None


async def until_signal() -> None:
    """Returns at SIGINT or SIGTERM; a second one ends the process at once."""
    loop = asyncio.get_running_loop()
    stop = asyncio.Event()

    def on_signal() -> None:
        if stop.is_set():
            os._exit(130)
        stop.set()

    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, on_signal)
    await stop.wait()


def keep_heap_small() -> None:
    """Has glibc give large blocks back at once: its own adaptive thresholds keep megabytes of freed bodies."""
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (OSError, AttributeError):
        return
    mallopt(_M_MMAP_THRESHOLD, 128 * 1024)
    mallopt(_M_TRIM_THRESHOLD, 1024 * 1024)


def run(main: Callable[[], Coroutine[Any, Any, None]]) -> None:
    """Runs the process on uvloop where it exists; a StartError is one line on stderr and exit code 2."""
    keep_heap_small()
    try:
        import uvloop

        runner: Callable[[Coroutine[Any, Any, None]], None] = uvloop.run
    except ImportError:
        runner = asyncio.run
    try:
        runner(main())
    except StartError as error:
        print(f"kube32-sim: {error}", file=sys.stderr)
        raise SystemExit(2) from None
    except KeyboardInterrupt:  # before the signals have their handlers
        raise SystemExit(130) from None
