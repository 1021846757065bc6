"""Store and watches against a plain dict and a list of what happened to it."""

import json
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass, field
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kube32.contract import LIMITS
from kube32.store import (
    AlreadyExists,
    Conflict,
    NotFound,
    Store,
    StoreError,
    WatchEvent,
    WatchExpired,
    WatchHub,
    WatchStream,
)

RING = 6
BOOT = 5
PODS, MAPS = "/registry/pods/", "/registry/configmaps/"
KEYS = [PODS + "a/x", PODS + "a/y", PODS + "a-b/x", MAPS + "a/x", MAPS + "b/x", "/registry/leases/n/1"]
PREFIXES = [(PODS, PODS), (PODS + "a/", PODS), (MAPS, MAPS), (MAPS + "b/", MAPS)]

Obj = dict[str, Any]
Match = Callable[[Obj], bool]


def is_red(obj: Obj) -> bool:
    return bool(obj["metadata"].get("labels") == {"app": "red"})


@dataclass
class Happened:
    """One change in the model; the objects are without resourceVersion."""

    revision: int
    key: str
    old: Obj | None
    new: Obj | None


@dataclass
class Model:
    """What the store must hold and what must have happened."""

    objects: dict[str, tuple[Obj, int]] = field(default_factory=dict)
    history: list[Happened] = field(default_factory=list)
    revision: int = BOOT

    def write(self, key: str, obj: Obj | None, expected: int | None) -> type[StoreError] | None:
        old, version = self.objects.get(key, (None, 0))
        if obj is None and old is None:
            return NotFound
        if expected is not None and expected != version:
            return AlreadyExists if expected == 0 else Conflict if old else NotFound
        if obj is not None and json.dumps(obj, sort_keys=True) == json.dumps(old, sort_keys=True):
            return None
        self.revision += 1
        self.history.append(Happened(self.revision, key, old, obj))
        if obj is None:
            del self.objects[key]
        else:
            self.objects[key] = (obj, self.revision)
        return None

    def state(self, prefix: str, match: Match | None) -> list[tuple[str, str, Obj]]:
        """The ADDED events of a list."""
        return [
            ("ADDED", key, stamped(obj, revision))
            for key, (obj, revision) in sorted(self.objects.items())
            if key.startswith(prefix) and (match is None or match(obj))
        ]

    def expired(self, since: int, resource: str) -> bool:
        lost = self.history[:-RING]
        return (
            since < BOOT
            or since > self.revision
            or any(h.revision > since for h in lost if h.key.startswith(resource))
        )

    def events(self, since: int, prefix: str, match: Match | None) -> list[tuple[str, str, Obj]]:
        """The live events after `since`."""
        seen = []
        for h in self.history:
            if h.revision <= since or not h.key.startswith(prefix):
                continue
            before = h.old is not None and (match is None or match(h.old))
            after = h.new is not None and (match is None or match(h.new))
            if after:
                assert h.new is not None
                seen.append(("MODIFIED" if before else "ADDED", h.key, stamped(h.new, h.revision)))
            elif before:
                assert h.old is not None
                seen.append(("DELETED", h.key, stamped(h.old, h.revision)))
        return seen


def stamped(obj: Obj, revision: int) -> Obj:
    return {**obj, "metadata": {**obj["metadata"], "resourceVersion": str(revision)}}


@dataclass
class Watcher:
    """A stream, what it gave, and where it began; `listed` is what the model held then."""

    stream: WatchStream
    prefix: str
    match: Match | None
    since: int
    listed: list[tuple[str, str, Obj]] | None
    got: list[WatchEvent] = field(default_factory=list)

    def read(self) -> None:
        while (event := self.stream.poll()) is not None:
            self.got.append(event)

    def check(self, model: Model) -> None:
        self.read()
        expected = model.events(self.since, self.prefix, self.match)
        got = [(e.type, e.entry.key, json.loads(e.entry.value)) for e in self.got if e.entry]
        if self.listed is not None:
            end = len(self.listed)
            assert got[:end] == self.listed
            assert (self.got[end].type, self.got[end].initial_end) == ("BOOKMARK", True)
            assert self.got[end].revision == self.since
            got = got[end:]
        assert got == expected
        assert all(e.revision == e.entry.revision for e in self.got if e.entry)


OBJECTS = st.fixed_dictionaries(
    {"v": st.sampled_from([0, 1, 1.0, True, "1"])}, optional={"w": st.sampled_from([[1], [1.0], None])}
)
VERSIONS = st.sampled_from(["none", "none", "right", "right", "zero", "wrong"])
WRITES = st.tuples(
    st.sampled_from(["put", "put", "extended", "update", "delete"]),
    st.sampled_from(KEYS),
    OBJECTS,
    st.sampled_from(["red", "blue"]),
    VERSIONS,
    st.booleans(),
)
OPENS = st.tuples(
    st.just("open"),
    st.sampled_from(PREFIXES),
    st.sampled_from([None, is_red]),
    st.one_of(st.none(), st.integers(-2, 12)),
)
READS = st.tuples(st.just("read"), st.integers(0, 9))
STEPS = st.lists(st.one_of(WRITES, WRITES, WRITES, OPENS, READS), max_size=70)


