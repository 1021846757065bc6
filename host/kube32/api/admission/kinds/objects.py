"""Validation of the kinds other than Pod: what each allows beside its schema."""

from typing import Any

from kube32.api.admission import names
from kube32.api.admission.meta import check_labels
from kube32.api.admission.problems import Problems
from kube32.contract import NAMES, text

Object = dict[str, Any]
_EMBEDDED_NAME = NAMES.image_embedded.removeprefix(NAMES.image_prefix)


def check_node(obj: Object, problems: Problems) -> None:
    """Taints: keys and values are label syntax, none stands twice."""
    seen: set[tuple[str, str]] = set()
    for index, taint in enumerate((obj.get("spec") or {}).get("taints") or ()):
        path = f"spec.taints[{index}]"
        key, effect = taint.get("key", ""), taint.get("effect", "")
        if key:
            problems.invalids(f"{path}.key", key, names.qualified_name(key))
        problems.invalids(f"{path}.value", taint.get("value", ""), names.label_value(taint.get("value", "")))
        if (key, effect) in seen:
            problems.duplicate(path, taint)
        seen.add((key, effect))


def check_event(obj: Object, problems: Problems) -> None:
    """An event stands in its object's namespace."""
    namespace = (obj.get("involvedObject") or {}).get("namespace", "")
    if namespace and namespace != (obj.get("metadata") or {}).get("namespace", ""):
        problems.invalid("involvedObject.namespace", namespace, text("validation", "event_namespace"))


def check_configmap(obj: Object, problems: Problems) -> None:
    """Keys become file names and stand in data or binaryData, not in both."""
    data = obj.get("data") or {}
    for part in ("data", "binaryData"):
        for key in obj.get(part) or ():
            problems.invalids(f"{part}[{key}]", key, names.config_key(key))
            if part == "binaryData" and key in data:
                problems.invalid(f"binaryData[{key}]", key, text("validation", "config_key_twice"))


def check_configmap_update(old: Object, new: Object, problems: Problems) -> None:
    """An immutable ConfigMap keeps its data."""
    _check_immutable(old, new, ("data", "binaryData"), problems)


def check_secret(obj: Object, problems: Problems) -> None:
    """Keys become file names; typed Secrets have the keys that their type asks for."""
    data: Object = obj.get("data") or {}
    for key in data:
        problems.invalids(f"data[{key}]", key, names.config_key(key))
    kind: str = obj.get("type", "")
    for key in _SECRET_KEYS.get(kind, ()):
        if key not in data:
            problems.required(f"data[{key}]")
    if kind == _BASIC_AUTH and not any(key in data for key in _BASIC_AUTH_KEYS):
        for key in _BASIC_AUTH_KEYS:
            problems.required(f"data[{key}]")
    annotations = (obj.get("metadata") or {}).get("annotations") or {}
    if kind == _ACCOUNT_TOKEN and not annotations.get(_ACCOUNT_NAME):
        problems.required(f"metadata.annotations[{_ACCOUNT_NAME}]")


_BASIC_AUTH, _BASIC_AUTH_KEYS = "kubernetes.io/basic-auth", ("username", "password")
_ACCOUNT_TOKEN, _ACCOUNT_NAME = "kubernetes.io/service-account-token", "kubernetes.io/service-account.name"
_SECRET_KEYS = {
    "kubernetes.io/tls": ("tls.crt", "tls.key"),
    "kubernetes.io/ssh-auth": ("ssh-privatekey",),
    "kubernetes.io/dockercfg": (".dockercfg",),
    "kubernetes.io/dockerconfigjson": (".dockerconfigjson",),
}


def check_secret_update(old: Object, new: Object, problems: Problems) -> None:
    """The type stays, and an immutable Secret keeps its data."""
    if old.get("type") != new.get("type"):
        problems.invalid("type", new.get("type"), text("validation", "immutable"))
    _check_immutable(old, new, ("data",), problems)


def _check_immutable(old: Object, new: Object, parts: tuple[str, ...], problems: Problems) -> None:
    if old.get("immutable") is not True:
        return
    message = text("validation", "immutable_data")
    if new.get("immutable") is not True:
        problems.forbidden("immutable", message)
    for part in parts:
        if (old.get(part) or {}) != (new.get(part) or {}):
            problems.forbidden(part, message)


def check_lease(obj: Object, problems: Problems) -> None:
    """Durations are positive, counts are not negative."""
    spec: Object = obj.get("spec") or {}
    duration, transitions = spec.get("leaseDurationSeconds"), spec.get("leaseTransitions")
    if duration is not None and duration <= 0:
        problems.invalid("spec.leaseDurationSeconds", duration, text("validation", "positive"))
    if transitions is not None and transitions < 0:
        problems.invalid("spec.leaseTransitions", transitions, text("validation", "not_negative"))


def check_module(obj: Object, problems: Problems) -> None:
    """wasm://embedded means the annotation, so no Module has that name."""
    name = (obj.get("metadata") or {}).get("name")
    if name == _EMBEDDED_NAME:
        problems.invalid("metadata.name", name, text("validation", "module_reserved"))


def check_checkpoint(obj: Object, problems: Problems) -> None:
    """A pod's name, and one way at most of naming a Move's target (specification, "Checkpoint objects and
    data").
    """
    spec: Object = obj.get("spec") or {}
    pod, container = spec.get("podName", ""), spec.get("containerName", "")
    if pod:
        problems.invalids("spec.podName", pod, names.subdomain(pod))
    if container:
        problems.invalids("spec.containerName", container, names.label(container))
    target: Object = spec.get("target") or {}
    node, selector = target.get("nodeName", ""), target.get("nodeSelector") or {}
    if node:
        problems.invalids("spec.target.nodeName", node, names.subdomain(node))
    check_labels(selector, "spec.target.nodeSelector", problems)
    if node and selector:
        problems.invalid("spec.target", target, text("failures", "target_both"))
    if (node or selector) and spec.get("action") == "Save":
        problems.forbidden("spec.target", text("validation", "target_for_move"))


def check_checkpoint_update(old: Object, new: Object, problems: Problems) -> None:
    """The controller may be in the middle of it: the spec stays."""
    if old.get("spec") != new.get("spec"):
        problems.forbidden("spec", text("validation", "checkpoint_fixed"))
