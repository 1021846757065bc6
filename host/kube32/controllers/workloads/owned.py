"""The pods of workloads, by owner: what the watch says, corrected by our own writes that it has not shown yet.

So a slow watch never makes a controller create a pod twice or delete one too many.
"""

from collections.abc import Callable, Iterator

from kube32.client.informer import Informer, Key, key_of, version_of
from kube32.controllers.objects import Obj, is_deleting, uid_of


def controller_of(pod: Obj) -> Obj | None:
    """The owner reference of the pod's controller."""
    return next((o for o in pod["metadata"].get("ownerReferences") or [] if o.get("controller")), None)


class OwnedPods:
    """Pods by the uid of their controller. `changed` gets (kind of owner, namespace, name) of those to look at."""

    def __init__(self, pods: Informer, kind: str, changed: Callable[[Key], None]) -> None:
        self._pods = pods
        self._kind = kind
        self._changed = changed
        self._by_owner: dict[str, dict[str, Obj]] = {}
        self._orphans: dict[str, Obj] = {}
        self._owner_of: dict[str, str] = {}
        self._created: dict[str, Obj] = {}
        self._deleted: set[str] = set()

    def follow(self) -> Callable[[], None]:
        """Begins to follow the watch; gives the end."""
        return self._pods.subscribe(self._on_pod)

    def of(self, owner: Obj) -> list[Obj]:
        """The owner's pods, those included that are being deleted (`is_going`)."""
        uid = uid_of(owner)
        found = dict(self._by_owner.get(uid, {}))
        for pod_uid, pod in list(self._created.items()):
            reference = controller_of(pod)
            if reference is not None and reference.get("uid") == uid:
                found.setdefault(pod_uid, pod)
        return list(found.values())

    def of_name(self, owner: Key) -> list[Obj]:
        """Pods whose controller has this (namespace, name), whether it is there or not."""
        namespace, name = owner
        return [
            pod
            for pods in list(self._by_owner.values())
            for pod in list(pods.values())
            if pod["metadata"].get("namespace") == namespace
            and (controller_of(pod) or {}).get("name") == name
        ]

    def is_going(self, pod: Obj) -> bool:
        """Whether the pod is being deleted, by us a moment ago too."""
        return is_deleting(pod) or uid_of(pod) in self._deleted

    def orphans(self, namespace: str) -> Iterator[Obj]:
        """Pods of a namespace without a controller."""
        for pod in list(self._orphans.values()):
            if pod["metadata"].get("namespace") == namespace and not self.is_going(pod):
                yield pod

    def created(self, pod: Obj) -> None:
        """We created this pod (the server's answer)."""
        known = self._pods.get(*key_of(pod))
        if known is None or uid_of(known) != uid_of(pod):
            self._created[uid_of(pod)] = pod

    def deleted(self, pod: Obj) -> None:
        """We deleted this pod."""
        if uid_of(pod) in self._owner_of:
            self._deleted.add(uid_of(pod))
        self._created.pop(uid_of(pod), None)

    def _on_pod(self, kind: str, pod: Obj, old: Obj | None) -> None:
        # The one-write replacement gives a pod of the same name another uid.
        if old is not None and uid_of(old) != uid_of(pod):
            self._forget(old)
        self._drop_phantoms(version_of(pod))
        self._created.pop(uid_of(pod), None)
        if kind == "DELETED":
            self._forget(pod)
            return
        if is_deleting(pod):
            self._deleted.discard(uid_of(pod))
        uid, reference = uid_of(pod), controller_of(pod)
        owner = (
            str(reference.get("uid")) if reference is not None and reference.get("kind") == self._kind else ""
        )
        if self._owner_of.get(uid, owner) != owner:
            self._forget(pod)
        self._owner_of[uid] = owner
        if reference is None:
            self._orphans[uid] = pod
        elif owner:
            self._by_owner.setdefault(owner, {})[uid] = pod
        self._tell(pod)

    def _drop_phantoms(self, version: int) -> None:
        """Forgets created pods that the watch has passed without showing them: they are gone again."""
        for uid, pod in list(self._created.items()):
            if version > version_of(pod) and self._pods.get(*key_of(pod)) is None:
                del self._created[uid]

    def _forget(self, pod: Obj) -> None:
        uid = uid_of(pod)
        owner = self._owner_of.pop(uid, "")
        pods = self._by_owner.get(owner, {})
        pods.pop(uid, None)
        if not pods:
            self._by_owner.pop(owner, None)
        self._orphans.pop(uid, None)
        self._deleted.discard(uid)
        self._tell(pod)

    def _tell(self, pod: Obj) -> None:
        reference, namespace = controller_of(pod), str(pod["metadata"].get("namespace", ""))
        if reference is None:
            self._changed((namespace, ""))
        elif reference.get("kind") == self._kind:
            self._changed((namespace, str(reference.get("name"))))
