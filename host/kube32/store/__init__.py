"""The object store: radix tree, revisions, compare-and-swap, watches (specification, "Object store")."""

from kube32.store.entry import Change, Entry
from kube32.store.errors import (
    AlreadyExists,
    Conflict,
    JournalFailed,
    NotEncodable,
    NotFound,
    SlowWatcher,
    StorageFull,
    StoreError,
    TooLarge,
    TooManyStreams,
    WatchExpired,
)
from kube32.store.journal import Journal
from kube32.store.reading import ReadingStore
from kube32.store.store import Store
from kube32.store.watch_hub import WatchHub
from kube32.store.watch_stream import WatchEvent, WatchStream

__all__ = [
    "AlreadyExists",
    "Change",
    "Conflict",
    "Entry",
    "Journal",
    "JournalFailed",
    "NotEncodable",
    "NotFound",
    "ReadingStore",
    "SlowWatcher",
    "StorageFull",
    "Store",
    "StoreError",
    "TooLarge",
    "TooManyStreams",
    "WatchEvent",
    "WatchExpired",
    "WatchHub",
    "WatchStream",
]
