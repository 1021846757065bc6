"""What a namespace that is being deleted still waits for, as the conditions that Kubernetes sets. Pure."""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field

from kube32.contract import Resource, text
from kube32.contract.messages import NAMESPACE_CONDITIONS
from kube32.controllers.objects import Obj, now_rfc3339


@dataclass(slots=True)
class Remaining:
    """What is left by kind, the finalizers on it, and what could not be found out or deleted."""

    resources: Counter[str] = field(default_factory=Counter)
    finalizers: Counter[str] = field(default_factory=Counter)
    failures: list[str] = field(default_factory=list)
    discovery: str = ""

    def add(self, resource: Resource, objects: Iterable[Obj]) -> None:
        """Counts objects that are still there."""
        for obj in objects:
            self.resources[f"{resource.plural}.{resource.group}"] += 1
            self.finalizers.update(obj["metadata"].get("finalizers") or ())

    @property
    def nothing(self) -> bool:
        """Whether the namespace is known to be empty."""
        return not self.resources and not self.failures and not self.discovery


def conditions(before: list[Obj], remaining: Remaining) -> list[Obj]:
    """The namespace's conditions; one that says what it said keeps its time."""
    causes = {
        "NamespaceDeletionDiscoveryFailure": f"1 failing: {remaining.discovery}"
        if remaining.discovery
        else "",
        "NamespaceDeletionContentFailure": _failures(remaining.failures),
        "NamespaceContentRemaining": _counted("resources", "resource", remaining.resources),
        "NamespaceFinalizersRemaining": _counted("finalizers", "finalizer", remaining.finalizers),
    }
    known = {str(c.get("type")): c for c in before}
    ours = [_condition(kind, causes.get(kind, ""), known.get(kind)) for kind in NAMESPACE_CONDITIONS]
    return [c for c in before if c.get("type") not in NAMESPACE_CONDITIONS] + ours


def _condition(kind: str, cause: str, before: Obj | None) -> Obj:
    status = "True" if cause else "False"
    reason, message = NAMESPACE_CONDITIONS[kind][status]
    made = {"type": kind, "status": status, "reason": reason, "message": message.format(cause=cause)}
    same = before is not None and before.get("status") == status
    since = before.get("lastTransitionTime") if before is not None and same else now_rfc3339()
    return {**made, "lastTransitionTime": since}


def _counted(name: str, what: str, counts: Counter[str]) -> str:
    return ", ".join(
        sorted(
            text("namespace_remaining", name, **{what: key, "count": count}) for key, count in counts.items()
        )
    )


def _failures(failures: list[str]) -> str:
    if not failures:
        return ""
    causes = ", ".join(failures)
    return text("namespace_remaining", "failures", count=len(failures), causes=f"[{causes}]")
