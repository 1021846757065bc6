"""Validation of Pods: the spec, Kube32's one container, and what an update may change."""

import re
from typing import Any

from kube32.api.admission import names, volumes
from kube32.api.admission.annotations import check_annotations
from kube32.api.admission.containers import check_container
from kube32.api.admission.meta import check_labels
from kube32.api.admission.modules import check_module_fixed
from kube32.api.admission.problems import Problems
from kube32.contract import text

Object = dict[str, Any]
_MAX_INT32 = 2**31 - 1
_NO_VALUES = ("Exists", "DoesNotExist")
_INTEGER = re.compile(r"[+-]?[0-9]{1,18}")


def check_pod(obj: Object, problems: Problems) -> None:
    """Everything of a Pod that its schema does not say."""
    spec: Object = obj.get("spec") or {}
    _check_containers(spec, problems)
    names_of_volumes = volumes.check_volumes(spec.get("volumes") or [], problems)
    for index, container in enumerate(spec.get("containers") or ()):
        check_container(container, f"spec.containers[{index}]", names_of_volumes, problems)
    _check_numbers(spec, problems)
    _check_names(spec, problems)
    check_labels(spec.get("nodeSelector") or {}, "spec.nodeSelector", problems)
    for index, toleration in enumerate(spec.get("tolerations") or ()):
        _check_toleration(toleration, f"spec.tolerations[{index}]", problems)
    _check_node_affinity(spec, problems)
    check_annotations((obj.get("metadata") or {}).get("annotations") or {}, problems)


def _check_containers(spec: Object, problems: Problems) -> None:
    """A pod is one module: exactly one container, nothing before it and nothing added to it."""
    count = len(spec.get("containers") or ())
    if count > 1:
        problems.forbidden("spec.containers", text("validation", "one_container", count=count))
    if spec.get("initContainers"):
        problems.forbidden("spec.initContainers", text("validation", "no_init_containers"))
    if spec.get("ephemeralContainers"):
        problems.forbidden("spec.ephemeralContainers", text("validation", "no_ephemeral"))


def _check_numbers(spec: Object, problems: Problems) -> None:
    grace = spec.get("terminationGracePeriodSeconds")
    if grace is not None and grace < 0:
        problems.invalid("spec.terminationGracePeriodSeconds", grace, text("validation", "not_negative"))
    deadline = spec.get("activeDeadlineSeconds")
    if deadline is not None:
        problems.between("spec.activeDeadlineSeconds", deadline, 1, _MAX_INT32)


def _check_names(spec: Object, problems: Problems) -> None:
    for field, rule in (
        ("nodeName", names.subdomain),
        ("serviceAccountName", names.subdomain),
        ("priorityClassName", names.subdomain),
        ("hostname", names.label),
        ("subdomain", names.label),
    ):
        value = spec.get(field)
        if value:
            problems.invalids(f"spec.{field}", value, rule(value))


def _check_toleration(toleration: Object, path: str, problems: Problems) -> None:
    key, value = toleration.get("key", ""), toleration.get("value", "")
    operator = toleration.get("operator", "") or "Equal"
    if key:
        problems.invalids(f"{path}.key", key, names.qualified_name(key))
    elif operator != "Exists":
        problems.invalid(
            f"{path}.operator", toleration.get("operator", ""), text("validation", "toleration_key")
        )
    if operator == "Exists" and value:
        problems.invalid(f"{path}.operator", value, text("validation", "toleration_value"))
    elif operator == "Equal":
        problems.invalids(f"{path}.operator", value, names.label_value(value))
    if toleration.get("tolerationSeconds") is not None and toleration.get("effect") != "NoExecute":
        problems.invalid(
            f"{path}.effect", toleration.get("effect", ""), text("validation", "toleration_effect")
        )


def _check_node_affinity(spec: Object, problems: Problems) -> None:
    affinity: Object = (spec.get("affinity") or {}).get("nodeAffinity") or {}
    path = "spec.affinity.nodeAffinity"
    required = affinity.get("requiredDuringSchedulingIgnoredDuringExecution")
    if required is not None:
        at = f"{path}.requiredDuringSchedulingIgnoredDuringExecution.nodeSelectorTerms"
        for index, term in enumerate(required.get("nodeSelectorTerms") or ()):
            _check_term(term, f"{at}[{index}]", problems)
    for index, preferred in enumerate(affinity.get("preferredDuringSchedulingIgnoredDuringExecution") or ()):
        at = f"{path}.preferredDuringSchedulingIgnoredDuringExecution[{index}]"
        problems.between(f"{at}.weight", preferred.get("weight", 0), 1, 100)
        _check_term(preferred.get("preference") or {}, f"{at}.preference", problems)


def _check_term(term: Object, path: str, problems: Problems) -> None:
    for index, rule in enumerate(term.get("matchExpressions") or ()):
        at = f"{path}.matchExpressions[{index}]"
        key, operator, values = rule.get("key", ""), rule.get("operator", ""), rule.get("values") or []
        if key:
            problems.invalids(f"{at}.key", key, names.qualified_name(key))
        if operator in ("In", "NotIn") and not values:
            problems.required(f"{at}.values", text("validation", "selector_values"))
        elif operator in _NO_VALUES and values:
            problems.forbidden(f"{at}.values", text("validation", "selector_no_values"))
        elif operator in ("Gt", "Lt") and (len(values) != 1 or not _INTEGER.fullmatch(values[0])):
            problems.required(f"{at}.values", text("validation", "selector_one_number"))


def check_pod_update(old: Object, new: Object, problems: Problems) -> None:
    """The spec stays, but for a shorter deadline, more tolerations and the grace period; so does the
    module.
    """
    before: Object = old.get("spec") or {}
    after: Object = new.get("spec") or {}
    check_module_fixed(old, new, problems)
    _check_deadline(before.get("activeDeadlineSeconds"), after.get("activeDeadlineSeconds"), problems)
    kept, wanted = before.get("tolerations") or [], after.get("tolerations") or []
    if any(t not in wanted for t in kept):
        problems.forbidden("spec.tolerations", text("validation", "tolerations_added"))
    _check_gates(before.get("schedulingGates") or [], after.get("schedulingGates") or [], problems)
    if _fixed(before) != _fixed(after):
        problems.forbidden("spec", text("validation", "pod_update"))


def _check_gates(before: list[Object], after: list[Object], problems: Problems) -> None:
    """Gates only go; the last one lets the scheduler begin."""
    known = {g.get("name") for g in before}
    added = next((str(g.get("name")) for g in after if g.get("name") not in known), None)
    if added is not None:
        problems.forbidden("spec.schedulingGates", text("validation", "gates_added", gate=added))


def _check_deadline(before: int | None, after: int | None, problems: Problems) -> None:
    if before is not None and (after is None or after > before):
        problems.invalid("spec.activeDeadlineSeconds", after, text("validation", "deadline_longer"))


def _fixed(spec: Object) -> Object:
    free = (
        "activeDeadlineSeconds",
        "tolerations",
        "terminationGracePeriodSeconds",
        "schedulingGates",
        "containers",
    )
    fixed = {k: v for k, v in spec.items() if k not in free}
    # A change of the image has a message of its own.
    fixed["containers"] = [{k: v for k, v in c.items() if k != "image"} for c in spec.get("containers") or ()]
    return fixed
