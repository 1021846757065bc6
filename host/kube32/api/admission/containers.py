"""Validation of a container: names, environment, mounts, ports and resources."""

from collections.abc import Iterable
from decimal import Decimal
from typing import Any

from kube32.api.admission import names
from kube32.api.admission.probes import PROBES, check_probes
from kube32.api.admission.problems import Problems
from kube32.api.admission.volumes import check_inner_path, check_resource_field
from kube32.contract import text
from kube32.formats import quantity

Object = dict[str, Any]
_PORT_HIGHEST = 65535
_STANDARD = ("cpu", "memory", "ephemeral-storage")
_HUGE_PAGES = "hugepages-"
_VALUE_SOURCES = ("fieldRef", "resourceFieldRef", "configMapKeyRef", "secretKeyRef", "fileKeyRef")
_ENV_SOURCES = ("configMapRef", "secretRef")
_FIELD_PATHS = (
    "metadata.name",
    "metadata.namespace",
    "metadata.uid",
    "spec.nodeName",
    "spec.serviceAccountName",
    "status.hostIP",
    "status.hostIPs",
    "status.podIP",
    "status.podIPs",
)


def check_containers(spec: Object, volumes: Iterable[str], problems: Problems) -> None:
    """All containers of a pod; `volumes` are the names that their mounts may use."""
    known, mountable = set[str](), set(volumes)
    for kind in ("initContainers", "containers"):
        for index, container in enumerate(spec.get(kind) or ()):
            path = f"spec.{kind}[{index}]"
            name = container.get("name", "")
            if name and name in known:
                problems.duplicate(f"{path}.name", name)
            known.add(name)
            _check_container(container, path, mountable, problems)
            (_check_init if kind == "initContainers" else _check_staying)(container, path, problems)
    if spec.get("ephemeralContainers"):
        problems.forbidden("spec.ephemeralContainers", text("validation", "no_ephemeral"))


def _check_init(container: Object, path: str, problems: Problems) -> None:
    """An init container ends: it has no health and no life cycle."""
    if container.get("restartPolicy"):
        problems.forbidden(f"{path}.restartPolicy", text("validation", "sidecar"))
    for field in ("lifecycle", *PROBES):
        if container.get(field):
            problems.forbidden(f"{path}.{field}", text("validation", "init_only"))


def _check_staying(container: Object, path: str, problems: Problems) -> None:
    if container.get("restartPolicy"):
        problems.forbidden(f"{path}.restartPolicy", text("validation", "not_init_policy"))
    check_probes(container, path, problems)


def _check_container(container: Object, path: str, volumes: set[str], problems: Problems) -> None:
    """What init containers and containers have in common."""
    name = container.get("name", "")
    if name:
        problems.invalids(f"{path}.name", name, names.label(name))
    if not container.get("image"):
        problems.required(f"{path}.image")
    for index, env in enumerate(container.get("env") or ()):
        _check_env(env, f"{path}.env[{index}]", problems)
    for index, source in enumerate(container.get("envFrom") or ()):
        _check_env_from(source, f"{path}.envFrom[{index}]", problems)
    _check_mounts(container, path, volumes, problems)
    _check_ports(container.get("ports") or [], f"{path}.ports", problems)
    _check_resources(container.get("resources") or {}, f"{path}.resources", problems)


def _check_ports(ports: list[Object], path: str, problems: Problems) -> None:
    known: set[str] = set()
    for index, port in enumerate(ports):
        at, name = f"{path}[{index}]", port.get("name", "")
        if name:
            broken = names.port_name(name)
            problems.invalids(f"{at}.name", name, broken)
            if not broken and name in known:
                problems.duplicate(f"{at}.name", name)
            known.add(name)
        problems.between(f"{at}.containerPort", port.get("containerPort", 0), 1, _PORT_HIGHEST)
        if port.get("hostPort"):
            problems.between(f"{at}.hostPort", port["hostPort"], 1, _PORT_HIGHEST)


