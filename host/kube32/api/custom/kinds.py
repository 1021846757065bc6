"""Keeps the catalog as the stored CustomResourceDefinitions say, sets their conditions, and clears up after them.

It hears of every change of a definition before the change's own answer goes out, so that a kind is served at once.
A definition that is deleted waits (by a finalizer) until its objects are gone.
"""

import asyncio
import logging
from dataclasses import dataclass, field
from typing import Any

import orjson

from kube32.api import metadata
from kube32.api.catalog import Catalog
from kube32.api.custom import acceptance
from kube32.api.custom.building import kinds_of, stored_form
from kube32.api.custom.definitions import KIND
from kube32.api.custom.resource import CustomResource
from kube32.api.custom.structural import said
from kube32.api.status import ApiFailure
from kube32.contract import resource_of
from kube32.store import Change, Entry, NotFound, Store, StoreError, WatchHub

Object = dict[str, Any]
_log = logging.getLogger(__name__)
_RESOURCE = resource_of(KIND)


@dataclass(slots=True)
class _Known:
    """A definition as it is stored, and what is served of it."""

    entry: Entry
    form: bytes = b""
    since: int = 0
    spec: Object | None = None
    kinds: tuple[CustomResource, ...] = ()

    @property
    def obj(self) -> Object:
        return self.entry.obj


