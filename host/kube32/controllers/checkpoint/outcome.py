"""What becomes of a replacement: it runs, fails to restore, fails, goes away, or does nothing in time."""

import asyncio
from dataclasses import dataclass

from kube32.client.informer import Informer, key_of, version_of
from kube32.contract import text
from kube32.controllers.objects import Obj, containers, node_of, status_of, uid_of


@dataclass(frozen=True, slots=True)
class Outcome:
    """`kind` is running, restore, failed, deleted, replaced or timeout; `cause` is for people."""

    kind: str
    cause: str = ""


def restore_error(pod: Obj) -> str | None:
    """The message of a restore that failed, None when none did."""
    for status in status_of(pod).get("containerStatuses") or []:
        terminated = (status.get("state") or {}).get("terminated") or {}
        if terminated.get("reason") == text("reasons", "restore_error"):
            return str(terminated.get("message") or terminated["reason"])
    return None


def is_running(pod: Obj) -> bool:
    """Whether the pod is Running and each of its containers runs."""
    status = status_of(pod)
    running = [s for s in status.get("containerStatuses") or [] if (s.get("state") or {}).get("running")]
    return status.get("phase") == "Running" and len(running) >= len(containers(pod))


def has_restarted(pod: Obj) -> bool:
    """Whether a container ended and was started again: afresh, since a restore is for its first run alone."""
    return any(s.get("restartCount") for s in status_of(pod).get("containerStatuses") or [])


def has_arrived(pod: Obj) -> bool:
    """Whether a replacement runs with the state that it was to restore."""
    return is_running(pod) and not has_restarted(pod)


def outcome_of(pod: Obj) -> Outcome | None:
    """What the pod's status says, None while it may still turn out either way."""
    cause = restore_error(pod)
    if cause is not None:
        return Outcome("restore", cause)
    phase = status_of(pod).get("phase")
    if phase in ("Failed", "Succeeded"):
        status = status_of(pod)
        return Outcome("failed", str(status.get("message") or status.get("reason") or f"phase {phase}"))
    if has_restarted(pod):
        return Outcome("failed", text("failures", "restarted"))
    return Outcome("running") if is_running(pod) else None


def failure_text(outcome: Outcome, pod: Obj, timeout_ms: int) -> str:
    """The sentence for status.message of an outcome other than running."""
    name, node = pod["metadata"]["name"], node_of(pod)
    match outcome.kind:
        case "restore":
            return text("failures", "restore", node=node, cause=outcome.cause)
        case "failed":
            return text("failures", "replaced_failed", node=node, cause=outcome.cause)
        case "timeout":
            return text("failures", "timeout", node=node, seconds=f"{timeout_ms / 1000:g}")
        case "deleted":
            return text("failures", "pod_deleted", pod=name)
    return text("failures", "pod_replaced", pod=name)


async def wait_for(pods: Informer, replacement: Obj, timeout_ms: int) -> Outcome:
    """Follows the replacement, an object as the API answered it, for `timeout_ms` at most."""
    key, uid, since = key_of(replacement), uid_of(replacement), version_of(replacement)
    found: asyncio.Future[Outcome] = asyncio.get_running_loop().create_future()

    def look(kind: str, pod: Obj, old: Obj | None) -> None:
        if key_of(pod) != key or found.done() or version_of(pod) < since:
            return
        if uid_of(pod) != uid:
            found.set_result(Outcome("replaced"))
        elif kind == "DELETED":
            found.set_result(Outcome("deleted"))
        elif (outcome := outcome_of(pod)) is not None:
            found.set_result(outcome)

    end = pods.subscribe(look, replay=False)
    try:
        known = pods.get(*key)
        if known is not None:
            look("MODIFIED", known, None)
        async with asyncio.timeout(timeout_ms / 1000):
            return await found
    except TimeoutError:
        return Outcome("timeout")
    finally:
        end()
