"""push and deploy: a module file becomes a Module, a Module (or the file itself) becomes a pod."""

import base64
import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import orjson

from kube32.cli.cluster import Cluster
from kube32.cli.errors import CliError
from kube32.client.api import ApiError
from kube32.contract import K32S, LIMITS, NAMES, resource_of, text
from kube32.formats.wasm_module import ModuleInfo, ModuleRefused, parse_module

DNS_LABEL = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")


@dataclass(slots=True)
class PodFlags:
    """What `deploy` was told about the pod."""

    name: str
    env: dict[str, str] = field(default_factory=dict)
    topics: str = ""
    tick: str = ""
    memory: str = ""
    node: str = ""
    embed: bool = False


def read_module(path: Path) -> tuple[bytes, ModuleInfo]:
    """The module file and what its sections say; CliError names the file and the cause."""
    try:
        if path.stat().st_size > LIMITS.module_bytes:
            cause = text("module_refusals", "too_large", found=path.stat().st_size, limit=LIMITS.module_bytes)
            raise CliError(f"{path}: {cause}")
        data = path.read_bytes()
    except OSError as error:
        raise CliError(f"{path}: {error.strerror}") from None
    try:
        return data, parse_module(data)
    except ModuleRefused as error:
        raise CliError(f"{path}: {error}") from None


def check_name(name: str) -> str:
    """A Module's or pod's name."""
    if not DNS_LABEL.fullmatch(name):
        raise CliError(f'"{name}" is no name: use lower-case letters, digits and "-", at most 63 characters')
    return name


async def push(cluster: Cluster, path: Path, name: str) -> dict[str, Any]:
    """Stores the file as the data of Module `name`, which is made when it is not there; the Module."""
    data, _ = read_module(path)
    module = resource_of("Module")
    manifest = {"apiVersion": module.api_version, "kind": module.kind, "metadata": {"name": name}}
    try:
        await cluster.client.create("Module", manifest)
    except ApiError as error:
        if error.reason != "AlreadyExists":
            raise
    response = await cluster.client.raw(
        "PUT",
        module.object_path("", name, "data"),
        headers={"Content-Type": K32S.content_type, "Content-Length": str(len(data))},
        body=data,
    )
    async with response:
        await cluster.client.check(response)
        pushed: dict[str, Any] = orjson.loads(await response.read())
        return pushed


def pod_manifest(flags: PodFlags, data: bytes, info: ModuleInfo) -> dict[str, Any]:
    """The Pod of `deploy`; it has an emptyDir at /tmp."""
    annotations = {NAMES.ann_wasm_sha256: info.digest}
    if flags.embed:
        if len(data) > LIMITS.module_embedded_bytes:
            limit = LIMITS.module_embedded_bytes
            raise CliError(text("module_refusals", "embedded_too_large", found=len(data), limit=limit))
        annotations[NAMES.ann_wasm] = base64.b64encode(data).decode()
    if flags.topics:
        annotations[NAMES.ann_topics] = flags.topics
    if flags.tick:
        annotations[NAMES.ann_tick_interval] = flags.tick
    container: dict[str, Any] = {
        "name": flags.name,
        "image": NAMES.image_embedded if flags.embed else f"{NAMES.image_prefix}{flags.name}",
        "volumeMounts": [{"name": "tmp", "mountPath": "/tmp"}],
    }
    if flags.env:
        container["env"] = [{"name": key, "value": value} for key, value in flags.env.items()]
    if flags.memory:
        container["resources"] = {"limits": {"memory": flags.memory}}
    spec: dict[str, Any] = {"containers": [container], "volumes": [{"name": "tmp", "emptyDir": {}}]}
    if flags.node:
        spec["nodeName"] = flags.node
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": flags.name, "labels": {"app": flags.name}, "annotations": annotations},
        "spec": spec,
    }


async def deploy(cluster: Cluster, path: Path, flags: PodFlags) -> dict[str, Any]:
    """Pushes the module (unless it is embedded) and creates the pod; the Pod."""
    data, info = read_module(path)
    manifest = pod_manifest(flags, data, info)
    if not flags.embed:
        await push(cluster, path, flags.name)
    return await cluster.client.create("Pod", manifest, cluster.namespace)
