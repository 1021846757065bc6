"""The files of configMap, secret, downwardAPI and projected volumes: what they are to hold, and how they are renewed.

A volume's files lie in a directory of their own for each state; a mount is switched to the newer one, so a pod
sees all of a change or nothing of it, and a file that is open keeps its content.
"""

import asyncio
import shutil
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from kube32.client.api import ApiClient
from kube32.contract import LIMITS, NAMES, text
from kube32.kubelet.config import ConfigError, ConfigSource
from kube32.kubelet.downward import NodeFacts, field_value, resource_value
from kube32.kubelet.values import Obj, key_of, spec, uid_of
from kube32.wasm import Mount

_DIRECTORY_MODE = 0o700
_FILE_MODE = 0o600
Files = dict[PurePosixPath, bytes]
KINDS = ("configMap", "secret", "downwardAPI", "projected")
# As the kubelet renews tokens: after this part of their life, and after a day at the latest.
_TOKEN_LIFE_USED = 0.8
_TOKEN_LIFE_MOST_S = 24 * 3600


@dataclass(slots=True)
class Projected:
    """One mounted volume that can change: what it holds now, and where its next state may lie."""

    volume: Obj
    mount: Mount
    files: Files
    directory: Path
    number: int = 0


@dataclass(frozen=True, slots=True)
class _Token:
    """A ServiceAccount's token, and when to ask for another one, on the loop's clock."""

    value: bytes
    renew_at: float


def inside(volume: object, path: str) -> PurePosixPath:
    """`path` as a path below a volume; ConfigError when it would leave it."""
    found = PurePosixPath(path)
    if found.is_absolute() or ".." in found.parts or "\0" in path:
        raise ConfigError(text("statuses", "volume_path", volume=volume, path=path))
    return found


class Projections:
    """Reads what the volumes of one run of a container are to hold."""

    def __init__(self, client: ApiClient, node: NodeFacts) -> None:
        self._client = client
        self._node = node
        self._tokens: dict[tuple[str, int], _Token] = {}

    async def files(self, pod: Obj, volume: Obj, source: ConfigSource) -> Files:
        """Paths below the volume and their contents; ConfigError names what is missing."""
        makers: dict[str, Callable[[Obj, Obj, ConfigSource, Obj], Awaitable[Files]]] = {
            "configMap": self._config_map,
            "secret": self._secret,
            "downwardAPI": self._downward,
            "projected": self._projected,
        }
        kind = next(k for k in KINDS if volume.get(k) is not None)
        return await makers[kind](volume, volume[kind], source, pod)

    async def _config_map(self, volume: Obj, wanted: Obj, source: ConfigSource, pod: Obj) -> Files:
        return await self._keys(volume, wanted, "ConfigMap", str(wanted.get("name", "")), source)

    async def _secret(self, volume: Obj, wanted: Obj, source: ConfigSource, pod: Obj) -> Files:
        # In a volume it is secretName, in a projection name.
        name = str(wanted.get("secretName") or wanted.get("name") or "")
        return await self._keys(volume, wanted, "Secret", name, source)

    async def _keys(self, volume: Obj, wanted: Obj, kind: str, name: str, source: ConfigSource) -> Files:
        optional = bool(wanted.get("optional"))
        held = await source.keys(kind, name, optional)
        keys = held.data | held.binary
        found: Files = {}
        for item in wanted.get("items") or [{"key": k, "path": k} for k in keys]:
            key, path = str(item.get("key", "")), str(item.get("path", ""))
            if key in keys:
                found[inside(volume["name"], path)] = keys[key]
            elif not optional:
                raise ConfigError(text("statuses", "volume_key", key=key))
        return found

    async def _downward(self, volume: Obj, wanted: Obj, source: ConfigSource, pod: Obj) -> Files:
        found: Files = {}
        for item in wanted.get("items") or []:
            path = inside(volume["name"], str(item.get("path", "")))
            if ref := item.get("fieldRef"):
                found[path] = field_value(pod, str(ref.get("fieldPath", "")), self._node).encode()
            elif ref := item.get("resourceFieldRef"):
                found[path] = resource_value(pod, ref, None, self._node).encode()
        return found

    async def _projected(self, volume: Obj, wanted: Obj, source: ConfigSource, pod: Obj) -> Files:
        found: Files = {}
        for part in wanted.get("sources") or []:
            if (token := part.get("serviceAccountToken")) is not None:
                found[inside(volume["name"], str(token.get("path", "")))] = await self._token(pod, token)
            elif any(part.get(k) is not None for k in KINDS[:3]):
                found |= await self.files(pod, {"name": volume["name"], **part}, source)
        return found

    async def _token(self, pod: Obj, wanted: Obj) -> bytes:
        """A token of the pod's ServiceAccount, void when the pod is gone; another one after 80 % of its life."""
        audience = str(wanted.get("audience") or "")
        seconds = int(wanted.get("expirationSeconds") or LIMITS.token_seconds)
        now = asyncio.get_running_loop().time()
        known = self._tokens.get((audience, seconds))
        if known is not None and now < known.renew_at:
            return known.value
        value = await self._new_token(pod, audience, seconds)
        life_s = min(seconds * _TOKEN_LIFE_USED, _TOKEN_LIFE_MOST_S)
        self._tokens[audience, seconds] = _Token(value, now + life_s)
        return value

    async def _new_token(self, pod: Obj, audience: str, seconds: int) -> bytes:
        namespace, name = key_of(pod)
        account = str(spec(pod).get("serviceAccountName") or NAMES.service_account)
        asked: Obj = {
            "apiVersion": "authentication.k8s.io/v1",
            "kind": "TokenRequest",
            "spec": {
                "audiences": [audience] if audience else [],
                "expirationSeconds": seconds,
                "boundObjectRef": {"kind": "Pod", "apiVersion": "v1", "name": name, "uid": uid_of(pod)},
            },
        }
        made = await self._client.create(
            "ServiceAccount", asked, namespace, subresource="token", name=account
        )
        return str(made["status"]["token"]).encode()


async def write(directory: Path, files: Files) -> None:
    """Makes a directory of exactly these files."""
    await asyncio.to_thread(_write, directory, files)


def _write(directory: Path, files: Files) -> None:
    shutil.rmtree(directory, ignore_errors=True)
    directory.mkdir(parents=True, mode=_DIRECTORY_MODE)
    for path, data in files.items():
        target = directory / path
        target.parent.mkdir(parents=True, exist_ok=True, mode=_DIRECTORY_MODE)
        target.touch(mode=_FILE_MODE)
        target.write_bytes(data)
