"""Journals that releases have written stay readable, with the same objects and revisions."""

import gzip

import orjson
import pytest
import yaml

from kube32.formats.k32l import resolve, scan
from kube32.store.flash_memory import MemoryFlash
from tests.contract.make_golden_k32l import GEOMETRY, INDEX, open_log
from tests.contract.pods import GOLDEN

EXPECTED = yaml.safe_load(INDEX.read_text(encoding="utf-8"))


def image_of(name: str) -> bytes:
    return gzip.decompress((GOLDEN / f"{name}.k32l.gz").read_bytes())


def test_each_image_has_its_entry() -> None:
    assert sorted(EXPECTED) == sorted(p.name.removesuffix(".k32l.gz") for p in GOLDEN.glob("*.k32l.gz"))


@pytest.mark.parametrize("name", sorted(EXPECTED))
def test_an_image_says_what_it_said_when_it_was_written(name: str) -> None:
    says = resolve(scan(image_of(name), GEOMETRY))
    assert {key.decode(): record.revision for key, record in says.live.items()} == EXPECTED[name]["objects"]
    assert says.next_revision == EXPECTED[name]["nextRevision"]
    assert not says.faults
    assert bool(says.torn) == EXPECTED[name]["torn"]


@pytest.mark.parametrize("name", sorted(EXPECTED))
def test_a_boot_goes_on_from_an_image(name: str) -> None:
    flash = MemoryFlash(GEOMETRY)
    flash.image[:] = image_of(name)
    log = open_log(flash)
    objects = log.take_recovered()
    assert {w.key.decode(): w.revision for w in objects} == EXPECTED[name]["objects"]
    for write in objects:
        assert write.value is not None
        assert orjson.loads(write.value)["metadata"]["resourceVersion"] == str(write.revision)
    again = open_log(flash)
    assert {w.key: w for w in again.take_recovered()} == {w.key: w for w in objects}
    assert again.next_revision > log.next_revision
