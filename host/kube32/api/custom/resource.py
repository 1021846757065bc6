"""A custom kind in one of its versions, as the rest of the API sees it."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from kube32.api.custom.schema import Node
from kube32.contract import Resource

Cell = str | int | float | bool | None
Printer = Callable[[dict[str, Any], float], Cell]


@dataclass(frozen=True, slots=True)
class Names:
    """The names that discovery and lists use."""

    singular: str
    list_kind: str


@dataclass(frozen=True, slots=True)
class ScalePaths:
    """Where the scale subresource finds its numbers: simple JSON paths, ".spec.replicas"."""

    spec_replicas: str
    status_replicas: str
    label_selector: str = ""


@dataclass(frozen=True, slots=True, eq=False)
class CustomResource(Resource):
    """One version of a custom kind. Its rules are not those of a built-in kind of the same name (`builtin` is "").

    `schema` is the version's openAPIV3Schema as written, `node` the same made ready for use, `storage_node` that of
    the version that is stored. `preserves` keeps unknown fields at the root. `since` is the revision of the definition
    that set the stored form: objects with later revisions are stored as they have to be read. `seen` remembers what
    older ones, or those asked for in another version, look like now.
    """

    names: Names = Names("", "")
    schema: dict[str, Any] | None = None
    storage_version: str = ""
    scale: ScalePaths | None = None
    node: Node = field(default_factory=Node)
    storage_node: Node = field(default_factory=Node)
    printers: tuple[Printer, ...] = ()
    selectable: tuple[str, ...] = ()
    definition: str = ""
    deprecation: str = ""
    since: int = 0
    seen: dict[str, Any] = field(default_factory=dict, repr=False)

    @property
    def builtin(self) -> str:
        """A custom kind is none of the built-in ones, whatever its name."""
        return ""

    @property
    def singular(self) -> str:
        """spec.names.singular."""
        return self.names.singular

    @property
    def list_kind(self) -> str:
        """spec.names.listKind."""
        return self.names.list_kind

    @property
    def is_stored_version(self) -> bool:
        """Whether this is the version in which objects are stored."""
        return self.version == self.storage_version
