"""PolicyRules, prepared for asking: what one allows, and which rules cover which others."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

Object = dict[str, Any]
ALL = "*"
_FIELDS = ("verbs", "apiGroups", "resources", "resourceNames", "nonResourceURLs")


@dataclass(frozen=True, slots=True)
class Attributes:
    """What somebody wants to do. Of a path that is no resource only `verb` and `path` count."""

    verb: str
    group: str = ""
    resource: str = ""
    subresource: str = ""
    namespace: str = ""
    name: str = ""
    path: str = ""
    is_resource: bool = True

    @property
    def target(self) -> str:
        """ "pods", or "pods/log"."""
        return f"{self.resource}/{self.subresource}" if self.subresource else self.resource


@dataclass(frozen=True, slots=True)
class Rule:
    """One PolicyRule."""

    verbs: frozenset[str]
    groups: frozenset[str]
    resources: frozenset[str]
    names: frozenset[str]
    urls: tuple[str, ...]

    def allows(self, wanted: Attributes) -> bool:
        """Whether this rule alone allows it."""
        if wanted.verb not in self.verbs and ALL not in self.verbs:
            return False
        if not wanted.is_resource:
            return covers_url(self.urls, wanted.path)
        if wanted.group not in self.groups and ALL not in self.groups:
            return False
        if not covers_resource(self.resources, wanted.resource, wanted.subresource):
            return False
        return not self.names or wanted.name in self.names

    def covers(self, other: "Rule") -> bool:
        """Whether this rule allows all that `other`, of one verb and one group, resource and name, allows."""
        if ALL not in self.verbs and not other.verbs <= self.verbs:
            return False
        if other.urls:
            return all(covers_url(self.urls, url) for url in other.urls)
        if ALL not in self.groups and not other.groups <= self.groups:
            return False
        for target in other.resources:
            resource, _, subresource = target.partition("/")
            if not covers_resource(self.resources, resource, subresource):
                return False
        return not self.names or (bool(other.names) and other.names <= self.names)


def covers_resource(resources: frozenset[str], resource: str, subresource: str) -> bool:
    """Whether a rule's resources name this one; "*/scale" is that subresource of every resource."""
    if ALL in resources:
        return True
    if not subresource:
        return resource in resources
    return f"{resource}/{subresource}" in resources or f"*/{subresource}" in resources


def covers_url(urls: Iterable[str], path: str) -> bool:
    """Whether a rule's nonResourceURLs name this path; a "*" at the end stands for anything."""
    return any(url in (ALL, path) or (url.endswith(ALL) and path.startswith(url[:-1])) for url in urls)


def compile_rules(rows: Any) -> tuple[Rule, ...]:
    """The `rules` of a Role or ClusterRole."""
    return tuple(compile_rule(row) for row in rows or () if isinstance(row, dict))


def compile_rule(row: Object) -> Rule:
    """One rule; what is no list of texts counts as nothing."""
    verbs, groups, resources, names, urls = (_texts(row.get(key)) for key in _FIELDS)
    return Rule(frozenset(verbs), frozenset(groups), frozenset(resources), frozenset(names), urls)


def _texts(value: Any) -> tuple[str, ...]:
    return tuple(v for v in value if isinstance(v, str)) if isinstance(value, list) else ()


class TooManyParts(Exception):
    """Rules that list so much that they cannot be compared part by part."""


def missing(held: Iterable[Rule], wanted: Any, limit: int) -> list[Object]:
    """The parts of `wanted` rules (as objects) that `held` do not cover, put together again.

    TooManyParts when more than `limit` parts would have to be looked at.
    """
    owned = tuple(held)
    open_rows = []
    for row in wanted or ():
        whole = compile_rule(row)
        # A rule about resources and paths at once is no rule of Kubernetes; `covers` looks at one of them.
        if (whole.urls and whole.resources) or not _covered(owned, whole):
            open_rows.append(row)
    if sum(_parts(compile_rule(row)) for row in open_rows) > limit:
        raise TooManyParts
    return compacted(part for part in broken_down(open_rows) if not _covered(owned, compile_rule(part)))


def _parts(rule: Rule) -> int:
    targets = len(rule.groups) * len(rule.resources) * max(1, len(rule.names))
    return len(rule.verbs) * (targets + len(rule.urls))


def _covered(owned: tuple[Rule, ...], part: Rule) -> bool:
    return any(rule.covers(part) for rule in owned)


def broken_down(rows: Any) -> Iterator[Object]:
    """Rules as parts of one verb and one group, resource and name, or one URL."""
    for row in rows or ():
        verbs, groups, resources, names, urls = (_texts(row.get(key)) for key in _FIELDS)
        for verb in verbs:
            for url in urls:
                yield {"nonResourceURLs": [url], "verbs": [verb]}
            for group in groups:
                for resource in resources:
                    part: Object = {"apiGroups": [group], "resources": [resource], "verbs": [verb]}
                    if not names:
                        yield part
                    for name in names:
                        yield {**part, "resourceNames": [name]}


def compacted(parts: Iterable[Object]) -> list[Object]:
    """Parts that differ in their verb alone as one, each once, in order."""
    found: dict[tuple[Any, ...], Object] = {}
    for part in parts:
        key = tuple(tuple(part.get(name, ())) for name in _FIELDS[1:])
        known = found.setdefault(key, {**part, "verbs": []})
        known["verbs"] = [*known["verbs"], *(v for v in part["verbs"] if v not in known["verbs"])]
    return list(found.values())


def shown(row: Object) -> str:
    """A rule as Kubernetes' messages show it: {APIGroups:[""], Resources:["pods"], Verbs:["get"]}."""
    names = (
        ("APIGroups", "apiGroups"),
        ("Resources", "resources"),
        ("NonResourceURLs", "nonResourceURLs"),
        ("ResourceNames", "resourceNames"),
        ("Verbs", "verbs"),
    )
    return "{" + ", ".join(f"{said}:{quoted(row[key])}" for said, key in names if row.get(key)) + "}"


def quoted(texts: Iterable[str]) -> str:
    """A list of texts as Go's %q prints it: ["a" "b"]."""
    return "[" + " ".join(f'"{_escaped(text)}"' for text in texts) + "]"


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"')
