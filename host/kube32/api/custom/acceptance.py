"""Whether the names of a CustomResourceDefinition are free, and the conditions that say so."""

from collections.abc import Iterable
from typing import Any

from kube32.api import metadata
from kube32.api.custom.definitions import APPROVAL, is_protected
from kube32.api.custom.structural import said

Object = dict[str, Any]
FINALIZER = "customresourcecleanup.apiextensions.k8s.io"
_RESOURCE_NAMES, _KINDS = ("plural", "singular", "shortNames"), ("kind", "listKind")


def is_established(definition: Object) -> bool:
    """Whether the kind is served."""
    return is_true(definition, "Established")


def is_true(definition: Object, kind: str) -> bool:
    """Whether a condition holds."""
    conditions = (definition.get("status") or {}).get("conditions") or ()
    return any(c.get("type") == kind and c.get("status") == "True" for c in conditions)


def accepted_status(definition: Object, others: Iterable[Object]) -> Object:
    """The status that a definition has to have beside `others`, of which those in its group count.

    Names that have been accepted stay; new ones are accepted unless somebody else has them.
    """
    spec = definition["spec"]
    status: Object = dict(definition.get("status") or {})
    names, before = spec["names"], dict(status.get("acceptedNames") or {})
    taken = _taken(others, spec["group"])
    accepted, problem = _accept(names, before, taken)
    status["acceptedNames"] = accepted
    conditions = [dict(c) for c in status.get("conditions") or ()]
    if problem:
        _set(conditions, "NamesAccepted", "False", *problem)
    else:
        _set(conditions, "NamesAccepted", "True", "NoConflicts", said("no_conflicts"))
    if not problem:
        _set(conditions, "Established", "True", "InitialNamesAccepted", said("names_accepted"), keep=True)
    elif not is_established(definition):
        _set(conditions, "Established", "False", "NotAccepted", said("names_not_accepted"))
    if is_protected(spec["group"]):
        _approval(definition, conditions)
    status["conditions"] = conditions
    status.setdefault("storedVersions", [])
    return status


def _approval(definition: Object, conditions: list[Object]) -> None:
    url = (definition["metadata"].get("annotations") or {}).get(APPROVAL) or ""
    kind = "KubernetesAPIApprovalPolicyConformant"
    if url.startswith("unapproved"):
        _set(conditions, kind, "False", "UnapprovedAnnotation", said("unapproved", url=url))
    else:
        _set(conditions, kind, "True", "ApprovedAnnotation", said("approved", url=url))


def hold(definition: Object) -> None:
    """Makes a definition that is being deleted wait until its objects are gone."""
    finalizers = definition["metadata"].setdefault("finalizers", [])
    if FINALIZER not in finalizers:
        finalizers.append(FINALIZER)


def terminating(definition: Object) -> Object:
    """The status of a definition whose objects are being deleted."""
    status: Object = dict(definition.get("status") or {})
    conditions = [dict(c) for c in status.get("conditions") or ()]
    _set(conditions, "Terminating", "True", "InstanceDeletionInProgress", said("terminating"))
    status["conditions"] = conditions
    return status


def _taken(others: Iterable[Object], group: str) -> tuple[set[str], set[str]]:
    """The resource names and the kinds that others in the group have been given."""
    resources: set[str] = set()
    kinds: set[str] = set()
    for other in others:
        if other["spec"]["group"] == group:
            accepted = (other.get("status") or {}).get("acceptedNames") or {}
            resources.update(n for n in (accepted.get("plural"), accepted.get("singular")) if n)
            resources.update(accepted.get("shortNames") or ())
            kinds.update(accepted[k] for k in _KINDS if accepted.get(k))
    return resources, kinds


def _accept(
    names: Object, before: Object, taken: tuple[set[str], set[str]]
) -> tuple[Object, tuple[str, str] | None]:
    """The accepted names, and reason and message of the first conflict."""
    accepted = dict(before)
    accepted.setdefault("plural", "")
    accepted.setdefault("kind", "")
    problem: tuple[str, str] | None = None
    for field in (*_RESOURCE_NAMES, *_KINDS):
        wanted = names.get(field)
        pool = taken[0] if field in _RESOURCE_NAMES else taken[1]
        conflict = next((n for n in (wanted if isinstance(wanted, list) else [wanted]) if n in pool), None)
        if conflict is not None:
            reason = f"{field[0].upper()}{field[1:]}Conflict"
            problem = problem or (reason, said("name_in_use", name=conflict))
        elif wanted:
            accepted[field] = wanted
        else:
            accepted.pop(field, None)
    if names.get("categories"):
        accepted["categories"] = names["categories"]
    else:
        accepted.pop("categories", None)
    return accepted, problem


def _set(
    conditions: list[Object], kind: str, status: str, reason: str, message: str, *, keep: bool = False
) -> None:
    """Sets a condition; its time changes with its status alone. `keep`: one that holds already is left alone."""
    found = next((c for c in conditions if c.get("type") == kind), None)
    if found is None:
        found = {"type": kind}
        conditions.append(found)
    elif keep and found.get("status") == status:
        return
    if found.get("status") != status:
        found["lastTransitionTime"] = metadata.now()
    found.update(status=status, reason=reason, message=message)
