"""A pod's module at admission: the embedded one is read and refused with its cause, and every pod is pinned
to a digest.

Decisions, "Modules": a pod is created with kube32.io/wasm-sha256 set to what its image names then, so that a
new version under the same name never changes a pod that runs or moves.
"""

import base64
import binascii
from typing import Any, Protocol

from kube32.api.admission.annotations import annotation_path
from kube32.api.admission.problems import Problems
from kube32.contract import LIMITS, NAMES, resource_of, text
from kube32.formats.pins import is_pin, pin_of
from kube32.formats.wasm_module import ModuleRefused, digest, parse_module

Object = dict[str, Any]
_WASM, _SHA = NAMES.ann_wasm, NAMES.ann_wasm_sha256
# base64 writes three bytes as four characters; a longer text is not decoded at all.
_LONGEST_TEXT = (LIMITS.module_embedded_bytes * 4 + 2) // 3 + 4


class ModuleLookup(Protocol):
    """What admission needs to know of stored modules."""

    def digest_of(self, name: str) -> str | None:
        """The digest of the current data of the Module `name`, None when there is no such Module or no
        data.
        """


def image_of(pod: Object) -> str:
    """The image of the pod's container, "" when there is none."""
    containers = (pod.get("spec") or {}).get("containers") or [{}]
    image = containers[0].get("image", "")
    return image if isinstance(image, str) else ""


def _containers(pod: Object) -> list[tuple[str, Object]]:
    """Every container with its path."""
    spec: Object = pod.get("spec") or {}
    return [
        (f"spec.{kind}[{index}]", container)
        for kind in ("initContainers", "containers")
        for index, container in enumerate(spec.get(kind) or ())
    ]


def _is_embedded(pod: Object) -> bool:
    return any(c.get("image") == NAMES.image_embedded for _, c in _containers(pod))


def _annotations(pod: Object) -> dict[str, str]:
    return (pod.get("metadata") or {}).get("annotations") or {}


def embedded_bytes(value: str) -> bytes:
    """The module in an annotation; ValueError says what is wrong (base64, size)."""
    squeezed = "".join(value.split())
    if len(squeezed) > _LONGEST_TEXT:
        _too_large(len(squeezed) * 3 // 4)
    try:
        data = base64.b64decode(squeezed, validate=True)
    except (binascii.Error, ValueError) as e:
        raise ValueError(text("module_refusals", "embedded_base64", what=e)) from None
    if len(data) > LIMITS.module_embedded_bytes:
        _too_large(len(data))
    return data


def _too_large(found: int) -> None:
    limit = LIMITS.module_embedded_bytes
    raise ValueError(text("module_refusals", "embedded_too_large", found=found, limit=limit))


def check_modules(pod: Object, problems: Problems) -> None:
    """Reads the sections of a pod's or template's embedded module; what its functions hold is the node's to check."""
    if not _is_embedded(pod):
        return
    written = _annotations(pod).get(_WASM)
    if not written:
        problems.required(annotation_path(_WASM), text("module_refusals", "embedded_missing"))
        return
    try:
        data = embedded_bytes(written)
        parse_module(data)
    except (ModuleRefused, ValueError) as e:
        problems.invalid(annotation_path(_WASM), _shortened(written), str(e))
        return
    pinned, found = _annotations(pod).get(_SHA), digest(data)
    if image_of(pod) == NAMES.image_embedded and pinned not in (None, found):
        _digest_differs(pinned, found, problems)


def check_template_modules(old: Object | None, new: Object, problems: Problems) -> None:
    """The same of an owner's pod template, when it is new or changed."""
    before, after = (_template(obj) for obj in (old or {}, new))
    if old is None or (_annotations(before), _containers(before)) != (
        _annotations(after),
        _containers(after),
    ):
        check_modules(after, problems.within("spec.template"))


def _template(owner: Object) -> Object:
    return (owner.get("spec") or {}).get("template") or {}


def _shortened(value: str) -> str:
    return value if len(value) <= 24 else f"{value[:24]}..."


def check_module_fixed(old: Object, new: Object, problems: Problems) -> None:
    """A pod keeps its modules: neither image, embedded bytes nor digest change; an unset digest may be set."""
    message = text("validation", "module_fixed")
    for (path, was), (_, container) in zip(_containers(old), _containers(new), strict=False):
        if was.get("image") != container.get("image"):
            problems.forbidden(f"{path}.image", message)
    before, after = _annotations(old), _annotations(new)
    if _is_embedded(old) and before.get(_WASM) != after.get(_WASM):
        problems.forbidden(annotation_path(_WASM), message)
    for name, value in before.items():
        if is_pin(name) and value != after.get(name):
            problems.forbidden(annotation_path(name), message)


def pin_module(pod: Object, modules: ModuleLookup) -> None:
    """Sets kube32.io/wasm-sha256, in place, on a decoded pod, before or after its validation.

    The digest is that of the embedded bytes, or of the named Module's current data; it stays unset while
    there is none (the kubelet pins at the start) and when the user set it. Containers with another image than the
    first one have an annotation of their own, sha256.kube32.io/<container>. ApiFailure 422 when an embedded
    module has another digest.
    """
    annotations = dict(_annotations(pod))
    pinned, image = annotations.get(_SHA), image_of(pod)
    if image == NAMES.image_embedded and pinned is not None:
        found = _digest(pod, image, modules)
        if found not in (None, pinned):
            _refuse_digest(pod, pinned, found)
    for _, container in _containers(pod):
        name = pin_of(pod, container)
        if name not in annotations:
            found = _digest(pod, container.get("image", ""), modules)
            if found is not None:
                annotations[name] = found
    if annotations != _annotations(pod):
        pod.setdefault("metadata", {})["annotations"] = annotations


def _digest(pod: Object, image: str, modules: ModuleLookup) -> str | None:
    """The digest of what an image names now."""
    if image == NAMES.image_embedded:
        return _embedded_digest(_annotations(pod).get(_WASM, ""))
    return (
        modules.digest_of(image.removeprefix(NAMES.image_prefix))
        if image.startswith(NAMES.image_prefix)
        else None
    )


def _embedded_digest(written: str) -> str | None:
    """The digest of embedded bytes, None when validation refuses them."""
    try:
        return digest(embedded_bytes(written)) if written else None
    except ValueError:
        return None


def _refuse_digest(pod: Object, pinned: str | None, found: str | None) -> None:
    problems = Problems()
    _digest_differs(pinned, found, problems)
    failure = problems.failure(resource_of("Pod"), pod["metadata"].get("name", ""))
    assert failure is not None
    raise failure


def _digest_differs(pinned: str | None, found: str | None, problems: Problems) -> None:
    cause = text("module_refusals", "digest", found=found, expected=pinned)
    problems.invalid(annotation_path(_SHA), pinned, text("module_refusals", "prefix", cause=cause))
