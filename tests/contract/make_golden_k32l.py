"""Makes golden/*.k32l.gz: one journal for each feature of K32L, with what is in it.

`python -m tests.contract.make_golden_k32l NAME...` writes the named ones. What a release has written stays as
it is: add others for what is new, so that each release reads those of all before it.
"""

import gzip
import sys
from collections.abc import Callable

import yaml

from kube32.formats.k32l import Geometry
from kube32.store.flash_log import FlashLog, Write
from kube32.store.flash_memory import MemoryFlash, PowerCut
from tests.contract.pods import GOLDEN

INDEX = GOLDEN / "k32l.yaml"
LIVE_BYTES, RECORD_BYTES, BLOCK = 12_000, 9_000, 10_000
GEOMETRY = Geometry(24)


def open_log(flash: MemoryFlash) -> FlashLog:
    """A boot with the sizes of all golden images."""
    return FlashLog.open(flash, live_bytes=LIVE_BYTES, record_bytes=RECORD_BYTES, revision_block=BLOCK)


def config(number: int, revision: int, size: int = 20) -> Write:
    """A ConfigMap as the store keeps it."""
    value = (
        f'{{"apiVersion":"v1","kind":"ConfigMap","metadata":{{"name":"c{number}","namespace":"default",'
        f'"resourceVersion":"{revision}"}},"data":{{"v":"{"x" * size}"}}}}'
    )
    return Write(f"/registry/configmaps/default/c{number}".encode(), value.encode(), revision)


def few_records(flash: MemoryFlash) -> None:
    """Put, Delete and RevisionMark in the first sectors."""
    log = open_log(flash)
    log.commit([config(1, 2), config(2, 3)])
    log.commit([config(1, 4, 60)], 30_000)
    log.commit([Write(config(2, 3).key, None, 5)])


def spanning_records(flash: MemoryFlash) -> None:
    """Values that go on over several sectors."""
    log = open_log(flash)
    log.commit([config(1, 2, 8_000), config(2, 3), config(3, 4, 3_000)])


def several_rounds(flash: MemoryFlash) -> None:
    """A ring that has been reclaimed more than once, with two boots in between."""
    log = open_log(flash)
    for number in range(300):
        if number in (120, 200):
            log = open_log(flash)
        log.commit([config(number % 7, 10 + number, 700)])


def torn_commit(flash: MemoryFlash) -> None:
    """The power failed inside a commit; nobody has booted since."""
    log = open_log(flash)
    log.commit([config(1, 2), config(2, 3)])
    flash.cut_after(2)
    try:
        log.commit([config(3, 4, 600)])
    except PowerCut:
        flash.reboot()


def two_torn_boots(flash: MemoryFlash) -> None:
    """As before, and the next two boots did not end either."""
    torn_commit(flash)
    for operations in (1, 2):
        flash.cut_after(operations)
        try:
            open_log(flash)
        except PowerCut:
            flash.reboot()


MAKERS: dict[str, Callable[[MemoryFlash], None]] = {
    "few-records": few_records,
    "spanning-records": spanning_records,
    "several-rounds": several_rounds,
    "torn-commit": torn_commit,
    "two-torn-boots": two_torn_boots,
}


def main(names: list[str]) -> None:
    """Writes images and what they hold."""
    index = yaml.safe_load(INDEX.read_text(encoding="utf-8")) if INDEX.exists() else {}
    for name in names:
        flash = MemoryFlash(GEOMETRY, seed=32)
        MAKERS[name](flash)
        image = bytes(flash.image)
        (GOLDEN / f"{name}.k32l.gz").write_bytes(gzip.compress(image, mtime=0))
        log = open_log(flash)
        index[name] = {
            "nextRevision": log.next_revision,
            "torn": bool(log.report.torn),
            "objects": {w.key.decode(): w.revision for w in log.take_recovered()},
        }
    INDEX.write_text(yaml.safe_dump(index), encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1:])