@dataclass(slots=True)
class CustomKinds:
    """The custom kinds of a server. `start` in the server's event loop; `close` ends what is under way."""

    store: Store
    hub: WatchHub
    catalog: Catalog
    _known: dict[str, _Known] = field(default_factory=dict)
    _cleaning: dict[str, "asyncio.Task[None]"] = field(default_factory=dict)
    _loop: asyncio.AbstractEventLoop | None = None
    _unsubscribe: Any = None

    def start(self) -> None:
        """Serves the definitions that are stored and follows their changes, where the profile has them."""
        if self.catalog.of_kind(_RESOURCE.group, _RESOURCE.version, KIND) is None:
            return
        self._loop = asyncio.get_running_loop()
        self._unsubscribe = self.store.subscribe(_RESOURCE.prefix, self._changed)
        for entry in self.store.scan(_RESOURCE.prefix)[0]:
            self._known[entry.key] = _Known(entry)
        for key in list(self._known):
            self._judge(key)

    async def close(self) -> None:
        """Follows no more changes."""
        if self._unsubscribe is not None:
            self._unsubscribe()
        for task in list(self._cleaning.values()):
            task.cancel()
        await asyncio.gather(*self._cleaning.values(), return_exceptions=True)

    def check_open(self, resource: CustomResource) -> None:
        """ApiFailure 405 for a new object of a kind whose definition is being deleted."""
        known = self._known.get(_RESOURCE.object_key("", resource.definition))
        if known is None or known.obj["metadata"].get("deletionTimestamp"):
            raise ApiFailure(405, said("terminating_create"), details={})

    def _changed(self, change: Change) -> None:
        key = change.key
        if change.type == "DELETED":
            self._forget(key)
            return
        known = self._known.get(key)
        if known is None:
            known = self._known[key] = _Known(change.entry)
        known.entry = change.entry
        self._judge(key)

    def _forget(self, key: str) -> None:
        gone = self._known.pop(key, None)
        if gone is not None and gone.kinds:
            self._publish()
            self.hub.end(gone.kinds[0].prefix)
        if gone is not None:
            # The names are free: somebody may have waited for them.
            group = gone.obj["spec"]["group"]
            for other, known in list(self._known.items()):
                if known.obj["spec"]["group"] == group and not acceptance.is_true(known.obj, "NamesAccepted"):
                    self._judge(other)

    def _judge(self, key: str) -> None:
        """Sets what a definition's status has to say, serves it as it is now, clears up when it goes."""
        known = self._known[key]
        obj = known.obj
        if obj["metadata"].get("deletionTimestamp"):
            self._clean(key)
        else:
            others = [k.obj for other, k in self._known.items() if other != key]
            status = acceptance.accepted_status(obj, others)
            if status != (obj.get("status") or {}):
                self._write_status(key, status)
        self._serve(known)

    def _write_status(self, key: str, status: Object) -> None:
        def change(stored: Object) -> Object:
            stored["status"] = {
                **status,
                "storedVersions": (stored.get("status") or {}).get("storedVersions") or [],
            }
            return stored

        try:
            self._known[key].entry = self.store.update(key, change)
        except NotFound:
            pass
        except StoreError:
            _log.exception("the status of %s could not be written", key)

    def _serve(self, known: _Known) -> None:
        """Builds the kinds anew when the definition says something else than before."""
        obj = known.obj
        if not acceptance.is_established(obj):
            if known.kinds:
                known.kinds = ()
                self._publish()
            return
        if obj["spec"] == known.spec and known.kinds and self._same_names(known):
            return
        form = stored_form(obj["spec"])
        if form != known.form:
            # What was stored before is looked at again when it is read.
            known.form, known.since = form, self.store.revision
        before, known.spec = known.kinds, obj["spec"]
        known.kinds = kinds_of(obj, known.since)
        self._publish()
        if before:
            self.hub.end(before[0].prefix)

    def _same_names(self, known: _Known) -> bool:
        kind, names = known.kinds[0], known.obj["status"]["acceptedNames"]
        return (
            kind.short_names == tuple(names.get("shortNames") or ())
            and kind.categories == tuple(names.get("categories") or ())
            and kind.list_kind == names.get("listKind")
            and kind.singular == names.get("singular")
        )

    def _publish(self) -> None:
        self.catalog.set_custom(kind for key in sorted(self._known) for kind in self._known[key].kinds)

    # --- clearing up ---

    def _clean(self, key: str) -> None:
        """Deletes the objects of a definition that is being deleted, if nobody does so already."""
        finalizers = self._known[key].obj["metadata"].get("finalizers") or ()
        loop = self._loop
        if acceptance.FINALIZER in finalizers and key not in self._cleaning and loop is not None:
            task = self._cleaning[key] = loop.create_task(self._clear(key))
            task.add_done_callback(lambda _: self._cleaning.pop(key, None))

    async def _clear(self, key: str) -> None:
        obj = self._known[key].obj
        names = obj["spec"]["names"]
        prefix = f"/registry/{obj['spec']['group']}/{names['plural']}/"
        gone = asyncio.Event()
        unsubscribe = self.store.subscribe(
            prefix, lambda change: gone.set() if change.type == "DELETED" else None
        )
        try:
            self._write_status(key, acceptance.terminating(obj))
            # Those that wait for a finalizer of their own go later; new ones are not created any more.
            while self.store.count(prefix):
                gone.clear()
                for entry in self.store.scan(prefix)[0]:
                    self._delete(entry)
                    await asyncio.sleep(0)
                if self.store.count(prefix):
                    await gone.wait()
            self._finish(key)
        finally:
            unsubscribe()

    def _delete(self, entry: Entry) -> None:
        """Deletes one object, or marks it while it has finalizers."""
        meta = entry.obj["metadata"]
        try:
            if not meta.get("finalizers"):
                self.store.delete(entry.key)
            elif not meta.get("deletionTimestamp"):
                new = orjson.loads(entry.value)
                stamp = metadata.now() or "1970-01-01T00:00:00Z"
                new["metadata"].update(deletionTimestamp=stamp, deletionGracePeriodSeconds=0)
                self.store.put_extended(entry.key, new, expected_version=entry.revision)
        except StoreError as error:
            _log.debug("%s: %s; it is looked at again", entry.key, error)

    def _finish(self, key: str) -> None:
        """Takes the finalizer away; the definition goes when it was the last one."""

        def without(stored: Object) -> Object:
            left = [f for f in stored["metadata"].get("finalizers") or () if f != acceptance.FINALIZER]
            stored["metadata"]["finalizers"] = left
            if not left:
                del stored["metadata"]["finalizers"]
            return stored

        try:
            entry = self.store.update(key, without)
            if metadata.is_finished(entry.obj):
                self.store.delete(key)
        except NotFound:
            pass
