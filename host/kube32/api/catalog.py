"""What the server serves now: the rows of the contract that its profile offers, and the custom kinds.

Everything that is made from the kinds (routes, discovery, OpenAPI) asks the catalog and keeps what it made there
(`derived`), so that a change of the custom kinds is seen by the next request.
"""

import re
from collections.abc import Callable, Hashable, Iterable, Mapping
from dataclasses import replace
from typing import Any, TypeVar, cast

from kube32.contract import RESOURCES, Resource

T = TypeVar("T")
_VERSION = re.compile(r"v([0-9]+)(?:(alpha|beta)([0-9]+))?")
_STABILITY = {"": 2, "beta": 1, "alpha": 0}
_NONE: Mapping[str, Resource] = {}


def version_order(version: str) -> tuple[int, int, int, int, str]:
    """Sorts versions as Kubernetes prefers them: v2, v1, v1beta2, v1beta1, v1alpha1, then other names."""
    match = _VERSION.fullmatch(version)
    if match is None or len(version) > 63:
        return (1, 0, 0, 0, version)
    stability = _STABILITY[match[2] or ""]
    return (0, -stability, -int(match[1]), -int(match[3] or 0), version)


def _offered(resource: Resource, profile: str) -> Resource:
    """The row without the subresources that the profile lacks; the row itself when it lacks none."""
    kept = {n: s for n, s in resource.subresources.items() if profile in s.profiles}
    return resource if len(kept) == len(resource.subresources) else replace(resource, subresources=kept)


class Catalog:
    """The kinds by group, version and plural. `generation` grows whenever the custom kinds change.

    It is changed and read in the API server's thread, and `find` in any thread.
    """

    def __init__(self, profile: str) -> None:
        self.profile = profile
        self.generation = 0
        self._static = tuple(_offered(r, profile) for r in RESOURCES if profile in r.profiles)
        self._static_groups = frozenset(r.group for r in self._static)
        self._custom: tuple[Resource, ...] = ()
        self._by_plural: dict[tuple[str, str], dict[str, Resource]] = {}
        self._by_kind: dict[tuple[str, str, str], Resource] = {}
        self._derived: dict[tuple[str | None, Hashable], Any] = {}
        self._index()

    @property
    def resources(self) -> tuple[Resource, ...]:
        """Every kind in every version that is served, those of the contract first."""
        return self._static + self._custom

    @property
    def custom(self) -> tuple[Resource, ...]:
        """The custom kinds alone."""
        return self._custom

    def is_built_in(self, group: str) -> bool:
        """Whether a group is the server's own."""
        return group in self._static_groups

    def kinds(self, group: str, version: str) -> Mapping[str, Resource]:
        """The kinds of one group's version by their plural; empty when it is not served."""
        return self._by_plural.get((group, version), _NONE)

    def find(self, group: str, version: str, plural: str) -> Resource | None:
        """The kind with this plural, None when it is not served."""
        return self.kinds(group, version).get(plural)

    def of_kind(self, group: str, version: str, kind: str) -> Resource | None:
        """The kind by its name, None when it is not served."""
        return self._by_kind.get((group, version, kind))

    def group_versions(self) -> tuple[tuple[str, str], ...]:
        """Every (group, version) that is served: the core group first, a group's preferred version first."""
        return tuple(sorted(self._by_plural, key=lambda gv: (gv[0], version_order(gv[1]))))

    def resources_of(self, group: str, version: str) -> tuple[Resource, ...]:
        """The kinds of one group's version."""
        return tuple(self.kinds(group, version).values())

    def set_custom(self, resources: Iterable[Resource]) -> None:
        """Puts these custom kinds in the place of the former ones."""
        before, self._custom = self._custom, tuple(resources)
        self._index()
        changed = _changed_groups(before, self._custom)
        self._derived = {
            key: made for key, made in self._derived.items() if key[0] is not None and key[0] not in changed
        }
        self.generation += 1

    def derived(self, key: Hashable, make: Callable[[], T], *, group: str | None = None) -> T:
        """What `make` gives, kept until the kinds of `group` (None: any kinds) change."""
        found = self._derived.get((group, key))
        if found is None:
            found = self._derived[group, key] = make()
        return cast(T, found)

    def _index(self) -> None:
        by_plural: dict[tuple[str, str], dict[str, Resource]] = {}
        for resource in self.resources:
            by_plural.setdefault((resource.group, resource.version), {})[resource.plural] = resource
        # Whole dictionaries are put in place: a reader in another thread sees the old ones or the new ones.
        self._by_plural = by_plural
        self._by_kind = {(r.group, r.version, r.kind): r for r in self.resources}


def _changed_groups(before: Iterable[Resource], after: Iterable[Resource]) -> set[str]:
    """The groups of kinds that were there, or are there, in one of the two only. Kinds count by identity."""
    old, new = {id(r): r.group for r in before}, {id(r): r.group for r in after}
    return {g for i, g in old.items() if i not in new} | {g for i, g in new.items() if i not in old}
