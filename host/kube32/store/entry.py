"""What the store keeps for an object, and what it tells of a change.

Objects are kept as JSON bytes with `metadata.resourceVersion` in them; the parsed form is made when it is
first asked for and stays beside them (decisions, "Store, watches, journal").
"""

from dataclasses import dataclass, field
from typing import Any, cast

import orjson


@dataclass(frozen=True, slots=True)
class Entry:
    """One state of one object. `value` is sent as it is; `revision` is its resourceVersion as a number."""

    key: str
    value: bytes
    revision: int
    _parsed: dict[str, Any] | None = field(default=None, compare=False, repr=False)

    @property
    def obj(self) -> dict[str, Any]:
        """The object, parsed once. Whoever gets it does not change it."""
        parsed = self._parsed
        if parsed is None:
            parsed = cast(dict[str, Any], orjson.loads(self.value))
            object.__setattr__(self, "_parsed", parsed)
        return parsed


@dataclass(frozen=True, slots=True)
class Change:
    """One write: `type` is ADDED, MODIFIED or DELETED, `old` the state before (None when ADDED).

    A DELETED one's `entry` is the last state with the deletion's revision as its resourceVersion.
    """

    type: str
    key: str
    entry: Entry
    old: Entry | None
    revision: int


def encode(obj: dict[str, Any], revision: int) -> bytes:
    """The JSON of `obj`, which is left alone, with resourceVersion set. TypeError for what is no JSON."""
    metadata = {**(obj.get("metadata") or {}), "resourceVersion": str(revision)}
    return orjson.dumps({**obj, "metadata": metadata})


def restamp(entry: Entry, revision: int) -> Entry:
    """The same object under another revision."""
    return Entry(entry.key, encode(entry.obj, revision), revision)


def parsed_if_as_long(entry: Entry, value: bytes, revision: int) -> dict[str, Any] | None:
    """`value` (an object under `revision`) parsed, if its length allows that it says what `entry` says."""
    if len(value) - len(str(revision)) != len(entry.value) - len(str(entry.revision)):
        return None
    return cast(dict[str, Any], orjson.loads(value))


def same_content(entry: Entry, obj: dict[str, Any]) -> bool:
    """Whether `obj`, which must have a resourceVersion, says what `entry` says but for that."""
    metadata = obj["metadata"]
    own_version = metadata["resourceVersion"]
    metadata["resourceVersion"] = str(entry.revision)
    try:
        # In Python 1, 1.0 and True are equal, in JSON they are not.
        return obj == entry.obj and _canonical(obj) == _canonical(entry.obj)
    finally:
        metadata["resourceVersion"] = own_version


def _canonical(obj: dict[str, Any]) -> bytes:
    return orjson.dumps(obj, option=orjson.OPT_SORT_KEYS)
