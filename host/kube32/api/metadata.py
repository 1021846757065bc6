"""What the server alone sets in an object's metadata, and what an update may not change."""

import secrets
import time
import uuid
from collections.abc import Callable
from typing import Any

import orjson

from kube32.api.status import Cause, bad_request, conflict, invalid
from kube32.contract import Resource

Object = dict[str, Any]
_SUFFIX = "bcdfghjklmnpqrstvwxz2456789"
_SUFFIX_LENGTH = 5
# As kube-apiserver (RetryGenerateName).
_NAME_DRAWS = 8
_NAME_LENGTH = 63
_CLOCK_SET = 1577836800  # 2020-01-01: an earlier wall clock was never set
_SERVER_OWNED = ("creationTimestamp", "generation", "deletionTimestamp", "deletionGracePeriodSeconds")
_WITHOUT_GENERATION = ("Node", "Namespace")
_KEEPS_STATUS = ("Node",)


def now() -> str | None:
    """The wall clock in RFC 3339, None while it is unset (a time of 1970 would show as an age of decades)."""
    return timestamp(time.time())


def timestamp(seconds: float) -> str | None:
    """Seconds since 1970 in RFC 3339, None before the clock was set."""
    if seconds < _CLOCK_SET:
        return None
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(seconds))


def new_uid() -> str:
    """A uid for a new object."""
    return str(uuid.uuid4())


def has_status(resource: Resource) -> bool:
    """Whether status is written through its own subresource."""
    return "status" in resource.subresources


def has_generation(resource: Resource) -> bool:
    """Whether metadata.generation counts changes of the spec."""
    return not resource.builtin or (has_status(resource) and resource.kind not in _WITHOUT_GENERATION)


def place(resource: Resource, metadata: Object, namespace: str, name: str) -> None:
    """Sets namespace and name as the path has them; ApiFailure 400 when the object says otherwise."""
    if resource.namespaced:
        if metadata.get("namespace") not in (None, "", namespace):
            raise bad_request(
                "the namespace of the provided object does not match the namespace sent on the request"
            )
        metadata["namespace"] = namespace
    elif metadata.get("namespace"):
        raise invalid(
            resource,
            metadata.get("name") or name,
            [Cause("metadata.namespace", "FieldValueForbidden", "Forbidden: not allowed on this type")],
        )
    else:
        metadata.pop("namespace", None)
    if name:
        if metadata.get("name") not in (None, "", name):
            raise bad_request(
                f"the name of the object ({metadata['name']}) does not match the name on the URL ({name})"
            )
        metadata["name"] = name


def prepare_create(
    resource: Resource, obj: Object, namespace: str, is_taken: Callable[[str], bool] = lambda name: False
) -> None:
    """Makes a client's object a new one: name, uid, creation time; drops what a client may not set.

    A generated name is drawn anew when it `is_taken`. ApiFailure 400 or 422 for a namespace that differs from the
    path's and for an object without a name.
    """
    metadata = obj["metadata"]
    place(resource, metadata, namespace, "")
    if metadata.get("resourceVersion"):
        raise bad_request("resourceVersion should not be set on objects to be created")
    if not metadata.get("name"):
        metadata["name"] = _generated(resource, metadata, is_taken)
    for field in (*_SERVER_OWNED, "selfLink", "resourceVersion"):
        metadata.pop(field, None)
    metadata["uid"] = new_uid()
    metadata["creationTimestamp"] = now()
    if has_generation(resource):
        metadata["generation"] = 1
    if has_status(resource) and resource.builtin not in _KEEPS_STATUS:
        obj.pop("status", None)


def _generated(resource: Resource, metadata: Object, is_taken: Callable[[str], bool]) -> str:
    prefix = metadata.get("generateName") or ""
    if not prefix:
        raise invalid(
            resource,
            "",
            [
                Cause(
                    "metadata.name", "FieldValueRequired", "Required value: name or generateName is required"
                )
            ],
        )
    name = ""
    for _ in range(_NAME_DRAWS):
        suffix = "".join(secrets.choice(_SUFFIX) for _ in range(_SUFFIX_LENGTH))
        name = f"{prefix[: _NAME_LENGTH - _SUFFIX_LENGTH]}{suffix}"
        if not is_taken(name):
            break
    return name


