"""Module data: files by digest under the data directory, and GET and PUT of modules/<name>/data.

Bytes are durable before a PUT is answered. They are kept while a pod names their digest, else only the
newest of a name (decisions, "Modules").
"""

import asyncio
import errno
import hashlib
import os
import re
import secrets
from collections import Counter
from collections.abc import AsyncIterator
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from kube32.api.checkpoint_data import check_octets
from kube32.api.http import BodyCut, Request, Response
from kube32.api.pki import private_directory, sync_directory
from kube32.api.routes import RequestInfo
from kube32.api.status import (
    ApiFailure,
    bad_request,
    conflict,
    internal,
    method_not_allowed,
    not_found,
    object_details,
    too_large,
    unprocessable,
)
from kube32.contract import K32S, Limits, resource_of, text
from kube32.formats.pins import pins
from kube32.formats.wasm_module import ModuleInfo, ModuleRefused, parse_module
from kube32.store import Change, Entry, NotFound, Store

if TYPE_CHECKING:
    from kube32.api.server import ApiServer

CONTENT_TYPE = "application/wasm"
_SUFFIX = ".wasm"
_INCOMING = ".incoming-"
_DIGEST = re.compile(r"[0-9a-f]{64}")
_PIECE = 262144
_FULL = (errno.ENOSPC, errno.EDQUOT)


class ModuleStore:
    """The bytes of all modules, one file for each digest. OSError when the directory cannot be used."""

    def __init__(self, directory: Path, store: Store, limits: Limits) -> None:
        private_directory(directory)
        for leftover in directory.glob(f"{_INCOMING}*"):
            leftover.unlink(missing_ok=True)
        self._directory = directory
        self._store = store
        self._limits = limits
        self._named: Counter[str] = Counter()
        self._arriving: Counter[str] = Counter()
        self._validating = asyncio.Lock()
        store.subscribe(resource_of("Pod").prefix, self._pod_changed)
        store.subscribe(resource_of("Module").prefix, self._module_changed)
        for entry in store.scan(resource_of("Pod").prefix)[0]:
            self._named.update(_digests_named(entry))

    def digest_of(self, name: str) -> str | None:
        """The digest of a Module's newest data, None when there is none."""
        entry = self._store.get(resource_of("Module").object_key("", name))
        return None if entry is None else _newest(entry)

    def open(self, digest: str) -> IO[bytes] | None:
        """The file of a digest, None when it is not kept."""
        try:
            return self._path(digest).open("rb")
        except FileNotFoundError:
            return None

    async def receive(self, request: Request, entry: Entry, name: str, size: int) -> Entry:
        """Stores a body of `size` bytes as the newest data of the Module `entry`; gives the Module then.

        ApiFailure 400 for a body of another length, 404 or 409 when the Module goes away meanwhile, 422 for
        what is no module, 507 or 500 when the disk is full or cannot be written. Nothing half written is
        left.
        """
        temporary = self._directory / f"{_INCOMING}{secrets.token_hex(8)}"
        try:
            digest = await self._write(request, temporary, size)
            info = await self._validate(temporary, digest)
            self._arriving[digest] += 1
            try:
                await asyncio.to_thread(self._settle, temporary, digest)
                updated = self._note(entry, name, info)
            finally:
                self._arriving[digest] -= 1
                self._drop_unused(digest)
        except OSError as error:
            cause = error.strerror or str(error)
            if error.errno in _FULL:
                message = text("answers", "module_no_room", name=name, cause=cause)
                raise ApiFailure(507, message, reason="InsufficientStorage") from error
            raise internal(text("answers", "module_not_stored", name=name, cause=cause)) from error
        finally:
            temporary.unlink(missing_ok=True)
        self.collect()
        return updated

    def collect(self) -> None:
        """Removes the bytes that the keep rule does not cover, leftovers of an earlier run among them."""
        newest = self._all_newest()
        for path in self._directory.glob(f"*{_SUFFIX}"):
            if not self._is_kept(path.stem, newest):
                path.unlink(missing_ok=True)

    async def _write(self, request: Request, temporary: Path, size: int) -> str:
        """Writes the body to a file and gives its digest. Small chunks are gathered into larger writes."""
        running = hashlib.sha256()
        found = 0
        gathered = bytearray()
        await asyncio.to_thread(_append, temporary, b"", new=True)
        try:
            async for chunk in request.chunks():
                found += len(chunk)
                if found > size:
                    break
                running.update(chunk)
                gathered += chunk
                if len(gathered) >= _PIECE:
                    await asyncio.to_thread(_append, temporary, gathered)
                    gathered = bytearray()
        except BodyCut as error:
            raise bad_request(text("answers", "body_incomplete", cause=error)) from None
        if found != size:
            raise bad_request(text("answers", "body_length", found=found, expected=size))
        await asyncio.to_thread(_append, temporary, gathered, sync=True)
        return running.hexdigest()

    async def _validate(self, temporary: Path, digest: str) -> ModuleInfo:
        """Reads the module's sections. One module at a time is in memory for that."""
        async with self._validating:
            try:
                info = await asyncio.to_thread(lambda: parse_module(temporary.read_bytes()))
            except ModuleRefused as refusal:
                raise unprocessable(str(refusal)) from None
        if info.digest != digest:
            raise internal("the module's file does not hold what was written to it")
        return info

    def _settle(self, temporary: Path, digest: str) -> None:
        temporary.replace(self._path(digest))
        sync_directory(self._directory)

    def _note(self, entry: Entry, name: str, info: ModuleInfo) -> Entry:
        """Writes the Module's status."""
        resource = resource_of("Module")

        def note(module: dict[str, Any]) -> dict[str, Any]:
            if module["metadata"].get("uid") != entry.obj["metadata"].get("uid"):
                raise conflict(resource, name, "the module was replaced while its data was received")
            module["status"] = {
                **(module.get("status") or {}),
                "sha256": info.digest,
                "sizeBytes": info.size,
                "podKind": info.kind,
                "exports": list(info.abi_exports),
            }
            return module

        try:
            return self._store.update(entry.key, note)
        except NotFound:
            raise not_found(resource, name) from None

    def _pod_changed(self, change: Change) -> None:
        if change.type != "DELETED":
            self._named.update(_digests_named(change.entry))
        if change.old is not None:
            for digest in _digests_named(change.old):
                self._named[digest] -= 1
                self._drop_unused(digest)

    def _module_changed(self, change: Change) -> None:
        old = None if change.old is None else _newest(change.old)
        if old is not None:
            self._drop_unused(old)

    def _drop_unused(self, digest: str) -> None:
        if not self._is_kept(digest, self._all_newest()):
            self._path(digest).unlink(missing_ok=True)
        for counted in (self._named, self._arriving):
            if counted[digest] <= 0:
                del counted[digest]

    def _is_kept(self, digest: str, newest: set[str]) -> bool:
        return digest in newest or self._named[digest] > 0 or self._arriving[digest] > 0

    def _all_newest(self) -> set[str]:
        entries, _ = self._store.scan(resource_of("Module").prefix)
        return {digest for entry in entries if (digest := _newest(entry)) is not None}

    def _path(self, digest: str) -> Path:
        return self._directory / f"{digest}{_SUFFIX}"


