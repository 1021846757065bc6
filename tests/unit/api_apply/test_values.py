"""Which places values have, by the schemas of the built-in kinds and of custom ones."""

from typing import Any

import pytest

from kube32.api.apply import nodes, typed, values
from kube32.api.apply.nodes import ANY, ITEMS, LEAF, MAP, SET
from kube32.api.apply.values import NotTyped

POD, DEPLOYMENT, SERVICE = (nodes.of_kind(kind) for kind in ("Pod", "Deployment", "Service"))


def at(node: nodes.Node, path: str) -> nodes.Node:
    for name in path.split("."):
        node = node.element if name == "*" and node.element else node.child(name)
    return node


@pytest.mark.parametrize(
    ("kind", "path", "is_"),
    [
        ("Pod", "spec", MAP),
        ("Pod", "spec.containers", ITEMS),
        ("Pod", "spec.containers.*.env", ITEMS),
        ("Pod", "spec.containers.*.args", LEAF),
        ("Pod", "spec.containers.*.resources.limits", MAP),
        ("Pod", "spec.containers.*.resources.limits.cpu", LEAF),
        ("Pod", "spec.tolerations", LEAF),
        ("Pod", "spec.nodeSelector", LEAF),
        ("Pod", "spec.imagePullSecrets", ITEMS),
        ("Pod", "metadata.labels", MAP),
        ("Pod", "metadata.finalizers", SET),
        ("Pod", "metadata.ownerReferences", ITEMS),
        ("Pod", "status.conditions", ITEMS),
        ("Deployment", "spec.selector", LEAF),
        ("Deployment", "spec.strategy.rollingUpdate.maxSurge", LEAF),
        ("Deployment", "spec.template.spec.volumes", ITEMS),
        ("Service", "spec.selector", LEAF),
        ("Service", "spec.ports", ITEMS),
        ("ConfigMap", "data", MAP),
        ("ClusterRole", "rules", LEAF),
        ("RoleBinding", "roleRef", LEAF),
        ("RoleBinding", "subjects", LEAF),
        ("Node", "spec.taints", LEAF),
        ("CustomResourceDefinition", "spec.versions", LEAF),
    ],
)
def test_places_of_built_in_kinds_are_those_of_kubernetes(kind: str, path: str, is_: int) -> None:
    assert at(nodes.of_kind(kind), path).kind == is_


def test_the_creator_owns_what_it_wrote_and_not_the_places_that_are_always_there() -> None:
    pod = {
        "metadata": {"labels": {"app": "x"}, "finalizers": ["b/b", "a/a"]},
        "spec": {
            "containers": [
                {
                    "name": "main",
                    "image": "i",
                    "resources": {},
                    "args": ["a"],
                    "ports": [{"containerPort": 80}],
                }
            ],
            "tolerations": [{"key": "k"}],
        },
    }
    container = {
        ".": {},
        "f:args": {},
        "f:image": {},
        "f:name": {},
        "f:ports": {".": {}, 'k:{"containerPort":80,"protocol":"TCP"}': {".": {}, "f:containerPort": {}}},
        "f:resources": {},
    }
    assert values.fresh(pod, POD) == {
        "f:metadata": {
            "f:finalizers": {".": {}, 'v:"a/a"': {}, 'v:"b/b"': {}},
            "f:labels": {".": {}, "f:app": {}},
        },
        "f:spec": {"f:containers": {'k:{"name":"main"}': container}, "f:tolerations": {}},
    }


def test_an_applier_owns_leaves_and_items_and_not_the_named_maps_around_them() -> None:
    config = {
        "metadata": {"labels": {"app": "x"}},
        "spec": {"containers": [{"name": "main", "image": "i"}], "volumes": [{"name": "v", "emptyDir": {}}]},
    }
    assert values.applied(config, POD) == {
        "f:metadata": {"f:labels": {"f:app": {}}},
        "f:spec": {
            "f:containers": {'k:{"name":"main"}': {".": {}, "f:image": {}, "f:name": {}}},
            "f:volumes": {'k:{"name":"v"}': {".": {}, "f:emptyDir": {}, "f:name": {}}},
        },
    }


def test_a_comparison_names_what_is_new_different_and_gone() -> None:
    old = {"spec": {"replicas": 1, "paused": True, "selector": {"matchLabels": {"a": "1"}}}}
    new = {"spec": {"replicas": 2, "minReadySeconds": 3, "selector": {"matchLabels": {"a": "2"}}}}
    taken, removed = values.compare(old, new, DEPLOYMENT)
    assert taken == {"f:spec": {"f:minReadySeconds": {}, "f:replicas": {}, "f:selector": {}}}
    assert removed == {"f:spec": {"f:paused": {}}}


