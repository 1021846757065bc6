"""What keeps a pod from moving, as far as its spec and its module tell ("What keeps a pod from moving")."""

import base64
import binascii
import re
from collections.abc import Iterator
from dataclasses import dataclass

from kube32.contract import ABI, NAMES, text
from kube32.controllers.node_match import granted_capabilities
from kube32.controllers.objects import Obj, annotation, containers, spec_of, status_of, volume_claims
from kube32.controllers.resources import amounts
from kube32.formats.wasm_module import ModuleRefused, parse_module

NEVER = "Never"
_DIGEST = re.compile(r"[0-9a-f]{64}")


@dataclass(frozen=True, slots=True)
class ModuleFacts:
    """What the control plane knows of the module that the pod's digest names.

    `entry_point` is None when there is none or nobody knows; `stored` is False when its bytes are gone.
    """

    entry_point: str | None = None
    stored: bool = True


def blockers_of(pod: Obj, module: ModuleFacts | None = None) -> list[str]:
    """Every reason, in the order of the specification's table; an empty list for a pod that may move.

    `module` are the facts of a Module image; the module of an embedded image is read here.
    """
    return [
        *_grants(pod),
        *_storage(pod),
        *_policy(pod),
        *_containers(pod),
        *_module(pod, module or ModuleFacts()),
        *_digest(pod),
    ]


def _grants(pod: Obj) -> Iterator[str]:
    asked = _requested(pod)
    for resource in asked:
        if _is_hardware(resource):
            yield text("blockers", "grant_resource", resource=resource)
    for name in granted_capabilities(pod):
        yield text("blockers", "grant_capability", name=name)
    if NAMES.resource_i2c in asked:
        yield text("blockers", "grant_i2c")


def _containers(pod: Obj) -> Iterator[str]:
    """A snapshot holds the state of one container."""
    count = len(containers(pod))
    if count > 1:
        yield text("blockers", "many_containers", count=count)


def _requested(pod: Obj) -> list[str]:
    """The names of all resources that a container requests or is limited to, each once; 0 of one is none."""
    found: dict[str, None] = {}
    ephemeral = spec_of(pod).get("ephemeralContainers") or []
    for container in [*containers(pod, init=True), *ephemeral]:
        resources = container.get("resources") or {}
        for kind in ("requests", "limits"):
            found |= dict.fromkeys(name for name, amount in amounts(resources.get(kind)).items() if amount)
    return list(found)


def _is_hardware(resource: str) -> bool:
    if resource == NAMES.resource_hardware_ipc:
        return False
    return resource.startswith((NAMES.resource_hardware_prefix, NAMES.resource_esp32_prefix))


def _storage(pod: Obj) -> Iterator[str]:
    for claim in dict.fromkeys(volume_claims(pod)):
        yield text("blockers", "volume_claim", claim=claim)


def _policy(pod: Obj) -> Iterator[str]:
    if annotation(pod, NAMES.ann_migration) == NEVER:
        yield text("blockers", "migration_never")


def _module(pod: Obj, module: ModuleFacts) -> Iterator[str]:
    export = embedded_entry_point(pod) if is_embedded(pod) else module.entry_point
    if export is not None:
        yield text("blockers", "entry_point", export=export)
    if not module.stored:
        yield text("blockers", "digest_missing", digest=pinned_digest(pod))


def _digest(pod: Obj) -> Iterator[str]:
    """A pod whose spec names another module than it runs could not be restored anywhere, nor taken back."""
    named = pinned_digest(pod)
    for running in running_digests(pod):
        if named and running != named:
            yield text("blockers", "digest_differs", running=running, named=named)


def pinned_digest(pod: Obj) -> str:
    """The digest that admission pinned, "" when there is none."""
    return (annotation(pod, NAMES.ann_wasm_sha256) or "").lower()


def running_digests(pod: Obj) -> list[str]:
    """The digests of the modules that the pod's containers run, as the node reports them."""
    found: dict[str, None] = {}
    for status in status_of(pod).get("containerStatuses") or []:
        digest = str(status.get("imageID") or "").rpartition(":")[2]
        if _DIGEST.fullmatch(digest):
            found[digest] = None
    return list(found)


def is_embedded(pod: Obj) -> bool:
    """Whether the pod's module stands in its annotation."""
    return any(c.get("image") == NAMES.image_embedded for c in containers(pod))


def embedded_entry_point(pod: Obj) -> str | None:
    """The entry point of the embedded module; None when there is none or the module cannot be read."""
    try:
        wasm = base64.b64decode("".join((annotation(pod, NAMES.ann_wasm) or "").split()), validate=True)
        return parse_module(wasm).entry_point
    except (binascii.Error, ValueError, ModuleRefused):
        return None


def entry_point_of(exports: list[str]) -> str | None:
    """The entry point among a Module's exports, the first in the pod ABI's order."""
    return next((name for name in ABI.entry_points if name in exports), None)
