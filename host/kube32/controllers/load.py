"""What runs on each node, kept as pods come and go: a choice of a node must not look at every pod anew."""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

from kube32.controllers.objects import Obj, is_finished, node_of, uid_of
from kube32.controllers.resources import Amounts, requests

# Namespace and owners: pods that are spread over nodes.
_Family = tuple[str, tuple[str, ...]]
_NOTHING: Amounts = {}


@dataclass(frozen=True, slots=True)
class _Share:
    """What one pod takes of a node."""

    node: str
    amounts: Amounts
    family: _Family | None


def _family(pod: Obj) -> _Family | None:
    owners = tuple(str(r.get("uid", "")) for r in pod["metadata"].get("ownerReferences") or ())
    return (pod["metadata"].get("namespace", ""), owners) if owners else None


class Load:
    """Resources taken on each node, and where the pods of one owner are. Pods go by uid."""

    def __init__(self, pods: Iterable[Obj] = ()) -> None:
        self._shares: dict[str, _Share] = {}
        self._used: dict[str, Amounts] = {}
        self._families: dict[_Family, Counter[str]] = {}
        for number, pod in enumerate(pods):
            self.put(pod, uid_of(pod) or f"#{number}")

    def put(self, pod: Obj, uid: str = "") -> None:
        """Takes a pod as it is now: one that is bound to a node and has not ended counts."""
        uid = uid or uid_of(pod)
        node = node_of(pod)
        if not node or is_finished(pod):
            self.remove(uid)
            return
        share = _Share(node, requests(pod), _family(pod))
        if self._shares.get(uid) == share:
            return
        self.remove(uid)
        self._shares[uid] = share
        self._count(share, 1)

    def remove(self, uid: str) -> None:
        """A pod counts no more."""
        share = self._shares.pop(uid, None)
        if share is not None:
            self._count(share, -1)

    def _count(self, share: _Share, sign: int) -> None:
        used = self._used.setdefault(share.node, {})
        for name, amount in share.amounts.items():
            used[name] = used.get(name, 0) + sign * amount
        if not used.get("pods"):
            del self._used[share.node]
        if share.family is not None:
            family = self._families.setdefault(share.family, Counter())
            family[share.node] += sign
            if not family[share.node]:
                del family[share.node]
            if not family:
                del self._families[share.family]

    def used(self, node: str, besides: Obj) -> Amounts:
        """What the pods on a node take, `besides` one of them."""
        used = self._used.get(node, _NOTHING)
        own = self._shares.get(uid_of(besides))
        if own is None or own.node != node:
            return used
        return {name: amount - own.amounts.get(name, 0) for name, amount in used.items()}

    def siblings(self, pod: Obj) -> Counter[str]:
        """How many other pods of the pod's owner each node has."""
        family = _family(pod)
        found = self._families.get(family, Counter[str]()) if family is not None else Counter[str]()
        own = self._shares.get(uid_of(pod))
        if own is not None and own.family == family and found:
            found = found.copy()
            found[own.node] -= 1
        return found
