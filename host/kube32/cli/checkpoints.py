"""checkpoint and move: a Checkpoint is created, followed to its end and told about."""

import os
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

from kube32.cli.cluster import Cluster
from kube32.cli.errors import CliError
from kube32.contract import resource_of

FINAL_PHASES = ("Saved", "Completed", "Failed")
Phase = Callable[[dict[str, Any]], None]


def manifest(pod: str, action: str, target: dict[str, Any] | None = None) -> dict[str, Any]:
    """A Checkpoint of `pod` whose name the server makes."""
    checkpoint = resource_of("Checkpoint")
    spec: dict[str, Any] = {"podName": pod, "action": action}
    if target:
        spec["target"] = target
    return {
        "apiVersion": checkpoint.api_version,
        "kind": checkpoint.kind,
        "metadata": {"generateName": f"{pod[:50]}-{action.lower()}-"},
        "spec": spec,
    }


async def run_checkpoint(cluster: Cluster, obj: dict[str, Any], on_phase: Phase) -> dict[str, Any]:
    """Creates the Checkpoint and returns it in its final phase; `on_phase` sees each new phase once."""
    created = await cluster.client.create("Checkpoint", obj, cluster.namespace)
    name = created["metadata"]["name"]
    seen = ""
    while True:
        events = cluster.client.watch(
            "Checkpoint", cluster.namespace, field_selector=f"metadata.name={name}", resource_version="0"
        )
        async for kind, current in events:
            if kind == "DELETED":
                raise CliError(f"checkpoint {name} was deleted before it finished", 1)
            if kind not in ("ADDED", "MODIFIED"):
                continue
            phase = current.get("status", {}).get("phase", "Pending")
            if phase != seen:
                seen = phase
                on_phase(current)
            if phase in FINAL_PHASES:
                return current


async def download(cluster: Cluster, name: str, path: Path) -> int:
    """Writes the Checkpoint's data to `path`, whole or not at all, mode 0600; gives its size in bytes."""
    draft = path.with_name(path.name + ".part")
    try:
        draft.unlink(missing_ok=True)
        fd = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except OSError as error:
        raise CliError(f"{path}: {error.strerror}") from None
    size = 0
    try:
        with os.fdopen(fd, "wb") as file:
            resource = resource_of("Checkpoint")
            response = await cluster.client.raw("GET", resource.object_path(cluster.namespace, name, "data"))
            async with response:
                await cluster.client.check(response)
                async for chunk in response.chunks():
                    size += file.write(chunk)
                announced = int(response.headers.get("Content-Length", size))
        if size != announced:
            raise CliError(f"{path}: the data ended after {size} of {announced} bytes; try again", 1)
        draft.replace(path)
    except OSError as error:
        raise CliError(f"{path}: {error.strerror}") from None
    finally:
        with suppress(OSError):
            draft.unlink(missing_ok=True)
    return size
