"""The query's options of a write: who the field manager is, and whether an apply takes what is others'."""

from functools import lru_cache
from typing import TYPE_CHECKING

from kube32.api.status import ApiFailure, Cause
from kube32.contract import LIMITS

if TYPE_CHECKING:
    from kube32.api.crud import Call

_KINDS = {"create": "CreateOptions", "update": "UpdateOptions", "patch": "PatchOptions"}
_GROUP = "meta.k8s.io"
_BOOLEANS = {"true": True, "1": True, "t": True, "false": False, "0": False, "f": False, "": False}
_REMEMBERED = 256


def manager_of(call: "Call") -> str:
    """The field manager of a write that is no apply: fieldManager, else the User-Agent up to its first "/".

    ApiFailure 422.
    """
    request = call.request
    if request.query_string:
        named = request.q("fieldManager")
        causes = _manager_causes(named)
        if call.info.verb == "patch" and "force" in request.query:
            causes.insert(0, _forbidden_force())
        if causes:
            raise refused(call, causes)
        if named:
            return named
    return _of_user_agent(request.headers.get("User-Agent") or "") or "unknown"


def applier_of(call: "Call") -> tuple[str, bool]:
    """The field manager of an apply, which must be named, and force. ApiFailure 422."""
    manager, force = call.request.q("fieldManager"), call.request.q("force").lower()
    causes = _manager_causes(manager)
    if not manager:
        causes.append(
            Cause("fieldManager", "FieldValueRequired", "Required value: is required for apply patch")
        )
    if force not in _BOOLEANS:
        causes.append(
            Cause("force", "FieldValueInvalid", f'Invalid value: "{force[:64]}": must be true or false')
        )
    if causes:
        raise refused(call, causes)
    return manager, _BOOLEANS[force]


def _forbidden_force() -> Cause:
    return Cause("force", "FieldValueForbidden", "Forbidden: may not be specified for non-apply patch")


def _manager_causes(manager: str) -> list[Cause]:
    limit = LIMITS.field_manager_bytes
    causes = []
    if len(manager.encode("utf-8", "surrogatepass")) > limit:
        causes.append(
            Cause("fieldManager", "FieldValueTooLong", f"Too long: may not be more than {limit} bytes")
        )
    if not manager.isprintable():
        causes.append(
            Cause(
                "fieldManager",
                "FieldValueInvalid",
                f"Invalid value: {_quoted(manager)}: should only contain printable characters",
            )
        )
    return causes


def _quoted(text: str) -> str:
    return '"' + "".join(c if c.isprintable() else f"\\u{ord(c):04x}" for c in text) + '"'


def refused(call: "Call", causes: list[Cause]) -> ApiFailure:
    """422 about the options of a write."""
    kind = _KINDS.get(call.info.verb, "PatchOptions")
    said = [f"{cause.field}: {cause.message}" for cause in causes]
    shown = said[0] if len(said) == 1 else f"[{', '.join(said)}]"
    details = {
        "group": _GROUP,
        "kind": kind,
        "causes": [{"reason": c.type, "message": c.message, "field": c.field} for c in causes],
    }
    return ApiFailure(422, f'{kind}.{_GROUP} "" is invalid: {shown}', details=details)


@lru_cache(_REMEMBERED)
def _of_user_agent(agent: str) -> str:
    first = "".join(c for c in agent.partition("/")[0] if c.isprintable())
    return first.encode("utf-8", "ignore")[: LIMITS.field_manager_bytes].decode("utf-8", "ignore")
