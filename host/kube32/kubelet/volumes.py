"""A pod's volumes as directories: emptyDir, configMap and secret below data_dir/pods/<uid>, claims on the
node's storage.
"""

import asyncio
import secrets
import shutil
from collections.abc import Awaitable, Callable
from pathlib import Path, PurePosixPath

from kube32.client.api import ApiError
from kube32.contract import NAMES, Limits, text
from kube32.kubelet.config import ConfigError, ConfigSource, expand
from kube32.kubelet.projections import KINDS, Projected, Projections, inside, write
from kube32.kubelet.values import Obj, metadata, spec, uid_of, whole_quantity
from kube32.wasm import Mount

_DIRECTORY_MODE = 0o700
_CLAIMS = "claims"


class MountFailed(ConfigError):
    """A volume cannot be made ready now: the container waits, and an event says why."""

    def __init__(self, volume: str, cause: str) -> None:
        super().__init__(cause)
        self.volume = volume


class Volumes:
    """Makes and removes what pods mount. `storage` is the node's own storage, None when it offers none."""

    def __init__(self, pods_dir: Path, storage: Path | None, node: str, limits: Limits) -> None:
        self._pods = pods_dir
        self._storage = storage
        self._node = node
        self._limits = limits

    def directory(self, uid: str) -> Path:
        """Where a pod's own files lie. Not for names from outside: `uid` is the API server's."""
        return self._pods / PurePosixPath(uid).name

    async def mounts(
        self,
        pod: Obj,
        container: Obj,
        source: ConfigSource,
        projections: Projections,
        environment: dict[str, str],
    ) -> tuple[list[Mount], list[Projected]]:
        """The container's mounts, their volumes filled, and those that can change.

        MountFailed names the volume that is not to be had, ConfigError what is wrong with the mount.
        """
        volumes = {str(v.get("name", "")): v for v in spec(pod).get("volumes") or []}
        mounts, changing = [], []
        for mount in container.get("volumeMounts") or []:
            name, path = str(mount.get("name", "")), str(mount.get("mountPath", ""))
            if name not in volumes:
                raise ConfigError(text("statuses", "volume_missing", mount=path, volume=name))
            volume, placed = volumes[name], _with_sub_path(mount, environment)
            try:
                if any(volume.get(k) is not None for k in KINDS):
                    made, projected = await self._project(pod, container, volume, placed, source, projections)
                    mounts.append(made)
                    changing += projected
                else:
                    mounts.append(await self._mount(pod, volume, placed, source))
            except (ConfigError, ApiError, OSError) as error:
                cause = error.message if isinstance(error, ApiError) else str(error)
                raise MountFailed(name, cause or type(error).__name__) from error
        return mounts, changing

    def last_words(self, pod: Obj, container: Obj) -> Mount | None:
        """The file terminationMessagePath, another one for each run; it is not there until the pod writes it."""
        path = container.get("terminationMessagePath")
        if not path:
            return None
        name = PurePosixPath(f"last-words-{container.get('name', '')}-{secrets.token_hex(4)}").name
        file = self.directory(uid_of(pod)) / name
        return Mount(str(path), file, False, self._limits.pod_last_words_bytes)

    async def _project(
        self,
        pod: Obj,
        container: Obj,
        volume: Obj,
        mount: Obj,
        source: ConfigSource,
        projections: Projections,
    ) -> tuple[Mount, list[Projected]]:
        """A volume of files, in a directory for each container that mounts it."""
        files = await projections.files(pod, volume, source)
        name = inside(volume["name"], f"{volume['name']}@{container.get('name', '')}")
        directory = self.directory(uid_of(pod)) / "volumes" / name
        await write(directory, files)
        sub_path = inside(volume["name"], str(mount.get("subPath") or ""))
        made = Mount(str(mount["mountPath"]), directory / sub_path, True)
        return made, [] if mount.get("subPath") else [Projected(volume, made, files, directory)]

    async def remove(self, uid: str) -> None:
        """Removes all that the pod had on the node; its claims stay."""
        await asyncio.to_thread(shutil.rmtree, self.directory(uid), ignore_errors=True)

    async def remove_others(self, uids: set[str]) -> None:
        """Removes the directories of pods that are gone, after a restart of the node."""
        keep = {self.directory(uid).name for uid in uids}

        def sweep() -> None:
            for entry in self._pods.iterdir() if self._pods.is_dir() else ():
                if entry.name not in keep:
                    shutil.rmtree(entry, ignore_errors=True)

        await asyncio.to_thread(sweep)

    async def _mount(self, pod: Obj, volume: Obj, mount: Obj, source: ConfigSource) -> Mount:
        name = str(volume["name"])
        makers: dict[str, Callable[[Obj, Obj, ConfigSource], Awaitable[tuple[Path, bool, int | None]]]] = {
            "emptyDir": self._empty_dir,
            "persistentVolumeClaim": self._claim,
            "ephemeral": self._ephemeral,
            "csi": self._driver,
            "flexVolume": self._driver,
        }
        kind = next((k for k in makers if volume.get(k) is not None), None)
        if kind is None:
            raise ConfigError(text("statuses", "volume_type", volume=name))
        directory, read_only, quota = await makers[kind](pod, volume, source)
        below = directory / inside(name, str(mount.get("subPath") or ""))
        if not read_only and not below.exists():
            below.mkdir(parents=True, mode=_DIRECTORY_MODE)
        return Mount(str(mount["mountPath"]), below, read_only or bool(mount.get("readOnly")), quota)

    async def _empty_dir(self, pod: Obj, volume: Obj, source: ConfigSource) -> tuple[Path, bool, int | None]:
        directory = self.directory(uid_of(pod)) / "volumes" / inside(volume["name"], str(volume["name"]))
        directory.mkdir(parents=True, exist_ok=True, mode=_DIRECTORY_MODE)
        asked = whole_quantity((volume["emptyDir"] or {}).get("sizeLimit", ""))
        limit = self._limits.pod_empty_dir_bytes
        return directory, False, limit if asked is None else min(limit, asked)

    async def _claim(self, pod: Obj, volume: Obj, source: ConfigSource) -> tuple[Path, bool, int | None]:
        """The directory of a bound claim, named after its volume: a claim that is made anew has another."""
        claim = volume["persistentVolumeClaim"]
        directory = await self._claimed(volume, str(claim.get("claimName", "")), source)
        return directory, bool(claim.get("readOnly")), None

    async def _ephemeral(self, pod: Obj, volume: Obj, source: ConfigSource) -> tuple[Path, bool, int | None]:
        name = f"{metadata(pod).get('name', '')}-{volume['name']}"
        return await self._claimed(volume, name, source), False, None

    async def _claimed(self, volume: Obj, name: str, source: ConfigSource) -> Path:
        storage = self._on_storage(volume)
        found = await source.volume_of(name)
        directory = storage / _CLAIMS / inside(volume["name"], found)
        directory.mkdir(parents=True, exist_ok=True, mode=_DIRECTORY_MODE)
        return directory

    async def remove_claim(self, name: str) -> None:
        """Removes the data of a claim's volume; ValueError for a name that is none."""
        if self._storage is None:
            return
        if not name or name != PurePosixPath(name).name or name in (".", ".."):
            raise ValueError(f"{name!r} is no volume's name")
        await asyncio.to_thread(shutil.rmtree, self._storage / _CLAIMS / name, ignore_errors=True)

    async def _driver(self, pod: Obj, volume: Obj, source: ConfigSource) -> tuple[Path, bool, int | None]:
        wanted = volume.get("csi") or volume.get("flexVolume") or {}
        if wanted.get("driver") != NAMES.volume_driver_sd:
            raise ConfigError(text("statuses", "volume_type", volume=volume["name"]))
        directory = self._on_storage(volume) / "sd"
        directory.mkdir(parents=True, exist_ok=True, mode=_DIRECTORY_MODE)
        return directory, bool(wanted.get("readOnly")), None

    def _on_storage(self, volume: Obj) -> Path:
        if self._storage is None:
            raise ConfigError(text("statuses", "volume_storage", volume=volume["name"], node=self._node))
        return self._storage


def _with_sub_path(mount: Obj, environment: dict[str, str]) -> Obj:
    """The mount with its subPathExpr filled in from the container's environment."""
    wanted = mount.get("subPathExpr")
    if not wanted:
        return mount
    found = expand(str(wanted), environment)
    if "$(" in found:
        raise ConfigError(text("statuses", "sub_path_variable", path=wanted))
    return {**mount, "subPath": found}
