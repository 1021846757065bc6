"""The kinds that the API serves, and the names that both sides use (annotations, users, headers)."""

from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any, cast

from kube32.contract.data import load
from kube32.contract.limits import PROFILES

_DATA = cast(dict[str, Any], load("resources.yaml"))
STORED, COMPUTED, METRICS, REVIEW = "stored", "computed", "metrics", "review"
DEFAULT_VERBS = ("create", "delete", "deletecollection", "get", "list", "patch", "update", "watch")


@dataclass(frozen=True, slots=True)
class Column:
    """One table column. `value` is a JSON path (begins with ".") or the name of a printer ("fn:...")."""

    name: str
    type: str
    value: str
    format: str = ""
    priority: int = 0
    description: str = ""


@dataclass(frozen=True, slots=True)
class Subresource:
    """A subresource of a kind: its verbs, and kind, group and version of its bodies ("" is the parent's)."""

    name: str
    verbs: tuple[str, ...]
    kind: str = ""
    persist: str = ""
    group: str = ""
    version: str = ""
    profiles: tuple[str, ...] = PROFILES


@dataclass(frozen=True, slots=True)
class Resource:
    """One row of resources.yaml. `profiles` are those that offer the kind."""

    group: str
    version: str
    kind: str
    plural: str
    namespaced: bool
    key: str
    persist: str
    openapi: str
    columns: tuple[Column, ...]
    short_names: tuple[str, ...] = ()
    categories: tuple[str, ...] = ()
    persist_status: str = ""
    verbs: tuple[str, ...] = DEFAULT_VERBS
    subresources: dict[str, Subresource] = field(default_factory=dict)
    storage: str = STORED
    profiles: tuple[str, ...] = PROFILES

    @property
    def builtin(self) -> str:
        """The kind, "" for custom kinds: rules of one kind ask for this, since anybody may call a kind "Pod"."""
        return self.kind

    @property
    def singular(self) -> str:
        """The name for one object in discovery."""
        return self.kind.lower()

    @property
    def list_kind(self) -> str:
        """The kind of lists."""
        return f"{self.kind}List"

    @property
    def api_version(self) -> str:
        """ "v1" for the core group, else "group/version"."""
        return f"{self.group}/{self.version}" if self.group else self.version

    @property
    def prefix(self) -> str:
        """The prefix of all of the kind's keys: "/registry/pods/"."""
        return f"/registry/{self.key}/"

    def object_key(self, namespace: str, name: str) -> str:
        """The store's key of one object. `namespace` is ignored for cluster-scoped kinds."""
        return (
            f"/registry/{self.key}/{namespace}/{name}" if self.namespaced else f"/registry/{self.key}/{name}"
        )

    def collection_path(self, namespace: str = "") -> str:
        """The URL path of the collection, of one namespace or (namespace "") of all."""
        root = f"/apis/{self.group}/{self.version}" if self.group else f"/api/{self.version}"
        return (
            f"{root}/namespaces/{namespace}/{self.plural}"
            if namespace and self.namespaced
            else f"{root}/{self.plural}"
        )

    def object_path(self, namespace: str, name: str, subresource: str = "") -> str:
        """The URL path of an object or of a subresource."""
        path = f"{self.collection_path(namespace)}/{name}"
        return f"{path}/{subresource}" if subresource else path


def _subresource(name: str, row: dict[str, Any]) -> Subresource:
    values: dict[str, Any] = {k: tuple(v) if isinstance(v, list) else v for k, v in row.items()}
    return Subresource(name, **values)


def _resource(row: dict[str, Any]) -> Resource:
    data = dict(row)
    data["columns"] = tuple(Column(**c) for c in row["columns"])
    data["subresources"] = {n: _subresource(n, s) for n, s in row.get("subresources", {}).items()}
    for key in ("short_names", "categories", "verbs", "profiles"):
        if key in data:
            data[key] = tuple(data[key])
    return Resource(**data)


RESOURCES: tuple[Resource, ...] = tuple(_resource(r) for r in _DATA["resources"])
_FEATURES: dict[str, tuple[str, ...]] = {n: tuple(f["profiles"]) for n, f in _DATA["features"].items()}
_BY_KIND = {r.kind: r for r in RESOURCES}
NAMES = SimpleNamespace(**_DATA["names"])


def resource_of(kind: str) -> Resource:
    """The resource of a kind ("Pod"); KeyError when the API does not serve it."""
    return _BY_KIND[kind]


def offers(profile: str, feature: str) -> bool:
    """Whether a profile has a feature of resources.yaml; KeyError for an unknown feature."""
    return profile in _FEATURES[feature]
