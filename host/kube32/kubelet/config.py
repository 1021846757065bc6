"""ConfigMaps and Secrets for one start of a container, and the environment made from them with the
kubelet's own words.
"""

import base64
import binascii
import math
import re
from typing import Any

from kube32.client.api import ApiClient, ApiError
from kube32.contract import text
from kube32.formats.quantity import parse as parse_quantity
from kube32.kubelet.values import Obj, key_of, metadata, spec, uid_of

_REFERENCE = re.compile(r"\$(?:\$|\(([^()]*)\))")
_SUBSCRIPT = re.compile(r"metadata\.(labels|annotations)\['([^']+)'\]")
NOT_FOUND = 404


class ConfigError(Exception):
    """Something that the container's spec names is not there; the message is the waiting message."""


class ConfigSource:
    """Reads ConfigMaps and Secrets of one namespace, each once for one start."""

    def __init__(self, client: ApiClient, namespace: str) -> None:
        self._client = client
        self.namespace = namespace
        self._seen: dict[tuple[str, str], dict[str, bytes] | None] = {}

    async def keys(self, kind: str, name: str, optional: bool) -> dict[str, bytes]:
        """Keys and contents of a ConfigMap or Secret; empty when it is optional and missing, else
        ConfigError.
        """
        if (kind, name) not in self._seen:
            self._seen[kind, name] = await self._fetch(kind, name)
        found = self._seen[kind, name]
        if found is None:
            if optional:
                return {}
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
        found = (await self.keys(kind, name, optional)).get(key)
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

    async def _fetch(self, kind: str, name: str) -> dict[str, bytes] | None:
        try:
            obj = await self._client.get(kind, name, self.namespace)
        except ApiError as error:
            if error.code == NOT_FOUND:
                return None
            raise
        return _secret_keys(obj) if kind == "Secret" else _config_map_keys(obj)


def _config_map_keys(obj: Obj) -> dict[str, bytes]:
    keys = {k: str(v).encode() for k, v in (obj.get("data") or {}).items()}
    return keys | {k: _decoded(v) for k, v in (obj.get("binaryData") or {}).items()}


def _secret_keys(obj: Obj) -> dict[str, bytes]:
    keys = {k: _decoded(v) for k, v in (obj.get("data") or {}).items()}
    return keys | {k: str(v).encode() for k, v in (obj.get("stringData") or {}).items()}


def _decoded(value: Any) -> bytes:
    try:
        return base64.b64decode(str(value), validate=True)
    except (binascii.Error, ValueError):
        return b""


async def environment(pod: Obj, container: Obj, source: ConfigSource, node_ip: str) -> dict[str, str]:
    """The container's environment: envFrom, then env, with $(NAME) of what stands before it filled in."""
    found: dict[str, str] = {"HOSTNAME": str(spec(pod).get("hostname") or metadata(pod).get("name") or "")}
    for entry in container.get("envFrom") or []:
        for kind, field in (("ConfigMap", "configMapRef"), ("Secret", "secretRef")):
            if ref := entry.get(field):
                keys = await source.keys(kind, str(ref.get("name", "")), bool(ref.get("optional")))
                found |= {
                    f"{entry.get('prefix', '')}{k}": v.decode("utf-8", "replace") for k, v in keys.items()
                }
    for entry in container.get("env") or []:
        value = await _value(pod, container, entry, source, node_ip, found)
        if value is not None:
            found[str(entry.get("name", ""))] = value
    return found


async def _value(
    pod: Obj, container: Obj, entry: Obj, source: ConfigSource, node_ip: str, before: dict[str, str]
) -> str | None:
    origin = entry.get("valueFrom")
    if not origin:
        return expand(str(entry.get("value") or ""), before)
    if ref := origin.get("fieldRef"):
        return field_value(pod, str(ref.get("fieldPath", "")), node_ip)
    if ref := origin.get("resourceFieldRef"):
        return resource_value(pod, ref, container)
    for kind, field in (("ConfigMap", "configMapKeyRef"), ("Secret", "secretKeyRef")):
        if ref := origin.get(field):
            data = await source.key(kind, ref)
            return None if data is None else data.decode("utf-8", "replace")
    raise ConfigError(text("statuses", "field_unknown", path=", ".join(origin)))


def resource_value(pod: Obj, reference: Obj, container: Obj | None) -> str:
    """What a resourceFieldRef names: a container's limit or request divided by the divisor, rounded up.

    A limit that is not set is 0 here: a pod without one has what the node gives. ConfigError for others.
    """
    name = reference.get("containerName")
    if name or container is None:
        everything = [*(spec(pod).get("containers") or []), *(spec(pod).get("initContainers") or [])]
        container = next((c for c in everything if c.get("name") == name), None)
    part, _, resource = str(reference.get("resource", "")).partition(".")
    if container is None or part not in ("limits", "requests") or not resource:
        raise ConfigError(text("statuses", "field_unknown", path=reference.get("resource", "")))
    resources = container.get("resources") or {}
    amount = (resources.get(part) or resources.get("limits") or {}).get(resource, "0")
    divisor = str(reference.get("divisor") or "1")
    try:
        value, by = parse_quantity(str(amount)), parse_quantity("1" if divisor == "0" else divisor)
        return str(math.ceil(value / by))
    except (ValueError, ZeroDivisionError):
        raise ConfigError(text("statuses", "field_unknown", path=reference.get("resource", ""))) from None


def expand(value: str, known: dict[str, str]) -> str:
    """$(NAME) becomes the variable, when it is known; $$ becomes $."""

    def replaced(match: re.Match[str]) -> str:
        if match.group(1) is None:
            return "$"
        return known.get(match.group(1), match.group(0))

    return _REFERENCE.sub(replaced, value)


def field_value(pod: Obj, path: str, node_ip: str) -> str:
    """What a fieldRef names, ConfigError for a path that the kubelet does not know."""
    meta = metadata(pod)
    namespace, name = key_of(pod)
    simple = {
        "metadata.name": name,
        "metadata.namespace": namespace,
        "metadata.uid": uid_of(pod),
        "spec.nodeName": str(spec(pod).get("nodeName", "")),
        "spec.serviceAccountName": str(spec(pod).get("serviceAccountName", "")),
        "status.hostIP": node_ip,
        "status.hostIPs": node_ip,
        "status.podIP": node_ip,
        "status.podIPs": node_ip,
    }
    if path in simple:
        return simple[path]
    if match := _SUBSCRIPT.fullmatch(path):
        return str((meta.get(match.group(1)) or {}).get(match.group(2), ""))
    if path in ("metadata.labels", "metadata.annotations"):
        entries = meta.get(path.removeprefix("metadata.")) or {}
        return "\n".join(f'{k}="{v}"' for k, v in sorted(entries.items()))
    raise ConfigError(text("statuses", "field_unknown", path=path))