async def handle(server: "ApiServer", request: Request, info: RequestInfo) -> Response:
    """GET answers the newest data, or with ?digest= older ones that are still kept; PUT stores new data."""
    resource = resource_of("Module")
    entry = server.store.get(resource.object_key("", info.name))
    if info.verb == "get":
        return _answer(server, request, entry, info.name)
    if entry is None:
        raise not_found(resource, info.name)
    if info.verb != "update":
        raise method_not_allowed()
    check_octets(request, CONTENT_TYPE, K32S.content_type)
    size = request.content_length
    if size is None:
        raise ApiFailure(411, text("answers", "length_required"), reason="LengthRequired")
    limit = server.limits.module_bytes
    if size > limit:
        cause = text("module_refusals", "too_large", found=size, limit=limit)
        raise too_large(limit, text("module_refusals", "prefix", cause=cause))
    return Response(200, (await server.modules.receive(request, entry, info.name, size)).value)


def _answer(server: "ApiServer", request: Request, entry: Entry | None, name: str) -> Response:
    """A pinned digest is answered without its Module too: a pod may outlive the name it was started from."""
    resource = resource_of("Module")
    asked = request.q("digest")
    if asked and not _DIGEST.fullmatch(asked):
        raise bad_request(text("answers", "module_digest", value=asked))
    if entry is None and not asked:
        raise not_found(resource, name)
    digest = asked or (_newest(entry) if entry is not None else None)
    if digest is None:
        message = text("answers", "module_no_data", name=name)
        raise ApiFailure(404, message, details=object_details(resource, name))
    headers = {K32S.headers["image_sha256"]: digest, "ETag": f'"{digest}"'}
    if f'"{digest}"' in request.headers.get("If-None-Match", ""):
        return Response(304, b"", headers, CONTENT_TYPE)
    file = server.modules.open(digest)
    if file is None:
        message = text("answers", "module_no_digest", name=name, digest=digest)
        raise ApiFailure(404, message, details=object_details(resource, name))
    headers["Content-Length"] = str(os.fstat(file.fileno()).st_size)
    return Response(200, _stream(file), headers, CONTENT_TYPE)


async def _stream(file: IO[bytes]) -> AsyncIterator[bytes]:
    with file:
        while piece := await asyncio.to_thread(file.read, _PIECE):
            yield piece


def _append(path: Path, data: bytes | bytearray, *, new: bool = False, sync: bool = False) -> None:
    """Each call has its own descriptor: a request that is cancelled meanwhile closes nothing under it."""
    flags = os.O_CREAT | os.O_EXCL if new else os.O_APPEND
    with os.fdopen(os.open(path, os.O_WRONLY | flags, 0o600), "wb") as file:
        file.write(data)
        if sync:
            file.flush()
            os.fsync(file.fileno())


def _newest(entry: Entry) -> str | None:
    digest = (entry.obj.get("status") or {}).get("sha256")
    return digest if isinstance(digest, str) and _DIGEST.fullmatch(digest) else None


def _digests_named(entry: Entry) -> list[str]:
    """The digests that a pod names."""
    named = pins(entry.obj["metadata"].get("annotations") or {}).values()
    return [digest for digest in named if isinstance(digest, str) and _DIGEST.fullmatch(digest)]