def _check_env(env: Object, path: str, problems: Problems) -> None:
    name, source = env.get("name", ""), env.get("valueFrom")
    if name:
        problems.invalids(f"{path}.name", name, names.env_name(name))
    if source is None:
        return
    if env.get("value"):
        problems.invalid(f"{path}.valueFrom", "", text("validation", "value_from_both"))
    set_sources = [s for s in _VALUE_SOURCES if s in source]
    if not set_sources:
        problems.invalid(f"{path}.valueFrom", "", text("validation", "value_from_none"))
    elif len(set_sources) > 1:
        problems.invalid(f"{path}.valueFrom", "", text("validation", "env_from_many"))
    field = (source.get("fieldRef") or {}).get("fieldPath", "")
    if field and field not in _FIELD_PATHS and not names.is_subscript(field):
        problems.unsupported(f"{path}.valueFrom.fieldRef.fieldPath", field, _FIELD_PATHS)
    if "resourceFieldRef" in source:
        check_resource_field(source["resourceFieldRef"], f"{path}.valueFrom.resourceFieldRef", problems)
    for kind in ("configMapKeyRef", "secretKeyRef"):
        reference = source.get(kind)
        if reference is not None and not reference.get("name"):
            problems.required(f"{path}.valueFrom.{kind}.name")


def _check_env_from(source: Object, path: str, problems: Problems) -> None:
    set_sources = [s for s in _ENV_SOURCES if s in source]
    if not set_sources:
        problems.invalid(path, "", text("validation", "env_from_none"))
    elif len(set_sources) > 1:
        problems.invalid(path, "", text("validation", "env_from_many"))
    if source.get("prefix"):
        problems.invalids(f"{path}.prefix", source["prefix"], names.env_name(source["prefix"]))
    for kind in set_sources:
        if not source[kind].get("name"):
            problems.required(f"{path}.{kind}.name")


def _check_mounts(container: Object, path: str, volumes: set[str], problems: Problems) -> None:
    seen: set[str] = set()
    for index, mount in enumerate(container.get("volumeMounts") or ()):
        at = f"{path}.volumeMounts[{index}]"
        name, where = mount.get("name", ""), mount.get("mountPath", "")
        if name and name not in volumes:
            problems.not_found(f"{at}.name", name)
        if where in seen:
            problems.invalid(f"{at}.mountPath", where, text("validation", "unique"))
        elif ":" in where:
            problems.invalid(f"{at}.mountPath", where, text("validation", "path_colon"))
        seen.add(where)
        for field in ("subPath", "subPathExpr"):
            if mount.get(field):
                check_inner_path(mount[field], f"{at}.{field}", problems)


def _check_resources(resources: Object, path: str, problems: Problems) -> None:
    limits, requests = _amounts(resources, "limits"), _amounts(resources, "requests")
    for part, amounts in (("limits", limits), ("requests", requests)):
        for name, amount in amounts.items():
            _check_amount(name, amount, f"{path}.{part}", problems)
    for name, amount in requests.items():
        limit = limits.get(name)
        shown = resources["requests"][name]
        if limit is None:
            if _is_extended(name):
                problems.required(f"{path}.limits[{name}]", text("validation", "request_no_limit"))
        elif _is_extended(name) and amount != limit:
            _over(f"{path}.requests", shown, "request_not_limit", name, resources, problems)
        elif amount > limit:
            _over(f"{path}.requests", shown, "request_over_limit", name, resources, problems)


def _amounts(resources: Object, part: str) -> dict[str, Decimal]:
    return {name: quantity.parse(value) for name, value in (resources.get(part) or {}).items()}


def _over(path: str, shown: str, rule: str, name: str, resources: Object, problems: Problems) -> None:
    message = text("validation", rule, resource=name, limit=resources["limits"][name])
    problems.invalid(path, shown, message)


def _is_extended(name: str) -> bool:
    return "/" in name and not name.startswith("kubernetes.io/")


def _check_amount(name: str, amount: Decimal, path: str, problems: Problems) -> None:
    at = f"{path}[{name}]"
    broken = names.qualified_name(name)
    problems.invalids(at, name, broken)
    if not broken and name not in _STANDARD and "/" not in name and not name.startswith(_HUGE_PAGES):
        problems.invalid(at, name, text("validation", "resource_name"))
    if amount < 0:
        problems.invalid(at, quantity.canonical(str(amount)), text("validation", "not_negative"))
    elif _is_extended(name) and amount != amount.to_integral_value():
        problems.invalid(at, quantity.canonical(str(amount)), text("validation", "resource_integer"))
