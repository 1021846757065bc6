"""Every row of "What keeps a pod from moving" that the control plane finds."""

import base64
from typing import Any

import pytest
from tests.unit.controllers.peers import DIGEST, WASM

from kube32.contract import NAMES
from kube32.controllers.checkpoint.blockers import ModuleFacts, blockers_of, entry_point_of

Obj = dict[str, Any]
ENTRY = bytes.fromhex(
    "0061736d01000000010401600000030201000503010001071302066d656d6f727902000"
    + "65f737461727400000a040102000b"
)


def pod(spec: Obj | None = None, annotations: dict[str, str] | None = None, **container: Any) -> Obj:
    """A pod with one container."""
    main = {"name": "main", "image": "wasm://m", **container}
    return {
        "metadata": {"name": "echo", "namespace": "default", "annotations": annotations or {}},
        "spec": {"containers": [main], **(spec or {})},
    }


def asking(kind: str, **resources: str) -> Obj:
    """A pod with requests or limits; "__" stands for "/" and "_" for "." before it."""
    return pod(resources={kind: resources})


@pytest.mark.parametrize("kind", ["requests", "limits"])
@pytest.mark.parametrize(
    ("resource", "blocker"),
    [
        ("hardware.kube32.io/led", "grant hardware.kube32.io/led"),
        ("esp32.io/gpio", "grant esp32.io/gpio"),
        ("kube32.io/i2c-device", "grant kube32.io/i2c-device"),
    ],
)
def test_a_hardware_request_or_limit_keeps_a_pod(kind: str, resource: str, blocker: str) -> None:
    assert blockers_of(asking(kind, **{resource: "1"})) == [blocker]


@pytest.mark.parametrize("resource", ["hardware.kube32.io/ipc", "cpu", "memory", "kube32.io/other"])
def test_ipc_and_ordinary_resources_do_not(resource: str) -> None:
    assert blockers_of(asking("limits", **{resource: "1"})) == []


def test_none_of_a_resource_is_no_grant() -> None:
    assert blockers_of(asking("requests", **{"esp32.io/gpio": "0"})) == []


@pytest.mark.parametrize("kind", ["initContainers", "ephemeralContainers"])
def test_a_grant_of_any_container_counts(kind: str) -> None:
    other = {"name": "x", "image": "wasm://m", "resources": {"requests": {"esp32.io/adc": "1"}}}
    assert blockers_of(pod({kind: [other]})) == ["grant esp32.io/adc"]


@pytest.mark.parametrize("name", ["DISPLAY", "KEYBOARD", "SPEAKER", "SD", "CHIP_TEMP"])
def test_a_hardware_capability_keeps_a_pod(name: str) -> None:
    granted = pod(securityContext={"capabilities": {"add": ["NET_ADMIN", name, name]}})
    assert blockers_of(granted) == [f"grant capability {name}"]


@pytest.mark.parametrize(
    ("volume", "claim"),
    [
        ({"persistentVolumeClaim": {"claimName": "data"}}, "data"),
        ({"csi": {"driver": NAMES.volume_driver_sd}}, "v"),
        ({"flexVolume": {"driver": NAMES.volume_driver_sd}}, "v"),
        ({"ephemeral": {"volumeClaimTemplate": {}}}, "echo-v"),
    ],
)
def test_storage_of_the_node_keeps_a_pod(volume: Obj, claim: str) -> None:
    found = blockers_of(pod({"volumes": [{"name": "v", **volume}]}))
    assert found == [f"volume claim {claim} on node storage"]


@pytest.mark.parametrize(
    "volume", [{"emptyDir": {}}, {"configMap": {"name": "c"}}, {"csi": {"driver": "other"}}]
)
def test_volumes_that_every_node_has_do_not(volume: Obj) -> None:
    assert blockers_of(pod({"volumes": [{"name": "v", **volume}]})) == []


@pytest.mark.parametrize(("policy", "blocked"), [("Never", True), ("OnDrain", False), ("Auto", False)])
def test_only_the_policy_never_keeps_a_pod(policy: str, blocked: bool) -> None:
    found = blockers_of(pod(annotations={NAMES.ann_migration: policy}))
    assert found == (["annotation kube32.io/migration: Never"] if blocked else [])


def embedded(wasm: bytes) -> Obj:
    """A pod whose module stands in its annotation."""
    return pod(annotations={NAMES.ann_wasm: base64.b64encode(wasm).decode()}, image=NAMES.image_embedded)


def test_an_embedded_module_with_an_entry_point_keeps_a_pod() -> None:
    assert blockers_of(embedded(ENTRY)) == ["entry point _start runs on its own thread"]


@pytest.mark.parametrize("wasm", [WASM, b"", b"\0asm", WASM[:-3]])
def test_an_embedded_module_without_one_or_that_cannot_be_read_does_not(wasm: bytes) -> None:
    assert blockers_of(embedded(wasm)) == []


def test_what_is_known_of_a_module_image_counts() -> None:
    facts = ModuleFacts(entry_point_of(["k32_init", "main", "app_main"]), stored=False)
    found = blockers_of(pod(annotations={NAMES.ann_wasm_sha256: DIGEST}), facts)
    assert found == ["entry point app_main runs on its own thread", f"module {DIGEST} is no longer stored"]


def test_a_pod_that_runs_another_module_than_its_spec_names_is_kept_and_both_are_named() -> None:
    changed = pod(annotations={NAMES.ann_wasm_sha256: "b" * 64})
    changed["status"] = {"containerStatuses": [{"name": "main", "imageID": f"wasm-sha256:{'a' * 64}"}]}
    assert blockers_of(changed) == [f"the pod runs module {'a' * 64}, its spec names {'b' * 64}"]
    changed["metadata"]["annotations"][NAMES.ann_wasm_sha256] = "A" * 64
    assert blockers_of(changed) == []


def test_every_reason_is_named_in_the_order_of_the_table() -> None:
    everything = pod(
        {"volumes": [{"name": "v", "persistentVolumeClaim": {"claimName": "data"}}]},
        {NAMES.ann_migration: "Never"},
        resources={"limits": {"kube32.io/i2c-device": "1", "esp32.io/gpio": "2"}},
        securityContext={"capabilities": {"add": ["SD"]}},
    )
    assert blockers_of(everything, ModuleFacts("_start")) == [
        "grant esp32.io/gpio",
        "grant capability SD",
        "grant kube32.io/i2c-device",
        "volume claim data on node storage",
        "annotation kube32.io/migration: Never",
        "entry point _start runs on its own thread",
    ]
