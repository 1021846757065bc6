"""The pods of workloads, by owner: what the watch says, corrected by our own writes that it has not shown yet.

So a slow watch never makes a controller create a pod twice or delete one too many.
"""

from collections.abc import Callable, Iterator

from kube32.client.informer import Informer, Key, version_of
from kube32.contract import resource_of
from kube32.controllers.objects import Obj, is_deleting, uid_of

_NONE: dict[str, Obj] = {}


def controller_of(obj: Obj) -> Obj | None:
    """The owner reference of the object's controller."""
    return next((o for o in obj["metadata"].get("ownerReferences") or [] if o.get("controller")), None)


def labels_of(obj: Obj) -> dict[str, str]:
    """The object's labels."""
    return obj["metadata"].get("labels") or {}


class OwnedPods:
    """Pods by the uid of their controller, an object of `kind`.

    `changed` gets (namespace, name) of an owner of which a pod came, changed or went; `strayed` gets a pod without
    a controller that is new, or whose labels are; `replaced` gets both pods of a one-write replacement.
    """

    def __init__(
        self,
        pods: Informer,
        kind: str,
        *,
        changed: Callable[[Key], None],
        strayed: Callable[[Obj], None],
        replaced: Callable[[Obj, Obj], None] = lambda old, new: None,
    ) -> None:
        self._pods = pods
        self._kind = kind
        self._group = resource_of(kind).group
        self._changed = changed
        self._strayed = strayed
        self._replaced = replaced
        self._by_owner: dict[str, dict[str, Obj]] = {}
        self._strays: dict[str, Obj] = {}
        self._owner_of: dict[str, str] = {}
        # Our writes that the watch has not shown: pods by uid, and uids.
        self._wrote: dict[str, Obj] = {}
        self._deleted: set[str] = set()

    def follow(self) -> Callable[[], None]:
        """Begins to follow the watch; gives the end."""
        return self._pods.subscribe(self._on_pod)

    def of(self, owner: Obj) -> list[Obj]:
        """The owner's pods, those included that are being deleted (`is_going`)."""
        uid = uid_of(owner)
        found = dict(self._by_owner.get(uid, _NONE))
        for pod_uid, pod in list(self._wrote.items()):
            if self._pods.version >= version_of(pod):
                del self._wrote[pod_uid]  # the watch has passed it: it shows it, or it is gone again
                if pod_uid not in self._owner_of:
                    self._deleted.discard(pod_uid)
            elif self._reference(pod) == uid:
                found[pod_uid] = pod
        return list(found.values())

    def all(self) -> Iterator[Obj]:
        """Every pod that an owner of the kind has, there or not."""
        for pods in list(self._by_owner.values()):
            yield from list(pods.values())

    def is_going(self, pod: Obj) -> bool:
        """Whether the pod is being deleted, by us a moment ago too."""
        return is_deleting(pod) or uid_of(pod) in self._deleted

    def strays(self, namespace: str) -> Iterator[Obj]:
        """Pods of a namespace without a controller."""
        for pod in list(self._strays.values()):
            if pod["metadata"].get("namespace") == namespace and not self.is_going(pod):
                yield pod

    def wrote(self, pod: Obj) -> None:
        """We created or changed this pod (the server's answer)."""
        if self._pods.version < version_of(pod):
            self._wrote[uid_of(pod)] = pod

    def deleted(self, pod: Obj) -> None:
        """We deleted this pod."""
        if uid_of(pod) in self._owner_of or uid_of(pod) in self._wrote:
            self._deleted.add(uid_of(pod))

    def _reference(self, pod: Obj) -> str:
        """The uid of the pod's controller when that is of our kind."""
        reference = controller_of(pod)
        if reference is None or reference.get("kind") != self._kind:
            return ""
        group = str(reference.get("apiVersion") or "").rpartition("/")[0]
        return str(reference.get("uid") or "") if group == self._group else ""

    def _on_pod(self, kind: str, pod: Obj, old: Obj | None) -> None:
        if old is not None and uid_of(old) != uid_of(pod):
            # The one-write replacement gives a pod of the same name another uid.
            if kind != "DELETED":
                self._replaced(old, pod)
            self._forget(old)
        uid = uid_of(pod)
        if kind == "DELETED":
            self._wrote.pop(uid, None)
            self._forget(pod)
            return
        if is_deleting(pod):
            self._deleted.discard(uid)
        owner, before = self._reference(pod), self._owner_of.get(uid)
        if before is not None and before != owner:
            self._forget(pod)
        self._owner_of[uid] = owner
        if owner:
            self._by_owner.setdefault(owner, {})[uid] = pod
            self._tell(pod)
        elif controller_of(pod) is None:
            known = self._strays.get(uid)
            self._strays[uid] = pod
            if known is None or labels_of(known) != labels_of(pod):
                self._strayed(pod)

    def _forget(self, pod: Obj) -> None:
        uid = uid_of(pod)
        owner = self._owner_of.pop(uid, "")
        self._strays.pop(uid, None)
        self._deleted.discard(uid)
        pods = self._by_owner.get(owner)
        if pods is None or (known := pods.pop(uid, None)) is None:
            return
        if not pods:
            del self._by_owner[owner]
        self._tell(known)

    def _tell(self, pod: Obj) -> None:
        reference = controller_of(pod) or {}
        self._changed((str(pod["metadata"].get("namespace", "")), str(reference.get("name"))))
