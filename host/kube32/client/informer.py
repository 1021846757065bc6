"""A local copy of one kind, kept true by list and watch: it resumes where a stream broke, never gives up."""

import asyncio
import logging
import random
from collections.abc import Callable
from contextlib import aclosing

from kube32.client.api import ApiClient, ApiError, Obj
from kube32.contract import Resource

Key = tuple[str, str]
Handler = Callable[[str, Obj, Obj | None], None]

_LOG = logging.getLogger(__name__)
_BACKOFF_FIRST_S = 0.25
_BACKOFF_MAX_S = 15.0


def key_of(obj: Obj) -> Key:
    """(namespace, name); the namespace of a cluster-scoped object is ""."""
    meta = obj["metadata"]
    return meta.get("namespace", ""), meta["name"]


def version_of(obj: Obj) -> int:
    """The object's resourceVersion as a number, 0 when it is none."""
    text = str(obj["metadata"].get("resourceVersion", ""))
    return int(text) if text.isdigit() else 0


class Informer:
    """Objects of one kind by (namespace, name) in `items`; handlers see each change once and in order.

    With `metadata_only` the objects have apiVersion, kind and metadata; `transform` gives what is kept of one, with
    its name, namespace, uid and resourceVersion.

    A handler gets (type, object, former object); type is ADDED, MODIFIED or DELETED. Objects are shared: do
    not change them. After a 410 the differences to a new list are told as if they had been watched; `on_list`
    is called after each list.
    """

    def __init__(
        self,
        client: ApiClient,
        kind: str | Resource,
        *,
        namespace: str = "",
        label_selector: str = "",
        field_selector: str = "",
        metadata_only: bool = False,
        transform: Callable[[Obj], Obj] | None = None,
    ) -> None:
        self.kind = kind if isinstance(kind, str) else kind.kind
        self._resource = kind
        self._metadata_only = metadata_only
        self._transform = transform
        self.items: dict[Key, Obj] = {}
        self.synced = asyncio.Event()
        self._client = client
        self._namespace = namespace
        self._label_selector = label_selector
        self._field_selector = field_selector
        self._handlers: list[Handler] = []
        self.on_list: Callable[[], None] = lambda: None
        self._version = ""
        self._delay_s = 0.0
        self._relisted = False
        self._patience: asyncio.Timeout | None = None

    @property
    def version(self) -> int:
        """The resourceVersion up to which every change has been told; 0 before the first list."""
        return int(self._version) if self._version.isdigit() else 0

    def get(self, namespace: str, name: str) -> Obj | None:
        """The object as last seen."""
        return self.items.get((namespace, name))

    def subscribe(self, handler: Handler, *, replay: bool = True) -> Callable[[], None]:
        """Calls `handler` for every change, with `replay` first ADDED for what is there; gives the end."""
        for obj in list(self.items.values()) if replay else ():
            self._tell(handler, "ADDED", obj, None)
        self._handlers.append(handler)

        def end() -> None:
            if handler in self._handlers:
                self._handlers.remove(handler)

        return end

    async def run(self) -> None:
        """Lists, then watches, until cancelled. After a fault it goes on with a growing, jittered delay."""
        while True:
            try:
                if not self._version:
                    await self._list()
                await self._watch()
            except ApiError as error:
                self._on_refusal(error)
            except (OSError, ValueError, LookupError) as error:
                self._delay_more()
                _LOG.info("watch of %s: %s", self.kind, str(error) or type(error).__name__)
            except Exception:
                self._version = ""
                self._delay_more()
                _LOG.exception("watch of %s failed", self.kind)
            if self._delay_s:
                await asyncio.sleep(self._delay_s * random.uniform(0.5, 1))

    def reopen(self) -> None:
        """Gives up the stream, which may be dead without a word; another goes on from where it was."""
        if self._patience is not None:
            self._patience.reschedule(asyncio.get_running_loop().time())

    def _on_refusal(self, error: ApiError) -> None:
        if error.code == 410:
            self._version = ""
            if not self._relisted:
                # The first 410 is answered by a list at once; a server that goes on so is not hammered.
                self._relisted = True
                return
        _LOG.info("watch of %s: %s", self.kind, error)
        self._delay_more(least=error.retry_after_s)

    def _delay_more(self, least: float = 0) -> None:
        self._delay_s = max(min(max(self._delay_s * 2, _BACKOFF_FIRST_S), _BACKOFF_MAX_S), least)

    async def _list(self) -> None:
        found = await self._client.list(
            self._resource,
            self._namespace,
            label_selector=self._label_selector,
            field_selector=self._field_selector,
            metadata_only=self._metadata_only,
        )
        fresh = {key_of(o): self._kept(o) for o in found.items}
        for key in [k for k in self.items if k not in fresh]:
            old = self.items.pop(key)
            self._tell_all("DELETED", old, old)
        for key, obj in fresh.items():
            self._replace(key, obj)
        self._version = found.resource_version or "0"
        self.synced.set()
        self.on_list()

    def _replace(self, key: Key, obj: Obj) -> None:
        old = self.items.get(key)
        if old is not None and old["metadata"].get("uid") != obj["metadata"].get("uid"):
            del self.items[key]
            self._tell_all("DELETED", old, old)
            old = None
        if old is None or old["metadata"].get("resourceVersion") != obj["metadata"].get("resourceVersion"):
            self.items[key] = obj
            self._tell_all("ADDED" if old is None else "MODIFIED", obj, old)

    async def _watch(self) -> None:
        stream = self._client.watch(
            self._resource,
            self._namespace,
            resource_version=self._version,
            label_selector=self._label_selector,
            field_selector=self._field_selector,
            metadata_only=self._metadata_only,
        )
        started = asyncio.get_running_loop().time()
        quiet = True
        try:
            async with asyncio.timeout(None) as self._patience, aclosing(stream) as events:
                async for kind, obj in events:
                    quiet = False
                    self._delay_s = 0
                    self._relisted = False
                    self._take(kind, obj)
        finally:
            self._patience = None
        # A server that ends every stream at once must not make a busy loop of this.
        if quiet and asyncio.get_running_loop().time() - started < _BACKOFF_MAX_S:
            self._delay_more()
        else:
            self._delay_s = 0

    def _take(self, kind: str, obj: Obj) -> None:
        version = str(obj["metadata"].get("resourceVersion", ""))
        if kind != "BOOKMARK":
            self._apply(kind, self._kept(obj))
        if version:
            self._version = version

    def _kept(self, obj: Obj) -> Obj:
        return obj if self._transform is None else self._transform(obj)

    def _apply(self, kind: str, obj: Obj) -> None:
        key = key_of(obj)
        old = self.items.get(key)
        if kind == "DELETED":
            if old is not None and version_of(obj) >= version_of(old):
                del self.items[key]
                self._tell_all("DELETED", obj, old)
            return
        if old is not None and version_of(obj) <= version_of(old) and version_of(old):
            return
        self.items[key] = obj
        self._tell_all("ADDED" if old is None else "MODIFIED", obj, old)

    def _tell_all(self, kind: str, obj: Obj, old: Obj | None) -> None:
        for handler in tuple(self._handlers):
            self._tell(handler, kind, obj, old)

    def _tell(self, handler: Handler, kind: str, obj: Obj, old: Obj | None) -> None:
        try:
            handler(kind, obj, old)
        except Exception:
            _LOG.exception("a handler of %s failed at %s %s", self.kind, kind, key_of(obj))
