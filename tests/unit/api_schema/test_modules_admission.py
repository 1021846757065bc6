"""Modules at admission: embedded ones are read and refused with their cause, pods are pinned to a digest."""

import base64
import copy
import hashlib
from collections.abc import Callable
from typing import Any

import pytest

from kube32.api.admission import default, pin_module, validate_update
from kube32.api.status import ApiFailure
from kube32.contract import LIMITS, resource_of

Refusals = Callable[[dict[str, Any]], list[str]]
WASM, SHA = "kube32.io/wasm", "kube32.io/wasm-sha256"
PATH = f"metadata.annotations[{WASM}]: "


def section(number: int, payload: bytes) -> bytes:
    return bytes([number, len(payload)]) + payload


MODULE = b"".join(
    (
        b"\0asm\1\0\0\0",
        section(1, b"\1\x60\0\0"),
        section(3, b"\1\0"),
        section(5, b"\1\0\1"),
        section(7, b"\2\6memory\2\0\x0ak32_handle\0\0"),
        section(10, b"\1\2\0\x0b"),
    )
)
DIGEST = hashlib.sha256(MODULE).hexdigest()


class Modules:
    """Stored modules by name."""

    def __init__(self, **digests: str) -> None:
        self.digests = digests

    def digest_of(self, name: str) -> str | None:
        return self.digests.get(name)


def embed(pod: dict[str, Any], data: bytes | str) -> dict[str, Any]:
    text = data if isinstance(data, str) else base64.b64encode(data).decode()
    pod["metadata"]["annotations"] = {WASM: text}
    pod["spec"]["containers"][0]["image"] = "wasm://embedded"
    return pod


def test_an_embedded_module_is_taken_and_pinned(pod: dict[str, Any], admit: Callable) -> None:
    admit(embed(pod, MODULE))
    pin_module(pod, Modules())
    assert pod["metadata"]["annotations"][SHA] == DIGEST


def test_base64_may_be_wrapped_in_lines(pod: dict[str, Any], admit: Callable) -> None:
    wrapped = base64.encodebytes(MODULE).decode().replace("\n", "\n    ")
    admit(embed(pod, wrapped))
    pin_module(pod, Modules())
    assert pod["metadata"]["annotations"][SHA] == DIGEST


def test_an_embedded_module_that_is_none_is_refused_with_its_cause(
    pod: dict[str, Any], refusals: Refusals
) -> None:
    (fault,) = refusals(embed(pod, b"GIF89a, not wasm at all"))
    assert fault.startswith(PATH)
    assert "module refused: not a WebAssembly module" in fault


def test_a_module_cut_anywhere_is_refused(pod: dict[str, Any], refusals: Refusals) -> None:
    for end in range(1, len(MODULE) - 1):
        (fault,) = refusals(embed(copy.deepcopy(pod), MODULE[:end]))
        assert "module refused: " in fault


def test_text_that_is_not_base64_is_refused(pod: dict[str, Any], refusals: Refusals) -> None:
    (fault,) = refusals(embed(pod, "@@@@"))
    assert fault.startswith(PATH)
    assert "annotation kube32.io/wasm is not base64" in fault


@pytest.mark.parametrize("size", [LIMITS.module_embedded_bytes + 1, 4 * LIMITS.module_embedded_bytes])
def test_a_module_too_large_to_embed_names_push(pod: dict[str, Any], refusals: Refusals, size: int) -> None:
    (fault,) = refusals(embed(pod, MODULE + b"\0" * (size - len(MODULE))))
    assert "at most 20480 are taken; use kube32-cli push for larger modules" in fault


def test_the_largest_embedded_module_is_taken(pod: dict[str, Any], admit: Callable) -> None:
    """A custom section fills it up: its id, its size in three bytes, its name."""
    size = LIMITS.module_embedded_bytes - len(MODULE) - 4
    length = bytes([size & 0x7F | 0x80, size >> 7 & 0x7F | 0x80, size >> 14])
    module = MODULE + b"\0" + length + b"\1x" + b"\0" * (size - 2)
    assert len(module) == LIMITS.module_embedded_bytes
    admit(embed(pod, module))


def test_an_embedded_image_needs_its_module(pod: dict[str, Any], refusals: Refusals) -> None:
    pod["spec"]["containers"][0]["image"] = "wasm://embedded"
    assert refusals(pod) == [
        f"{PATH}Required value: image wasm://embedded without annotation kube32.io/wasm",
    ]


def test_an_embedded_module_with_another_digest_is_refused(pod: dict[str, Any]) -> None:
    embed(pod, MODULE)["metadata"]["annotations"][SHA] = "1" * 64
    with pytest.raises(ApiFailure) as failure:
        pin_module(pod, Modules())
    assert failure.value.code == 422
    assert f"its SHA-256 is {DIGEST}, kube32.io/wasm-sha256 is {'1' * 64}" in failure.value.message


def test_a_named_module_is_pinned_to_what_its_name_means_now(pod: dict[str, Any]) -> None:
    pin_module(pod, Modules(echo="a" * 64))
    assert pod["metadata"]["annotations"][SHA] == "a" * 64
    pin_module(pod, Modules(echo="b" * 64))
    assert pod["metadata"]["annotations"][SHA] == "a" * 64


def test_a_digest_set_by_the_user_is_kept(pod: dict[str, Any]) -> None:
    pod["metadata"]["annotations"][SHA] = "c" * 64
    pin_module(pod, Modules(echo="a" * 64))
    assert pod["metadata"]["annotations"][SHA] == "c" * 64


@pytest.mark.parametrize("image", ["wasm://missing", "nginx:latest", ""])
def test_a_pod_whose_module_is_not_there_is_left_unpinned(pod: dict[str, Any], image: str) -> None:
    pod["spec"]["containers"][0]["image"] = image
    pin_module(pod, Modules(echo="a" * 64))
    assert SHA not in pod["metadata"]["annotations"]


def test_a_broken_embedded_module_is_left_to_validation(pod: dict[str, Any], refusals: Refusals) -> None:
    pin_module(embed(pod, "@@@@"), Modules())
    assert SHA not in pod["metadata"]["annotations"]
    assert "is not base64" in refusals(pod)[0]


def test_a_pod_without_annotations_gets_them(pod: dict[str, Any]) -> None:
    del pod["metadata"]["annotations"]
    pin_module(pod, Modules(echo="a" * 64))
    assert pod["metadata"]["annotations"] == {SHA: "a" * 64}


def test_the_embedded_bytes_of_a_pod_stay(pod: dict[str, Any]) -> None:
    resource = resource_of("Pod")
    default(resource, embed(pod, MODULE))
    new = copy.deepcopy(pod)
    new["metadata"]["annotations"][WASM] = base64.b64encode(MODULE + b"\0\2\1x").decode()
    with pytest.raises(ApiFailure, match="the module of a pod is fixed at creation"):
        validate_update(resource, pod, new)


def test_a_refusal_does_not_repeat_the_whole_module(pod: dict[str, Any], refusals: Refusals) -> None:
    (fault,) = refusals(embed(pod, b"x" * LIMITS.module_embedded_bytes))
    assert len(fault) < 300
