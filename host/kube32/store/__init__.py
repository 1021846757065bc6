"""The object store: radix tree, revisions, compare-and-swap, watches (specification, "Object store")."""

from kube32.store.entry import Change, Entry
from kube32.store.errors import (
    AlreadyExists,
    Conflict,
    NotEncodable,
    NotFound,
    SlowWatcher,
    StoreError,
    TooLarge,
    TooManyStreams,
    WatchExpired,
)
from kube32.store.reading import ReadingStore
from kube32.store.store import Store
from kube32.store.watch_hub import WatchHub
from kube32.store.watch_stream import WatchEvent, WatchStream

__all__ = [
    "AlreadyExists",
    "Change",
    "Conflict",
    "Entry",
    "NotEncodable",
    "NotFound",
    "ReadingStore",
    "SlowWatcher",
    "Store",
    "StoreError",
    "TooLarge",
    "TooManyStreams",
    "WatchEvent",
    "WatchExpired",
    "WatchHub",
    "WatchStream",
]