def test_items_are_compared_by_their_keys_wherever_they_stand() -> None:
    def service(*ports: dict[str, Any]) -> dict[str, Any]:
        return {"spec": {"ports": list(ports)}}

    http, dns, dns_tcp = {"port": 80}, {"port": 53, "protocol": "UDP"}, {"port": 53, "protocol": "TCP"}
    assert values.compare(service(http, dns), service(dns, http), SERVICE) == ({}, {})
    taken, removed = values.compare(
        service(http, dns), service(dns_tcp, {"port": 80, "name": "web"}), SERVICE
    )
    added = {".": {}, "f:port": {}, "f:protocol": {}}
    assert taken == {
        "f:spec": {
            "f:ports": {
                'k:{"port":53,"protocol":"TCP"}': added,
                'k:{"port":80,"protocol":"TCP"}': {"f:name": {}},
            }
        }
    }
    assert removed == {"f:spec": {"f:ports": {'k:{"port":53,"protocol":"UDP"}': added}}}


def test_items_that_stand_twice_are_one_place() -> None:
    def service(*names: str) -> dict[str, Any]:
        return {"spec": {"ports": [{"port": 80, "name": name} for name in names]}}

    path = 'k:{"port":80,"protocol":"TCP"}'
    assert values.compare(service("a", "b"), service("a", "c"), SERVICE)[0] == {
        "f:spec": {"f:ports": {path: {}}}
    }


SCHEMA = {
    "type": "object",
    "properties": {
        "spec": {
            "type": "object",
            "properties": {
                "size": {"type": "integer"},
                "tags": {"type": "array", "x-kubernetes-list-type": "set", "items": {"type": "string"}},
                "plain": {"type": "array", "items": {"type": "string"}},
                "parts": {
                    "type": "array",
                    "x-kubernetes-list-type": "map",
                    "x-kubernetes-list-map-keys": ["name", "kind"],
                    "items": {
                        "type": "object",
                        "properties": {
                            "name": {"type": "string"},
                            "kind": {"type": "string", "default": "A"},
                            "size": {"type": "integer"},
                        },
                    },
                },
                "whole": {
                    "type": "object",
                    "x-kubernetes-map-type": "atomic",
                    "properties": {"a": {"type": "string"}},
                },
                "free": {"type": "object", "x-kubernetes-preserve-unknown-fields": True},
                "labels": {"type": "object", "additionalProperties": {"type": "string"}},
                "port": {"x-kubernetes-int-or-string": True},
                "embedded": {
                    "type": "object",
                    "x-kubernetes-embedded-resource": True,
                    "x-kubernetes-preserve-unknown-fields": True,
                },
            },
        }
    },
}


@pytest.mark.parametrize(
    ("path", "is_"),
    [
        ("spec.size", LEAF),
        ("spec.tags", SET),
        ("spec.plain", LEAF),
        ("spec.parts", ITEMS),
        ("spec.parts.*.size", LEAF),
        ("spec.whole", LEAF),
        ("spec.free", MAP),
        ("spec.free.anything", ANY),
        ("spec.labels", MAP),
        ("spec.labels.x", LEAF),
        ("spec.port", LEAF),
        ("spec.embedded.metadata.finalizers", SET),
        ("metadata.finalizers", SET),
    ],
)
def test_places_of_custom_kinds_come_from_their_structural_schema(path: str, is_: int) -> None:
    assert at(nodes.of_schema(SCHEMA), path).kind == is_


def test_keys_of_items_take_the_defaults_of_the_schema() -> None:
    parts = at(nodes.of_schema(SCHEMA), "spec.parts")
    assert values.element_of({"name": "x"}, parts) == 'k:{"kind":"A","name":"x"}'
    with pytest.raises(NotTyped, match='element that omits all key fields \\["name"\\]'):
        values.element_of({"image": "x"}, at(POD, "spec.containers"))


def test_unknown_fields_below_a_preserving_place_are_owned_one_by_one() -> None:
    obj = {"spec": {"free": {"a": {"b": 1, "list": [1]}}}}
    assert values.applied(obj, nodes.of_schema(SCHEMA)) == {
        "f:spec": {"f:free": {"f:a": {".": {}, "f:b": {}, "f:list": {}}}}
    }


def test_without_a_schema_everything_is_taken_as_it_comes() -> None:
    obj = {"spec": {"a": {"b": 1}}, "metadata": {"finalizers": ["x/y"]}}
    assert values.fresh(obj, nodes.of_schema(None)) == {
        "f:metadata": {".": {}, "f:finalizers": {".": {}, 'v:"x/y"': {}}},
        "f:spec": {".": {}, "f:a": {".": {}, "f:b": {}}},
    }


def test_faults_of_an_applied_object_have_the_words_of_kubernetes() -> None:
    pod = {
        "spec": {
            "containers": [
                {"name": "a", "imagee": "x", "env": [{"name": "A"}, {"name": "A"}], "ports": [{"name": "p"}]},
                {"name": "b"},
            ]
        },
        "metadata": {"finalizers": ["x/y", "x/y"]},
        "colour": 1,
    }
    assert typed.faults(pod, POD) == [
        '.spec.containers[name="a"].imagee: field not declared in schema',
        '.spec.containers[name="a"].env: duplicate entries for key [name="A"]',
        '.metadata.finalizers: duplicate entries for value [="x/y"]',
        ".colour: field not declared in schema",
    ]
