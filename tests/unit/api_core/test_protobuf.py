"""Bodies in Kubernetes' protobuf encoding, as typed Go clients send them."""

import struct
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kube32.api import protobuf, schemas
from kube32.contract.data import load

CORE = "/api/v1/namespaces/default"
MEDIA = "application/vnd.kubernetes.protobuf"
# What kubectl 1.37 sends for `kubectl create namespace t1`.
KUBECTL_NAMESPACE = bytes.fromhex(
    "6b3873000a0f0a02763112094e616d657370616365121a0a120a02743112001a002200"
    "2a0032003800420012001a020a001a002200"
)


def varint(value: int) -> bytes:
    out = bytearray()
    value &= 0xFFFFFFFFFFFFFFFF
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def number(field: int, value: int) -> bytes:
    return varint(field << 3) + varint(value)


def part(field: int, value: bytes | str) -> bytes:
    data = value.encode() if isinstance(value, str) else value
    return varint(field << 3 | 2) + varint(len(data)) + data


def envelope(kind: str, *fields: bytes, version: str = "v1") -> bytes:
    meta = part(1, version) + part(2, kind)
    return b"k8s\x00" + part(1, meta) + part(2, b"".join(fields))


def test_a_namespace_as_kubectl_sends_it() -> None:
    assert protobuf.decode(KUBECTL_NAMESPACE) == {
        "kind": "Namespace",
        "apiVersion": "v1",
        "metadata": {"name": "t1"},
    }


async def test_kubectls_namespace_is_created(api: Any) -> None:
    answer = await api.send("POST", "/api/v1/namespaces", KUBECTL_NAMESPACE, media=MEDIA)
    assert (answer.status, answer.json["metadata"]["name"]) == (201, "t1")


def test_maps_bytes_times_and_numbers_are_read() -> None:
    metadata = (
        part(1, "s")
        + part(11, part(1, "l") + part(2, "v"))
        + part(8, number(1, 1_600_000_000))
        + number(7, 3)
    )
    secret = envelope(
        "Secret", part(1, metadata), part(2, part(1, "k") + part(2, b"\x00\xff")), part(3, "Opaque")
    )
    assert protobuf.decode(secret) == {
        "kind": "Secret",
        "apiVersion": "v1",
        "metadata": {
            "name": "s",
            "labels": {"l": "v"},
            "creationTimestamp": "2020-09-13T12:26:40Z",
            "generation": 3,
        },
        "data": {"k": "AP8="},
        "type": "Opaque",
    }


def test_a_pods_nested_and_inline_messages_are_read() -> None:
    quantity = part(1, "memory") + part(2, part(1, "32Ki"))
    config_map = part(19, part(1, part(1, "c")) + number(4, 0))
    container = (
        part(1, "main")
        + part(2, "wasm://echo")
        + part(6, number(3, 80) + part(4, "TCP") + number(2, 0))
        + part(8, part(1, quantity))
        + part(11, part(1, part(2, part(2, number(1, 1) + part(3, "http")))) + number(2, 5))
    )
    spec = part(1, part(1, "v") + part(2, config_map)) + part(2, container) + number(4, 0) + number(11, 0)
    assert protobuf.decode(envelope("Pod", part(2, spec)))["spec"] == {
        "volumes": [{"name": "v", "configMap": {"name": "c", "optional": False}}],
        "containers": [
            {
                "name": "main",
                "image": "wasm://echo",
                "ports": [{"containerPort": 80, "protocol": "TCP"}],
                "resources": {"limits": {"memory": "32Ki"}},
                "readinessProbe": {"httpGet": {"port": "http"}, "initialDelaySeconds": 5},
            }
        ],
        "terminationGracePeriodSeconds": 0,
    }


def test_a_zero_counts_where_go_tells_it_from_nothing() -> None:
    options = protobuf.decode(envelope("DeleteOptions", number(1, 0), part(2, part(1, "u"))))
    assert options["gracePeriodSeconds"] == 0
    assert options["preconditions"] == {"uid": "u"}
    assert "gracePeriodSeconds" not in protobuf.decode(envelope("DeleteOptions"))


def test_negative_numbers_fixed_widths_and_packed_lists() -> None:
    tolerations = part(22, number(5, -3) + part(1, "k"))
    groups = part(14, part(4, varint(5) + varint(-1)))
    unknown = varint(900 << 3 | 1) + struct.pack("<d", 1.5) + varint(901 << 3 | 5) + b"abcd"
    spec = protobuf.decode(envelope("Pod", part(2, tolerations + groups + unknown)))["spec"]
    assert spec == {
        "tolerations": [{"key": "k", "tolerationSeconds": -3}],
        "securityContext": {"supplementalGroups": [5, -1]},
    }


async def test_a_deletion_with_protobuf_options_honours_them(api: Any, objects: Any) -> None:
    await api.create(f"{CORE}/configmaps", objects.config_map("a"))
    body = envelope("DeleteOptions", part(2, part(1, "other")))
    assert (await api.send("DELETE", f"{CORE}/configmaps/a", body, media=MEDIA)).status == 409
    assert (
        await api.send("DELETE", f"{CORE}/configmaps/a", envelope("DeleteOptions"), media=MEDIA)
    ).status == 200


@pytest.mark.parametrize(
    ("body", "code", "said"),
    [
        (b"", 400, "does not begin with k8s"),
        (b"{}", 400, "does not begin with k8s"),
        (b"k8s\x00", 400, "names no kind"),
        (KUBECTL_NAMESPACE[:-5], 400, "unexpected end"),
        (b"k8s\x00\x0b", 400, "wire type 3"),
        (b"k8s\x00" + b"\xff" * 12, 400, "too long"),
        (envelope("Checkpoint", version="kube32.io/v1"), 415, "Checkpoint"),
        (envelope("ConfigMap", number(1, 5)), 400, "a number where a message belongs"),
        (envelope("ConfigMap", part(1, part(1, b"\xff"))), 400, "not UTF-8"),
        (envelope("ConfigMap", part(1, part(7, b"x"))), 400, "bytes where a number belongs"),
        (envelope("ConfigMap", part(1, part(8, number(1, 1 << 62)))), 400, "time is out of range"),
        (envelope("Secret", part(1, part(1, "a"))), 400, "cannot be handled as a ConfigMap"),
    ],
)
async def test_broken_bodies_are_a_status(api: Any, body: bytes, code: int, said: str) -> None:
    answer = await api.send("POST", f"{CORE}/configmaps", body, media=MEDIA)
    assert answer.status == code, answer.body
    assert said in answer.message


@given(st.binary(max_size=80), st.sampled_from(["Pod", "Event", "Node", "Secret"]))
def test_any_bytes_are_read_or_refused(data: bytes, kind: str) -> None:
    try:
        assert protobuf.decode(envelope(kind, data))["kind"] == kind
    except ValueError as error:
        assert str(error)


def test_every_known_field_has_a_type_in_the_schemas() -> None:
    known = schemas.shapes()
    names = [name for name in load("protobuf.yaml")["types"] if name in known]
    assert {"Pod", "Node", "Namespace", "Event", "ConfigMap", "Secret", "Lease", "Binding"} <= set(names)
    for name in names:
        fields = protobuf.fields_of(name, name)
        assert all(field.type is not None or field.inline for field in fields.values()), name
