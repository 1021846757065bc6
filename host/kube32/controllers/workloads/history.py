"""The templates that a Deployment has had: its status.history, from which ReplicaSets and rollbacks come."""

import orjson

from kube32.contract import Limits
from kube32.controllers.objects import Obj, annotation, now_rfc3339, spec_of, status_of

REVISION = "deployment.kubernetes.io/revision"
_CAUSE = "kubernetes.io/change-cause"


def recorded(deployment: Obj, current: str, in_use: set[str], limits: Limits) -> list[Obj]:
    """The history with the present template as its newest; old ones go when there are too many.

    Those with pods stay. A template that comes back gets a new number, as Kubernetes does it.
    """
    rows: list[Obj] = [dict(r) for r in status_of(deployment).get("history") or []]
    newest = rows[-1] if rows else None
    if newest is None or newest.get("hash") != current:
        known = next((r for r in rows if r.get("hash") == current), None)
        rows = [r for r in rows if r is not known]
        number = max((int(r.get("revision") or 0) for r in rows), default=0)
        if known is not None:
            number = max(number, int(known.get("revision") or 0))
        made = known or {
            "hash": current,
            "template": spec_of(deployment)["template"],
            "createdAt": now_rfc3339(),
        }
        rows.append({**made, "revision": number + 1})
    cause = annotation(deployment, _CAUSE)
    if cause:
        rows[-1]["changeCause"] = cause
    return _trimmed(deployment, rows, in_use, limits)


def _trimmed(deployment: Obj, rows: list[Obj], in_use: set[str], limits: Limits) -> list[Obj]:
    keep = int(spec_of(deployment).get("revisionHistoryLimit", limits.deployment_history))
    idle = [r for r in rows[:-1] if r["hash"] not in in_use]
    drop = {r["hash"] for r in idle[: max(len(idle) - keep, 0)]}
    rows = [r for r in rows if r["hash"] not in drop]
    for row in [r for r in rows[:-1] if r["hash"] not in in_use]:
        if len(orjson.dumps(rows)) <= limits.deployment_history_bytes:
            break
        rows.remove(row)
    return rows


def template_of(rows: list[Obj], wanted: str) -> Obj | None:
    """The template with a hash."""
    return next((r["template"] for r in rows if r.get("hash") == wanted), None)
