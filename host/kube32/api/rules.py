"""Decoding, defaults and validation of every kind: the contract's kinds by admission, custom kinds by their schema.

Where stored objects are shown in several versions, `shown` and `stored` lead from one form to the other.
"""

from typing import Any

from kube32.api import admission
from kube32.api.catalog import Catalog
from kube32.api.custom import definitions, objects
from kube32.api.custom.resource import CustomResource
from kube32.api.status import bad_request
from kube32.contract import Resource
from kube32.store import Entry

Object = dict[str, Any]


def check_fields(resource: Resource, obj: Object, mode: str, raw: bytes | None = None) -> list[str]:
    """As admission.check_fields, for any kind. What is nested too deeply is refused with 400."""
    try:
        if isinstance(resource, CustomResource):
            return objects.check_fields(resource, obj, mode, raw)
        found = admission.check_fields(resource, obj, mode, raw)
        if resource.builtin == definitions.KIND:
            found += definitions.check_fields(obj, mode)
        return found
    except RecursionError:
        raise bad_request(f"the {resource.kind} is nested too deeply") from None


def default(resource: Resource, obj: Object) -> None:
    """Fills in an object, in place."""
    if isinstance(resource, CustomResource):
        objects.default(resource, obj)
        return
    admission.default(resource, obj)
    if resource.builtin == definitions.KIND:
        definitions.default(obj)


def validate_create(resource: Resource, obj: Object, catalog: Catalog) -> list[str]:
    """Refuses a new object that cannot be; gives warnings. ApiFailure 422."""
    if isinstance(resource, CustomResource):
        objects.validate_create(resource, obj)
        return []
    admission.validate_create(resource, obj)
    if resource.builtin != definitions.KIND:
        return []
    definitions.validate(resource, catalog, None, obj)
    return definitions.warnings(obj)


def validate_update(resource: Resource, old: Object, new: Object, catalog: Catalog) -> list[str]:
    """Refuses a changed object that cannot be, or a change that is not allowed; gives warnings. ApiFailure 422."""
    if isinstance(resource, CustomResource):
        objects.validate_update(resource, old, new)
        return []
    admission.validate_update(resource, old, new)
    if resource.builtin != definitions.KIND:
        return []
    definitions.validate(resource, catalog, old, new)
    return definitions.warnings(new) if old["spec"] != new["spec"] else []


def shown(resource: Resource, entry: Entry) -> Entry:
    """A stored object as the resource's version shows it."""
    return objects.present(resource, entry) if isinstance(resource, CustomResource) else entry


def stored(resource: Resource, obj: Object) -> Object:
    """An object as it is stored."""
    return objects.to_stored(resource, obj) if isinstance(resource, CustomResource) else obj
