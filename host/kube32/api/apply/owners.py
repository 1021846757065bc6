"""The entries of metadata.managedFields: who wrote how, and which places are its own.

An Apply entry is its manager's and subresource's one; an Update entry is one for each API version as well.
"""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

from kube32.api.apply import field_sets
from kube32.api.apply.field_sets import FieldSet
from kube32.contract import LIMITS

APPLY, UPDATE = "Apply", "Update"
BEFORE_FIRST_APPLY = "before-first-apply"
ANCIENT = "ancient-changes"
_FIELDS_V1 = "FieldsV1"
Key = tuple[str, str, str, str]
Owners = dict[Key, "Owner"]


@dataclass(frozen=True, slots=True)
class Owner:
    """One entry. `time` is RFC 3339, None where the clock was unset; `fields` is a set of places."""

    manager: str
    operation: str
    api_version: str
    subresource: str
    time: str | None
    fields: FieldSet

    @property
    def key(self) -> Key:
        """What makes two entries the same one."""
        version = "" if self.operation == APPLY else self.api_version
        return (self.operation, self.manager, version, self.subresource)

    def entry(self) -> dict[str, Any]:
        """The entry as it is stored."""
        made: dict[str, Any] = {
            "manager": self.manager,
            "operation": self.operation,
            "apiVersion": self.api_version,
        }
        if self.time:
            made["time"] = self.time
        made["fieldsType"] = _FIELDS_V1
        made["fieldsV1"] = self.fields
        if self.subresource:
            made["subresource"] = self.subresource
        return made

    def __str__(self) -> str:
        """As Kubernetes names it in conflicts."""
        text = f'"{self.manager}"'
        if self.subresource:
            text += f' with subresource "{self.subresource}"'
        return text if self.operation == APPLY else f"{text} using {self.api_version}"


def stored(entries: Iterable[dict[str, Any]]) -> Owners:
    """The owners of an object that the store holds: its entries were written by `entries_of`."""
    made = (
        Owner(
            entry["manager"],
            entry["operation"],
            entry["apiVersion"],
            entry.get("subresource", ""),
            entry.get("time"),
            entry["fieldsV1"],
        )
        for entry in entries
    )
    return {owner.key: owner for owner in made}


def given(entries: object) -> Owners:
    """The owners that a client wrote. ValueError for what Kubernetes does not read."""
    if not isinstance(entries, list):
        raise ValueError("managedFields is no list")
    made: Owners = {}
    for entry in entries:
        owner = _given(entry)
        if owner.fields:
            made[owner.key] = owner
    return made


def _given(entry: object) -> Owner:
    if not isinstance(entry, dict):
        raise ValueError("an entry of managedFields is no object")
    manager, version, subresource = (entry.get(k) or "" for k in ("manager", "apiVersion", "subresource"))
    if entry.get("operation") not in (APPLY, UPDATE):
        raise ValueError("operation must be `Apply` or `Update`")
    if not version or entry.get("fieldsType") != _FIELDS_V1:
        raise ValueError("an entry of managedFields has no apiVersion or no fieldsType FieldsV1")
    if not all(
        isinstance(text, str) and len(text) <= LIMITS.field_manager_bytes for text in (manager, subresource)
    ):
        raise ValueError("manager or subresource is no name")
    if not isinstance(version, str) or len(version) > LIMITS.field_manager_bytes:
        raise ValueError("apiVersion is no version")
    time = entry.get("time")
    if time is not None:
        datetime.fromisoformat(str(time))
    fields = field_sets.read(entry.get("fieldsV1") or {})
    return Owner(manager, entry["operation"], version, subresource, time, fields)


def entries_of(owners: Owners) -> list[dict[str, Any]]:
    """The entries to store, in Kubernetes' order; owners of nothing are left out."""
    kept = [owner for owner in owners.values() if owner.fields]
    kept.sort(key=lambda o: (o.operation, o.time or "", o.manager, o.api_version, o.subresource))
    return [owner.entry() for owner in kept]


def capped(owners: Owners) -> Owners:
    """The same with at most `managed_update_managers` Update entries: the oldest become "ancient-changes"."""
    limit = LIMITS.managed_update_managers
    updates = [owner for owner in owners.values() if owner.operation == UPDATE and owner.fields]
    if len(updates) <= limit:
        return owners
    made = dict(owners)
    updates.sort(key=lambda o: (o.time or "", o.key))
    first: dict[str, Owner] = {}
    count = len(updates)
    for owner in updates:
        if count <= limit:
            break
        bucket = Owner(ANCIENT, UPDATE, owner.api_version, "", owner.time, owner.fields)
        older = first.get(owner.api_version)
        if older is None:
            first[owner.api_version] = owner
            continue
        before = made.pop(older.key)
        del made[owner.key]
        merged = replace(bucket, fields=field_sets.union(before.fields, owner.fields))
        made[bucket.key] = first[owner.api_version] = merged
        count -= 1
    return made
