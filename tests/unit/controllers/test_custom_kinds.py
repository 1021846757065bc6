"""Custom kinds in garbage collection and in namespaces that are deleted, as their definitions come and go."""

from typing import Any

from tests.unit.controllers.peers import Cell, Obj, eventually

from kube32.client.api import ApiError
from kube32.client.discovery import served
from kube32.contract import Resource

GROUP = "example.com"


def definition(*versions: str, plural: str = "widgets", kind: str = "Widget") -> Obj:
    schema = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{plural}.{GROUP}"},
        "spec": {
            "group": GROUP,
            "scope": "Namespaced",
            "names": {"plural": plural, "singular": kind.lower(), "kind": kind, "listKind": f"{kind}List"},
            "versions": [
                {
                    "name": version,
                    "served": True,
                    "storage": version == versions[0],
                    "schema": {"openAPIV3Schema": schema},
                }
                for version in versions
            ],
        },
    }


async def define(cell: Cell, *versions: str, **names: str) -> Resource:
    """Defines a kind and waits until it is served."""
    body = await cell.client.create("CustomResourceDefinition", definition(*versions, **names))
    kind = body["spec"]["names"]["kind"]

    async def find() -> Resource | None:
        return next((r for r in await served(cell.client) if r.kind == kind), None)

    found: Resource = await eventually(find)
    return found


async def make(cell: Cell, kind: Resource | str, name: str, *owners: Obj, **meta: Any) -> Obj:
    api_version = "v1" if isinstance(kind, str) else kind.api_version
    metadata = {"name": name, "namespace": "default", **meta}
    if owners:
        metadata["ownerReferences"] = list(owners)
    named = kind if isinstance(kind, str) else kind.kind
    return await cell.client.create(kind, {"apiVersion": api_version, "kind": named, "metadata": metadata})


def reference(owner: Obj, **more: Any) -> Obj:
    meta = owner["metadata"]
    found = {
        "apiVersion": owner["apiVersion"],
        "kind": owner["kind"],
        "name": meta["name"],
        "uid": meta["uid"],
    }
    return {**found, **more}


async def gone(cell: Cell, kind: Resource | str, name: str, namespace: str = "default") -> None:
    async def look() -> bool:
        try:
            await cell.client.get(kind, name, namespace)
        except ApiError as error:
            return error.code == 404
        return False

    await eventually(look)


async def test_custom_objects_own_and_are_owned_when_their_kind_comes_later(cell: Cell) -> None:
    await cell.start()
    widgets = await define(cell, "v1")
    top = await make(cell, "ConfigMap", "top")
    middle = await make(cell, widgets, "middle", reference(top, blockOwnerDeletion=True))
    await make(cell, "Secret", "low", reference(middle, blockOwnerDeletion=True))
    await cell.client.delete("ConfigMap", "top", "default", propagation="Foreground")
    await gone(cell, "ConfigMap", "top")
    await gone(cell, widgets, "middle")
    await gone(cell, "Secret", "low")


async def test_an_owner_may_be_named_in_any_version_of_its_kind(cell: Cell) -> None:
    await cell.start()
    widgets = await define(cell, "v1", "v2")
    owner = await make(cell, widgets, "w")
    for version in ("v1", "v2"):
        await make(cell, "ConfigMap", version, reference({**owner, "apiVersion": f"{GROUP}/{version}"}))
    await cell.client.delete(widgets, "w", "default")
    await gone(cell, "ConfigMap", "v1")
    await gone(cell, "ConfigMap", "v2")


async def test_what_custom_objects_owned_goes_with_their_definition(cell: Cell) -> None:
    await cell.start()
    widgets = await define(cell, "v1")
    owner = await make(cell, widgets, "w")
    await make(cell, "ConfigMap", "owned", reference(owner))
    await cell.client.delete("CustomResourceDefinition", f"widgets.{GROUP}")
    await gone(cell, "CustomResourceDefinition", f"widgets.{GROUP}", "")
    await gone(cell, "ConfigMap", "owned")


async def test_a_namespace_is_emptied_of_custom_objects_and_names_those_that_stay(cell: Cell) -> None:
    await cell.start()
    widgets = await define(cell, "v1")
    await cell.client.create(
        "Namespace", {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "team"}}
    )
    await make(cell, widgets, "held", namespace="team", finalizers=["example.com/hold"])
    await make(cell, widgets, "free", namespace="team")
    await cell.client.delete("Namespace", "team")

    async def message() -> str:
        found = await cell.client.get("Namespace", "team")
        conditions = {c["type"]: c for c in found["status"].get("conditions", [])}
        return str(conditions.get("NamespaceContentRemaining", {}).get("message", ""))

    assert await eventually(message) == (
        "Some resources are remaining: widgets.example.com has 1 resource instances"
    )
    await cell.client.patch(widgets, "held", {"metadata": {"finalizers": None}}, "team")
    await gone(cell, "Namespace", "team", "")


async def test_a_namespace_goes_although_a_definition_goes_at_the_same_time(cell: Cell) -> None:
    await cell.start()
    for round_ in range(3):
        widgets = await define(cell, "v1")
        space = f"team{round_}"
        await cell.client.create(
            "Namespace", {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": space}}
        )
        for number in range(5):
            await make(cell, widgets, f"w{number}", namespace=space)
        await cell.client.delete("Namespace", space)
        await cell.client.delete("CustomResourceDefinition", f"widgets.{GROUP}")
        await gone(cell, "Namespace", space, "")
        await gone(cell, "CustomResourceDefinition", f"widgets.{GROUP}", "")


async def test_a_kind_that_is_defined_again_is_collected_again(cell: Cell) -> None:
    await cell.start()
    for _ in range(2):
        widgets = await define(cell, "v1")
        owner = await make(cell, "ConfigMap", "owner")
        await make(cell, widgets, "w", reference(owner))
        await cell.client.delete("ConfigMap", "owner", "default")
        await gone(cell, widgets, "w")
        await cell.client.delete("CustomResourceDefinition", f"widgets.{GROUP}")
        await gone(cell, "CustomResourceDefinition", f"widgets.{GROUP}", "")
