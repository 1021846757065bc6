"""ConfigMaps and Secrets for one start of a container, and the environment made from them with the
kubelet's own words.
"""

import base64
import binascii
import re
from dataclasses import dataclass, field
from typing import Any

from kube32.client.api import ApiClient, ApiError
from kube32.contract import text
from kube32.kubelet.downward import ConfigError, NodeFacts, field_value, resource_value
from kube32.kubelet.values import Obj, metadata, spec

__all__ = ["ConfigError", "ConfigSource", "Keys", "environment", "expand"]

_REFERENCE = re.compile(r"\$(?:\$|\(([^()]*)\))")
NOT_FOUND = 404


@dataclass(frozen=True, slots=True)
class Keys:
    """What a ConfigMap or Secret holds. `binary` becomes files, not variables; `fixed`: it never changes."""

    data: dict[str, bytes] = field(default_factory=dict)
    binary: dict[str, bytes] = field(default_factory=dict)
    fixed: bool = False


class ConfigSource:
    """Reads ConfigMaps and Secrets of one namespace, each once for one start.

    `fixed` holds those that are immutable, for the next source: they need not be read again.
    """

    def __init__(
        self, client: ApiClient, namespace: str, fixed: dict[tuple[str, str], Keys] | None = None
    ) -> None:
        self._client = client
        self.namespace = namespace
        self.fixed: dict[tuple[str, str], Keys] = dict(fixed or {})
        self._seen: dict[tuple[str, str], Keys | None] = dict(self.fixed)

    async def keys(self, kind: str, name: str, optional: bool) -> Keys:
        """What a ConfigMap or Secret holds; nothing when it is optional and missing, else ConfigError."""
        if (kind, name) not in self._seen:
            found = self._seen[kind, name] = await self._fetch(kind, name)
            if found is not None and found.fixed:
                self.fixed[kind, name] = found
        found = self._seen[kind, name]
        if found is None:
            if optional:
                return Keys()
            which = "configmap_missing" if kind == "ConfigMap" else "secret_missing"
            raise ConfigError(text("statuses", which, name=name))
        return found

    async def key(self, kind: str, selector: Obj) -> bytes | None:
        """What a configMapKeyRef or secretKeyRef names; None when it is optional and missing."""
        name, key, optional = (
            str(selector.get("name", "")),
            str(selector.get("key", "")),
            bool(selector.get("optional")),
        )
        found = (await self.keys(kind, name, optional)).data.get(key)
        if found is None and not optional:
            which = "configmap_key" if kind == "ConfigMap" else "secret_key"
            raise ConfigError(text("statuses", which, key=key, namespace=self.namespace, name=name))
        return found

    async def volume_of(self, claim: str) -> str:
        """The volume that a claim is bound to; ConfigError while it is not there or not bound."""
        try:
            found = await self._client.get("PersistentVolumeClaim", claim, self.namespace)
        except ApiError as error:
            if error.code != NOT_FOUND:
                raise
            raise ConfigError(text("statuses", "claim_missing", name=claim)) from None
        volume = spec(found).get("volumeName")
        if not volume or (found.get("status") or {}).get("phase") != "Bound":
            raise ConfigError(text("statuses", "claim_unbound", name=claim))
        return str(volume)

    async def _fetch(self, kind: str, name: str) -> Keys | None:
        try:
            obj = await self._client.get(kind, name, self.namespace)
        except ApiError as error:
            if error.code == NOT_FOUND:
                return None
            raise
        texts = obj.get("data" if kind == "ConfigMap" else "stringData") or {}
        encoded = obj.get("binaryData" if kind == "ConfigMap" else "data") or {}
        plain = {k: str(v).encode() for k, v in texts.items()}
        binary = {k: _decoded(v) for k, v in encoded.items()}
        if kind == "Secret":
            plain, binary = binary | plain, {}
        return Keys(plain, binary, obj.get("immutable") is True)


def _decoded(value: Any) -> bytes:
    try:
        return base64.b64decode(str(value), validate=True)
    except (binascii.Error, ValueError):
        return b""


async def environment(pod: Obj, container: Obj, source: ConfigSource, node: NodeFacts) -> dict[str, str]:
    """The container's environment: envFrom, then env, with $(NAME) of what stands before it filled in."""
    found: dict[str, str] = {"HOSTNAME": str(spec(pod).get("hostname") or metadata(pod).get("name") or "")}
    for entry in container.get("envFrom") or []:
        for kind, part in (("ConfigMap", "configMapRef"), ("Secret", "secretRef")):
            if ref := entry.get(part):
                keys = await source.keys(kind, str(ref.get("name", "")), bool(ref.get("optional")))
                found |= {
                    f"{entry.get('prefix', '')}{k}": v.decode("utf-8", "replace")
                    for k, v in keys.data.items()
                }
    for entry in container.get("env") or []:
        value = await _value(pod, container, entry, source, node, found)
        if value is not None:
            found[str(entry.get("name", ""))] = value
    return found


async def _value(
    pod: Obj, container: Obj, entry: Obj, source: ConfigSource, node: NodeFacts, before: dict[str, str]
) -> str | None:
    origin = entry.get("valueFrom")
    if not origin:
        return expand(str(entry.get("value") or ""), before)
    if ref := origin.get("fieldRef"):
        return field_value(pod, str(ref.get("fieldPath", "")), node)
    if ref := origin.get("resourceFieldRef"):
        return resource_value(pod, ref, container, node)
    for kind, part in (("ConfigMap", "configMapKeyRef"), ("Secret", "secretKeyRef")):
        if ref := origin.get(part):
            data = await source.key(kind, ref)
            return None if data is None else data.decode("utf-8", "replace")
    raise ConfigError(text("statuses", "field_unknown", path=", ".join(origin)))


def expand(value: str, known: dict[str, str]) -> str:
    """$(NAME) becomes the variable, when it is known; $$ becomes $."""

    def replaced(match: re.Match[str]) -> str:
        if match.group(1) is None:
            return "$"
        return known.get(match.group(1), match.group(0))

    return _REFERENCE.sub(replaced, value)
