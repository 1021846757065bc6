"""CustomResourceDefinitions on their way in: decoding, defaults, and what kube-apiserver refuses in them."""

import re
from typing import Any

from kube32.api import schemas
from kube32.api.admission import names as naming
from kube32.api.admission.fields import refused
from kube32.api.admission.problems import Problems
from kube32.api.catalog import Catalog
from kube32.api.custom.regex import TooMuchWork
from kube32.api.custom.structural import rules_in, said
from kube32.api.custom.versions import check_version
from kube32.api.status import invalid
from kube32.contract import LIMITS, Resource

Object = dict[str, Any]
KIND = "CustomResourceDefinition"
APPROVAL = "api-approved.kubernetes.io"
_DNS1035 = re.compile(r"[a-z]([-a-z0-9]*[a-z0-9])?")
_SCHEMA = "JSONSchemaProps"
_PROTECTED = (".k8s.io", ".kubernetes.io")


def check_fields(obj: Object, mode: str) -> list[str]:
    """Decodes the schemas, in place; the warnings about unknown fields. ApiFailure 400."""
    unknown = [f'unknown field "{path}"' for path in decode(obj)]
    if unknown and mode == "Strict":
        raise refused(KIND, "v1", f"strict decoding error: {', '.join(unknown)}")
    return [] if mode == "Ignore" else unknown


def decode(obj: Object) -> list[str]:
    """Decodes the schemas that the kind's own schema leaves open (items, additionalProperties), in place; gives the
    paths of unknown fields. ApiFailure 400 for a wrong type.
    """
    unknown: list[str] = []
    try:
        for index, version in enumerate((obj.get("spec") or {}).get("versions") or ()):
            schema = (version.get("schema") or {}).get("openAPIV3Schema")
            if schema is not None:
                _decode(schema, f"spec.versions[{index}].schema.openAPIV3Schema", unknown)
    except schemas.FieldTypeError as error:
        raise refused(KIND, "v1", str(error)) from None
    return unknown


def _decode(schema: Object, path: str, unknown: list[str]) -> None:
    todo = [(schema, path)]
    while todo:
        found, at = todo.pop()
        for word in ("items", "additionalProperties"):
            inner = found.get(word)
            if isinstance(inner, dict):
                unknown += [f"{at}.{word}.{field}" for field in schemas.decode(_SCHEMA, inner)]
                todo.append((inner, f"{at}.{word}"))
            elif inner is not None and not isinstance(inner, bool if word != "items" else list):
                said_type = "JSONSchemaPropsOrArray" if word == "items" else "JSONSchemaPropsOrBool"
                raise schemas.FieldTypeError(
                    f"json: cannot unmarshal into {at}.{word} of type v1.{said_type}"
                )
        for word in ("properties", "patternProperties", "definitions"):
            todo += [(s, f"{at}.{word}[{name}]") for name, s in (found.get(word) or {}).items()]
        for word in ("allOf", "anyOf", "oneOf"):
            todo += [(s, f"{at}.{word}[{index}]") for index, s in enumerate(found.get(word) or ())]
        if isinstance(found.get("not"), dict):
            todo.append((found["not"], f"{at}.not"))


def default(obj: Object) -> None:
    """Fills in the names, the conversion and the stored versions."""
    spec: Object = obj.setdefault("spec", {})
    names: Object = spec.setdefault("names", {})
    kind = names.get("kind") or ""
    if kind:
        if not names.get("singular"):
            names["singular"] = kind.lower()
        if not names.get("listKind"):
            names["listKind"] = f"{kind}List"
    spec.setdefault("conversion", {"strategy": "None"})
    if spec.get("preserveUnknownFields") is False:
        del spec["preserveUnknownFields"]
    status: Object = obj.setdefault("status", {})
    stored = status.setdefault("storedVersions", [])
    for version in spec.get("versions") or ():
        if version.get("storage") and version.get("name") not in stored:
            stored.append(version.get("name"))


def warnings(obj: Object) -> list[str]:
    """What is accepted and not carried out."""
    return [
        said("rules_unevaluated", path=path)
        for index, version in enumerate(obj["spec"]["versions"])
        for path in rules_in(
            (version.get("schema") or {}).get("openAPIV3Schema") or {},
            f"spec.versions[{index}].schema.openAPIV3Schema",
        )
    ]


