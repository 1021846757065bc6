"""Whether the owner that a reference names is there: by uid, in the dependent's namespace, live."""

from collections import OrderedDict
from dataclasses import dataclass
from enum import Enum

from kube32.client.api import ApiClient, ApiError
from kube32.contract import NAMES
from kube32.controllers.garbage.graph import Owner
from kube32.controllers.served import ServedKinds

_REMEMBERED = 1000


class Found(Enum):
    """What became of an owner. UNREACHABLE: a namespaced owner of a cluster-scoped object, which cannot be."""

    PRESENT = "present"
    ABSENT = "absent"
    UNREACHABLE = "unreachable"


@dataclass(frozen=True, slots=True)
class Lookup:
    """The answer; `waits`: the owner is being deleted in the foreground."""

    state: Found
    waits: bool = False


class UnknownKind(Exception):
    """The owner's kind is not served (now): nobody can say whether the owner is there."""


class Owners:
    """Lookups, and a memory of owners that were found absent: uids do not come back."""

    def __init__(self, client: ApiClient, kinds: ServedKinds) -> None:
        self._client = client
        self._kinds = kinds
        self._absent: OrderedDict[tuple[str, str], None] = OrderedDict()

    def forget(self, uid: str, namespace: str) -> None:
        """An owner was seen going."""
        self._absent[(uid, namespace)] = None
        if len(self._absent) > _REMEMBERED:
            self._absent.popitem(last=False)

    async def find(self, owner: Owner, namespace: str) -> Lookup:
        """Looks for the owner of an object in `namespace` ("": cluster-scoped). UnknownKind, ApiError, OSError."""
        if (owner.uid, namespace) in self._absent or (owner.uid, "") in self._absent:
            return Lookup(Found.ABSENT)
        resource = self._kinds.of_owner(owner.api_version, owner.kind)
        if resource is None or "get" not in resource.verbs:
            raise UnknownKind(f"owner {named(owner, namespace)}: its kind is not served")
        if resource.namespaced and not namespace:
            return Lookup(Found.UNREACHABLE)
        where = namespace if resource.namespaced else ""
        try:
            live = await self._client.get(resource, owner.name, where)
        except ApiError as error:
            if error.code != 404:
                raise
            live = {"metadata": {}}
        meta = live["metadata"]
        if meta.get("uid") != owner.uid:
            self.forget(owner.uid, where)
            return Lookup(Found.ABSENT)
        waits = bool(meta.get("deletionTimestamp")) and NAMES.finalizer_foreground in (
            meta.get("finalizers") or ()
        )
        return Lookup(Found.PRESENT, waits)


def named(owner: Owner, namespace: str) -> str:
    """A reference as Kubernetes' garbage collector writes it."""
    return f"[{owner.api_version}/{owner.kind}, namespace: {namespace}, name: {owner.name}, uid: {owner.uid}]"
