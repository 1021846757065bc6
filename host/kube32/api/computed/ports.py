"""A Service's ports as its pods have them: numbers, or names that each pod's containers resolve."""

from typing import Any

from kube32.api.computed.facts import PodFacts

Obj = dict[str, Any]
# (name, protocol, number, appProtocol)
Port = tuple[str, str, int, str]


class Ports:
    """The ports of one Service."""

    def __init__(self, service: Obj) -> None:
        self._ports: list[Obj] = (service.get("spec") or {}).get("ports") or []
        self._known: dict[tuple[tuple[str, str, int], ...], tuple[Port, ...]] = {}

    def __bool__(self) -> bool:
        return bool(self._ports)

    def of(self, pod: PodFacts) -> tuple[Port, ...]:
        """The ports by name; one that the pod's containers do not know is left out."""
        found = self._known.get(pod.ports)
        if found is None:
            found = self._known[pod.ports] = tuple(sorted(self._resolved(pod)))
        return found

    def _resolved(self, pod: PodFacts) -> list[Port]:
        found = []
        for port in self._ports:
            protocol = port.get("protocol", "TCP")
            target = port.get("targetPort", port.get("port"))
            number = target if isinstance(target, int) else _named(pod, str(target), protocol)
            if number:
                found.append((port.get("name", ""), protocol, number, port.get("appProtocol", "")))
        return found


def _named(pod: PodFacts, name: str, protocol: str) -> int:
    return next((n for named, p, n in pod.ports if named == name and p == protocol), 0)
