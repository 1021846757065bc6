"""What the store and its watches refuse. The API server turns these into Status answers."""

from typing import TYPE_CHECKING

from kube32.contract import text

if TYPE_CHECKING:
    from kube32.store.entry import Entry


class StoreError(Exception):
    """A write that the store refused; nothing was changed. `key` is the object's key."""

    def __init__(self, key: str, message: str) -> None:
        super().__init__(f"{key}: {message}")
        self.key = key
        self.message = message


class Conflict(StoreError):
    """The object is there, with another revision than the write expected."""

    def __init__(self, key: str, expected: int, current: "Entry") -> None:
        super().__init__(key, f"revision {expected} was expected, {current.revision} is stored")
        self.expected = expected
        self.current = current


class NotFound(StoreError):
    """There is no object at the key."""

    def __init__(self, key: str) -> None:
        super().__init__(key, "not found")


class AlreadyExists(StoreError):
    """There is an object at the key, and the write expected none."""

    def __init__(self, key: str, current: "Entry") -> None:
        super().__init__(key, f"exists already, with revision {current.revision}")
        self.current = current


class TooLarge(StoreError):
    """The object as stored has more bytes than `store_value_bytes`."""

    def __init__(self, key: str, size: int, limit: int) -> None:
        super().__init__(key, f"the object has {size} bytes, the limit is {limit}")
        self.size = size
        self.limit = limit


class NotEncodable(StoreError):
    """The object cannot be written as JSON: it is nested too deeply or holds something that is no JSON."""

    def __init__(self, key: str, cause: str) -> None:
        super().__init__(key, f"the object cannot be stored as JSON: {cause}")
        self.cause = cause


class StorageFull(StoreError):
    """The object would not fit into what may live in the journal (specification, "Persistence journal")."""


class JournalFailed(StoreError):
    """A write of the journal failed: nothing that was not durable is kept, and the store takes no more writes."""


class WatchExpired(Exception):
    """410: a watch cannot resume from `asked`; `oldest` is the earliest revision from which it could."""

    def __init__(self, asked: int, oldest: int) -> None:
        super().__init__(text("answers", "expired", asked=asked, oldest=oldest))
        self.asked = asked
        self.oldest = oldest


class TooManyStreams(Exception):
    """429: as many watch and log streams are open as `watch_streams` allows."""

    def __init__(self, limit: int) -> None:
        super().__init__(text("answers", "watch_cap", limit=limit))
        self.limit = limit


class SlowWatcher(Exception):
    """The end of a stream whose reader left more than `watch_stream_buffer_events` unread.

    All events up to `revision` were read: a watch from there on misses nothing, as long as it is not expired.
    """

    def __init__(self, limit: int, revision: int) -> None:
        super().__init__(text("answers", "watch_slow", limit=limit))
        self.limit = limit
        self.revision = revision
