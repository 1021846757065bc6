"""Request bodies: JSON, YAML and protobuf to objects. Bodies are hostile; refusals have Kubernetes' words."""

import re
from typing import Any, cast

import orjson
import yaml

from kube32.api import protobuf
from kube32.api.http import Request
from kube32.api.status import ApiFailure, bad_request, unsupported_media
from kube32.contract import LIMITS, RESOURCES, Resource

Object = dict[str, Any]
JSON = "application/json"
_SUMMARY_BYTES = 30
_YAML_TYPES = ("application/yaml", "text/yaml", "application/x-yaml", "text/x-yaml")
_KINDS = {r.kind: r for r in RESOURCES}
_NAMES = {dict: "object", list: "array", str: "string", bool: "bool", int: "number", float: "number"}
_STRINGS = (
    "name",
    "namespace",
    "generateName",
    "uid",
    "resourceVersion",
    "creationTimestamp",
    "deletionTimestamp",
)


def media_type(request: Request) -> str:
    """The body's media type without parameters, in lower case; JSON when none is given."""
    value = request.headers.get("Content-Type")
    return value.partition(";")[0].strip().lower() if value else JSON


def parse(data: bytes, media: str) -> Any:
    """A body's value. ValueError says what is wrong with it; ApiFailure 415 when the format is not read."""
    if media == JSON:
        return _parse_json(data)
    if media in _YAML_TYPES:
        return _parse_yaml(data)
    if media == protobuf.MEDIA_TYPE:
        try:
            return protobuf.decode(data)
        except protobuf.UnknownKind as error:
            raise unsupported_media(str(error)) from None
    raise unsupported_media()


def _parse_json(data: bytes) -> Any:
    try:
        return orjson.loads(data)
    except orjson.JSONDecodeError as error:
        if not data.strip() or error.msg.startswith("unexpected end"):
            raise ValueError("unexpected end of JSON input") from None
        raise ValueError(str(error)) from None


def _without_colons(pattern: re.Pattern[str]) -> re.Pattern[str]:
    return re.compile(f"(?![^:]*:)(?:{pattern.pattern})", pattern.flags)


class _Loader(yaml.CSafeLoader):
    """YAML as Kubernetes reads it: dates stay text, and so do numbers to the base 60 (12:30)."""

    yaml_implicit_resolvers = {  # noqa: RUF012 - the class attribute that PyYAML reads
        first: [
            (tag, _without_colons(pattern) if tag.endswith((":int", ":float")) else pattern)
            for tag, pattern in rules
            if not tag.endswith(":timestamp")
        ]
        for first, rules in yaml.CSafeLoader.yaml_implicit_resolvers.items()
    }


def _parse_yaml(data: bytes) -> Any:
    """Aliases are refused: a small body could multiply itself with them."""
    if len(data) > LIMITS.api_yaml_bytes:
        raise ValueError(f"yaml: {len(data)} bytes, at most {LIMITS.api_yaml_bytes} are read; send JSON")
    try:
        source = data.decode("utf-8")
        if "*" in source and any(
            isinstance(e, yaml.AliasEvent) for e in yaml.parse(source, yaml.CSafeLoader)
        ):
            raise ValueError("yaml: aliases are not read")
        value = yaml.load(source, _Loader)
        return orjson.loads(orjson.dumps(value, option=orjson.OPT_NON_STR_KEYS))
    except (yaml.YAMLError, UnicodeDecodeError, TypeError, RecursionError, OverflowError) as error:
        raise ValueError(f"yaml: {' '.join(str(error).split())}") from None


