"""What `kubectl apply` without --server-side left in an object: its annotation with the object as it was applied.

As in kube-apiserver, the manager "kubectl" may take the fields that the annotation says it applied itself, and the
annotation follows its server-side applies, so that either way of applying can come next.
"""

from collections.abc import Callable
from typing import Any

import orjson

from kube32.api import bodies
from kube32.api.apply import values
from kube32.api.apply.engine import Scope, owned
from kube32.api.apply.field_sets import FieldSet, difference
from kube32.api.apply.nodes import Node
from kube32.api.status import ApiFailure
from kube32.contract import LIMITS

Object = dict[str, Any]
KUBECTL = "kubectl"
_ANNOTATION = "kubectl.kubernetes.io/last-applied-configuration"


def allowed(live: Object, node: Node, scope: Scope, decode: Callable[[Object], object]) -> FieldSet:
    """The places that the annotation names and that still are as it says. `decode` brings an object into the form
    in which it is stored.
    """
    text = _annotations(live).get(_ANNOTATION)
    try:
        last = orjson.loads(text) if text else None
        if not isinstance(last, dict):
            return {}
        bodies.check_metadata(last)
        decode(last)
        last = scope.of(last)
        changed, _ = values.compare(live, last, node)
        return difference(owned(values.applied(last, node)), changed)
    except (ValueError, TypeError, KeyError, RecursionError, ApiFailure):
        return {}


def follow(new: Object, sent: Object) -> None:
    """Writes the applied object into the annotation, where there is one."""
    annotations = _annotations(new)
    if _ANNOTATION not in annotations:
        return
    metadata = dict(sent["metadata"])
    # As kubectl writes it: the annotations are there even when they are empty.
    metadata["annotations"] = {
        k: v for k, v in (metadata.get("annotations") or {}).items() if k != _ANNOTATION
    }
    text = orjson.dumps({**sent, "metadata": metadata}, option=orjson.OPT_SORT_KEYS).decode() + "\n"
    size = sum(len(k) + len(v) for k, v in annotations.items() if k != _ANNOTATION)
    kept = {**annotations, _ANNOTATION: text}
    if size + len(_ANNOTATION) + len(text) > LIMITS.annotations_bytes:
        del kept[_ANNOTATION]
    new["metadata"]["annotations"] = kept


def _annotations(obj: Object) -> dict[str, str]:
    return obj["metadata"].get("annotations") or {}
