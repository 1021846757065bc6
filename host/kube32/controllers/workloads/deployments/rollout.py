"""How large each revision of a Deployment is to be: Kubernetes' rules for rolling updates and scaling. Pure.

Sizes are changed in place; the pods follow them.
"""

from collections.abc import Mapping

from kube32.controllers.objects import Obj, spec_of
from kube32.controllers.workloads.deployments.history import Revision
from kube32.controllers.workloads.shares import resolve

_DEFAULT = "25%"


def replicas_of(deployment: Obj) -> int:
    """How many pods it wants."""
    found = spec_of(deployment).get("replicas")
    return 1 if found is None else int(found)


def is_rolling(deployment: Obj) -> bool:
    """Whether pods are replaced some at a time."""
    return bool((spec_of(deployment).get("strategy") or {}).get("type") != "Recreate")


def bounds(deployment: Obj) -> tuple[int, int]:
    """(maxSurge, maxUnavailable) as numbers: surge rounds up, unavailable down; both 0 makes one unavailable."""
    replicas = replicas_of(deployment)
    if not is_rolling(deployment) or not replicas:
        return 0, 0
    rolling = (spec_of(deployment).get("strategy") or {}).get("rollingUpdate") or {}
    surge = resolve(rolling.get("maxSurge", _DEFAULT), replicas, up=True)
    unavailable = resolve(rolling.get("maxUnavailable", _DEFAULT), replicas, up=False)
    if surge == 0 and unavailable == 0:
        unavailable = 1
    return surge, min(unavailable, replicas)


def _size(deployment: Obj, revision: Revision, size: int) -> None:
    revision.replicas = max(size, 0)
    mark(deployment, revision)


def mark(deployment: Obj, revision: Revision) -> None:
    """Notes for which number of replicas the revision was sized, so that a later scaling is recognised."""
    revision.desired = replicas_of(deployment)
    revision.most = revision.desired + bounds(deployment)[0]


def was_scaled(deployment: Obj, revisions: list[Revision]) -> bool:
    """Whether the Deployment's replicas have changed since its revisions were sized."""
    return any(r.replicas and r.desired != replicas_of(deployment) for r in revisions)


# --- scaling, while a rollout is under way or paused too ---


def scale(
    deployment: Obj, current: Revision | None, old: list[Revision], available: Mapping[str, int]
) -> None:
    """Changes the whole to the Deployment's replicas, whatever its rollout has come to."""
    replicas = replicas_of(deployment)
    active = [r for r in [*old, *([current] if current else [])] if r.replicas]
    if len(active) <= 1:
        newest = current or max(old, key=lambda r: r.age, default=None)
        only = active[0] if active else newest
        if only is not None:
            _size(deployment, only, replicas)
        return
    if current is not None and current.replicas == replicas == available.get(current.hash, 0):
        for revision in old:
            _size(deployment, revision, 0)
        mark(deployment, current)
        return
    if is_rolling(deployment):
        _scale_in_proportion(deployment, active)
    else:
        for revision in active:
            mark(deployment, revision)


def _scale_in_proportion(deployment: Obj, active: list[Revision]) -> None:
    replicas = replicas_of(deployment)
    allowed = replicas + bounds(deployment)[0] if replicas else 0
    missing = allowed - sum(r.replicas for r in active)
    # What is added goes to the largest and newest first, what is taken comes from the largest and oldest.
    active = sorted(active, key=lambda r: r.age, reverse=missing > 0)
    active.sort(key=lambda r: r.replicas, reverse=True)
    sizes, moved = [], 0
    for revision in active:
        share = _share(revision, allowed, missing, moved) if missing else 0
        sizes.append(revision.replicas + share)
        moved += share
    if sizes:
        sizes[0] += missing - moved
    for revision, size in zip(active, sizes, strict=True):
        _size(deployment, revision, size)


def _share(revision: Revision, allowed: int, missing: int, moved: int) -> int:
    left = missing - moved
    if not left:
        return 0
    base = revision.most or allowed
    fraction = (round(revision.replicas * allowed / base) if base else 0) - revision.replicas
    return min(fraction, left) if missing > 0 else max(fraction, left)


# --- rollouts ---


def roll(deployment: Obj, current: Revision, old: list[Revision], available: Mapping[str, int]) -> None:
    """A step of a RollingUpdate: first the new revision grows, then the old ones shrink."""
    if not _grow(deployment, current, old):
        _shrink(deployment, current, old, available)


def _grow(deployment: Obj, current: Revision, old: list[Revision]) -> bool:
    replicas = replicas_of(deployment)
    if current.replicas > replicas:
        _size(deployment, current, replicas)
        return True
    total = current.replicas + sum(r.replicas for r in old)
    room = replicas + bounds(deployment)[0] - total
    more = min(room, replicas - current.replicas)
    if more <= 0:
        return False
    _size(deployment, current, current.replicas + more)
    return True


def _shrink(deployment: Obj, current: Revision, old: list[Revision], available: Mapping[str, int]) -> None:
    replicas = replicas_of(deployment)
    least = replicas - bounds(deployment)[1]
    total = current.replicas + sum(r.replicas for r in old)
    new_unavailable = max(current.replicas - available.get(current.hash, 0), 0)
    may_go = total - least - new_unavailable
    if may_go <= 0:
        return
    # Old pods that serve nobody go first; then as many that do as the rest can spare.
    oldest_first = sorted(old, key=lambda r: r.age)
    for revision in oldest_first:
        broken = min(max(revision.replicas - available.get(revision.hash, 0), 0), may_go)
        if broken:
            _size(deployment, revision, revision.replicas - broken)
            may_go -= broken
    spare = sum(available.get(r.hash, 0) for r in [current, *old]) - least
    for revision in oldest_first:
        rest = min(revision.replicas, spare)
        if rest > 0:
            _size(deployment, revision, revision.replicas - rest)
            spare -= rest


def recreate(deployment: Obj, current: Revision | None, old: list[Revision], *, old_pods: bool) -> bool:
    """A step of Recreate; whether the new revision may begin: all that is old is gone (`old_pods`: not yet)."""
    shrinks = any(r.replicas for r in old)
    for revision in old:
        if revision.replicas:
            _size(deployment, revision, 0)
    if shrinks or old_pods:
        return False
    if current is not None:
        _size(deployment, current, replicas_of(deployment))
    return True
