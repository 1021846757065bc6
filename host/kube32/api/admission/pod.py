"""Validation of Pods and of pod templates: the spec, and what an update of a Pod may change."""

import re
from typing import Any

from kube32.api.admission import names, volumes
from kube32.api.admission.annotations import check_annotations
from kube32.api.admission.containers import check_containers
from kube32.api.admission.defaults import pods as defaults
from kube32.api.admission.meta import check_annotation_keys, check_labels
from kube32.api.admission.modules import check_module_fixed
from kube32.api.admission.problems import Problems
from kube32.contract import text

Object = dict[str, Any]
_MAX_INT32 = 2**31 - 1
_NO_VALUES = ("Exists", "DoesNotExist")
_INTEGER = re.compile(r"[+-]?[0-9]{1,18}")


def check_pod(obj: Object, problems: Problems) -> None:
    """Everything of a Pod that its schema does not say."""
    _check_spec(obj.get("spec") or {}, problems)
    check_annotations((obj.get("metadata") or {}).get("annotations") or {}, problems)


def check_template(template: Object, problems: Problems) -> None:
    """The same of a pod template; `problems` are those within its path."""
    meta: Object = template.get("metadata") or {}
    check_labels(meta.get("labels") or {}, "labels", problems)
    check_annotation_keys(meta.get("annotations") or {}, "annotations", problems)
    check_pod(template, problems)


def _check_spec(spec: Object, problems: Problems) -> None:
    mountable = volumes.check_volumes(spec.get("volumes") or [], problems)
    check_containers(spec, mountable, problems)
    _check_numbers(spec, problems)
    _check_names(spec, problems)
    check_labels(spec.get("nodeSelector") or {}, "spec.nodeSelector", problems)
    for index, toleration in enumerate(spec.get("tolerations") or ()):
        _check_toleration(toleration, f"spec.tolerations[{index}]", problems)
    for index, gate in enumerate(spec.get("readinessGates") or ()):
        kind = gate.get("conditionType", "")
        if kind:
            path = f"spec.readinessGates[{index}].conditionType"
            problems.invalids(path, kind, names.qualified_name(kind))
    _check_node_affinity(spec, problems)


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
    """The spec stays, but for a shorter deadline, more tolerations, the grace period and gates that go; so does the
    module.
    """
    before: Object = old.get("spec") or {}
    after: Object = new.get("spec") or {}
    check_module_fixed(old, new, problems)
    _check_deadline(before.get("activeDeadlineSeconds"), after.get("activeDeadlineSeconds"), problems)
    _check_tolerations(before.get("tolerations") or [], after.get("tolerations") or [], problems)
    _check_gates(before.get("schedulingGates") or [], after.get("schedulingGates") or [], problems)
    if _fixed(before) != _fixed(after):
        problems.forbidden("spec", text("validation", "pod_update"))


def _check_tolerations(before: list[Object], after: list[Object], problems: Problems) -> None:
    """They are only added to, or changed in their seconds."""
    kept = [_without_seconds(t) for t in after]
    if any(_without_seconds(t) not in kept for t in before):
        problems.forbidden("spec.tolerations", text("validation", "tolerations_added"))


def _without_seconds(toleration: Object) -> Object:
    return {k: v for k, v in toleration.items() if k != "tolerationSeconds"}


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
        "initContainers",
    )
    fixed = {k: v for k, v in spec.items() if k not in free}
    # A pod of an earlier release lacks what is filled in now.
    defaults.admitted(fixed)
    # A change of the image has a message of its own.
    for kind in ("initContainers", "containers"):
        fixed[kind] = [{k: v for k, v in c.items() if k != "image"} for c in spec.get(kind) or ()]
    return fixed
