"""Admission: defaults, decoding and validation of what clients write. Pure functions that raise ApiFailure.

The order for a write: check_fields (400), default, validate_create or validate_update (422), pin_module
(422).
"""

from kube32.api.admission.defaults import default, qos_class
from kube32.api.admission.fields import check_fields
from kube32.api.admission.kinds.workloads import generate_selector
from kube32.api.admission.modules import ModuleLookup, pin_module
from kube32.api.admission.validate import validate_create, validate_update

__all__ = [
    "ModuleLookup",
    "check_fields",
    "default",
    "generate_selector",
    "pin_module",
    "qos_class",
    "validate_create",
    "validate_update",
]
