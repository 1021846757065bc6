"""The rules that each user holds, from the roles and bindings of the store.

Changes of the store's objects arrive one by one; what a user holds is worked out once and forgotten at the next
change. Any thread may ask.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from threading import RLock
from typing import Any

from kube32.api.http import UserInfo
from kube32.api.rbac.rules import Attributes, Rule, compile_rules
from kube32.contract import resource_of
from kube32.contract.rbac import GROUP

Object = dict[str, Any]
Subject = tuple[str, str]
ACCOUNT_PREFIX = "system:serviceaccount:"


@dataclass(frozen=True, slots=True)
class Grant:
    """What one binding gives to one of its subjects. `namespace` is "" for the whole cluster."""

    namespace: str
    role_key: str
    role: str
    missing: str
    binding: str
    subject: str


@dataclass(frozen=True, slots=True)
class Decision:
    """Whether something is allowed, and why, in Kubernetes' words ("" when there is no more to say)."""

    allowed: bool
    reason: str = ""


@dataclass(slots=True)
class _Held:
    """What one user holds in one namespace: its grants with their rules; roles that are bound but missing."""

    grants: list[tuple[Grant, tuple[Rule, ...]]] = field(default_factory=list)
    missing: list[str] = field(default_factory=list)


_NOTHING = _Held()
_REMEMBERED_CHARS = 4096


class Index:
    """Roles and bindings by key. `keep` bounds the users whose rules are remembered."""

    def __init__(self, keep: int) -> None:
        self._keep = keep
        self._lock = RLock()
        self._roles: dict[str, tuple[Rule, ...]] = {}
        self._rows: dict[str, Any] = {}
        self._grants: dict[Subject, dict[str, dict[str, Grant]]] = {}
        self._subjects: dict[str, list[tuple[Subject, str]]] = {}
        self._held: dict[tuple[str, tuple[str, ...]], dict[str, _Held]] = {}

    def apply(self, key: str, obj: Object | None) -> None:
        """Takes the object that is stored at `key` now, None when it is gone."""
        with self._lock:
            self._held.clear()
            if "bindings/" in key:
                self._unbind(key)
                if obj is not None:
                    self._bind(key, obj)
            elif obj is None:
                self._roles.pop(key, None)
                self._rows.pop(key, None)
            else:
                self._rows[key] = obj.get("rules")
                self._roles[key] = compile_rules(obj.get("rules"))

    def decide(self, user: UserInfo, wanted: Attributes) -> Decision:
        """Whether a binding of the user's allows it. A missing role is told, as Kubernetes does."""
        found = self._of(user, "")
        if not wanted.is_resource or not wanted.namespace:
            return _decided((found,), wanted)
        return _decided((found, self._of(user, wanted.namespace)), wanted)

    def rules(self, user: UserInfo, namespace: str) -> Iterator[Rule]:
        """All rules that the user holds in a namespace, those of the whole cluster first."""
        for space in ("", namespace) if namespace else ("",):
            for _, rules in self._of(user, space).grants:
                yield from rules

    def rows(self, user: UserInfo, namespace: str) -> Iterator[Object]:
        """As `rules`, as the objects they are."""
        for space in ("", namespace) if namespace else ("",):
            for grant, _ in self._of(user, space).grants:
                yield from self._rows.get(grant.role_key) or ()

    def missing(self, user: UserInfo, namespace: str) -> list[str]:
        """Roles that are bound to the user and not there, as Kubernetes tells of them."""
        spaces = ("", namespace) if namespace else ("",)
        return [text for space in spaces for text in self._of(user, space).missing]

    def role_rows(self, key: str) -> Any:
        """The rules of the role at a key as objects; None when there is no such role."""
        with self._lock:
            return (self._rows[key] or []) if key in self._roles else None

    def _of(self, user: UserInfo, namespace: str) -> _Held:
        asked = (user.name, user.groups)
        spaces = self._held.get(asked)
        if spaces is None:
            with self._lock:
                spaces = self._resolve(user)
                # What nobody has as a credential (a SubjectAccessReview names anybody) shall not fill the memory.
                if len(user.name) + sum(map(len, user.groups)) <= _REMEMBERED_CHARS:
                    if len(self._held) >= self._keep:
                        self._held.clear()
                    self._held[asked] = spaces
        return spaces.get(namespace, _NOTHING)

    def _resolve(self, user: UserInfo) -> dict[str, _Held]:
        """What a user holds, by namespace, "" for the whole cluster."""
        spaces: dict[str, _Held] = {}
        for subject in (("User", user.name), *(("Group", group) for group in user.groups)):
            for namespace, grants in self._grants.get(subject, {}).items():
                held = spaces.setdefault(namespace, _Held())
                for grant in grants.values():
                    rules = self._roles.get(grant.role_key)
                    if rules is not None:
                        held.grants.append((grant, rules))
                    elif grant.missing not in held.missing:
                        held.missing.append(grant.missing)
        return spaces

    def _bind(self, key: str, obj: Object) -> None:
        metadata, reference = obj["metadata"], obj.get("roleRef") or {}
        namespace = metadata.get("namespace", "") if obj["kind"] == "RoleBinding" else ""
        role_key = role_key_of(reference, namespace)
        binding = f"{metadata['name']}/{namespace}" if namespace else metadata["name"]
        kind, name = str(reference.get("kind") or ""), str(reference.get("name") or "")
        for row in obj.get("subjects") or ():
            found = _subject(row, namespace)
            if found is None:
                continue
            subject, told = found
            grant = Grant(
                namespace,
                role_key,
                f'{kind} "{name}"',
                f'{kind.lower()}.{GROUP} "{name}" not found',
                f'{obj["kind"]} "{binding}"',
                told,
            )
            self._grants.setdefault(subject, {}).setdefault(namespace, {})[key] = grant
            self._subjects.setdefault(key, []).append((subject, namespace))

    def _unbind(self, key: str) -> None:
        for subject, namespace in self._subjects.pop(key, ()):
            spaces = self._grants.get(subject, {})
            grants = spaces.get(namespace, {})
            grants.pop(key, None)
            if not grants:
                spaces.pop(namespace, None)
            if not spaces:
                self._grants.pop(subject, None)


