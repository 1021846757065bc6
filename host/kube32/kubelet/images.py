"""From an image reference to a loaded module: embedded or by name, pinned by digest, cached on disk by
digest ("Modules").

A digest names the same bytes for ever, so what a pod runs does not change when a new version is pushed
under its name.
"""

import asyncio
import base64
import binascii
import contextlib
import hashlib
import os
import re
from collections.abc import AsyncIterator
from pathlib import Path

from kube32.client.api import ApiClient, ApiError
from kube32.contract import NAMES, Limits, resource_of, text
from kube32.formats.pins import pin_of
from kube32.formats.wasm_module import ModuleRefused
from kube32.kubelet.own_thread import on_own_thread
from kube32.kubelet.values import Obj, annotation, key_of
from kube32.wasm import Engine, LoadedModule

_DIGEST = re.compile(r"[0-9a-f]{64}")
NOT_FOUND = 404


class ImageError(Exception):
    """The module cannot be had now. `reason` is the waiting reason; `pull` tells that a later try may
    succeed.
    """

    def __init__(self, reason: str, message: str, *, pull: bool) -> None:
        super().__init__(message)
        self.reason = reason
        self.message = message
        self.pull = pull


class Images:
    """The node's modules. `cache_dir` holds <digest>.wasm files."""

    def __init__(self, client: ApiClient, engine: Engine, limits: Limits, cache_dir: Path) -> None:
        self._client = client
        self._engine = engine
        self._limits = limits
        self._cache = cache_dir
        self._loaded: dict[str, LoadedModule] = {}
        # Images that named a module, by digest, the newest first.
        self._names: dict[str, list[str]] = {}

    async def load(self, pod: Obj, container: Obj) -> LoadedModule:
        """The module of a container; ImageError when it is not to be had or is refused."""
        image = str(container.get("image", ""))
        if not image.startswith(NAMES.image_prefix):
            message = text("statuses", "image_invalid", image=image)
            raise ImageError(text("reasons", "image_invalid"), message, pull=False)
        pin = pin_of(pod, container)
        pinned = (annotation(pod, pin) or "").lower()
        if pinned and not _DIGEST.fullmatch(pinned):
            raise _refused(text("module_refusals", "digest", found="unknown", expected=pinned))
        if pinned in self._loaded:
            self._note(image, pinned)
            return self._loaded[pinned]
        wasm = self._embedded(pod) if image == NAMES.image_embedded else await self._by_name(image, pinned)
        found = await asyncio.to_thread(_sha256, wasm)
        if pinned and found != pinned:
            raise _refused(text("module_refusals", "digest", found=found, expected=pinned))
        module = await self._load(wasm)
        if image != NAMES.image_embedded:
            await asyncio.to_thread(self._store, found, wasm)
            if not pinned:
                await self._pin(pod, pin, found)
        self._loaded[found] = module
        self._note(image, found)
        return module

    def keep(self, digests: set[str]) -> None:
        """Forgets loaded modules that no pod of the node names; the files stay, as many as may."""
        for digest in [d for d in self._loaded if d not in digests]:
            del self._loaded[digest]

    async def listed(self) -> list[Obj]:
        """The Node's status.images: cached modules, the largest first."""
        sizes = await asyncio.to_thread(self._sizes)
        self._names = {digest: names for digest, names in self._names.items() if digest in sizes}
        largest = sorted(sizes, key=lambda digest: (-sizes[digest], digest))[: self._limits.node_images]
        most = self._limits.node_image_names
        return [
            {"names": [f"wasm-sha256:{d}", *self._names.get(d, [])][:most], "sizeBytes": sizes[d]}
            for d in largest
        ]

    def _note(self, image: str, digest: str) -> None:
        if image != NAMES.image_embedded:
            others = [n for n in self._names.get(digest, []) if n != image]
            self._names[digest] = [image, *others][: self._limits.node_image_names]

    def _sizes(self) -> dict[str, int]:
        found = {}
        for path in self._cache.glob("*.wasm"):
            with contextlib.suppress(OSError):
                found[path.stem] = path.stat().st_size
        return found

    def _embedded(self, pod: Obj) -> bytes:
        value = annotation(pod, NAMES.ann_wasm)
        if value is None:
            raise _refused(text("module_refusals", "embedded_missing"))
        try:
            wasm = base64.b64decode("".join(value.split()), validate=True)
        except (binascii.Error, ValueError) as error:
            raise _refused(text("module_refusals", "embedded_base64", what=error)) from None
        limit = self._limits.module_embedded_bytes
        if len(wasm) > limit:
            raise _refused(text("module_refusals", "embedded_too_large", found=len(wasm), limit=limit))
        return wasm

    async def _by_name(self, image: str, pinned: str) -> bytes:
        if pinned:
            cached = await asyncio.to_thread(self._cached, pinned)
            if cached is not None:
                return cached
        name = image.removeprefix(NAMES.image_prefix)
        path = resource_of("Module").object_path("", name, "data")
        response = await self._client.raw("GET", path, query={"digest": pinned} if pinned else None)
        async with response:
            if response.status == NOT_FOUND:
                raise await self._missing(name, pinned)
            if response.status != 200:
                raise ImageError(text("reasons", "image_pull"), f"GET {path}: {response.status}", pull=True)
            return await self._body(response.chunks())

    async def _body(self, chunks: AsyncIterator[bytes]) -> bytes:
        wasm = bytearray()
        async for chunk in chunks:
            wasm += chunk
            if len(wasm) > self._limits.module_bytes:
                limit = self._limits.module_bytes
                raise _refused(text("module_refusals", "too_large", found=len(wasm), limit=limit))
        return bytes(wasm)

    async def _missing(self, name: str, pinned: str) -> ImageError:
        try:
            await self._client.get("Module", name)
        except ApiError as error:
            if error.code != NOT_FOUND:
                raise
            message = text("statuses", "image_missing", name=name)
        else:
            which = "image_digest" if pinned else "image_no_data"
            message = text("statuses", which, name=name, digest=pinned)
        return ImageError(text("reasons", "image_pull"), message, pull=True)

    async def _load(self, wasm: bytes) -> LoadedModule:
        try:
            return await on_own_thread(self._engine.load, wasm)
        except ModuleRefused as refused:
            raise _refused_text(str(refused)) from None

    async def _pin(self, pod: Obj, pin: str, digest: str) -> None:
        namespace, name = key_of(pod)
        patch = {
            "metadata": {
                "uid": pod["metadata"]["uid"],
                "annotations": {pin: digest},
            }
        }
        await self._client.patch("Pod", name, patch, namespace)

    def _cached(self, digest: str) -> bytes | None:
        path = self._cache / f"{digest}.wasm"
        try:
            wasm = path.read_bytes()
            os.utime(path)
        except OSError:
            return None
        return wasm if _sha256(wasm) == digest else None

    def _store(self, digest: str, wasm: bytes) -> None:
        path = self._cache / f"{digest}.wasm"
        if path.exists() and path.stat().st_size == len(wasm):
            return
        self._cache.mkdir(parents=True, exist_ok=True)
        part = path.with_suffix(f".{os.getpid()}.part")
        part.write_bytes(wasm)
        part.replace(path)
        self._prune(path)

    def _prune(self, newest: Path) -> None:
        """Removes the files that were not used for longest, when there are too many."""
        used: list[tuple[float, Path]] = []
        for path in self._cache.glob("*.wasm"):
            if path != newest and path.stem not in self._loaded:
                with contextlib.suppress(OSError):
                    used.append((path.stat().st_mtime, path))
        most = max(self._limits.node_cached_modules - len(self._loaded) - 1, 0)
        for _, path in sorted(used)[: max(len(used) - most, 0)]:
            path.unlink(missing_ok=True)


def _sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def _refused(cause: str) -> ImageError:
    return _refused_text(text("module_refusals", "prefix", cause=cause))


def _refused_text(message: str) -> ImageError:
    return ImageError(text("reasons", "config_error"), message, pull=False)
