"""fieldValidation: what becomes of unknown and duplicate fields, worded as kube-apiserver words it."""

import json
from typing import Any

from kube32.api import schemas
from kube32.api.status import Cause, bad_request, invalid
from kube32.contract import Resource

_MODES = ("", "Ignore", "Strict", "Warn")


def check_fields(
    resource: Resource | str,
    obj: dict[str, Any],
    mode: str,
    raw: bytes | None = None,
) -> list[str]:
    """Decodes a body in place against its schema and drops unknown fields.

    `resource` is the kind, or the name of a body's kind ("Binding"); `mode` is the query parameter
    fieldValidation, "" means Warn; `raw` is the JSON text, for duplicate fields. Gives the warnings.
    ApiFailure 400 for a wrong type, and in mode Strict for unknown and duplicate fields; 422 for an unknown
    mode.
    """
    if mode not in _MODES:
        raise unknown_mode(mode)
    name = resource if isinstance(resource, str) else resource.kind
    version = "v1" if isinstance(resource, str) else resource.version
    try:
        unknown = schemas.decode(resource, obj)
    except schemas.FieldTypeError as e:
        raise refused(name, version, str(e)) from None
    if mode == "Ignore":
        return []
    found = [f'unknown field "{path}"' for path in unknown]
    if raw is not None:
        found += [f'duplicate field "{path}"' for path in duplicates(raw)]
    if found and mode == "Strict":
        raise refused(name, version, f"strict decoding error: {', '.join(found)}")
    return found


def refused(kind: str, version: str, why: str) -> Exception:
    """400 of a body that cannot be read as its kind."""
    return bad_request(f'{kind} in version "{version}" cannot be handled as a {kind}: {why}')


def unknown_mode(mode: str) -> Exception:
    """422 of a fieldValidation that is none."""
    supported = ", ".join(f'"{m}"' for m in _MODES[1:])
    message = f"Unsupported value: {json.dumps(mode)}: supported values: {supported}"
    return invalid("PatchOptions", "", [Cause("fieldValidation", "FieldValueNotSupported", message)])


class _Pairs(dict[str, Any]):
    """An object that remembers which keys stood twice."""

    __slots__ = ("twice",)

    def __init__(self, pairs: list[tuple[str, Any]]) -> None:
        super().__init__(pairs)
        self.twice: list[str] = []
        if len(self) != len(pairs):
            seen: set[str] = set()
            for key, _ in pairs:
                if key in seen:
                    self.twice.append(key)
                seen.add(key)


def duplicates(raw: bytes) -> list[str]:
    """Paths of the fields that stand twice in a JSON text that has been parsed before."""
    found: list[str] = []
    try:
        _collect(json.loads(raw, object_pairs_hook=_Pairs), "", found)
    except (ValueError, RecursionError):
        return []
    return found


def _collect(value: Any, path: str, found: list[str]) -> None:
    if isinstance(value, _Pairs):
        found += [f"{path}.{key}" if path else key for key in value.twice]
        for key, item in value.items():
            _collect(item, f"{path}.{key}" if path else key, found)
    elif isinstance(value, list):
        for index, item in enumerate(value):
            _collect(item, f"{path}[{index}]", found)
