"""The body of an apply patch: YAML or JSON, checked as Kubernetes checks it before it is applied."""

from typing import TYPE_CHECKING, Any

import orjson
import yaml

from kube32.api import bodies
from kube32.api.admission.fields import duplicates
from kube32.api.apply import typed
from kube32.api.apply.nodes import Node
from kube32.api.status import ApiFailure, bad_request, too_large
from kube32.store import TooLarge

if TYPE_CHECKING:
    from kube32.api.crud import Call

Object = dict[str, Any]
_YAML = "application/yaml"


def read(call: "Call", data: bytes, kind: str, api_version: str) -> Object:
    """The applied object: of this kind and version, without managedFields. ApiFailure 400, 422."""
    is_json = data.lstrip()[:1] == b"{" and _is_json(data)
    value = _parse(data, bodies.JSON if is_json else _YAML)
    _check_kind(value, kind, api_version)
    bodies.check_metadata(value)
    if value["metadata"].get("managedFields") is not None:
        raise bad_request("metadata.managedFields must be nil")
    _check_size(call, value)
    _check_twice(call, data, is_json)
    return value


def _is_json(data: bytes) -> bool:
    """Whether the body is JSON: then it is read as such, since clients send it and YAML takes longer."""
    try:
        orjson.loads(data)
    except orjson.JSONDecodeError:
        return False
    return True


def _parse(data: bytes, media: str) -> Object:
    try:
        value = bodies.parse(data, media)
    except ValueError as error:
        raise bad_request(f"error decoding YAML: {error}") from None
    if not isinstance(value, dict):
        what = "nil" if value is None else bodies.type_name(value)
        raise bad_request(
            "error decoding YAML: error unmarshaling JSON: while decoding JSON: json: "
            f"cannot unmarshal {what} into Go value of type map[string]interface {{}}"
        )
    return value


def _check_kind(value: Object, kind: str, api_version: str) -> None:
    if value.get("kind") != kind or value.get("apiVersion") != api_version:
        group, _, version = str(value.get("apiVersion") or "").rpartition("/")
        raise bad_request(f"invalid object type: {group}/{version}, Kind={value.get('kind') or ''}")


def _check_size(call: "Call", value: Object) -> None:
    """What cannot be stored is not looked at any further: that takes time for each field."""
    size, limit = len(orjson.dumps(value)), call.limits.store_value_bytes
    if size > limit:
        said = str(TooLarge("", size, limit)).removeprefix(": ")
        raise too_large(limit, f'{call.resource.plural} "{call.info.name}" is too large: {said}')


def _check_twice(call: "Call", data: bytes, is_json: bool) -> None:
    """Keys that stand twice: refused with fieldValidation=Strict, else a warning unless it is Ignore."""
    mode = call.request.q("fieldValidation")
    if mode == "Ignore" or (is_json and not duplicates(data)):
        return
    found = _twice(data)
    if not found:
        return
    said = "error converting YAML to JSON: yaml: unmarshal errors:\n" + "\n".join(found)
    if mode == "Strict":
        raise bad_request(f"error strict decoding YAML: {said}")
    call.warnings.append(said)


def _twice(data: bytes) -> list[str]:
    found: list[str] = []
    try:
        _collect(yaml.compose(data, yaml.CSafeLoader), found)
    except (yaml.YAMLError, RecursionError):
        return found
    return found


def _collect(node: Any, found: list[str]) -> None:
    if isinstance(node, yaml.MappingNode):
        seen: set[str] = set()
        for key, value in node.value:
            name = str(key.value)
            if name in seen:
                found.append(f'  line {key.start_mark.line + 1}: key "{name}" already set in map')
            seen.add(name)
            _collect(value, found)
    elif isinstance(node, yaml.SequenceNode):
        for value in node.value:
            _collect(value, found)


def check_typed(call: "Call", config: Object, node: Node) -> None:
    """ApiFailure 400 for unknown fields and for lists whose items cannot be told apart."""
    found = typed.faults(config, node)
    if found:
        raise _untyped(call, found)


def _untyped(call: "Call", found: list[str]) -> ApiFailure:
    resource, info = call.resource, call.info
    where = f"{info.namespace}/{info.name}; {resource.group}/{resource.version}, Kind={resource.kind}"
    said = found[0] if len(found) == 1 else "\n  ".join(["errors:", *found])
    return bad_request(f"failed to create typed patch object ({where}): {said}")
