"""Compiled modules on disk. A file that was cut, changed or made otherwise is ignored and made again.

A file is SHA-256 of the rest, then wasmtime's own format: the engine trusts compiled code, so nothing else
may reach it.
"""

import contextlib
import hashlib
import os
import tempfile
from importlib.metadata import version
from pathlib import Path

_DIGEST_BYTES = 32
_SUFFIX = ".cwasm"


class CompiledCache:
    """Files in `directory` (None: no cache), at most `files_limit`; the ones longest unused go first."""

    def __init__(self, directory: Path | None, files_limit: int, settings: str) -> None:
        self._directory = directory
        self._files_limit = files_limit
        made_by = f"wasmtime {version('wasmtime')} {settings}"
        self._made_by = hashlib.sha256(made_by.encode()).hexdigest()[:16]

    def get(self, key: str) -> bytes | None:
        """The compiled module stored under `key`, None when there is none that is whole."""
        path = self._path(key)
        if path is None:
            return None
        try:
            data = path.read_bytes()
            os.utime(path)
        except OSError:
            return None
        compiled = data[_DIGEST_BYTES:]
        return compiled if hashlib.sha256(compiled).digest() == data[:_DIGEST_BYTES] else None

    def put(self, key: str, compiled: bytes) -> None:
        """Stores a compiled module. A disk that does not take it costs only time: the error is dropped."""
        path = self._path(key)
        if path is None:
            return
        with contextlib.suppress(OSError):
            path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            fd, part = tempfile.mkstemp(dir=path.parent, suffix=".part")
            try:
                with os.fdopen(fd, "wb") as file:
                    file.write(hashlib.sha256(compiled).digest())
                    file.write(compiled)
                Path(part).replace(path)
            except OSError:
                Path(part).unlink(missing_ok=True)
                raise
            self._prune(path.parent)

    def _path(self, key: str) -> Path | None:
        return None if self._directory is None else self._directory / f"{key}-{self._made_by}{_SUFFIX}"

    def _prune(self, directory: Path) -> None:
        files = sorted(directory.glob(f"*{_SUFFIX}"), key=lambda p: p.stat().st_mtime_ns)
        for path in files[: -self._files_limit]:
            path.unlink(missing_ok=True)
