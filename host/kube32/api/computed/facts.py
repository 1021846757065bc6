"""What computed kinds depend on in a Pod: most of a pod's changes change none of it."""

from dataclasses import dataclass
from typing import Any

Obj = dict[str, Any]
_ENDED = ("Succeeded", "Failed")


@dataclass(frozen=True, slots=True)
class PodFacts:
    """One pod. `ports` are (name, protocol, number) of its containers; `ready_at` is when it became Ready."""

    namespace: str
    name: str
    uid: str
    labels: tuple[tuple[str, str], ...]
    owner: str
    ip: str
    node: str
    ports: tuple[tuple[str, str, int], ...]
    ready: bool
    ready_at: str
    deleting: bool
    ended: bool

    @classmethod
    def of(cls, pod: Obj) -> "PodFacts":
        """The facts of a stored pod."""
        metadata, spec, status = pod["metadata"], pod.get("spec") or {}, pod.get("status") or {}
        ready: Obj = next((c for c in status.get("conditions") or [] if c.get("type") == "Ready"), {})
        is_ready = ready.get("status") == "True"
        return cls(
            metadata.get("namespace", ""),
            metadata["name"],
            metadata.get("uid", ""),
            tuple(sorted((metadata.get("labels") or {}).items())),
            next((o["uid"] for o in metadata.get("ownerReferences") or [] if o.get("controller")), ""),
            status.get("podIP", ""),
            spec.get("nodeName", ""),
            tuple(
                (p.get("name", ""), p.get("protocol", "TCP"), p.get("containerPort", 0))
                for c in spec.get("containers") or []
                for p in c.get("ports") or []
            ),
            is_ready,
            str(ready.get("lastTransitionTime") or "") if is_ready else "",
            bool(metadata.get("deletionTimestamp")),
            status.get("phase") in _ENDED,
        )

    def selected_by(self, selector: dict[str, str] | None) -> bool:
        """Whether every label of a Service's selector is the pod's; an empty selector selects nothing."""
        if not selector:
            return False
        labels = dict(self.labels)
        return all(labels.get(key) == value for key, value in selector.items())
