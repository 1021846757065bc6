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
    """Reads an embedded module's sections; what its functions hold is the node's to check."""
    if image_of(pod) != NAMES.image_embedded:
        return
    written = _annotations(pod).get(_WASM)
    if not written:
        problems.required(annotation_path(_WASM), text("module_refusals", "embedded_missing"))
        return
    try:
        parse_module(embedded_bytes(written))
    except ModuleRefused as e:
        problems.invalid(annotation_path(_WASM), _shortened(written), str(e))
    except ValueError as e:
        problems.invalid(annotation_path(_WASM), _shortened(written), str(e))


def _shortened(value: str) -> str:
    return value if len(value) <= 24 else f"{value[:24]}..."


def check_module_fixed(old: Object, new: Object, problems: Problems) -> None:
    """A pod keeps its module: neither image, embedded bytes nor digest change; an unset digest may be set."""
    message = text("validation", "module_fixed")
    if image_of(old) != image_of(new):
        problems.forbidden("spec.containers[0].image", message)
    before, after = _annotations(old), _annotations(new)
    if image_of(old) == NAMES.image_embedded and before.get(_WASM) != after.get(_WASM):
        problems.forbidden(annotation_path(_WASM), message)
    if _SHA in before and before[_SHA] != after.get(_SHA):
        problems.forbidden(annotation_path(_SHA), message)


def pin_module(pod: Object, modules: ModuleLookup) -> None:
    """Sets kube32.io/wasm-sha256, in place, on a decoded pod, before or after its validation.

    The digest is that of the embedded bytes, or of the named Module's current data; it stays unset while
    there is none (the kubelet pins at the start) and when the user set it. ApiFailure 422 when an embedded
    module has another digest.
    """
    image, annotations = image_of(pod), _annotations(pod)
    pinned = annotations.get(_SHA)
    found: str | None = None
    if image == NAMES.image_embedded:
        found = _embedded_digest(annotations.get(_WASM, ""))
        if None not in (pinned, found) and pinned != found:
            _refuse_digest(pod, pinned, found)
    elif image.startswith(NAMES.image_prefix) and pinned is None:
        found = modules.digest_of(image.removeprefix(NAMES.image_prefix))
    if pinned is None and found is not None:
        metadata: Object = pod.setdefault("metadata", {})
        metadata["annotations"] = {**annotations, _SHA: found}


def _embedded_digest(written: str) -> str | None:
    """The digest of embedded bytes, None when validation refuses them."""
    try:
        return digest(embedded_bytes(written)) if written else None
    except ValueError:
        return None


def _refuse_digest(pod: Object, pinned: str | None, found: str | None) -> None:
    problems = Problems()
    cause = text("module_refusals", "digest", found=found, expected=pinned)
    message = text("module_refusals", "prefix", cause=cause)
    problems.invalid(annotation_path(_SHA), pinned, message)
    failure = problems.failure(resource_of("Pod"), pod["metadata"].get("name", ""))
    assert failure is not None
    raise failure
