"""Bodies in protobuf: exactly what `kubectl create` of 1.37 sends, and what hostile bytes get."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kube32.api import protobuf

# kubectl create namespace foo; create configmap s --from-literal=a=b; create secret generic s (the same)
NAMESPACE = (
    "6b3873000a0f0a02763112094e616d657370616365121b0a130a03666f6f12001a0022002a003200380042001200"
    "1a020a001a002200"
)
CONFIGMAP = (
    "6b3873000a0f0a0276311209436f6e6669674d6170121d0a110a017312001a0022002a00320038004200"
    "12060a01611201621a002200"
)
SECRET = (
    "6b3873000a0c0a0276311206536563726574121d0a110a017312001a0022002a0032003800420012060a01611201621a002200"
)


def varint(value: int) -> bytes:
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*out, value])


def field(number: int, value: bytes | int) -> bytes:
    if isinstance(value, int):
        return varint(number << 3) + varint(value & 0xFFFFFFFFFFFFFFFF)
    return varint(number << 3 | 2) + varint(len(value)) + value


def body(kind: str, raw: bytes, api_version: str = "v1") -> bytes:
    meta = field(1, api_version.encode()) + field(2, kind.encode())
    return b"k8s\0" + field(1, meta) + field(2, raw) + field(3, b"") + field(4, b"")


def test_what_kubectl_sends_is_read() -> None:
    namespace = protobuf.decode(bytes.fromhex(NAMESPACE))
    assert (namespace["apiVersion"], namespace["kind"]) == ("v1", "Namespace")
    assert namespace["metadata"]["name"] == "foo"
    assert "creationTimestamp" not in namespace["metadata"]
    configmap = protobuf.decode(bytes.fromhex(CONFIGMAP))
    assert (configmap["kind"], configmap["data"]) == ("ConfigMap", {"a": "b"})
    secret = protobuf.decode(bytes.fromhex(SECRET))
    assert (secret["kind"], secret["data"]) == ("Secret", {"a": "Yg=="})


def test_every_type_of_field_is_read() -> None:
    owner = field(1, b"Node") + field(3, b"n") + field(4, b"u") + field(5, b"v1") + field(6, 1)
    stamp = field(1, 1_800_000_000) + field(2, 5)
    meta = (
        field(1, b"x")
        + field(8, stamp)
        + field(11, field(1, b"app") + field(2, b"echo"))
        + field(11, field(1, b"empty"))
        + field(13, owner)
        + field(14, b"a.io/b")
    )
    assert protobuf.decode(body("ConfigMap", field(1, meta) + field(4, 1))) == {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {
            "name": "x",
            "creationTimestamp": "2027-01-15T08:00:00Z",
            "labels": {"app": "echo", "empty": ""},
            "ownerReferences": [
                {"kind": "Node", "name": "n", "uid": "u", "apiVersion": "v1", "controller": True}
            ],
            "finalizers": ["a.io/b"],
        },
        "immutable": True,
    }


def test_typed_deletes_are_read_with_a_grace_of_zero() -> None:
    options = protobuf.decode(
        body("DeleteOptions", field(1, 0) + field(2, field(1, b"u")) + field(4, b"Background"))
    )
    assert options["gracePeriodSeconds"] == 0
    assert options["preconditions"] == {"uid": "u"}
    assert options["propagationPolicy"] == "Background"
    assert protobuf.decode(body("DeleteOptions", field(1, -1)))["gracePeriodSeconds"] == -1


def test_a_kind_without_numbers_is_not_read() -> None:
    with pytest.raises(protobuf.UnknownKind, match="Checkpoint"):
        protobuf.decode(body("Checkpoint", b"", "kube32.io/v1"))


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b'{"kind":"Pod"}',
        b"k8s\0\x0a\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff",
        b"k8s\0\x0a\x05abc",
        b"k8s\0\x0b",
        body("ConfigMap", field(1, 5)),
        body("ConfigMap", field(4, b"yes")),
        body("ConfigMap", field(1, field(1, b"\xff"))),
        body("ConfigMap", field(1, field(8, field(1, 2**62)))),
    ],
)
def test_malformed_bytes_are_refused(data: bytes) -> None:
    with pytest.raises(ValueError, match=r"."):
        protobuf.decode(data)


@given(st.sampled_from([NAMESPACE, CONFIGMAP, SECRET]), st.data())
def test_any_damage_is_read_or_refused_and_never_breaks_the_reader(source: str, data: Any) -> None:
    damaged = bytearray(bytes.fromhex(source))
    for _ in range(data.draw(st.integers(1, 4))):
        damaged[data.draw(st.integers(4, len(damaged) - 1))] = data.draw(st.integers(0, 255))
    cut = data.draw(st.integers(0, len(damaged)))
    for attempt in (bytes(damaged), bytes(damaged[:cut])):
        try:
            assert isinstance(protobuf.decode(attempt), dict)
        except ValueError:
            continue
