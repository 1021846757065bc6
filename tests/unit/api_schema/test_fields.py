"""Decoding of bodies: unknown and duplicate fields, wrong types, nulls, canonical forms, in Kubernetes'
words.
"""

import base64
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kube32.api import schemas
from kube32.api.admission import check_fields
from kube32.api.status import ApiFailure
from kube32.contract import RESOURCES, resource_of

POD = resource_of("Pod")


def refusal(obj: dict[str, Any], mode: str = "", kind: str = "Pod", raw: bytes | None = None) -> ApiFailure:
    with pytest.raises(ApiFailure) as failure:
        check_fields(resource_of(kind), obj, mode, raw)
    return failure.value


def test_strict_refuses_unknown_fields_by_their_paths(pod: dict[str, Any]) -> None:
    pod["spec"]["foo"] = 1
    pod["spec"]["containers"][0]["imagePullPolice"] = "Always"
    failure = refusal(pod, "Strict")
    assert failure.code == 400
    assert failure.reason == "BadRequest"
    assert failure.message == (
        'Pod in version "v1" cannot be handled as a Pod: strict decoding error: '
        'unknown field "spec.containers[0].imagePullPolice", unknown field "spec.foo"'
    )


@pytest.mark.parametrize("mode", ["", "Warn"])
def test_warn_drops_unknown_fields_with_a_warning(pod: dict[str, Any], mode: str) -> None:
    pod["spec"]["foo"] = {"bar": 1}
    assert check_fields(POD, pod, mode) == ['unknown field "spec.foo"']
    assert "foo" not in pod["spec"]


def test_ignore_drops_unknown_fields_in_silence(pod: dict[str, Any]) -> None:
    pod["metadata"]["foo"] = 1
    assert check_fields(POD, pod, "Ignore") == []
    assert "foo" not in pod["metadata"]


def test_another_mode_is_refused(pod: dict[str, Any]) -> None:
    failure = refusal(pod, "Lenient")
    assert failure.code == 422
    assert 'Unsupported value: "Lenient": supported values: "Ignore", "Strict", "Warn"' in failure.message


def test_duplicate_fields_are_found_in_the_text() -> None:
    raw = b'{"kind":"Pod","metadata":{"name":"a","name":"b"},"spec":{"containers":[{"name":"c","name":"d"}]}}'
    failure = refusal(json.loads(raw), "Strict", raw=raw)
    assert 'duplicate field "metadata.name", duplicate field "spec.containers[0].name"' in failure.message
    assert check_fields(POD, json.loads(raw), "Warn", raw)[0] == 'duplicate field "metadata.name"'
    assert check_fields(POD, json.loads(raw), "Ignore", raw) == []


@pytest.mark.parametrize(
    ("path", "value", "said"),
    [
        (("spec",), 3, "number into Go struct field Pod.spec of type v1.PodSpec"),
        (
            ("spec", "containers"),
            {},
            "object into Go struct field PodSpec.spec.containers of type []v1.Container",
        ),
        (
            ("spec", "containers", 0, "image"),
            ["x"],
            "array into Go struct field Container.spec.containers.image of type string",
        ),
        (
            ("spec", "terminationGracePeriodSeconds"),
            "30",
            "string into Go struct field PodSpec.spec.terminationGracePeriodSeconds of type int64",
        ),
        (
            ("spec", "priority"),
            2**31,
            "number 2147483648 into Go struct field PodSpec.spec.priority of type int32",
        ),
        (("spec", "priority"), 1.5, "number 1.5 into Go struct field PodSpec.spec.priority of type int32"),
        (("spec", "hostNetwork"), "yes", "string into Go struct field PodSpec.spec.hostNetwork of type bool"),
        (
            ("metadata", "labels", "a"),
            5,
            "number into Go struct field ObjectMeta.metadata.labels of type string",
        ),
        (
            ("metadata", "labels"),
            [],
            "array into Go struct field ObjectMeta.metadata.labels of type map[string]string",
        ),
    ],
)
def test_a_wrong_type_is_refused_in_every_mode(
    pod: dict[str, Any], path: tuple, value: Any, said: str
) -> None:
    target: Any = pod
    for key in path[:-1]:
        target = target[key]
    target[path[-1]] = value
    for mode in ("Ignore", "Strict"):
        failure = refusal(json.loads(json.dumps(pod)), mode)
        assert failure.code == 400
        assert (
            failure.message
            == f'Pod in version "v1" cannot be handled as a Pod: json: cannot unmarshal {said}'
        )


def test_quantities_times_and_bytes_are_checked(pod: dict[str, Any]) -> None:
    pod["spec"]["containers"][0]["resources"]["limits"]["memory"] = "32Kib"
    assert "quantities must match the regular expression" in refusal(pod).message
    stamp = {"metadata": {"creationTimestamp": "yesterday"}}
    assert 'parsing time "yesterday" as "2006-01-02T15:04:05Z07:00"' in refusal(stamp).message
    secret = refusal({"data": {"a": "not base64!"}}, kind="Secret")
    assert secret.message.endswith("illegal base64 data at input byte 3")


def test_values_take_their_canonical_form() -> None:
    obj: dict[str, Any] = {
        "metadata": {"creationTimestamp": "2026-11-30T23:00:00.5+02:00"},
        "spec": {"containers": [{"resources": {"limits": {"cpu": 0.5, "memory": "1024Ki", "a.b/c": 2}}}]},
    }
    check_fields(POD, obj, "Strict")
    assert obj["metadata"]["creationTimestamp"] == "2026-11-30T21:00:00Z"
    assert obj["spec"]["containers"][0]["resources"]["limits"] == {
        "cpu": "500m",
        "memory": "1Mi",
        "a.b/c": "2",
    }
    lease: dict[str, Any] = {"spec": {"renewTime": "2026-11-30T23:00:00.123456Z"}}
    check_fields(resource_of("Lease"), lease, "Strict")
    assert lease["spec"]["renewTime"] == "2026-11-30T23:00:00.123456Z"


