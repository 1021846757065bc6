"""A journal over a flash in memory, with a clock that tests turn."""

from dataclasses import dataclass

import pytest

from kube32.contract import LIMITS, Limits
from kube32.formats.k32l import Geometry
from kube32.store import Journal, Store
from kube32.store.flash_memory import MemoryFlash
from kube32.store.journal import open_log

SECTORS = 256
SMALL = LIMITS.replace(journal_live_bytes=200_000, journal_update_reserve_bytes=20_000)


@dataclass
class World:
    """A flash, and the store that stands on it since the last boot."""

    flash: MemoryFlash
    limits: Limits
    now: float
    journal: Journal
    store: Store

    @classmethod
    def make(cls, limits: Limits = SMALL) -> "World":
        flash = MemoryFlash(Geometry(SECTORS))
        journal = Journal(open_log(flash, limits), limits, lambda: 0.0)
        world = cls(flash, limits, 0.0, journal, Store(limits, journal=journal))
        world.boot()
        return world

    def boot(self) -> Store:
        """Another control plane on the same flash; what only memory had is gone."""
        self.journal = Journal(open_log(self.flash, self.limits), self.limits, lambda: self.now)
        self.store = Store(self.limits, journal=self.journal)
        return self.store

    def stored(self) -> dict[str, int]:
        """Key and revision of all that a boot would find; nothing is changed."""
        from kube32.formats.k32l import resolve, scan

        live = resolve(scan(bytes(self.flash.image), self.flash.geometry)).live
        return {key.decode(): record.revision for key, record in live.items()}


@pytest.fixture
def world() -> World:
    return World.make()