def validate(resource: Resource, catalog: Catalog, old: Object | None, new: Object) -> None:
    """Refuses a definition that cannot be; ApiFailure 422 names every fault."""
    problems = Problems()
    spec = new.get("spec") or {}
    _check_group(new, spec.get("group") or "", catalog, problems)
    _check_names(spec.get("names") or {}, "spec.names", problems)
    name, names = new["metadata"].get("name", ""), spec.get("names") or {}
    if name != f"{names.get('plural')}.{spec.get('group')}":
        problems.invalid("metadata.name", name, said("name"))
    if spec.get("preserveUnknownFields"):
        problems.invalid("spec.preserveUnknownFields", True, said("preserve_false"))
    _check_conversion(spec.get("conversion") or {}, problems)
    _check_versions(spec.get("versions") or [], problems)
    _check_stored(spec.get("versions") or [], new.get("status") or {}, problems)
    if old is not None:
        _check_update(old["spec"], spec, problems)
    failure = problems.failure(resource, name)
    if failure is not None:
        raise failure
    try:
        for index, version in enumerate(spec["versions"]):
            check_version(version, f"spec.versions[{index}]", problems)
    except TooMuchWork:
        steps = LIMITS.custom_validation_steps
        problems.forbidden("spec.versions", said("validation_steps", limit=steps))
    if problems.causes:
        raise invalid(resource, name, problems.causes)


def _check_group(obj: Object, group: str, catalog: Catalog, problems: Problems) -> None:
    if not group:
        return
    broken = naming.subdomain(group)
    problems.invalids("spec.group", group, broken)
    if not broken and "." not in group:
        problems.invalid("spec.group", group, said("group_dot"))
    if catalog.is_built_in(group):
        problems.invalid("spec.group", group, said("group_own"))
    elif is_protected(group) and not (obj["metadata"].get("annotations") or {}).get(APPROVAL):
        problems.required(f"metadata.annotations[{APPROVAL}]", said("protected"))


def is_protected(group: str) -> bool:
    """Whether a group is one of the Kubernetes project's own."""
    return group.endswith(_PROTECTED) or group in ("k8s.io", "kubernetes.io")


def _check_names(names: Object, path: str, problems: Problems) -> None:
    for field in ("plural", "singular"):
        if names.get(field):
            problems.invalids(f"{path}.{field}", names[field], dns1035(names[field]))
    for field in ("kind", "listKind"):
        if names.get(field):
            broken = [said("mixed_case", rule=rule) for rule in dns1035(names[field].lower())]
            problems.invalids(f"{path}.{field}", names[field], broken)
    for field in ("shortNames", "categories"):
        for index, name in enumerate(names.get(field) or ()):
            problems.invalids(f"{path}.{field}[{index}]", name, dns1035(name))
    if names.get("kind") and names.get("kind") == names.get("listKind"):
        problems.invalid(f"{path}.listKind", names["listKind"], said("kinds_same"))


def dns1035(value: str) -> list[str]:
    """The broken rules of a DNS-1035 label."""
    broken = (
        [] if len(value) <= naming.LABEL_BYTES else [f"must be no more than {naming.LABEL_BYTES} characters"]
    )
    if broken or not _DNS1035.fullmatch(value):
        broken.append(said("dns1035"))
    return broken


def _check_conversion(conversion: Object, problems: Problems) -> None:
    strategy = conversion.get("strategy")
    if strategy == "Webhook":
        problems.invalid("spec.conversion.strategy", strategy, said("webhook"))
    elif strategy and strategy != "None":
        problems.unsupported("spec.conversion.strategy", strategy, ("None", "Webhook"))
    elif conversion.get("webhook"):
        problems.forbidden("spec.conversion.webhook", said("strategy_none_webhook"))


def _check_versions(versions: list[Object], problems: Problems) -> None:
    found = [version.get("name") or "" for version in versions]
    for index, name in enumerate(found):
        problems.invalids(f"spec.versions[{index}].name", name, dns1035(name))
        if (versions[index].get("schema") or {}).get("openAPIV3Schema") is None:
            problems.required(f"spec.versions[{index}].schema.openAPIV3Schema", said("schemas_required"))
    if len(set(found)) < len(found):
        problems.invalid("spec.versions", found, said("versions_unique"))
    if sum(bool(version.get("storage")) for version in versions) != 1:
        problems.invalid("spec.versions", found, said("one_storage"))


def _check_stored(versions: list[Object], status: Object, problems: Problems) -> None:
    known = {version.get("name"): bool(version.get("storage")) for version in versions}
    stored = status.get("storedVersions") or []
    for index, name in enumerate(stored):
        if name not in known:
            problems.invalid(f"status.storedVersions[{index}]", name, said("stored_gone", version=name))
    for name, is_storage in known.items():
        if is_storage and name not in stored:
            problems.invalid("status.storedVersions", stored, said("stored_lacks", version=name))


def _check_update(old: Object, new: Object, problems: Problems) -> None:
    """Group, scope and plural are part of every key; the kind of a kind that is served stays, too."""
    fixed = (("group", old["group"], new.get("group")), ("scope", old["scope"], new.get("scope")))
    kinds = (("names.kind", "kind"), ("names.plural", "plural"))
    named = tuple((path, old["names"].get(f), (new.get("names") or {}).get(f)) for path, f in kinds)
    for path, before, after in fixed + named:
        if before != after:
            problems.invalid(f"spec.{path}", after, "field is immutable")
