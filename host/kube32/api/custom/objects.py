"""The objects of custom kinds on their way in and out: decoding, defaults, validation, versions.

All versions of an object are the same but for their apiVersion. It is stored in the storage version; whoever asks in
another one, or after the definition has changed, gets it pruned and defaulted by the schemas of now.
"""

from typing import Any

import orjson

from kube32.api import schemas
from kube32.api.admission.fields import duplicates, refused, unknown_mode
from kube32.api.admission.meta import check_metadata
from kube32.api.admission.problems import Problems
from kube32.api.custom import pruning
from kube32.api.custom.regex import TooMuchWork
from kube32.api.custom.resource import CustomResource
from kube32.api.custom.values import Check, Fault, unchanged
from kube32.api.status import Cause, dump, invalid, too_large
from kube32.contract import LIMITS, text
from kube32.store import Entry

Object = dict[str, Any]
_MODES = ("", "Ignore", "Strict", "Warn")


def check_fields(resource: CustomResource, obj: Object, mode: str, raw: bytes | None = None) -> list[str]:
    """Drops what the schema does not know, in place; gives the warnings. ApiFailure 400, 413, 422 as
    admission.check_fields.
    """
    if mode not in _MODES:
        raise unknown_mode(mode)
    _check_size(resource, obj)
    try:
        unknown = [f"metadata.{path}" for path in schemas.decode("ObjectMeta", obj["metadata"])]
    except schemas.FieldTypeError as error:
        raise refused(resource.kind, resource.version, str(error)) from None
    unknown += pruning.prune(resource.node, obj)
    if mode == "Ignore":
        return []
    found = [f'unknown field "{path}"' for path in unknown]
    if raw is not None:
        found += [f'duplicate field "{path}"' for path in duplicates(raw)]
    if found and mode == "Strict":
        raise refused(resource.kind, resource.version, f"strict decoding error: {', '.join(found)}")
    return found


def _check_size(resource: CustomResource, obj: Object) -> None:
    """What cannot be stored anyway is not looked at: validation takes time for each value."""
    most = LIMITS.custom_object_bytes
    size = len(dump(obj))
    if size > most:
        raise too_large(most, text("custom", "object_size", plural=resource.plural, size=size, limit=most))


def default(resource: CustomResource, obj: Object) -> None:
    """Fills in defaults, in place. ApiFailure 413 when they would not fit."""
    try:
        pruning.fill(resource.node, obj, LIMITS.custom_object_bytes)
    except pruning.TooMuchDefaulted:
        most = LIMITS.custom_object_bytes
        raise too_large(most, text("custom", "defaults_size", plural=resource.plural, limit=most)) from None


def validate_create(resource: CustomResource, obj: Object) -> None:
    """Refuses a new object that the schema does not take; ApiFailure 422."""
    _raise(resource, obj, [f.cause() for f in _faults(resource, obj)])


def validate_update(resource: CustomResource, old: Object, new: Object) -> None:
    """Refuses a changed object; faults in what has not changed are left alone. ApiFailure 422."""
    faults = [f for f in _faults(resource, new) if not unchanged(old, new, f.path)]
    _raise(resource, new, [f.cause() for f in faults])


def _faults(resource: CustomResource, obj: Object) -> list[Fault]:
    check = Check([LIMITS.custom_validation_steps])
    try:
        check.value(resource.node, obj, None)
    except TooMuchWork:
        said = text("custom", "validation_steps", limit=LIMITS.custom_validation_steps)
        check.faults = [Fault(None, "FieldValueInvalid", f'Invalid value: "": {said}', whole=True)]
    return check.faults


def _raise(resource: CustomResource, obj: Object, causes: list[Cause]) -> None:
    problems = Problems()
    check_metadata(resource, obj, problems)
    causes = problems.causes + causes
    if causes:
        shown = causes[: LIMITS.custom_faults_shown]
        raise invalid(resource, (obj.get("metadata") or {}).get("name", ""), shown)


def to_stored(resource: CustomResource, obj: Object) -> Object:
    """The object as it is stored."""
    if resource.is_stored_version:
        return obj
    return {**obj, "apiVersion": f"{resource.group}/{resource.storage_version}"}


def present(resource: CustomResource, entry: Entry) -> Entry:
    """A stored object as this version shows it now."""
    if resource.is_stored_version and entry.revision > resource.since:
        return entry
    known: Entry | None = resource.seen.get(entry.key)
    if known is not None and known.revision == entry.revision:
        return known
    made = _presented(resource, entry)
    if len(resource.seen) >= LIMITS.api_list_page_items:
        resource.seen.clear()
    resource.seen[entry.key] = made
    return made


def _presented(resource: CustomResource, entry: Entry) -> Entry:
    obj = orjson.loads(entry.value)
    obj["apiVersion"], obj["kind"] = resource.api_version, resource.kind
    try:
        pruning.prune(resource.storage_node, obj)
        pruning.fill(resource.storage_node, obj, LIMITS.custom_object_bytes)
        if not resource.is_stored_version:
            pruning.prune(resource.node, obj)
    except (pruning.TooMuchDefaulted, RecursionError):
        obj = {**orjson.loads(entry.value), "apiVersion": resource.api_version}
    value = orjson.dumps(obj)
    return entry if value == entry.value else Entry(entry.key, value, entry.revision, obj)
