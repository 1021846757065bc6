"""Journals offline: what an image holds, whether it is whole, how it wears, and what can be saved of it."""

import base64
import os
import stat
from collections import Counter
from collections.abc import Iterator
from datetime import datetime
from itertools import pairwise
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from zlib import crc32

import orjson

from kube32.cli.errors import CliError
from kube32.contract import K32L, LIMITS, PROFILES, limits_for
from kube32.formats.k32l import (
    HEADER_BYTES,
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
_FEWEST_SECTORS = 4
_MOST_SEQUENCE = (1 << 32) - 1
_MOST_REVISION = (1 << 63) - 1
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
        yield orjson.dumps(line).decode()


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
        orjson.loads(value)
    except orjson.JSONDecodeError:
        return {"base64": base64.b64encode(value).decode()}
    # As it is stored: no number is rounded, no depth is too much. Line breaks can only stand between tokens.
    return orjson.Fragment(value.replace(b"\r", b" ").replace(b"\n", b" "))


def _text(key: bytes) -> str:
    return key.decode("utf-8", "backslashreplace")


def _shown(key: bytes) -> str:
    """A key for a terminal, which none of its characters can steer."""
    return "".join(c if c.isprintable() else f"\\x{ord(c):02x}" for c in _text(key))


def check(image: Image) -> list[str]:
    """What is wrong with an image, a line each, the first fault first."""
    broken = []
    for key, record in sorted(image.says.live.items()):
        if not _is_object(image.scan.value(record)):
            broken.append(f"{image.scan.place(record.address)}: the record of {_shown(key)} holds no object")
    return image.faults + broken


def _is_object(value: bytes) -> bool:
    try:
        return isinstance(orjson.loads(value), dict)
    except orjson.JSONDecodeError:
        return False


def stats(image: Image) -> Object:
    """Facts about an image: what lives, how full, how worn, how long it will last at this pace."""
    scanned, says = image.scan, image.says
    sectors = scanned.geometry.sectors
    sizes = {_shown(key): record.stored_bytes for key, record in says.live.items()}
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


# --- salvage ---


def salvage(path: Path, new: Path, profile: str = "") -> tuple[int, str]:
    """Writes every object that can still be read from `path` into the journal `new`; how many, and the profile
    whose journals have its size: `profile`, or the one of a file as large as `path`, or kube32-sim's.
    """
    if profile and profile not in PROFILES:
        raise CliError(f'--profile "{profile}": the profiles are {", ".join(PROFILES)}')
    if os.path.lexists(new):
        raise CliError(f"{new} is there already; name a file that is not", 1)
    data = _read(path)
    profile = profile or _profile_of(len(data))
    size, page = K32L.sector_bytes, K32L.page_bytes
    geometry = Geometry(limits_for(profile).journal_bytes // size)
    runs = _runs(data.ljust(-(-len(data) // size) * size, bytes([K32L.blank])))
    newest = _newest(runs)
    writes = [
        Write(record.key, found.value(record), record.revision)
        for found, record in newest
        if record.type == RecordType.PUT
    ]
    if not writes:
        raise CliError(f"{path}: no record of an object can be read; nothing was written", 1)
    # As a boot counts: each page that is damaged or missing may have had a mark.
    lost = sum(-(-(fault.end - fault.address) // page) for found in runs for fault in found.faults)
    lost += max(0, geometry.size - len(data)) // page + _missing(runs) * size // page
    block = LIMITS.journal_revision_block
    reserve = max(resolve(found).next_revision for found in runs) + (1 + lost) * block
    if reserve > _MOST_REVISION - block:
        raise CliError(f"{path} says that revision {reserve} was given out, which cannot be", 1)
    _write_new(new, geometry, writes, reserve)
    return len(writes), profile


def _profile_of(size: int) -> str:
    return next((p for p in PROFILES if limits_for(p).journal_bytes == size), LIMITS.profile)


def _newest(runs: list[Scan]) -> list[tuple[Scan, Record]]:
    """The newest record of each key that a boot would take, with the scan that has it."""
    newest: dict[bytes, tuple[Scan, Record]] = {}
    for found in runs:
        for record in found.records:
            if record.type == RecordType.MARK or not _is_sound(found, record):
                continue
            _, known = newest.get(record.key, (found, record))
            if (record.revision, record.address) >= (known.revision, known.address):
                newest[record.key] = found, record
    return list(newest.values())


def _is_sound(found: Scan, record: Record) -> bool:
    """Whether a record is one that a store can have written."""
    try:
        record.key.decode()
    except UnicodeDecodeError:
        return False
    if len(record.key) > _KEY_BYTES or record.value_bytes > LIMITS.store_value_bytes:
        return False
    return record.type == RecordType.DELETE or _is_object(found.value(record))


def _runs(data: bytes) -> list[Scan]:
    """Scans of all sectors, those with numbers in a row together, wherever in the file they stand: a file that
    was cut or moved has them in other slots than their numbers say.
    """
    size = K32L.sector_bytes
    runs: list[list[tuple[int, int]]] = []
    doubles = []
    for sequence, guessed, slot in _numbered(data):
        last = runs[-1][-1][0] if runs else -1
        if runs and sequence == last + 1:
            runs[-1].append((sequence, slot))
        elif not runs or sequence != last:
            runs.append([(sequence, slot)])
        elif not guessed:
            doubles.append([(sequence, slot)])
    if not runs:
        return [scan(data, Geometry(len(data) // size))] if data else []
    scans = []
    for run in (*runs, *doubles):
        sectors = [b""] * len(run)
        for sequence, slot in run:
            sectors[sequence % len(run)] = data[slot * size : (slot + 1) * size]
        scans.append(scan(b"".join(sectors), Geometry(len(run))))
    return scans


def _numbered(data: bytes) -> list[tuple[int, bool, int]]:
    """Numbers of sectors, whether they are guessed, and their slots: a sector without a good header has the
    number that follows from the one before it, or from the one behind it. A CRC says whether that is so.
    """
    size = K32L.sector_bytes
    slots = range(len(data) // size)
    stated = [_sequence(data, slot * size) for slot in slots]
    found = {(sequence, False, slot) for slot, sequence in enumerate(stated) if sequence is not None}
    for step in (1, -1):
        near: int | None = None
        # Twice around: the ring's last sector is in front of its first.
        for slot in (*slots[::step], *slots[::step]):
            known = stated[slot]
            near = known if known is not None else near + step if near is not None else None
            if near is None or known is not None or not 0 <= near <= _MOST_SEQUENCE:
                continue
            if data.count(K32L.blank, slot * size, (slot + 1) * size) != size:
                found.add((near, True, slot))
    return sorted(found)


def _sequence(data: bytes, at: int) -> int | None:
    """What a sector's header says, if it is whole."""
    magic, version, _, sequence, crc = K32L.sector_header.unpack_from(data, at)
    unsigned = data[at : at + HEADER_BYTES - 4]
    return int(sequence) if (magic, version, crc) == (K32L.magic, K32L.version, crc32(unsigned)) else None


def _missing(runs: list[Scan]) -> int:
    """How many sectors are missing between runs; no more than there are."""
    heads = sorted((found.head, found.geometry.sectors) for found in runs)
    gaps = (max(0, head - sectors - last) for (last, _), (head, sectors) in pairwise(heads))
    return min(sum(gaps), sum(sectors for _, sectors in heads))


def _write_new(new: Path, geometry: Geometry, writes: list[Write], reserve: int) -> None:
    """Makes a journal in a folder of its own and gives it the name `new` once it is whole."""
    sizes = sum(stored_bytes(len(write.key), len(write.value or b"")) for write in writes)
    largest = stored_bytes(_KEY_BYTES, LIMITS.store_value_bytes)
    block = LIMITS.journal_revision_block
    draft = new
    try:
        with TemporaryDirectory(prefix=".journal-", dir=new.parent) as folder:
            draft = Path(folder) / "new"
            flash = FileFlash.open(draft, geometry)
            try:
                log = FlashLog.open(flash, live_bytes=sizes, record_bytes=largest, revision_block=block)
                log.commit(writes, reserve)
            finally:
                flash.close()
            _give_name(draft, new)
    except FileExistsError:
        raise CliError(f"{new} is there already; name a file that is not", 1) from None
    except OSError as error:
        raise CliError(f"{new}: {error.strerror or error}", 1) from None
    except (FlashError, LogFull, ValueError) as error:
        raise CliError(f"{new}: {str(error).removeprefix(f'{draft}: ')}", 1) from None


def _give_name(draft: Path, new: Path) -> None:
    """Names a finished file durably. FileExistsError where another has the name, OSError."""
    try:
        new.hardlink_to(draft)
    except OSError:
        # Some file systems of SD cards have no links.
        if os.path.lexists(new):
            raise FileExistsError from None
        draft.rename(new)
    folder = os.open(new.parent, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)
