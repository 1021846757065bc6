"""Objects as we last wrote them: until the watch shows our own write, we must not decide on what was before."""

from kube32.client.api import ApiClient
from kube32.client.informer import version_of
from kube32.controllers.objects import Obj, uid_of


class Written:
    """Writes the status of objects of one kind, and knows the answers."""

    def __init__(self, client: ApiClient, kind: str) -> None:
        self._client = client
        self._kind = kind
        self._known: dict[str, Obj] = {}

    def newest(self, seen: Obj) -> Obj:
        """The object of the watch, or our own newer one."""
        known = self._known.get(uid_of(seen))
        if known is None:
            return seen
        if version_of(seen) >= version_of(known):
            del self._known[uid_of(seen)]
            return seen
        return known

    def note(self, written: Obj) -> None:
        """This was the answer to a write of ours."""
        self._known[uid_of(written)] = written

    def forget(self, uid: str) -> None:
        """The object is gone."""
        self._known.pop(uid, None)

    async def status(self, obj: Obj) -> Obj:
        """Stores the object's status. A conflict is an ApiError: somebody else was quicker, look again."""
        written = await self._client.update(self._kind, obj, subresource="status")
        self.note(written)
        return written
