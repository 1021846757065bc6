"""Validation of PersistentVolumeClaims, in kube-apiserver's words."""

from typing import Any

from kube32.api.admission import names
from kube32.api.admission.problems import Problems
from kube32.api.admission.selectors import check_selector
from kube32.contract import text
from kube32.formats import quantity

Object = dict[str, Any]
_MODES = ("ReadOnlyMany", "ReadWriteMany", "ReadWriteOnce", "ReadWriteOncePod")
_VOLUME_MODES = ("Block", "Filesystem")


def check_claim(obj: Object, problems: Problems) -> None:
    """A PersistentVolumeClaim."""
    spec: Object = obj.get("spec") or {}
    modes = spec.get("accessModes") or []
    if not modes:
        problems.required("spec.accessModes", text("validation", "access_mode_none"))
    for mode in modes:
        if mode not in _MODES:
            problems.unsupported("spec.accessModes", mode, _MODES)
    if "ReadWriteOncePod" in modes and len(modes) > 1:
        problems.forbidden("spec.accessModes", text("validation", "access_mode_alone"))
    asked = ((spec.get("resources") or {}).get("requests") or {}).get("storage")
    if asked is None:
        problems.required("spec.resources[storage]")
    elif quantity.parse(asked) <= 0:
        problems.invalid("spec.resources[storage]", asked, text("validation", "greater_zero"))
    if spec.get("storageClassName"):
        problems.invalids(
            "spec.storageClassName", spec["storageClassName"], names.subdomain(spec["storageClassName"])
        )
    if spec.get("volumeMode", "Filesystem") not in _VOLUME_MODES:
        problems.unsupported("spec.volumeMode", spec["volumeMode"], _VOLUME_MODES)
    check_selector(spec.get("selector") or {}, "spec.selector", problems)


def check_claim_update(old: Object, new: Object, problems: Problems) -> None:
    """The spec stays, but for the volume that is bound to it and a larger request once it is bound."""
    before, after = dict(old.get("spec") or {}), dict(new.get("spec") or {})
    if not before.get("volumeName"):
        before.pop("volumeName", None)
        after.pop("volumeName", None)
    if before.get("storageClassName") is None:
        after.pop("storageClassName", None)
    bound = (old.get("status") or {}).get("phase") == "Bound"
    if bound:
        for spec in (before, after):
            spec["resources"] = {**(spec.get("resources") or {}), "requests": {}}
    if before != after:
        problems.forbidden("spec", text("validation", "claim_fixed"))
    if bound:
        _check_size(old, new, problems)


def _check_size(old: Object, new: Object, problems: Problems) -> None:
    held = ((old.get("status") or {}).get("capacity") or {}).get("storage")
    asked = (((new.get("spec") or {}).get("resources") or {}).get("requests") or {}).get("storage")
    if held and asked and quantity.parse(asked) < quantity.parse(held):
        problems.forbidden("spec.resources.requests.storage", text("validation", "claim_smaller"))