def do_write(store: Store, model: Model, step: Any) -> None:
    kind, key, spec, color, version, backwards = step
    metadata = {"name": "x", "labels": {"app": color}}
    obj: Obj = {"spec": spec, "metadata": metadata} if backwards else {"metadata": metadata, "spec": spec}
    current = model.objects[key][1] if key in model.objects else 0
    expected = {"none": None, "right": current, "zero": 0, "wrong": current + 1000}[version]
    if kind == "put" or (kind == "update" and key in model.objects):
        assert model.write(key, obj, None) is None
        if kind == "put":
            store.put(key, obj)
        else:
            store.update(key, lambda old: obj)
        return
    if kind == "delete" and expected == 0:
        expected = None
    refusal = model.write(key, None if kind in ("delete", "update") else obj, expected)
    with pytest.raises(refusal) if refusal else nullcontext():
        if kind == "extended":
            store.put_extended(key, obj, expected_version=expected)
        elif kind == "update":
            store.update(key, lambda old: obj)
        else:
            store.delete(key, expected_version=expected)


def do_open(hub: WatchHub, model: Model, step: Any) -> Watcher | None:
    _, (prefix, resource), match, back = step
    since = None if back in (None, model.revision) else model.revision - back
    if since is not None and model.expired(since, resource):
        with pytest.raises(WatchExpired):
            hub.open(prefix, resource_prefix=resource, since=since, match=match)
        return None
    stream = hub.open(
        prefix, resource_prefix=resource, since=since, match=match, initial_events_end=since is None
    )
    if since is not None:
        return Watcher(stream, prefix, match, since, None)
    watcher = Watcher(stream, prefix, match, model.revision, model.state(prefix, match))
    watcher.read()
    return watcher


@settings(max_examples=150, deadline=None)
@given(STEPS)
def test_state_revisions_and_watch_history_are_those_of_a_plain_dict(steps: list[Any]) -> None:
    store = Store(LIMITS, first_revision=BOOT)
    limits = LIMITS.replace(watch_ring_events=RING, watch_stream_buffer_events=100, watch_streams=100)
    hub = WatchHub(store, limits)
    model = Model()
    watchers: list[Watcher] = []
    for step in steps:
        if step[0] == "open":
            watcher = do_open(hub, model, step)
            watchers += [watcher] if watcher else []
        elif step[0] == "read":
            if watchers:
                watchers[step[1] % len(watchers)].read()
        else:
            do_write(store, model, step)
        assert store.revision == model.revision
    entries, revision = store.scan("/registry/")
    assert revision == model.revision
    assert [("ADDED", e.key, json.loads(e.value)) for e in entries] == model.state("/registry/", None)
    for watcher in watchers:
        watcher.check(model)


@settings(max_examples=100, deadline=None)
@given(st.lists(st.one_of(WRITES, WRITES, st.integers(0, 3)), max_size=80), st.sampled_from([None, is_red]))
def test_a_reader_slow_with_its_list_ends_up_with_the_state_of_the_dict(
    steps: list[Any], match: Match | None
) -> None:
    """The ring turns over while the list is being read: the difference is told, nothing lost or doubled."""
    store = Store(LIMITS, first_revision=BOOT)
    hub = WatchHub(store, LIMITS.replace(watch_ring_events=RING, watch_stream_buffer_events=100))
    model = Model()
    for key in KEYS[:4]:
        do_write(store, model, ("put", key, {"v": 0}, "red", "none", False))
    stream = hub.open(PODS, resource_prefix=PODS, since=None, match=match, initial_events_end=True)
    known: dict[str, Obj] = {}
    marked: list[int] = []

    def read(count: int) -> None:
        for _ in range(count):
            event = stream.poll()
            if event is None:
                return
            if event.entry is None:
                assert event.initial_end
                marked.append(event.revision)
                continue
            assert (event.entry.key in known) == (event.type != "ADDED")
            known[event.entry.key] = event.entry.obj
            if event.type == "DELETED":
                del known[event.entry.key]

    for step in steps:
        if isinstance(step, int):
            read(step)
        else:
            do_write(store, model, step)
    read(10_000)
    assert len(marked) == 1
    assert BOOT <= marked[0] <= model.revision
    assert [("ADDED", key, obj) for key, obj in sorted(known.items())] == model.state(PODS, match)
