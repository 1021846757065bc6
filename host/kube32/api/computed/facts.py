"""What computed kinds depend on in a Pod: most of a pod's changes change none of it."""

import ipaddress
from dataclasses import dataclass
from typing import Any

Obj = dict[str, Any]
_ENDED = ("Succeeded", "Failed")


@dataclass(frozen=True, slots=True)
class PodFacts:
    """One pod. `ports` are (name, protocol, number) of its containers; `ready_at` is when it became Ready.

    `family` is "IPv4" or "IPv6"; an address that is neither counts as none.
    """

    namespace: str
    name: str
    uid: str
    labels: dict[str, str]
    owner: str
    ip: str
    family: str
    node: str
    hostname: str
    subdomain: str
    ports: tuple[tuple[str, str, int], ...]
    ready: bool
    ready_at: str
    deleting: bool
    ended: bool

    @classmethod
    def of(cls, pod: Obj) -> "PodFacts":
        """The facts of a stored pod."""
        metadata, spec, status = pod["metadata"], pod.get("spec") or {}, pod.get("status") or {}
        ready: Obj = next((c for c in status.get("conditions") or () if c.get("type") == "Ready"), {})
        is_ready = ready.get("status") == "True"
        family = _family(status.get("podIP") or "")
        return cls(
            namespace=metadata.get("namespace", ""),
            name=metadata["name"],
            uid=metadata.get("uid", ""),
            labels=metadata.get("labels") or {},
            owner=next((o["uid"] for o in metadata.get("ownerReferences") or () if o.get("controller")), ""),
            ip=status["podIP"] if family else "",
            family=family,
            node=spec.get("nodeName") or "",
            hostname=spec.get("hostname") or "",
            subdomain=spec.get("subdomain") or "",
            ports=tuple(
                (p.get("name", ""), p.get("protocol", "TCP"), p.get("containerPort", 0))
                for c in spec.get("containers") or ()
                for p in c.get("ports") or ()
            ),
            ready=is_ready,
            ready_at=str(ready.get("lastTransitionTime") or "") if is_ready else "",
            deleting=bool(metadata.get("deletionTimestamp")),
            ended=status.get("phase") in _ENDED,
        )

    def selected_by(self, selector: dict[str, str] | None) -> bool:
        """Whether every label of a Service's selector is the pod's; an empty selector selects nothing."""
        if not selector:
            return False
        labels = self.labels
        return all(labels.get(key) == value for key, value in selector.items())


def _family(ip: str) -> str:
    try:
        return f"IPv{ipaddress.ip_address(ip).version}"
    except ValueError:
        return ""
