"""Which kinds an API server serves now, by aggregated discovery: the contract's own and custom ones."""

from typing import Any

import orjson

from kube32.client.api import ApiClient
from kube32.contract import RESOURCES, Resource, Subresource

_ACCEPT = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"
_KNOWN = {(r.group, r.version, r.plural): r for r in RESOURCES}


async def served(client: ApiClient) -> list[Resource]:
    """Each kind once, in the version that its group prefers. ApiError, OSError or ValueError when it cannot be had.

    A kind of the contract is the contract's row; of a custom one path, scope, verbs and subresources are known.
    """
    found: dict[tuple[str, str], Resource] = {}
    for root in ("/api", "/apis"):
        response = await client.raw("GET", root, headers={"Accept": _ACCEPT})
        async with response:
            await client.check(response)
            document = orjson.loads(await response.read())
        if document.get("kind") != "APIGroupDiscoveryList":
            raise ValueError(f"{root}: the server offers no aggregated discovery")
        for group in document.get("items") or []:
            _read_group(group, found)
    return list(found.values())


def _read_group(group: dict[str, Any], found: dict[tuple[str, str], Resource]) -> None:
    name = (group.get("metadata") or {}).get("name", "")
    for version in group.get("versions") or []:
        for row in version.get("resources") or []:
            key = (name, row["resource"])
            if key not in found:
                known = _KNOWN.get((name, version["version"], row["resource"]))
                found[key] = known or _custom(name, version["version"], row)


def _custom(group: str, version: str, row: dict[str, Any]) -> Resource:
    subresources = {
        sub["subresource"]: Subresource(sub["subresource"], tuple(sub.get("verbs") or ()))
        for sub in row.get("subresources") or []
    }
    return Resource(
        group=group,
        version=version,
        kind=row["responseKind"]["kind"],
        plural=row["resource"],
        namespaced=row.get("scope") == "Namespaced",
        key=f"{group}/{row['resource']}",
        persist="durable",
        openapi="",
        columns=(),
        short_names=tuple(row.get("shortNames") or ()),
        categories=tuple(row.get("categories") or ()),
        verbs=tuple(row.get("verbs") or ()),
        subresources=subresources,
    )