def test_nulls_are_as_if_they_were_not_there() -> None:
    obj: dict[str, Any] = {
        "metadata": {"creationTimestamp": None, "labels": {"a": None}},
        "spec": {"containers": [None]},
        "status": None,
    }
    assert check_fields(POD, obj, "Strict") == []
    assert obj == {"metadata": {"labels": {"a": ""}}, "spec": {"containers": [{}]}}


def test_bodies_of_other_kinds_are_decoded_by_name() -> None:
    binding: dict[str, Any] = {"target": {"kind": "Node", "name": "a"}, "foo": 1}
    assert check_fields("Binding", binding, "Warn") == ['unknown field "foo"']
    with pytest.raises(ApiFailure, match='Binding in version "v1" cannot be handled as a Binding'):
        check_fields("Binding", {"target": 1}, "")


def test_an_ordinary_manifest_with_everything_passes_strict() -> None:
    """Probes, projected volumes, affinity, spread: fields that Kube32 gives no effect are still Kubernetes
    fields.
    """
    term = {"matchExpressions": [{"key": "a", "operator": "In", "values": ["b"]}]}
    obj = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": "x",
            "ownerReferences": [{"apiVersion": "v1", "kind": "Node", "name": "n", "uid": "u"}],
        },
        "spec": {
            "affinity": {
                "nodeAffinity": {
                    "requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [term]}
                },
                "podAntiAffinity": {
                    "preferredDuringSchedulingIgnoredDuringExecution": [
                        {
                            "weight": 1,
                            "podAffinityTerm": {"topologyKey": "k", "labelSelector": {"matchLabels": {}}},
                        }
                    ]
                },
            },
            "containers": [
                {
                    "name": "c",
                    "image": "wasm://x",
                    "livenessProbe": {"httpGet": {"path": "/", "port": "http", "httpHeaders": []}},
                    "lifecycle": {"preStop": {"exec": {"command": ["a"]}}},
                    "securityContext": {"capabilities": {"drop": ["ALL"]}, "runAsUser": 1000},
                    "envFrom": [{"configMapRef": {"name": "c"}}],
                }
            ],
            "topologySpreadConstraints": [
                {"maxSkew": 1, "topologyKey": "k", "whenUnsatisfiable": "DoNotSchedule"}
            ],
            "volumes": [
                {"name": "p", "projected": {"sources": [{"serviceAccountToken": {"path": "t"}}]}},
                {
                    "name": "e",
                    "ephemeral": {"volumeClaimTemplate": {"spec": {"accessModes": ["ReadWriteOnce"]}}},
                },
            ],
        },
    }
    assert check_fields(POD, obj, "Strict") == []


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=4),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["spec", "metadata", "status", "containers", "name", "data", "x"]), inner
        )
    ),
    max_leaves=12,
)


@given(
    st.sampled_from(RESOURCES), st.dictionaries(st.sampled_from(["metadata", "spec", "status", "data"]), JSON)
)
def test_any_json_is_decoded_or_refused_with_400(resource: Any, obj: dict[str, Any]) -> None:
    try:
        check_fields(resource, obj, "Warn")
    except ApiFailure as failure:
        assert failure.code == 400
        return
    again = json.loads(json.dumps(obj))
    assert check_fields(resource, again, "Strict") == []
    assert again == obj


@given(st.binary(max_size=40))
def test_any_bytes_in_base64_are_taken(data: bytes) -> None:
    obj: dict[str, Any] = {"data": {"a": base64.b64encode(data).decode()}}
    check_fields(resource_of("Secret"), obj, "Strict")
    assert base64.b64decode(obj["data"]["a"]) == data


def test_lists_are_merged_as_kubernetes_merges_them() -> None:
    def key(*path: str) -> str | None:
        return schemas.merge_key(POD, path)

    assert key("spec", "containers") == "name"
    assert key("spec", "containers", "ports") == "containerPort"
    assert key("spec", "containers", "volumeMounts") == "mountPath"
    assert key("spec", "containers", "env") == "name"
    assert key("metadata", "ownerReferences") == "uid"
    assert key("status", "conditions") == "type"
    assert key("metadata", "finalizers") == ""
    assert key("spec", "tolerations") is None
    assert key("spec", "containers", "args") is None
    assert key("spec", "nothing", "here") is None
    assert key("metadata", "labels") is None
    assert schemas.retain_keys(POD, ("spec", "volumes"))
    assert not schemas.retain_keys(POD, ("spec", "containers"))
    assert schemas.merge_key(resource_of("Node"), ("status", "addresses")) == "type"


def test_the_schemas_have_every_field_of_the_official_client() -> None:
    """What a typed client can send passes strict validation."""
    models = pytest.importorskip("kubernetes.client.models")
    known = schemas.shapes()
    for name in (
        "PodSpec",
        "Container",
        "PodStatus",
        "NodeSpec",
        "NodeStatus",
        "ObjectMeta",
        "Volume",
        "LeaseSpec",
    ):
        model = getattr(models, f"V1{name}")
        missing = set(model.attribute_map.values()) - set(known[name].fields)
        assert not missing, f"{name}: {sorted(missing)}"


def test_every_kind_has_a_schema_of_its_openapi_name() -> None:
    for resource in RESOURCES:
        assert schemas.shape_of(resource).full_name == resource.openapi
