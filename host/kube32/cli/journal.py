"""Journals offline: what an image holds, whether it is whole, how it wears, and what can be saved of it."""

import base64
import json
import stat
from collections import Counter
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import Any

import orjson

from kube32.cli.errors import CliError
from kube32.contract import K32L, LIMITS, PROFILES, limits_for
from kube32.formats.k32l import (
    Fault,
    Geometry,
    Record,
    RecordType,
    Resolution,
    Scan,
    read_mark,
    resolve,
    scan,
    stored_bytes,
)
from kube32.store.flash import FileFlash, FlashError
from kube32.store.flash_log import FlashLog, LogFull, Write
from kube32.store.journal import projected_life

_MOST_BYTES = 0xFFFF * K32L.sector_bytes
_FEWEST_SECTORS = 16
_KEY_BYTES = 1024
_SECRETS = "/registry/secrets/"
_BIGGEST = 3
_TYPE_NAMES = {number: name for name, number in K32L.types.items()}
# Less than this between the oldest and the newest stamp says nothing about years.
_SHORTEST_S = 600.0
_STAMPS = ("creationTimestamp", "lastHeartbeatTime", "lastTransitionTime", "startTime", "renewTime")
Object = dict[str, Any]


class Image:
    """A journal read from a file. CliError names what is wrong with the file."""

    def __init__(self, path: Path) -> None:
        self.path = path
        data = _read(path)
        size = K32L.sector_bytes
        if len(data) % size or len(data) < _FEWEST_SECTORS * size:
            raise CliError(
                f"{path} has {len(data)} bytes: a journal has a whole number of sectors of {size} bytes, "
                f"at least {_FEWEST_SECTORS}",
                1,
            )
        self.scan: Scan = scan(data, Geometry(len(data) // size))
        self.says: Resolution = resolve(self.scan)
        if not self.scan.blank and not self.scan.records and self.scan.head < 0:
            raise CliError(
                f"{path} is no K32L journal: it holds no whole record, and is not erased either", 1
            )

    @property
    def faults(self) -> list[str]:
        """Damage in front of the last commit, a line each."""
        return [self._line(fault) for fault in self.says.faults]

    @property
    def torn(self) -> list[str]:
        """Places that a stop in the middle of a commit left."""
        return [self._line(fault) for fault in self.says.torn]

    def _line(self, fault: Fault) -> str:
        return f"{self.scan.place(fault.address)}: {fault.cause}"

    def objects(self) -> dict[str, bytes]:
        """The live objects by key, as they are stored."""
        return {_text(key): self.scan.value(record) for key, record in sorted(self.says.live.items())}


def _read(path: Path) -> bytes:
    try:
        status = path.stat()
        if not stat.S_ISREG(status.st_mode):
            raise CliError(f"{path} is not a file", 1)
        if status.st_size > _MOST_BYTES:
            raise CliError(f"{path} has {status.st_size} bytes, too many for a journal", 1)
        return path.read_bytes()
    except OSError as error:
        raise CliError(f"{path}: {error.strerror or error}", 1) from None


def dump(image: Image, *, live: bool, keys_only: bool, show_secrets: bool) -> Iterator[str]:
    """A JSON line for each record, oldest first; only those that count if `live`."""
    for record in image.scan.records:
        state = image.says.state(record)
        if live and state != "live":
            continue
        sequence, offset = divmod(record.address, image.scan.geometry.sector_bytes)
        line: Object = {
            "sector": sequence,
            "slot": sequence % image.scan.geometry.sectors,
            "offset": offset,
            "type": _TYPE_NAMES[record.type],
            "state": state,
            "revision": record.revision,
            "run": record.run,
            "begins": record.begins,
            "boot": record.boot,
        }
        if record.type == RecordType.MARK:
            line |= _mark(image.scan, record)
        else:
            line["key"] = _text(record.key)
            if record.type == RecordType.PUT and not keys_only:
                line["value"] = _value(line["key"], image.scan.value(record), show_secrets)
        yield json.dumps(line, ensure_ascii=False)


def _mark(scanned: Scan, record: Record) -> Object:
    """A RevisionMark in words."""
    mark = read_mark(scanned.value(record), scanned.geometry)
    if mark is None:
        return {"value": base64.b64encode(scanned.value(record)).decode()}
    revision, fence = mark
    found: Object = {"reservedRevision": revision}
    if fence is not None:
        sequence, offset = divmod(fence.void_start, scanned.geometry.sector_bytes)
        found["void"] = {"sector": sequence, "offset": offset, "end": fence.void_end}
    return found


def _value(key: str, value: bytes, show_secrets: bool) -> Any:
    if key.startswith(_SECRETS) and not show_secrets:
        return f"<{len(value)} bytes, shown with --show-secrets>"
    try:
        return orjson.loads(value)
    except orjson.JSONDecodeError:
        return {"base64": base64.b64encode(value).decode()}


def _text(key: bytes) -> str:
    return key.decode("utf-8", "backslashreplace")


def check(image: Image) -> list[str]:
    """What is wrong with an image, a line each, the first fault first."""
    broken = []
    for key, record in sorted(image.says.live.items()):
        try:
            good = isinstance(orjson.loads(image.scan.value(record)), dict)
        except orjson.JSONDecodeError:
            good = False
        if not good:
            broken.append(f"{image.scan.place(record.address)}: the record of {_text(key)} holds no object")
    return image.faults + broken


def stats(image: Image) -> Object:
    """Facts about an image: what lives, how full, how worn, how long it will last at this pace."""
    scanned, says = image.scan, image.says
    sectors = scanned.geometry.sectors
    sizes = {_text(key): record.stored_bytes for key, record in says.live.items()}
    by_size = {limits_for(p).journal_bytes: limits_for(p).journal_live_bytes for p in PROFILES}
    used = max(0, scanned.head - says.tail + 1)
    rounds, further = divmod(scanned.head + 1, sectors)
    return {
        "file": str(image.path),
        "liveKeys": len(sizes),
        "liveBytes": sum(sizes.values()),
        "capacityBytes": by_size.get(scanned.geometry.size),
        "sectors": sectors,
        "sectorsUsed": used,
        "sectorsFree": sectors - used,
        "head": scanned.head,
        "tail": says.tail,
        "nextRevision": says.next_revision,
        "erasesPerSector": {"least": rounds, "most": rounds + (1 if further else 0)},
        "records": dict(Counter(_TYPE_NAMES[r.type] for r in scanned.records)),
        "resources": dict(Counter(key.split("/")[2] for key in sizes if key.count("/") > 2).most_common()),
        "biggest": sorted(sizes.items(), key=lambda item: -item[1])[:_BIGGEST],
        "projectedLifeYears": _life(scanned),
        "faults": len(says.faults),
        "torn": len(says.torn),
    }


def _life(scanned: Scan) -> float | None:
    """Years at the pace between the oldest and the newest stamp in the ring; None where that says nothing."""
    first: tuple[float, int] | None = None
    last: tuple[float, int] | None = None
    for record in scanned.records:
        if record.type != RecordType.PUT:
            continue
        stamp = _newest_stamp(scanned.value(record))
        if stamp is None:
            continue
        here = (stamp, record.address // scanned.geometry.sector_bytes)
        first = here if first is None or here[0] < first[0] else first
        last = here if last is None or here[0] > last[0] else last
    if first is None or last is None or last[0] - first[0] < _SHORTEST_S or last[1] <= first[1]:
        return None
    return projected_life(scanned.geometry.sectors, last[1] - first[1], last[0] - first[0])


def _newest_stamp(value: bytes) -> float | None:
    """The latest time that an object names, in Unix seconds."""
    try:
        parsed = orjson.loads(value)
    except orjson.JSONDecodeError:
        return None
    found: list[float] = []
    stack: list[Any] = [parsed]
    while stack:
        item = stack.pop()
        if isinstance(item, dict):
            for name, inner in item.items():
                if name in _STAMPS and isinstance(inner, str):
                    try:
                        found.append(datetime.fromisoformat(inner).timestamp())
                    except (ValueError, OverflowError):
                        continue
                elif isinstance(inner, dict | list):
                    stack.append(inner)
        elif isinstance(item, list):
            stack.extend(item)
    return max(found, default=None)


def salvage(path: Path, new: Path) -> int:
    """Writes every object that can still be read from `path` into the journal `new`; how many."""
    if new.exists():
        raise CliError(f"{new} is there already; name a file that is not", 1)
    data = _read(path)
    size = K32L.sector_bytes
    sectors = max(_FEWEST_SECTORS, -(-len(data) // size))
    data = data.ljust(sectors * size, bytes([K32L.blank]))
    scanned = scan(data, Geometry(sectors))
    newest: dict[bytes, Record] = {}
    for record in scanned.records:
        if record.type != RecordType.MARK and record.revision >= newest.get(record.key, record).revision:
            newest[record.key] = record
    writes = [
        Write(key, scanned.value(record), record.revision)
        for key, record in newest.items()
        if record.type == RecordType.PUT
    ]
    if not writes:
        raise CliError(f"{path}: no record of an object can be read; nothing was written", 1)
    sizes = [newest[write.key].stored_bytes for write in writes]
    largest = max(stored_bytes(_KEY_BYTES, LIMITS.store_value_bytes), *sizes)
    block = LIMITS.journal_revision_block
    try:
        flash = FileFlash.open(new, Geometry(sectors))
        try:
            log = FlashLog.open(flash, live_bytes=sum(sizes), record_bytes=largest, revision_block=block)
            log.commit(writes, resolve(scanned).next_revision + block)
        finally:
            flash.close()
    except (FlashError, LogFull, ValueError) as error:
        new.unlink(missing_ok=True)
        raise CliError(f"{new}: {error}", 1) from None
    return len(writes)
