"""DeleteOptions: from the body, or from the query where there is no body; worded as Kubernetes words them."""

from dataclasses import dataclass
from typing import Any

from kube32.api import admission, bodies, crud
from kube32.api.http import Request
from kube32.api.status import Cause, bad_request, invalid

BACKGROUND, FOREGROUND, ORPHAN = "Background", "Foreground", "Orphan"
_POLICIES = (FOREGROUND, BACKGROUND, ORPHAN)
_KIND = "DeleteOptions.meta.k8s.io"
_BOTH = 'Invalid value: "{policy}": orphanDependents and deletionPropagation cannot be both set'


@dataclass(slots=True)
class Options:
    """How to delete. `grace_s` None: the object's own. `propagation` "": as the object's finalizers say.

    `accepted`: the answer for an object that has to wait is 202 (orphanDependents=false, as kube-apiserver).
    """

    grace_s: int | None = None
    uid: str = ""
    resource_version: str = ""
    dry_run: bool = False
    propagation: str = ""
    accepted: bool = False


async def read(call: crud.Call) -> Options:
    """The options of a deletion; ApiFailure 400, 413, 415, 422."""
    data = await call.body()
    body = _body(call.request, data) if data.strip() else _from_query(call.request)
    admission.check_fields("DeleteOptions", body, "Ignore")
    policy, orphan = body.get("propagationPolicy"), body.get("orphanDependents")
    _check_policy(policy, orphan)
    if policy is None and orphan is not None:
        policy = ORPHAN if orphan else BACKGROUND
    preconditions = body.get("preconditions") or {}
    grace = body.get("gracePeriodSeconds")
    return Options(
        None if grace is None else grace if grace >= 0 else 1,
        preconditions.get("uid") or "",
        preconditions.get("resourceVersion") or "",
        crud.dry_run_of([*(body.get("dryRun") or ()), *call.request.query.get("dryRun", ())]),
        policy or "",
        orphan is False,
    )


def _check_policy(policy: str | None, orphan: bool | None) -> None:
    causes = []
    if policy is not None and orphan is not None:
        causes.append(Cause("propagationPolicy", "FieldValueInvalid", _BOTH.format(policy=policy)))
    if policy is not None and policy not in _POLICIES:
        supported = ", ".join(f'"{p}"' for p in (*_POLICIES, "nil"))
        message = f'Unsupported value: "{policy}": supported values: {supported}'
        causes.append(Cause("propagationPolicy", "FieldValueNotSupported", message))
    if causes:
        raise invalid(_KIND, "", causes)


def _body(request: Request, data: bytes) -> dict[str, Any]:
    try:
        value = bodies.parse(data, bodies.media_type(request))
    except ValueError as error:
        raise bad_request(f"couldn't get version/kind; json parse error: {error}") from None
    if not isinstance(value, dict):
        raise bad_request(f"json: cannot unmarshal {bodies.type_name(value)} into DeleteOptions")
    if value.get("kind") not in (None, "", "DeleteOptions"):
        raise bad_request(f"decoded object cannot be converted to DeleteOptions: it is a {value['kind']}")
    return value


def _from_query(request: Request) -> dict[str, Any]:
    body: dict[str, Any] = {}
    grace = request.q("gracePeriodSeconds")
    if grace:
        if not grace.removeprefix("-").isdigit() or not grace.isascii() or len(grace) > 12:
            raise bad_request(f'invalid gracePeriodSeconds "{grace}": it is not a number of seconds')
        body["gracePeriodSeconds"] = int(grace)
    if policy := request.q("propagationPolicy"):
        body["propagationPolicy"] = policy
    if request.q("orphanDependents"):
        body["orphanDependents"] = request.flag("orphanDependents")
    return body