def decode(data: bytes, media: str, resource: Resource, kind: str = "", api_version: str = "") -> Object:
    """A body as an object of `resource`, or of `kind` (Binding, DeleteOptions); what is missing is filled in.

    ApiFailure 400 for what is no such object, 415 for a format that is not read.
    """
    kind, api_version = kind or resource.kind, api_version or resource.api_version
    try:
        value = parse(data, media)
    except ValueError as error:
        raise _unrecognized(kind, f"couldn't get version/kind; json parse error: {error}", data) from None
    if not isinstance(value, dict):
        what = f"json: cannot unmarshal {type_name(value)} into an object"
        raise _unrecognized(kind, f"couldn't get version/kind; json parse error: {what}", data)
    obj = cast(Object, value)
    found, version = obj.get("kind"), obj.get("apiVersion")
    for value, field in ((found, "kind"), (version, "apiVersion")):
        if value is not None and not isinstance(value, str):
            what = f"json: cannot unmarshal {type_name(value)} into field .{field} of type string"
            raise _unrecognized(kind, f"couldn't get version/kind; json parse error: {what}", data)
    if found and found != kind:
        raise _other_kind(found, version or api_version, kind)
    if version and version != api_version:
        raise bad_request(
            f"the API version in the data ({version}) does not match the expected API version ({api_version})"
        )
    obj["kind"], obj["apiVersion"] = kind, api_version
    check_metadata(obj)
    return obj


def _other_kind(found: str, version: str, kind: str) -> ApiFailure:
    known = _KINDS.get(found)
    if known is not None and known.api_version == version:
        why = f"converting (v1.{found}) to (core.{kind}): unknown conversion"
    else:
        why = f'no kind "{found}" is registered for version "{version}"'
    return bad_request(f'{found} in version "{version}" cannot be handled as a {kind}: {why}')


def _unrecognized(kind: str, why: str, data: bytes) -> ApiFailure:
    """400 with the beginning of the body, as kube-apiserver shows it."""
    return bad_request(
        f"the object provided is unrecognized (must be of type {kind}): {why} ({_summary(data)})"
    )


def _summary(data: bytes) -> str:
    if not data:
        return "<empty>"
    more = " ..." if len(data) > _SUMMARY_BYTES else ""
    begin = data[:_SUMMARY_BYTES]
    return (begin.decode("utf-8", "replace") if data[:1] == b"{" else begin.hex()) + more


def type_name(value: object) -> str:
    """The JSON type of a value in kube-apiserver's words."""
    return _NAMES.get(type(value), "null")


def check_metadata(obj: Object) -> None:
    """ApiFailure 400 unless metadata has the types that the verbs rely on."""
    metadata = obj.get("metadata")
    if metadata is None:
        obj["metadata"] = {}
        return
    if not isinstance(metadata, dict):
        raise _wrong_type(obj, "metadata", metadata, "v1.ObjectMeta")
    for field in _STRINGS:
        _expect(obj, metadata, field, str, "string")
    for field in ("labels", "annotations"):
        _expect(obj, metadata, field, dict, "map[string]string")
        for key, value in (metadata.get(field) or {}).items():
            if not isinstance(value, str):
                raise _wrong_type(obj, f"metadata.{field}.{key}", value, "string")
    _expect(obj, metadata, "finalizers", list, "[]string")
    for value in metadata.get("finalizers") or ():
        if not isinstance(value, str):
            raise _wrong_type(obj, "metadata.finalizers", value, "string")
    for field in ("generation", "deletionGracePeriodSeconds"):
        _expect(obj, metadata, field, int, "int64")


def _expect(obj: Object, metadata: Object, field: str, kind: type, said: str) -> None:
    value = metadata.get(field)
    if value is not None and (not isinstance(value, kind) or isinstance(value, bool)):
        raise _wrong_type(obj, f"metadata.{field}", value, said)


def _wrong_type(obj: Object, field: str, value: object, wanted: str) -> ApiFailure:
    return bad_request(
        f'{obj["kind"]} in version "{obj["apiVersion"].rpartition("/")[2]}" cannot be handled as a '
        f"{obj['kind']}: json: cannot unmarshal {type_name(value)} into Go struct field "
        f"ObjectMeta.{field} of type {wanted}"
    )
