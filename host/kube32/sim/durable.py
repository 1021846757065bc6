"""The store of a control plane: in memory, or with --enable-flash on a journal in the data directory."""

import asyncio
import sys

from kube32.contract import Limits
from kube32.formats.k32l import Geometry
from kube32.sim.options import SimOptions, StartError
from kube32.store.flash import FileFlash, FlashError
from kube32.store.flash_log import LogUnreadable
from kube32.store.journal import Journal, open_log
from kube32.store.store import Store

JOURNAL = "kube32/store/journal.img"


async def open_store(options: SimOptions, limits: Limits) -> Store:
    """The store with what its journal has. StartError when that cannot be read; then nothing is written."""
    if not options.enable_flash:
        return Store(limits)
    return await asyncio.to_thread(_open, options, limits)


def _open(options: SimOptions, limits: Limits) -> Store:
    path = options.data_dir / JOURNAL
    sectors = limits.journal_bytes // Geometry(1).sector_bytes
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        flash = FileFlash.open(path, Geometry(sectors))
    except FlashError as error:
        raise StartError(str(error)) from None
    except OSError as error:
        raise StartError(f"{path.parent}: {error.strerror or error}") from None
    try:
        log = open_log(flash, limits)
    except LogUnreadable as error:
        flash.close()
        raise StartError(
            f"{path} cannot be read: {error}; nothing was written to it (kube32-cli journal check says more)"
        ) from None
    except FlashError as error:
        flash.close()
        raise StartError(str(error)) from None
    journal = Journal(log, limits)
    store = Store(limits, journal=journal)
    journal.start()
    _say(path.name, journal)
    return store


def store_facts(store: Store) -> dict[str, int | float | str]:
    """What K32_CMD:STORE answers."""
    if store.journal is not None:
        return {"journal": JOURNAL, **store.journal.stats()}
    return {"journal": "none, objects live in memory", **store.stats()}


def _say(name: str, journal: Journal) -> None:
    """One line for what is lost, and one for what a stop interrupted and nobody was told of."""
    for places, meaning in (
        (journal.faults, "is damaged, what stood there is lost"),
        (journal.torn, "the stop interrupted a write, which had not been acknowledged"),
    ):
        if places:
            more = f"; {len(places) - 1} more places" if len(places) > 1 else ""
            print(f"kube32-sim: {name}: {meaning}: {places[0]}{more}", file=sys.stderr, flush=True)