def role_key_of(reference: Object, namespace: str) -> str:
    """The store's key of the role that a binding names."""
    kind = "Role" if reference.get("kind") == "Role" else "ClusterRole"
    return resource_of(kind).object_key(namespace, str(reference.get("name", "")))


def account_user(namespace: str, name: str) -> str:
    """The user name of a ServiceAccount."""
    return f"{ACCOUNT_PREFIX}{namespace}:{name}"


def _subject(row: Any, namespace: str) -> tuple[Subject, str] | None:
    """Whom a binding's subject means, and how it is told; None for what means nobody."""
    if not isinstance(row, dict) or not isinstance(row.get("name"), str):
        return None
    kind, name = row.get("kind"), row["name"]
    if kind in ("User", "Group"):
        return (kind, name), f'{kind} "{name}"'
    if kind == "ServiceAccount":
        space = row.get("namespace") or namespace
        return ("User", account_user(space, name)), f'{kind} "{name}/{space}"'
    return None


def _decided(helds: tuple[_Held, ...], wanted: Attributes) -> Decision:
    for held in helds:
        for grant, rules in held.grants:
            for rule in rules:
                if rule.allows(wanted):
                    why = f"RBAC: allowed by {grant.binding} of {grant.role} to {grant.subject}"
                    return Decision(True, why)
    lacking = [text for held in helds for text in held.missing]
    if not lacking:
        return Decision(False)
    return Decision(False, f"RBAC: {lacking[0] if len(lacking) == 1 else '[' + ', '.join(lacking) + ']'}")