def check_preconditions(resource: Resource, old: Object, name: str, uid: str, version: str) -> None:
    """ApiFailure 409 unless uid and resourceVersion ("" for any) are those of the stored object."""
    current = old["metadata"]
    if uid and uid != current["uid"]:
        why = f"Precondition failed: UID in precondition: {uid}, UID in object meta: {current['uid']}"
        raise conflict(resource, name, why)
    if version and version != current["resourceVersion"]:
        if not version.isascii() or not version.isdigit():
            cause = Cause(
                "metadata.resourceVersion",
                "FieldValueInvalid",
                f'Invalid value: "{version}": must be specified for an update as a number',
            )
            raise invalid(resource, name, [cause])
        raise conflict(resource, name)


def prepare_update(resource: Resource, old: Object, new: Object) -> None:
    """Makes `new` the successor of `old`: keeps what the server owns, checks preconditions and finalizers.

    A generation counts changes outside metadata and status. ApiFailure 400, 409, 422.
    """
    metadata, before = new["metadata"], old["metadata"]
    place(resource, metadata, before.get("namespace", ""), before["name"])
    check_preconditions(
        resource, old, before["name"], metadata.get("uid") or "", metadata.get("resourceVersion") or ""
    )
    for field in _SERVER_OWNED:
        metadata.pop(field, None)
        if field in before:
            metadata[field] = before[field]
    metadata.pop("selfLink", None)
    metadata["uid"] = before["uid"]
    metadata["resourceVersion"] = before["resourceVersion"]
    _check_finalizers(resource, before, metadata)


def count_generation(resource: Resource, old: Object, new: Object) -> None:
    """Counts a change outside metadata and status."""
    without = ("metadata", "status") if has_status(resource) else ("metadata",)
    if has_generation(resource) and _without(old, without) != _without(new, without):
        new["metadata"]["generation"] = int(old["metadata"].get("generation") or 0) + 1


def _without(obj: Object, fields: tuple[str, ...]) -> Object:
    return {k: v for k, v in obj.items() if k not in fields}


def _check_finalizers(resource: Resource, before: Object, metadata: Object) -> None:
    if not before.get("deletionTimestamp"):
        return
    known = before.get("finalizers") or ()
    added = [f for f in metadata.get("finalizers") or () if f not in known]
    if added:
        shown = ", ".join(f'"{f}"' for f in added)
        raise invalid(
            resource,
            before["name"],
            [
                Cause(
                    "metadata.finalizers",
                    "FieldValueForbidden",
                    "Forbidden: no new finalizers can be added if the object is being deleted, "
                    f"found new finalizers []string{{{shown}}}",
                )
            ],
        )


def with_status_of(new: Object, old: Object) -> Object:
    """`old` with the status of `new`: what a write to /status changes."""
    changed = {k: v for k, v in old.items() if k != "status"}
    if new.get("status") is not None:
        changed["status"] = new["status"]
    return changed


def keep_status(new: Object, old: Object) -> None:
    """Gives `new` a copy of the status of `old`: what a write to the main object leaves alone."""
    new.pop("status", None)
    if "status" in old:
        new["status"] = orjson.loads(orjson.dumps(old["status"]))


def mark_deleted(resource: Resource, obj: Object, grace_s: int) -> None:
    """Sets deletionTimestamp, `grace_s` seconds ahead; an earlier mark is only ever shortened."""
    metadata = obj["metadata"]
    earlier = metadata.get("deletionGracePeriodSeconds")
    if metadata.get("deletionTimestamp") and (earlier is None or earlier <= grace_s):
        return
    metadata["deletionTimestamp"] = timestamp(time.time() + grace_s) or "1970-01-01T00:00:00Z"
    metadata["deletionGracePeriodSeconds"] = grace_s
    if has_generation(resource):
        metadata["generation"] = int(metadata.get("generation") or 0) + 1


def is_finished(obj: Object) -> bool:
    """Whether an object that is being deleted has nothing left to wait for."""
    metadata = obj["metadata"]
    if not metadata.get("deletionTimestamp") or metadata.get("finalizers"):
        return False
    if (
        obj.get("kind") == "Namespace"
        and obj.get("apiVersion") == "v1"
        and (obj.get("spec") or {}).get("finalizers")
    ):
        return False
    return not metadata.get("deletionGracePeriodSeconds")
